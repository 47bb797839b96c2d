"""Measures the cost of one Produce and one Fetch inside the broker, step by step, without a socket.

    python bench/request.py [--rounds 20] [--directory DIR] [--profile produce|fetch]

A whole broker is started, and one of its connections gets bytes as from the network: fifty requests at once, or one. So
`whole` is the cost of a request from the received bytes to the buffers to send, and the steps below it are the same
work, called one by one with the same arguments. Their sum is less than the whole: the difference is the code between
the steps.

Everything is this process's CPU time, in µs, and the best round counts, because other load only increases it.
"""

import argparse
import cProfile
import gc
import pstats
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import trio

from trioka.broker.broker import Broker
from trioka.broker.clock import SystemClock
from trioka.broker.config.layers import Config
from trioka.broker.config.listeners import node_of
from trioka.broker.handlers.produce import _new_template
from trioka.broker.network.connection import FAST_PATH_TRIES, Call, Connection
from trioka.protocol.batch import build
from trioka.protocol.codec import decoder, encode
from trioka.protocol.decoding import MAX_ELEMENTS
from trioka.protocol.frame import FrameReader, ReceiveBuffer, ResponseTemplate, frame_response
from trioka.protocol.header import RequestHeader, client_id_and_body
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.record import Record
from trioka.protocol.schema import Request, Response
from trioka.storage.append_validation import BatchValidator
from trioka.storage.batch_append import try_append_batches as append_batches
from trioka.storage.disk import OsDisk
from trioka.storage.page_cache_probe import uncached_range

AT_ONCE = 50
MANY = 1000  # partitions
REPEAT = 20  # bursts per round
KIB = 1024
FETCHED_BYTES = 64 * KIB
MANY_FETCHED_BYTES = 8 * KIB
MANY_BATCHES = 70  # of one record each; seven fit
OVERHEAD_BYTES = 72  # an upper bound of such a batch's overhead
FILL_BATCHES = 1000
PRODUCE_VERSION = 9
FETCH_VERSION = 12
FAST_FOLDER = "/dev/shm"
NOW_MS = 1_700_000_000_000


def settings(directory: str, more: dict[str, str] | None = None) -> Config:
    return Config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "log.dirs": directory,
        }
        | (more or {})
    )


def framed(request: Request, version: int) -> bytes:
    flexible = version in request.__flexible__
    assert request.__key__ is not None
    header = RequestHeader(
        request_api_key=request.__key__, request_api_version=version, correlation_id=1, client_id="bench"
    )
    message = encode(header, 2 if flexible else 1) + encode(request, version)
    return struct.pack(">i", len(message)) + message


def a_batch(records: int, size: int, producer: int = -1) -> bytes:
    random = Random(size)
    known = producer >= 0
    content = [Record(index, NOW_MS, None, random.randbytes(size)) for index in range(records)]
    return bytes(
        build(content, producer_id=producer, producer_epoch=0 if known else -1, base_sequence=0 if known else -1)
    )


def produce(batch: bytes, topic: str = "bench", partitions: int = 1) -> ProduceRequest:
    data = [ProduceRequest.Topic.Partition(index=index, records=batch) for index in range(partitions)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name=topic, partition_data=data)])


def fetch(
    offset: int, max_bytes: int, session: tuple[int, int] = (0, -1), topic: str = "bench", partitions: int = 1
) -> FetchRequest:
    """A Fetch of all of these partitions, with this limit for each."""
    wanted = [
        FetchRequest.Topic.Partition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
        for index in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes * partitions,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequest.Topic(topic=topic, partitions=wanted)],
    )


