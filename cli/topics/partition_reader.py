"""Reads windows of partitions without a group, over the command line's own connections.

Each round sends one Fetch to every leader and then reads their responses. Batches are checked and decoded by
`trioka.protocol`; `poll_lines` renders a batch without an object per record. Transactions are not filtered here:
`consume --read-committed` and groups are read by kafka-python.

A round that fails because a leader moved, stopped or does not answer is repeated after a pause, with fresh metadata
and connections to the bootstrap servers and to the brokers that were known. The positions stay, so no record is lost or
read twice. Errors that a repetition cannot mend fail the command.
"""

import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from trioka.protocol import batch, errors
from trioka.protocol.errors import NONE, KafkaError, ProtocolError, UnsupportedForMessageFormat
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.record import Headers

from .. import problems
from ..client.cluster_client import NO_NODE, Kafka, TopicPartition
from ..client.connection import Connection, ConnectionClosed
from ..client.offsets import BY_NAME, EARLIEST, LATEST, fetch_topics, offsets_or_fail
from ..client.settings import Settings
from ..terminal.failure import Failure

POLL_MS: Final = 200  # how long a broker waits for the first record
RETRY_S: Final = 0.2
PARTITION_BYTES: Final = 1 << 20
ROUND_BYTES: Final = 16 << 20  # of all partitions in one response, except where a single batch is larger
MIN_PARTITION_BYTES: Final = 64 << 10

RETRIABLE_PROBLEMS: Final = frozenset(
    problem.code
    for problem in (problems.REFUSED, problems.TIMED_OUT, problems.HUNG_UP, problems.NOT_REACHABLE_AS_ADVERTISED)
)


class Window(NamedTuple):
    """The offsets to read of one partition: from start to end (exclusive; None: unlimited)."""

    start: int
    stop: int | None


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class OldMessageFormat(Exception):
    """A partition holds records in a format before Kafka 0.11, which `trioka.protocol` does not read."""


class FetchedBatch(NamedTuple):
    """A whole batch of a response; its CRC is right, and it is no control batch."""

    place: TopicPartition
    data: bytes
    header: batch.BatchHeader


