"""A client for tests: creates topics, writes and reads records, and waits for groups, in one call each.

It sends requests with the command line's client, so it works with a broker in a thread and in a process. Armed faults
do not affect it (`HELPER_CLIENT_ID`), because they are meant for the software under test; a cut network and a stopped
broker do.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trioka.cli.client.cluster_client import NO_NODE, Kafka, TopicPartition
from trioka.cli.client.connection import Connection
from trioka.cli.client.offsets import BY_NAME, EARLIEST, LATEST, NO_OFFSET, committed, fetch_topics, list_offsets
from trioka.cli.client.time_budget import TimeoutBudget
from trioka.cli.terminal.failure import did_you_mean
from trioka.protocol import batch, record
from trioka.protocol.errors import NONE, UnknownTopicOrPartition, error_class
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import NULL_UUID

from .partitioner import partition_of

if TYPE_CHECKING:
    from trioka.cli.client.connection import SSLContext
    from trioka.cli.client.login import Login

HELPER_CLIENT_ID: Final = "trioka-testing"  # the client id of this client
TIMEOUT_S: Final = 30.0
POLL_MS: Final = 200
LOOK_AGAIN_S: Final = 0.02
FETCH_BYTES: Final = 1 << 20  # per partition and request
PRODUCE_BY_NAME: Final = 12
ALL_REPLICAS: Final = -1
BROKER_DEFAULT: Final = -1  # default.replication.factor
READ_COMMITTED: Final = 1

Payload = bytes | str | None


class Record(NamedTuple):
    """A record as it is stored in its topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def json(self) -> Any:
        """The value, which is JSON; None for a record without a value."""
        return None if self.value is None else json.loads(self.value)