class Bench:
    def __init__(self, broker: Broker, rounds: int) -> None:
        self.broker = broker
        self.rounds = rounds
        connection = broker.connections.new(host="127.0.0.1", port=1, listener="PLAINTEXT")
        assert connection is not None
        self.connection: Connection = connection

    def best(self, work: Callable[[], object], count: int) -> float:
        """µs of CPU per `count`, of which `work` does that many. The general path uses up the connection's attempts of
        a fast path, so they are reset: otherwise the next measurement would not use one.
        """
        found = float("inf")
        self.connection._fast_path_tries = FAST_PATH_TRIES
        gc.collect()
        for _ in range(self.rounds):
            before = time.process_time()
            work()
            found = min(found, time.process_time() - before)
        return found / count * 1e6

    def say(self, bytes_in: bytes) -> None:
        """Handle a request as the network does, without sending a response."""
        connection = self.connection
        while bytes_in:
            buffer = connection.receive_buffer()
            size = min(len(buffer), len(bytes_in))
            buffer[:size] = bytes_in[:size]
            connection.received(size)
            bytes_in = bytes_in[size:]
        connection.outgoing.clear()
        connection.outgoing_bytes = 0

    def whole(self, requests: list[bytes], *, by_the_general_path: bool = False) -> float:
        """`requests` are handled one by one; each may contain several. The general path uses no fast path."""
        connection = self.connection

        def work() -> None:
            for request in requests:
                if by_the_general_path:
                    connection._fast_path = None
                    connection._last_topic = (-1, "", b"")
                self.say(request)

        return self.best(work, len(requests))

    def steps(
        self,
        request: Request,
        version: int,
        more: dict[str, Callable[[], object]],
        runs: dict[str, tuple[Callable[[], object], int]],
    ) -> Iterator[tuple[str, float]]:
        """Each step 500 times; `runs` has the number of operations per call."""
        message = framed(request, version)
        key = request.__key__
        assert key is not None
        frame = memoryview(bytearray(message[4:]))
        route = self.broker.dispatch.route(key, version)
        _, body = client_id_and_body(frame, route.is_flexible)
        decode = decoder(type(request), version)
        decoded = decode(frame, body, MAX_ELEMENTS)[0]
        call = Call(self.connection, route, 1)
        records: Any = decoded.topic_data[0].partition_data[0].records if isinstance(decoded, ProduceRequest) else None

        def serve() -> Any:
            if records is not None:
                records[:8] = bytes(8)  # the last append has set its offset there
            return route.serve(call, decoded)

        answer = serve()
        reader = FrameReader(ReceiveBuffer())
        reader.receive_buffer()[: len(message)] = message

        def cut() -> None:
            reader.received(len(message))
            for _ in reader.frames():
                pass
            reader.keep()

        work: dict[str, Callable[[], object]] = {
            "frame: received, cut, forgotten": cut,
            "header: route, client id; not if it is the last": lambda: (
                self.broker.dispatch.route(key, version),
                client_id_and_body(frame, route.is_flexible),
            ),
            "decode": lambda: decode(frame, body, MAX_ELEMENTS),
            "handler": serve,
            **more,
        }
        if isinstance(answer, Response):  # and not framed already
            work["encode"] = lambda: frame_response(1, answer, version)
        for name, step in work.items():
            yield name, self.best(lambda step=step: [step() for _ in range(500)], 500)  # type: ignore[misc]
        yield from ((name, self.best(step, count)) for name, (step, count) in runs.items())


def show(title: str, whole: dict[str, float], steps: Iterator[tuple[str, float]]) -> None:
    print(title)
    for name, cost in whole.items():
        print(f"  {name:<52}{cost:7.2f}")
    for name, cost in steps:
        print(f"      {name:<48}{cost:7.2f}")