class PartitionReader:
    """Each request waits for its response no longer than the command's timeout. A read with an end fails if it neither
    gets a record nor reaches the end for that long.
    """

    def __init__(self, settings: Settings, windows: Mapping[TopicPartition, Window], *, resets_to_end: bool) -> None:
        """`resets_to_end`: where to go on if the log no longer has the offset: at its end, or at its start."""
        self._settings = settings
        self._kafka: Kafka | None = None
        self._windows = windows
        self._reset_to = LATEST if resets_to_end else EARLIEST
        self._positions = {place: window.start for place, window in windows.items()}
        self._heard = time.monotonic()  # time of the last progress
        self._problem: Failure | None = None  # why the last round brought nothing
        self._error: Exception | None = None  # raised once what came before it is handed out
        self._wait_ms = 0
        self._batches: Iterator[FetchedBatch] = iter(())
        self._records: Iterator[ConsumedRecord] = iter(())

    # -- what `consume` uses -------------------------------------------------------------------------------------------

    def poll(self, most: int) -> list[ConsumedRecord]:
        """Some records; none if none came within the poll time."""
        found = list(islice(self._records, most))
        if not found:
            self._fetch()
            self._records = self._decoded()
            found = list(islice(self._records, most))
        return found

    def poll_lines(self, line_end: bytes) -> Iterator[tuple[bytes, int]]:
        """One round: per batch the values of its records, each with `line_end`, and their number."""
        self._fetch()
        for each in self._batches:
            start, stop = self._positions[each.place], self._windows[each.place].stop
            header = each.header
            if header.base_offset >= start and (stop is None or header.next_offset <= stop):
                with _explained(each):
                    values = batch.values(each.data, header)
                self._advance(each)
                if values:
                    yield line_end.join(values) + line_end, len(values)
            else:
                part = [record.value or b"" for record in self._records_of(each)]
                self._advance(each)
                yield b"".join([value + line_end for value in part]), len(part)

    def is_at_the_end(self) -> bool:
        """Whether every window is read to its end."""
        is_over = all(window.stop is not None for window in self._windows.values()) and not self._unfinished()
        if not is_over and self._heard + self._settings.timeout_s <= time.monotonic():
            what = f"there is more to read, and no broker has sent it within {self._settings.timeout_s:g} s"
            why = [] if self._problem is None else [self._problem.what]
            hints = [*why, "look at the partitions: trioka topics describe --unavailable-partitions"]
            raise Failure(what, hints=hints)
        return is_over

    @property
    def is_bounded(self) -> bool:
        """Whether a partition has an end."""
        return any(window.stop is not None for window in self._windows.values())

    @property
    def most(self) -> int | None:
        """The maximum number of records to read; None if unknown."""
        if any(window.stop is None for window in self._windows.values()):
            return None
        return sum(max(0, (window.stop or 0) - window.start) for window in self._windows.values())

    def remaining(self) -> dict[TopicPartition, Window]:
        """The windows from the present positions on."""
        return {place: Window(self._positions[place], window.stop) for place, window in self._windows.items()}

    def commit(self) -> None:
        """Without a group nothing is committed."""

    def close(self) -> None:
        if self._kafka is not None:
            self._kafka.__exit__()
            self._kafka = None

    # -- records of the fetched batches --------------------------------------------------------------------------------

    def _decoded(self) -> Iterator[ConsumedRecord]:
        for each in self._batches:
            yield from self._records_of(each)
            self._advance(each)

    def _records_of(self, each: FetchedBatch) -> Iterator[ConsumedRecord]:
        start, stop = self._positions[each.place], self._windows[each.place].stop
        with _explained(each):
            for record in batch.records(each.data, each.header):
                if record.offset >= start and (stop is None or record.offset < stop):
                    headers = tuple((_header_key(key), value) for key, value in record.headers)
                    yield ConsumedRecord(
                        *each.place, record.offset, record.timestamp, record.key, record.value, headers
                    )

    def _advance(self, each: FetchedBatch) -> None:
        self._positions[each.place] = max(self._positions[each.place], each.header.next_offset)

    def _unfinished(self) -> list[TopicPartition]:
        return [
            place
            for place, window in self._windows.items()
            if window.stop is None or self._positions[place] < window.stop
        ]

    # -- rounds of requests --------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        """One round. What came is in `_batches`; a round that failed and may be repeated brings nothing."""
        self._batches = iter(())
        if self._error is not None:
            raise self._error
        wanted = self._unfinished()
        if not wanted:
            return
        try:
            results = self._round(wanted)
        except ConnectionClosed:
            self._retry_later(Failure("a broker closed the connection"))
        except Failure as failure:
            if failure.code not in RETRIABLE_PROBLEMS:
                raise
            self._retry_later(failure)
        else:
            self._wait_ms = 0 if any(result.records for _, result in results) else POLL_MS
            self._batches = self._checked(results)

    def _retry_later(self, failure: Failure) -> None:
        """Drop all connections: also the first one may lead to a broker that is gone."""
        self._problem = failure
        if self._kafka is not None:
            known = dict.fromkeys((*self._settings.bootstrap, *self._kafka.known_servers()))
            self._settings = self._settings._replace(bootstrap=tuple(known))
            self.close()
        time.sleep(RETRY_S)

    def _round(self, wanted: list[TopicPartition]) -> list[tuple[TopicPartition, Any]]:
        if self._kafka is None:
            self._kafka = self._settings.kafka()
        kafka = self._kafka
        most = max(MIN_PARTITION_BYTES, min(PARTITION_BYTES, ROUND_BYTES // len(wanted)))
        sent: list[tuple[Connection, FetchRequest, int, int]] = []
        for leader, partitions in kafka.leaders(wanted).items():
            if leader == NO_NODE:
                self._problem = Failure(f"{', '.join(map(str, partitions))}: no leader")
                kafka.forget()
                continue
            request = FetchRequest(
                max_wait_ms=self._wait_ms,
                min_bytes=1,
                max_bytes=ROUND_BYTES,
                topics=fetch_topics(partitions, self._positions, most),
            )
            connection = kafka.node(leader)
            version = connection.version_of(FetchRequest, at_most=BY_NAME["fetch"])
            sent.append((connection, request, version, connection.send(request, version)))
        if not sent:
            time.sleep(RETRY_S)
        found = []
        for connection, request, version, correlation_id in sent:
            answer = connection.receive(request, version, correlation_id=correlation_id)
            if answer.error_code != NONE:
                raise problems.from_error_code(answer.error_code, f"{connection.address} refused to send records")
            for topic in answer.responses:
                found += [(TopicPartition(topic.topic, each.partition_index), each) for each in topic.partitions]
        return found

    def _checked(self, results: list[tuple[TopicPartition, Any]]) -> Iterator[FetchedBatch]:
        """The data batches of the responses. Positions move over control batches."""
        is_failed = False
        for place, result in results:
            if result.error_code != NONE:
                self._judge(place, result.error_code)
                is_failed = True
                continue
            data = bytes(result.records or b"")
            try:
                for header in batch.headers(data, partial_tail=True):
                    batch.verify(data, header)
                    if header.next_offset <= self._positions[place]:
                        continue
                    self._heard, self._problem = time.monotonic(), None
                    each = FetchedBatch(place, data, header)
                    if header.is_control:
                        self._advance(each)
                    else:
                        yield each
            except UnsupportedForMessageFormat:
                self._error = OldMessageFormat()
                return
            except (KafkaError, ProtocolError) as error:
                self._error = Failure(f"reading {place} failed: {error}")
                return
        if is_failed:
            time.sleep(RETRY_S)

    def _judge(self, place: TopicPartition, code: int) -> None:
        """Mend what an error of one partition means; if that is impossible, the next round fails."""
        assert self._kafka is not None
        if code == errors.OffsetOutOfRange.code:
            try:
                self._positions |= offsets_or_fail(self._kafka, {place: self._reset_to})
            except Failure as failure:
                if failure.code not in RETRIABLE_PROBLEMS:
                    self._error = failure
                self._problem = failure
                self._kafka.forget()
            return
        self._problem = problems.from_error_code(code, f"{place} cannot be read")
        if not errors.error_class(code).retriable:
            self._error = self._problem
        self._kafka.forget()


class _explained:
    """Errors of a batch's content as failures of this command."""

    def __init__(self, each: FetchedBatch) -> None:
        self._each = each

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, KafkaError | ProtocolError):
            raise Failure(f"reading {self._each.place} failed: {error}") from None


def _header_key(key: str) -> str:
    """Bytes that are not UTF-8 are shown as U+FFFD."""
    return key if key.isascii() else key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