class Client:
    """Connects again for each call, because a test may have cut or restarted its broker meanwhile."""

    def __init__(
        self, *addresses: tuple[str, int], tls: "SSLContext | None" = None, login: "Login | None" = None
    ) -> None:
        self._addresses = addresses
        self._tls, self._login = tls, login

    def kafka(self, timeout_s: float = TIMEOUT_S) -> Kafka:
        patience = TimeoutBudget(timeout_s)

        def connect(host: str, port: int) -> Connection:
            return Connection(
                host, port, timeout_s=patience, tls=self._tls, log_in=self._login, client_id=HELPER_CLIENT_ID
            )

        return Kafka(self._addresses, connect=connect, budget=patience)

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], replicas: int = BROKER_DEFAULT
    ) -> None:
        Topic = CreateTopicsRequest.Topic
        wanted = Topic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[Topic.Config(name=key, value=value) for key, value in configs.items()],
        )
        with self.kafka() as kafka:
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=kafka.timeout_ms)
            answer = kafka.ask_controller(request, lambda result: [each.error_code for each in result.topics])
        (result,) = answer.topics
        _check(result.error_code, result.error_message)

    def create_if_missing(self, topic: str) -> None:
        """If the broker is configured to create topics."""
        with self.kafka() as kafka:
            _partitions(kafka, topic, may_create=True)

    def topics(self) -> list[str]:
        with self.kafka() as kafka:
            return sorted(each.name or "" for each in kafka.metadata(None).topics if not each.is_internal)

    def delete_topic(self, name: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        with self.kafka() as kafka:
            wanted = [DeleteTopicsRequest.Topic(name=name, topic_id=NULL_UUID)]
            request = DeleteTopicsRequest(topics=wanted, timeout_ms=kafka.timeout_ms)
            answer = kafka.ask_controller(request, lambda result: [each.error_code for each in result.responses])
            (result,) = answer.responses
            _check(result.error_code, f"topic {name} was not deleted: {result.error_message}")
            while name in {each.name for each in kafka.metadata(None).topics}:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"topic {name} is still there after {TIMEOUT_S:g} s")
                time.sleep(LOOK_AGAIN_S)

    # -- writing -------------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        values: Sequence[Payload],
        *,
        key: Payload,
        partition: int | None,
        timestamp_ms: int,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> list[int]:
        """Write records and return their offsets. The broker creates a missing topic if it is configured to."""
        records = [
            record.Record(number, timestamp_ms, _bytes(key), _bytes(value), tuple(headers))
            for number, value in enumerate(values)
        ]
        if not records:
            return []
        Topic = ProduceRequest.Topic
        with self.kafka() as kafka:
            count = len(_partitions(kafka, topic, may_create=True))
            if partition is None:
                data_key = _bytes(key)
                partition = 0 if data_key is None else partition_of(data_key, count)
            data = [Topic.Partition(index=partition, records=bytes(batch.build(records)))]
            place = TopicPartition(topic, partition)
            request = ProduceRequest(
                acks=ALL_REPLICAS, timeout_ms=kafka.timeout_ms, topic_data=[Topic(name=topic, partition_data=data)]
            )

            def ask() -> tuple[int, int, str | None]:
                (leader,) = kafka.leaders([place])
                if leader == NO_NODE:
                    return UnknownTopicOrPartition.code, NO_OFFSET, f"there is no {place}"
                answer = kafka.ask_node(leader, request, at_most=PRODUCE_BY_NAME)
                result = answer.responses[0].partition_responses[0]
                return result.error_code, result.base_offset, result.error_message

            code, first, message = kafka.retry_while_stale(ask, lambda result: [result[0]])
        _check(code, message)
        return list(range(first, first + len(records)))

    # -- reading -------------------------------------------------------------------------------------------------------

    def records(self, topic: str, partition: int | None, is_committed: bool) -> list[Record]:
        """All current records by partition and offset."""
        with self.kafka() as kafka:
            positions = self._starts(kafka, topic, partition)
            found: list[Record] = []
            unread = dict(positions)
            while unread:
                before = dict(unread)
                found += _fetch(kafka, unread, 0, is_committed)
                for place in [place for place, offset in unread.items() if offset == before[place]]:
                    del unread[place]
        return sorted(found, key=lambda each: (each.partition, each.offset))

    def consume(
        self, topic: str, count: int, partition: int | None, is_committed: bool, timeout_s: float
    ) -> list[Record]:
        """The first `count` records from the start, in the order of arrival; waits for them, and for their topic."""
        return self._consume(topic, {}, count, partition, is_committed, timeout_s)

    def ends(self, topic: str) -> dict[TopicPartition, int]:
        """The log end offsets of a topic; empty if it does not exist."""
        with self.kafka() as kafka:
            try:
                return _offsets(kafka, [TopicPartition(topic, each) for each in _partitions(kafka, topic)], LATEST)
            except UnknownTopicOrPartition:
                return {}

    def consume_from(
        self, topic: str, positions: Mapping[TopicPartition, int], count: int, is_committed: bool, timeout_s: float
    ) -> list[Record]:
        """The first `count` records from these positions on; from the start if there are none."""
        return self._consume(topic, dict(positions), count, None, is_committed, timeout_s)

    def _consume(
        self,
        topic: str,
        positions: dict[TopicPartition, int],
        count: int,
        partition: int | None,
        is_committed: bool,
        timeout_s: float,
    ) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        found: list[Record] = []
        with self.kafka() as kafka:
            while len(found) < count:
                try:
                    positions = positions or self._starts(kafka, topic, partition)
                    found += _fetch(kafka, positions, POLL_MS, is_committed)
                except UnknownTopicOrPartition:
                    kafka.forget()
                    time.sleep(LOOK_AGAIN_S)
                if time.monotonic() > deadline and len(found) < count:
                    raise TimeoutError(f"{len(found)} of {count} records came to {topic} within {timeout_s:g} s")
        return found[:count]

    def _starts(self, kafka: Kafka, topic: str, partition: int | None) -> dict[TopicPartition, int]:
        indexes = _partitions(kafka, topic)
        if partition is not None:
            if partition not in indexes:
                raise UnknownTopicOrPartition(f"{topic} has {len(indexes)} partitions, and no partition {partition}")
            indexes = [partition]
        places = [TopicPartition(topic, each) for each in indexes]
        return _offsets(kafka, places, EARLIEST)

    # -- groups --------------------------------------------------------------------------------------------------------

    def committed(self, group: str) -> dict[TopicPartition, int]:
        with self.kafka() as kafka:
            return {place: each.offset for place, each in committed(kafka, group).items()}

    def wait_group(self, group: str, lag: int, topic: str | None, timeout_s: float) -> None:
        """Wait until at most `lag` records in total are left between the group's committed offsets and the log ends."""
        deadline = time.monotonic() + timeout_s
        with self.kafka() as kafka:
            while True:
                kafka.forget()
                behind = _lag(kafka, group, topic)
                if behind and sum(behind.values()) <= lag:
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(_why_behind(group, lag, behind, timeout_s))
                time.sleep(LOOK_AGAIN_S)