def measure_produce(bench: Bench) -> None:
    for title, batch in (("one record of 100 B", a_batch(1, 100)), ("16 KB of records of 1 KiB", a_batch(15, 1024))):
        message = framed(produce(batch), PRODUCE_VERSION)
        at_once = min(AT_ONCE, 200_000 // len(message))
        burst = message * at_once
        log = bench.broker.partitions.get("bench", 0).log
        admission = BatchValidator(log.config)
        patched = memoryview(bytearray(batch))

        def append_plain(log: Any = log, patched: memoryview = patched) -> None:
            patched[:8] = bytes(8)
            assert append_batches(log, patched, ((0, len(patched)),), log.epochs.latest_epoch, NOW_MS)

        def append(log: Any = log, patched: memoryview = patched) -> None:
            patched[:8] = bytes(8)
            log.append_as_leader(patched, leader_epoch=log.epochs.latest_epoch, now_ms=NOW_MS)

        replica = bench.broker.partitions.get("bench", 0)
        together = memoryview(bytearray(batch * at_once))
        places = [(number * len(batch), len(batch)) for number in range(at_once)]

        def try_append_batches(
            replica: Any = replica, together: memoryview = together, places: list[tuple[int, int]] = places
        ) -> None:
            for position, _ in places:
                together[position : position + 8] = bytes(8)
            assert len(replica.try_append_batches(together, places, NOW_MS)) == len(places)

        def admit(admission: BatchValidator = admission, patched: memoryview = patched) -> None:
            patched[:8] = bytes(8)
            admission.validate(patched, now_ms=NOW_MS)

        template = _new_template("bench", NULL_UUID, PRODUCE_VERSION)

        def answer(template: ResponseTemplate = template) -> None:
            template.fill(1, 0, 0, 1 << 40, -1, 0)

        show(
            f"Produce v{PRODUCE_VERSION}, {title}",
            {
                f"whole, {at_once} requests received at once": bench.whole([burst] * REPEAT) / at_once,
                "whole, one request received at a time": bench.whole([message] * 200),
                "the same by the usual road": bench.whole([message] * 200, by_the_general_path=True),
            },
            bench.steps(
                produce(batch),
                PRODUCE_VERSION,
                {
                    "  of it, the log: by batch_append": append_plain,
                    "  one that is not plain, Log.append_as_leader": append,
                    "    of it, admit": admit,
                    "  of it, the answer from its template": answer,
                },
                {f"in the fast path, instead: one of a run of {at_once}": (try_append_batches, at_once)},
            ),
        )


def measure_many(bench: Bench) -> None:
    """The cost per partition. Their logs do not fit into the processor's caches, as one does."""
    message = framed(produce(a_batch(1, 100), "many", MANY), PRODUCE_VERSION)
    bench.say(message)  # the first write creates files
    show(
        f"Produce v{PRODUCE_VERSION}, {MANY:,} partitions, a record of 100 B each",
        {
            "whole, each": bench.whole([message] * REPEAT) / MANY,
        },
        iter(()),
    )


def measure_many_fetched(bench: Bench) -> None:
    """The cost per partition, with some kilobytes of each in one response."""
    message = framed(produce(a_batch(1, 1024), "many", MANY), PRODUCE_VERSION)
    start = bench.broker.partitions.get("many", 0).log.log_end_offset
    for _ in range(MANY_BATCHES):
        bench.say(message)
    offsets = list(range(start, start + MANY_BATCHES, MANY_FETCHED_BYTES // (KIB + OVERHEAD_BYTES)))
    whole = in_session(bench, offsets, MANY_FETCHED_BYTES, "many", MANY) / MANY
    title = f"Fetch v{FETCH_VERSION}, {MANY:,} partitions in a session, {MANY_FETCHED_BYTES // KIB} KB of each"
    show(title, {"whole, each": whole}, iter(()))


def measure_fetch(bench: Bench) -> None:
    log = bench.broker.partitions.get("bench", 0).log
    start = log.log_end_offset
    batch = a_batch(15, 1024)
    message = framed(produce(batch), PRODUCE_VERSION)
    for _ in range(FILL_BATCHES):
        bench.say(message)
    log.read(start, 1 << 30)  # verifies the CRCs, so that the measured reads do not
    for max_bytes in (FETCHED_BYTES, 1024 * 1024):
        offsets: list[int] = []
        offset = start
        while len(offsets) < 200:
            offsets.append(offset)
            offset = log.read(offset, max_bytes).next_offset
            if offset >= log.log_end_offset:
                offset = start
        messages = [framed(fetch(offset, max_bytes), FETCH_VERSION) for offset in offsets]
        request = fetch(start, max_bytes)

        def open_session(request: FetchRequest = request) -> object:
            broker = bench.broker
            return broker.fetch_sessions.open(request, FETCH_VERSION, NOW_MS, broker.topic_name, is_follower=False)

        show(
            f"Fetch v{FETCH_VERSION}, {max_bytes // 1024} KB of one partition, planned and not sent",
            {
                "whole, one request received at a time": bench.whole(messages),
                "the same in a session": in_session(bench, offsets, max_bytes),
                "the same without one, by the usual road": bench.whole(messages, by_the_general_path=True),
            },
            bench.steps(
                request,
                FETCH_VERSION,
                {
                    "  of it, the request": open_session,
                    "  of it, is it in memory": partial(uncached_range, log, start, max_bytes),
                    "  of it, Log.read": partial(log.read, start, max_bytes),
                },
                {},
            ),
        )


def in_session(bench: Bench, offsets: list[int], max_bytes: int, topic: str = "bench", partitions: int = 1) -> float:
    """The session is reset for each round, so that the same requests are its next ones again."""
    bench.say(framed(fetch(offsets[0], max_bytes, (0, 0), topic, partitions), FETCH_VERSION))
    session = next(reversed(bench.broker.fetch_sessions._sessions.values()))
    messages = [
        framed(fetch(offset, max_bytes, (session.id, epoch), topic, partitions), FETCH_VERSION)
        for epoch, offset in enumerate(offsets, 1)
    ]

    def work() -> None:
        session.epoch = 1
        for message in messages:
            bench.say(message)

    return bench.best(work, len(messages))


def profile(bench: Bench, what: str) -> None:
    message = framed(produce(a_batch(1, 100)), PRODUCE_VERSION)
    bench.say(message)
    if what == "fetch":
        message = framed(fetch(0, FETCHED_BYTES), FETCH_VERSION)
    profiler = cProfile.Profile()
    profiler.enable()
    bench.whole([message * (AT_ONCE if what == "produce" else 1)] * 200)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


@asynccontextmanager
async def started(config: Config, topics: dict[str, int], rounds: int) -> AsyncIterator[Bench]:
    """A broker in this process, with these topics."""
    broker = Broker(config, node_of(config), disk=OsDisk(), clock=SystemClock(), random=Random(1))
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        await broker.create_missing_topics(topics)
        yield Bench(broker, rounds)
        broker.stop()


async def run(directory: str, options: argparse.Namespace) -> None:
    async with started(settings(directory), {"bench": 1, "many": MANY}, options.rounds) as bench:
        if options.profile:
            profile(bench, options.profile)
        else:
            measure_produce(bench)
            measure_many(bench)
            measure_many_fetched(bench)
            measure_fetch(bench)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--directory", help="where to write, some 100 MB; in memory, if there is a folder for that")
    parser.add_argument("--profile", choices=("produce", "fetch"))
    options = parser.parse_args()
    where = options.directory or (FAST_FOLDER if Path(FAST_FOLDER).is_dir() else None)
    with tempfile.TemporaryDirectory(dir=where) as directory:
        trio.run(run, directory, options)


if __name__ == "__main__":
    main()
