"""What the gateway costs: its CPU by kind of work, its memory, and how long it takes to be ready.

    python bench/gateway.py [--megabytes 256] [--calls 2000] [--streams 1000]

A broker and a gateway are processes of their own; the clients are in this one. CPU is the gateway's, user and system,
from /proc. One run, without repetition: compare ratios, not single figures.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import grpc

from trioka.gateway.v1 import log_pb2, types_pb2
from trioka.gateway.v1.log_pb2_grpc import LogServiceStub
from trioka.testing.broker import Broker

RECORD_BYTES: Final = 1024
BATCH_RECORDS: Final = 16  # of a stored batch, as producers send them under load
TICKS: Final = os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
MB: Final = 1_000_000
GB: Final = 1_000_000_000
STREAMS_PER_CHANNEL: Final = 90
READY: Final = re.compile(r"^  gRPC +(\S+)")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / MB


@contextmanager
def gateway(bootstrap: str) -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """The process, the address of its gRPC listener, and the seconds from its start until it served."""
    began = time.perf_counter()
    words = ["--grpc", "127.0.0.1:0", "--http", "off", "--metrics", "127.0.0.1:0", "-b", bootstrap]
    process = subprocess.Popen([sys.executable, "-m", "trioka", "gateway", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = next(found[1] for line in process.stdout if (found := READY.match(line)))
        yield process, address, time.perf_counter() - began
    finally:
        process.terminate()
        process.communicate(timeout=60)


def report(name: str, figure: str, goal: str = "") -> None:
    print(f"{name:<58}{figure:>16}   {goal}", flush=True)


def fill(kafka: Broker, topic: str, megabytes: int) -> None:
    kafka.create_topic(topic, 1)
    value = os.urandom(RECORD_BYTES // 2).hex().encode()
    for _ in range(megabytes * MB // (RECORD_BYTES * BATCH_RECORDS)):
        kafka.produce(topic, *[value] * BATCH_RECORDS)


def consume(log: LogServiceStub, pid: int, topic: str, encoding: types_pb2.Encoding, name: str, goal: str) -> None:
    before, began, size = cpu_s(pid), time.perf_counter(), 0
    for message in log.Consume(log_pb2.ConsumeRequest(topic=topic, encoding=encoding)):
        size += message.ByteSize()
    took = time.perf_counter() - began
    report(f"consume, {name}: CPU-s per GB", f"{(cpu_s(pid) - before) / size * GB:.2f}", goal)
    report(f"consume, {name}: MB per s", f"{size / MB / took:.0f}")


def unary(name: str, pid: int, calls: int, call: Callable[[], object], goal: str) -> None:
    for _ in range(100):
        call()
    before = cpu_s(pid)
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    report(f"{name}: CPU µs per call", f"{(cpu_s(pid) - before) / calls * 1e6:.0f}", goal)
    report(
        f"{name}: ms, median and 99%", f"{median(times) * 1e3:.2f} {sorted(times)[len(times) * 99 // 100] * 1e3:.2f}"
    )


def produce_stream(log: LogServiceStub, pid: int, topic: str, megabytes: int, *, name: str | None) -> None:
    value, count = os.urandom(RECORD_BYTES // 2).hex().encode(), megabytes * MB // (100 * RECORD_BYTES)
    record = types_pb2.Record(value=value)

    def requests() -> Iterator[log_pb2.ProduceStreamRequest]:
        for number in range(count):
            request = log_pb2.ProduceRequest(topic=topic, partition=0, records=[record] * 100)
            if name is not None:
                request.producer.name, request.producer.sequence = name, number
            yield log_pb2.ProduceStreamRequest(id=number, request=request)

    before, began = cpu_s(pid), time.perf_counter()
    assert all(each.HasField("written") for each in log.ProduceStream(requests()))
    size, took = count * 100 * RECORD_BYTES, time.perf_counter() - began
    what = "produce stream" if name is None else "produce stream, exactly once"
    report(f"{what}, 100 records of 1 KiB: CPU-s per GB", f"{(cpu_s(pid) - before) / size * GB:.2f}")
    report(f"{what}: MB per s", f"{size / MB / took:.0f}")


def idle_streams(address: str, pid: int, topic: str, count: int) -> None:
    before = resident_mb(pid)
    option = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(address, options=option) for _ in range(-(-count // STREAMS_PER_CHANNEL))]
    follow = log_pb2.ConsumeRequest(topic=topic, start=log_pb2.Start(latest=True), follow=True)
    streams = [LogServiceStub(channels[number // STREAMS_PER_CHANNEL]).Consume(follow) for number in range(count)]
    time.sleep(5)  # until all wait at the end
    report(f"{count} idle streams: MB", f"{resident_mb(pid) - before:.0f}")
    busy = cpu_s(pid)
    time.sleep(5)
    report(f"{count} idle streams: CPU, % of a core", f"{(cpu_s(pid) - busy) / 5 * 100:.1f}")
    stub = LogServiceStub(channels[0])
    times = []
    for _ in range(50):
        began = time.perf_counter()
        stub.Read(log_pb2.ReadRequest(topic=topic, partition=0, offset=0))
        times.append(time.perf_counter() - began)
    report(f"{count} idle streams: ms of a Read, slowest of 50", f"{max(times) * 1e3:.1f}", "< 50")
    for stream in streams:
        stream.cancel()
    for channel in channels:
        channel.close()


def stopped_reader(log: LogServiceStub, pid: int, topic: str) -> None:
    before = resident_mb(pid)
    stream = log.Consume(log_pb2.ConsumeRequest(topic=topic))
    next(stream)
    time.sleep(3)
    report("a reader that stops: MB", f"{resident_mb(pid) - before:.1f}", "≤ 32")
    stream.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description="What the gateway costs.")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=1000)
    flags = parser.parse_args()
    with Broker(process=True) as kafka:
        kafka.create_topic("written", 1)
        kafka.create_topic("idle", 1)
        kafka.produce("idle", b"x")
        fill(kafka, "read", flags.megabytes)
        with gateway(kafka.bootstrap_servers) as (process, address, ready_s):
            pid = process.pid
            with grpc.insecure_channel(address) as channel:
                log = LogServiceStub(channel)
                report("ready: s", f"{ready_s:.2f}", "≤ 1")
                report("memory when ready: MB", f"{resident_mb(pid):.0f}", "≤ 90")
                stopped_reader(log, pid, "read")
                one = log_pb2.ProduceRequest(topic="written", partition=0, records=[types_pb2.Record(value=b"x" * 100)])
                unary("unary produce", pid, flags.calls, lambda: log.Produce(one), "≤ 700")
                place = log_pb2.ReadRequest(topic="written", partition=0, offset=5)
                unary("Read", pid, flags.calls, lambda: log.Read(place), "≤ 400")
                consume(log, pid, "read", types_pb2.ENCODING_BATCHES, "batches", "≤ 1.5")
                consume(log, pid, "read", types_pb2.ENCODING_RECORDS, "records", "≤ 8")
                produce_stream(log, pid, "written", flags.megabytes // 4, name=None)
                produce_stream(log, pid, "written", flags.megabytes // 4, name="bench")
                idle_streams(address, pid, "idle", flags.streams)
                report("memory at the end: MB", f"{resident_mb(pid):.0f}")


if __name__ == "__main__":
    main()
