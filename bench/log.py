"""Measures the cost of logs: appends and reads against the bare system calls, memory, and opening many.

    python bench/log.py [--rounds 5] [--partitions 10000] [--directory DIR]

Everything is measured in one run, each variant in turn, the best round counts; CPU is this process's, user and system.

* append: 16 KB batches of 1 KB records. `raw` is `os.pwritev` to a growing file, after the batch's CRC was computed:
the CRC is on both sides, because every broker must check it. Log appends check the batch, set its offset, write it, and
update the indexes; idempotent ones also check the producer state. Files start empty in both cases. * read: the cost of
planning a read, from a closed segment and from the active one; no record bytes are copied. `raw` beside it is
`os.sendfile` of the same range into a socket pair. * memory: bytes per opened, unused partition, by tracemalloc. *
open: a directory of cleanly stopped partitions, each with a few records; and how many descriptors are left.

Uses at most 1 GB of disk, and cleans up.
"""

import argparse
import gc
import os
import socket
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from random import Random

from crc32c import crc32c

from trioka.protocol.batch import build
from trioka.protocol.record import Record
from trioka.storage.directory import LogDirectory
from trioka.storage.files.disk import OsDisk
from trioka.storage.files.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig

SIZE = 16 * 1024
CHUNK = 1_000  # appends per measurement: 16 MB
CHUNKS = 12
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=128 * 1024 * 1024)
MAX_BYTES = 1024 * 1024


def a_batch(size: int = SIZE, *, producer: int = -1) -> bytearray:
    """Records of about 1 KB that fill `size` bytes."""
    random = Random(size)
    count = max(size // 1040, 1)
    each = size // count - 20
    records = [Record(index, NOW_MS, b"key-%04d" % index, random.randbytes(each)) for index in range(count)]
    known = producer >= 0
    return build(records, producer_id=producer, producer_epoch=0 if known else -1, base_sequence=0 if known else -1)


def cpu_us(loop: Callable[[], None], count: int) -> float:
    gc.collect()
    before = time.process_time()
    loop()
    return (time.process_time() - before) / count * 1e6


def best_of(rounds: int, ways: dict[str, Callable[[], float]]) -> dict[str, float]:
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            best[name] = min(best[name], way())
    return best


class Bench:
    def __init__(self, directory: str) -> None:
        self.root = directory
        self.number = 0

    def log(self, config: LogConfig = CONFIG) -> tuple[LogDirectory, Log]:
        self.number += 1
        path = f"{self.root}/{self.number}"
        directory = LogDirectory.open(OsDisk(), path, lambda name: config, now_ms=NOW_MS)
        return directory, directory.create(TopicPartition("orders", 0), config, now_ms=NOW_MS)

    def remove(self, directory: LogDirectory) -> None:
        path = directory.path
        directory.close(broker_epoch=1)
        OsDisk().remove_tree(path)

    # Appends ---------------------------------------------------------------------------------------------------------

    def raw_append(self) -> float:
        data = memoryview(a_batch())
        path = f"{self.root}/raw"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

        position = 0

        def loop() -> None:
            nonlocal position
            for _ in range(CHUNK):
                crc32c(data[21:])
                position += os.pwritev(descriptor, (data,), position)

        try:
            return min(cpu_us(loop, CHUNK) for _ in range(CHUNKS))
        finally:
            os.close(descriptor)
            os.unlink(path)

    def log_append(self, producer: int = -1) -> float:
        directory, log = self.log()
        data = memoryview(a_batch(producer=producer))
        count = int.from_bytes(data[57:61])

        sent = 0

        def next_batch() -> None:
            """The next batch as the client sends it. Its sequence advances, and so its CRC changes: that cost is
            subtracted below.
            """
            nonlocal sent
            data[0:8] = bytes(8)
            if producer >= 0:
                data[53:57] = (sent * count % 2**31).to_bytes(4)
                data[17:21] = crc32c(data[21:]).to_bytes(4)
            sent += 1

        def loop() -> None:
            for _ in range(CHUNK):
                next_batch()
                log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)

        def client() -> None:
            for _ in range(CHUNK):
                next_batch()

        try:
            cost = min(cpu_us(loop, CHUNK) for _ in range(CHUNKS))
            return cost - min(cpu_us(client, CHUNK) for _ in range(CHUNKS))
        finally:
            self.remove(directory)

    # Reads -----------------------------------------------------------------------------------------------------------

    def read_ways(self, log: Log) -> dict[str, Callable[[], float]]:
        random = Random(1)
        active = log.segments[-1].base_offset
        closed_offsets = [random.randrange(active) for _ in range(200)]
        active_offsets = [random.randrange(active, log.log_end_offset - 2000) for _ in range(200)]
        for offset in range(0, log.log_end_offset, 500):
            log.read(offset, 2 * MAX_BYTES)  # verifies the CRCs, so that the measured reads do not

        def reading(offsets: list[int], max_bytes: int = MAX_BYTES) -> Callable[[], float]:
            def loop() -> None:
                for offset in offsets:
                    log.read(offset, max_bytes)

            return lambda: cpu_us(loop, len(offsets))

        return {
            "a closed segment, 1 MB": reading(closed_offsets),
            "a closed segment, 64 KB": reading(closed_offsets, 64 * 1024),
            "the active segment, 1 MB": reading(active_offsets),
            "the end of the log": reading([log.log_end_offset - 1] * 200),
        }

    def sendfile(self, log: Log) -> float:
        """`os.sendfile` of 1 MB into a socket that another thread drains; the thread's CPU is included."""
        answer = log.read(0, MAX_BYTES).records
        assert answer is not None
        ours, theirs = socket.socketpair()

        def drain() -> None:
            while theirs.recv(1 << 20):
                pass

        thread = threading.Thread(target=drain)
        thread.start()

        def loop() -> None:
            for _ in range(200):
                sent = 0
                while sent < len(answer):
                    sent += os.sendfile(ours.fileno(), answer.file.fileno(), answer.position + sent, len(answer) - sent)

        try:
            return cpu_us(loop, 200)
        finally:
            ours.close()
            thread.join()
            theirs.close()


