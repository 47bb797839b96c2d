"""One client of `trioka bench`: what it sends, reads and measures, from its first request to its last."""

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Event, Thread
from typing import Any, Final, NamedTuple

from trioka.protocol import batch
from trioka.protocol.compression import Codec
from trioka.protocol.errors import NONE
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

from . import problems
from .client.cluster_client import Kafka, TopicPartition
from .client.offsets import LATEST, offsets_or_fail
from .client.settings import Settings

BATCH_BYTES: Final = 64 * 1024
FETCH_BYTES: Final = 4 << 20
FETCH_WAIT_MS: Final = 100
FILL_BYTES: Final = 64 << 20  # without a number of records, a consumer reads this many bytes repeatedly
E2E_RATE: Final = 100  # records per second, unless an option sets it
BY_NAME: Final = 12  # the last version of Produce and Fetch that names topics
_STAMP: Final = struct.Struct(">q")


@frozen
class Job:
    """What one client has to do. None: without a limit."""

    settings: Settings
    topic: str
    partition: int
    size: int
    acks: int
    compression: str
    rate: float | None
    records: int | None
    seconds: float | None
    done: list[int]  # progress of each client, for the progress line; a client writes only its own entry


class Outcome(NamedTuple):
    records: int
    bytes: int
    seconds: float
    latencies_ms: Sequence[float]

    @classmethod
    def together(cls, outcomes: Sequence["Outcome"]) -> "Outcome":
        """The combined result of clients that worked at the same time."""
        return cls(
            sum(each.records for each in outcomes),
            sum(each.bytes for each in outcomes),
            max((each.seconds for each in outcomes), default=0.0),
            [latency for each in outcomes for latency in each.latencies_ms],
        )

    def figures(self) -> dict[str, Any]:
        ordered = sorted(self.latencies_ms)

        def quantile(share: float) -> float | None:
            return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) if ordered else None

        seconds = max(self.seconds, 1e-9)
        return {
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "records_per_s": round(self.records / seconds),
            "mb_per_s": round(self.bytes / seconds / 1e6, 2),
            "p50_ms": quantile(0.5),
            "p99_ms": quantile(0.99),
            "max_ms": round(ordered[-1], 3) if ordered else None,
        }


def _turns(job: Job, per_turn: int, rate: float | None) -> Iterator[int]:
    """Yield the number of records of each turn at the requested rate, until the record count or the time is reached."""
    start = time.perf_counter()
    done = 0
    while job.records is None or done < job.records:
        now = time.perf_counter() - start
        if job.seconds is not None and now >= job.seconds:
            return
        if rate is not None and done / rate > now:
            time.sleep(done / rate - now)
        count = per_turn if job.records is None else min(per_turn, job.records - done)
        yield count
        done += count
        job.done[job.partition] = done


def _batch(job: Job, count: int, stamp: bytes = b"") -> bytes:
    value = stamp + bytes(job.size - len(stamp))
    records = [Record(number, int(time.time() * 1000), None, value) for number in range(count)]
    return bytes(batch.build(records, codec=Codec[job.compression.upper()]))


def _produce_request(job: Job, records: bytes) -> ProduceRequest:
    partition = ProduceRequest.Topic.Partition(index=job.partition, records=records)
    topic = ProduceRequest.Topic(name=job.topic, partition_data=[partition])
    return ProduceRequest(acks=job.acks, timeout_ms=30_000, topic_data=[topic])


def _leader(kafka: Kafka, job: Job) -> Any:
    """A connection to the leader, and the version of Produce to use on it."""
    (leader,) = kafka.leaders([TopicPartition(job.topic, job.partition)])
    connection = kafka.node(leader)
    return connection, connection.version_of(ProduceRequest, at_most=BY_NAME)


def _send(connection: Any, request: ProduceRequest, version: int) -> None:
    if request.acks == 0:
        connection.send(request, version)  # acks=0: no response
        return
    result = connection.ask(request, version).responses[0].partition_responses[0]
    if result.error_code != NONE:
        raise problems.from_error_code(
            result.error_code, "a batch was not written", getattr(result, "error_message", None)
        )