def _check(code: int, message: str | None) -> None:
    if code != NONE:
        error = error_class(code)
        raise error(message) if message else error()


def _bytes(payload: Payload) -> bytes | None:
    return payload.encode() if isinstance(payload, str) else payload


def _partitions(kafka: Kafka, topic: str, *, may_create: bool = False) -> list[int]:
    """The partitions of a topic that exists, or that a metadata request may create."""

    def ask() -> MetadataResponse.Topic:
        request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=may_create)
        result: MetadataResponse.Topic = kafka.ask(request).topics[0]
        return result

    result = kafka.retry_while_stale(ask, lambda each: [each.error_code])
    if result.error_code == UnknownTopicOrPartition.code:
        known = [each.name or "" for each in kafka.metadata(None).topics]
        raise UnknownTopicOrPartition("; ".join([f"there is no topic '{topic}'", *did_you_mean(topic, known)]))
    _check(result.error_code, None)
    return sorted(each.partition_index for each in result.partitions)


def _fetch(kafka: Kafka, positions: dict[TopicPartition, int], max_wait_ms: int, is_committed: bool) -> list[Record]:
    """One round of fetches: the records from the positions on; moves the positions behind them."""
    found: list[Record] = []
    for leader, places in kafka.leaders(list(positions)).items():
        if leader == NO_NODE:
            raise UnknownTopicOrPartition(f"there is no {places[0]}")
        topics = fetch_topics(places, positions, FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, isolation_level=READ_COMMITTED * is_committed, topics=topics
        )
        for topic in kafka.ask_node(leader, request, at_most=BY_NAME["fetch"]).responses:
            for result in topic.partitions:
                _check(result.error_code, None)
                place = TopicPartition(topic.topic, result.partition_index)
                data, start = bytes(result.records or b""), positions[place]
                for header in batch.headers(data, partial_tail=True):
                    batch.verify(data, header)
                    positions[place] = header.last_offset + 1
                found += [
                    Record(*place, each.offset, each.timestamp, each.key, each.value, each.headers)
                    for each in visible_records(data, result)
                    if each.offset >= start
                ]
    return found


def visible_records(data: bytes, result: FetchResponse.Topic.Partition) -> Iterator[record.Record]:
    """The records of the whole batches in `data`, without markers, and without the aborted ones, if the broker lists
    them.
    """
    aborted = sorted((each.first_offset, each.producer_id) for each in result.aborted_transactions or ())
    open_aborted: set[int] = set()
    for header in batch.headers(data, partial_tail=True):
        while aborted and aborted[0][0] <= header.last_offset:
            open_aborted.add(aborted.pop(0)[1])
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            yield from batch.records(data, header)


def _offsets(kafka: Kafka, places: Sequence[TopicPartition], which: int) -> dict[TopicPartition, int]:
    """Offsets of a topic's partitions. A topic whose partitions are not ready yet counts as missing."""
    found = list_offsets(kafka, dict.fromkeys(places, which))
    for place, result in found.items():
        _check(result.error, f"the offsets of {place} are not known")
    return {place: result.offset for place, result in found.items()}


def _lag(kafka: Kafka, group: str, topic: str | None) -> dict[TopicPartition, int]:
    """The lag by partition, of all topics with an offset committed by the group; nothing if there is none."""
    known = committed(kafka, group)
    if topic is not None:
        known = {place: each for place, each in known.items() if place.topic == topic}
    topics = {place.topic for place in known}
    places = [TopicPartition(name, index) for name in sorted(topics) for index in _partitions(kafka, name)]
    starts, ends = _offsets(kafka, places, EARLIEST), _offsets(kafka, places, LATEST)
    return {place: max(0, ends[place] - (known[place].offset if place in known else starts[place])) for place in places}


def _why_behind(group: str, lag: int, behind: Mapping[TopicPartition, int], timeout_s: float) -> str:
    if not behind:
        return f"group '{group}' has committed nothing within {timeout_s:g} s"
    parts: Iterable[str] = (f"{place} {count}" for place, count in behind.items() if count)
    return f"group '{group}' is not down to a lag of {lag} within {timeout_s:g} s; it lags by: {', '.join(parts)}"