def measure_reads(bench: Bench, rounds: int) -> None:
    directory, log = bench.log(LogConfig(segment_bytes=64 * 1024 * 1024))
    data = memoryview(a_batch())
    for _ in range(10_000):
        data[0:8] = bytes(8)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    for name, cost in best_of(20 * rounds, bench.read_ways(log)).items():
        print(f"plan a read of {name:26} {cost:7.2f} µs CPU")
    print(f"os.sendfile of 1 MB to a thread          {bench.sendfile(log):7.1f} µs CPU (what a plan is followed by)")
    bench.remove(directory)


def measure_many(bench: Bench, partitions: int) -> None:
    path = f"{bench.root}/many"
    config = LogConfig()
    disk = OsDisk()
    directory = LogDirectory.open(disk, path, lambda name: config, now_ms=NOW_MS)
    disk_sync, OsDisk.sync_directory = OsDisk.sync_directory, lambda self, path: None  # type: ignore[method-assign]
    data = memoryview(a_batch(1000, producer=7))
    for number in range(partitions):
        log = directory.create(TopicPartition("orders", number), config, now_ms=NOW_MS)
        data[0:8] = bytes(8)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    directory.close(broker_epoch=1)
    OsDisk.sync_directory = disk_sync  # type: ignore[method-assign]

    wall, cpu = time.perf_counter(), time.process_time()
    directory = LogDirectory.open(disk, path, lambda name: config, now_ms=NOW_MS)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert directory.report.clean
    assert len(directory.logs) == partitions
    descriptors = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else -1
    print(
        f"open {partitions} cleanly stopped partitions   {wall:6.2f} s, {cpu:.2f} s CPU, {descriptors} descriptors open"
    )
    directory.close(broker_epoch=1)

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    directory = LogDirectory.open(disk, path, lambda name: config, now_ms=NOW_MS)
    gc.collect()
    each = (tracemalloc.get_traced_memory()[0] - before) / partitions
    tracemalloc.stop()
    print(f"memory of an idle partition              {each:7.0f} bytes")
    bench.remove(directory)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--partitions", type=int, default=10_000)
    arguments.add_argument("--directory", help="where to write; a new temporary directory by default")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        bench = Bench(directory)
        ways = {
            "raw: crc32c and os.pwritev": bench.raw_append,
            "Log.append_as_leader": bench.log_append,
            "the same, idempotent": lambda: bench.log_append(producer=7),
        }
        best = best_of(options.rounds, ways)
        raw = best["raw: crc32c and os.pwritev"]
        for name, cost in best.items():
            print(
                f"append 16 KB, {name:26} {cost:7.2f} µs CPU  {cost / raw:5.2f}×  {SIZE / cost:6.0f} MB per CPU second"
            )
        measure_reads(bench, options.rounds)
        measure_many(bench, options.partitions)


if __name__ == "__main__":
    main()