def produce(job: Job) -> Outcome:
    per_batch = max(1, BATCH_BYTES // job.size)
    if job.rate is not None:
        # a hundred requests per second are enough to hold a rate
        per_batch = max(1, min(per_batch, int(job.rate / 100)))
    requests = {per_batch: _produce_request(job, _batch(job, per_batch))}
    latencies = []
    records = 0
    with job.settings.kafka() as kafka:
        connection, version = _leader(kafka, job)
        start = time.perf_counter()
        for count in _turns(job, per_batch, job.rate):
            request = requests.setdefault(count, requests[per_batch])
            if request is requests[per_batch] and count != per_batch:
                request = requests[count] = _produce_request(job, _batch(job, count))
            before = time.perf_counter()
            _send(connection, request, version)
            latencies.append(1000 * (time.perf_counter() - before))
            records += count
        return Outcome(records, records * job.size, time.perf_counter() - start, latencies)


def consume(job: Job) -> Outcome:
    wanted = job.records or max(1, FILL_BYTES // job.size)
    produce(replace(job, records=wanted, seconds=None, rate=None, acks=-1))
    place = TopicPartition(job.topic, job.partition)
    latencies: list[float] = []
    records = offset = 0
    with job.settings.kafka() as kafka:
        connection, _ = _leader(kafka, job)
        end = offsets_or_fail(kafka, {place: LATEST})[place]
        start = time.perf_counter()
        while True:
            passed = time.perf_counter() - start
            if (offset >= end and job.seconds is None) or (job.seconds is not None and passed >= job.seconds):
                return Outcome(records, records * job.size, passed, latencies)
            if offset >= end:
                offset = 0
            before = time.perf_counter()
            data = _fetch(connection, job, offset)
            latencies.append(1000 * (time.perf_counter() - before))
            for header in batch.headers(data, partial_tail=True):
                records += max(0, header.next_offset - max(offset, header.base_offset))
                offset = max(offset, header.next_offset)


def _fetch(connection: Any, job: Job, offset: int) -> bytes:
    partition = FetchRequest.Topic.Partition(
        partition=job.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    topic = FetchRequest.Topic(topic=job.topic, partitions=[partition])
    request = FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES, topics=[topic])
    result = connection.ask(request, at_most=BY_NAME).responses[0].partitions[0]
    if result.error_code != NONE:
        raise problems.from_error_code(result.error_code, "records cannot be read")
    return bytes(result.records or b"")


def end_to_end(job: Job) -> Outcome:
    """Send records that carry their send time; a reader in another thread waits for each of them."""
    latencies: list[float] = []
    failures: list[Exception] = []
    is_over = Event()
    reader = Thread(target=_listen, args=(job, latencies, failures, is_over), daemon=True)
    with job.settings.kafka() as kafka:
        connection, version = _leader(kafka, job)
        reader.start()
        records = 0
        start = time.perf_counter()
        for _ in _turns(job, 1, job.rate or E2E_RATE):
            stamp = _STAMP.pack(time.perf_counter_ns())
            _send(connection, _produce_request(job, _batch(job, 1, stamp)), version)
            records += 1
        deadline = time.perf_counter() + 10
        while len(latencies) < records and not failures and time.perf_counter() < deadline:
            time.sleep(0.01)
        seconds = time.perf_counter() - start
    is_over.set()
    reader.join()
    if failures:
        raise failures[0]
    return Outcome(len(latencies), len(latencies) * job.size, seconds, latencies)


def _listen(job: Job, latencies: list[float], failures: list[Exception], is_over: Event) -> None:
    try:
        with job.settings.kafka() as kafka:
            connection, _ = _leader(kafka, job)
            offset = 0
            while not is_over.is_set():
                data = _fetch(connection, job, offset)
                now = time.perf_counter_ns()
                for header in batch.headers(data, partial_tail=True):
                    for record in batch.records(data, header):
                        if record.offset >= offset:
                            (sent,) = _STAMP.unpack_from(record.value or bytes(_STAMP.size))
                            latencies.append((now - sent) / 1e6)
                            offset = record.offset + 1
    except Exception as error:  # any error: the main thread explains it
        failures.append(error)


LOADS: Final[Mapping[str, Callable[[Job], Outcome]]] = {"produce": produce, "consume": consume, "e2e": end_to_end}
