"""Records and offsets: Apache Kafka and trioka, asked the same. Where they differ, and why, stands with the test."""

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest
from crc32c import crc32c
from side_by_side import Order, Side, SideBySide, side_by_side

from trioka.protocol.batch import build
from trioka.protocol.compression import Codec
from trioka.protocol.errors import InvalidRecord, InvalidRequest, UnknownServerError, UnsupportedCompressionType
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

NOBODYS_ID = b"x" * 16
NOW_MS = time.time_ns() // 1_000_000
LAST = 2**63 - 1
EVERYTHING = 0x7FFFFFFF

BY_PARTITION: Order = {
    "topics": lambda each: each.get("name") or each.get("topic"),
    "topics.partitions": lambda each: each.get("partition_index", each.get("partition")),
}

_numbers = count(1)


@pytest.fixture(scope="module")
def sides(apache_kafka: None) -> Iterator[SideBySide]:
    with side_by_side() as sides:
        sides.create_topic("m", 2)
        sides.create_topic("big")
        sides.create_topic("empty")
        for _ in range(4):
            produced(sides, "m", records(3))
        produced(sides, "m", records(2), partition=1)
        produced(sides, "big", records(1, b"v" * 5000))
        produced(sides, "big", records(1, b"v" * 5000))
        yield sides


def new_name() -> str:
    return f"new-{next(_numbers)}"


def records(count: int, value: bytes = b"v", *, key: bytes | None = b"k", timestamp: int = NOW_MS) -> bytes:
    return bytes(build([Record(offset, timestamp, key, value) for offset in range(count)]))


# -- Produce -----------------------------------------------------------------------------------------------------------


def produce(
    topic: str, data: bytes, version: int, *, partition: int = 0, acks: int = -1, topic_id: bytes | None = None
) -> Callable[[Side], ProduceRequest]:
    """A request that names its topic as its version does."""

    def request(side: Side) -> ProduceRequest:
        partitions = [ProduceRequest.Topic.Partition(index=partition, records=data)]
        if version < 13:
            named = ProduceRequest.Topic(name=topic, partition_data=partitions)
        else:
            named = ProduceRequest.Topic(topic_id=topic_id or side.topic_id(topic), partition_data=partitions)
        return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named])

    return request


def produced(sides: SideBySide, topic: str, data: bytes, *, partition: int = 0, version: int = 9) -> None:
    kafka, _ = sides.same(produce(topic, data, version, partition=partition), version)
    assert kafka.responses[0].partition_responses[0].error_code == 0


def with_crc(data: bytes, position: int, form: str, value: int) -> bytes:
    """A batch with something else at this position, and a CRC that agrees."""
    changed = bytearray(patched(data, position, form, value))
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def patched(data: bytes, position: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, position, value)
    return bytes(changed)


@pytest.mark.parametrize("version", range(3, 14))
def test_records_are_stored_and_bad_ones_refused(sides: SideBySide, version: int) -> None:
    topic, good = new_name(), records(2)
    sides.create_topic(topic, 2)
    for acks in (-1, 1):
        sides.same(produce(topic, good, version, acks=acks), version)
    for acks in (2, -2):
        sides.same(produce(topic, good, version, acks=acks), version)
        sides.same(produce("nobody", good, version, acks=acks, topic_id=NOBODYS_ID), version)
    sides.same(produce("nobody", good, version, topic_id=NOBODYS_ID), version)
    for partition in (9, -1):
        sides.same(produce(topic, good, version, partition=partition), version)
    bad = {
        "nothing": b"",
        "half a batch": good[:-1],
        "two batches": good + good,
        "a wrong CRC": patched(good, 17, ">I", 0),
        "magic 0": patched(good, 16, ">b", 0),
        "magic 1": patched(good, 16, ">b", 1),
        "too many records": with_crc(good, 57, ">i", 3),
        "too few records": with_crc(good, 57, ">i", 1),
        "no records": with_crc(good, 57, ">i", 0),
        "fewer than no records": with_crc(good, 57, ">i", -1),
        "a large last offset": with_crc(good, 23, ">i", 5),
        "a small last offset": with_crc(good, 23, ">i", 0),
        "a control batch": with_crc(good, 21, ">h", 0x20),
        "a base offset": patched(good, 0, ">q", 17),
    }
    for data in bad.values():
        sides.same(produce(topic, data, version), version)
    for codec in Codec:  # zstd is refused before v7
        packed = bytes(build([Record(0, NOW_MS, b"k", b"v" * 50)], codec=codec))
        sides.same(produce(topic, packed, version), version)


@pytest.mark.parametrize("version", [3, 7, 8, 9, 13])
def test_topics_have_rules_for_their_records(sides: SideBySide, version: int) -> None:
    compacted, small, strict, wide = new_name(), new_name(), new_name(), new_name()
    sides.create_topic(compacted, cleanup_policy="compact")
    sides.create_topic(small, max_message_bytes=200)
    sides.create_topic(strict, message_timestamp_before_max_ms=1000_000, message_timestamp_after_max_ms=1000_000)
    sides.create_topic(wide, min_insync_replicas=2)
    day_ms = 24 * 60 * 60 * 1000
    for topic, data in [
        (compacted, records(2, key=None)),
        (compacted, records(2)),
        (small, records(1, b"v" * 300)),
        (strict, records(2, timestamp=NOW_MS - day_ms)),
        (strict, records(2, timestamp=NOW_MS + day_ms)),
        (strict, records(2)),
        (wide, records(1)),
    ]:
        sides.same(produce(topic, data, version), version)
    sides.same(produce(wide, records(1), version, acks=1), version)


def test_an_idempotent_producer_is_held_to_its_sequence(sides: SideBySide) -> None:
    topic = new_name()
    sides.create_topic(topic)
    for producer, epoch, sequence in [
        (7, 0, 0), (7, 0, 0), (7, 0, 5), (7, 1, 1), (7, 1, 0), (7, 0, 1), (8, 0, 4), (9, 0, -1),
    ]:  # fmt: skip
        data = build(
            [Record(0, NOW_MS, b"k", b"v")], producer_id=producer, producer_epoch=epoch, base_sequence=sequence
        )
        sides.same(produce(topic, bytes(data), 9), 9)


def test_codecs_that_do_not_exist_are_called_so(sides: SideBySide) -> None:
    """Apache Kafka says UNKNOWN_SERVER_ERROR."""
    kafka, trioka = sides.both(produce("m", with_crc(records(1), 21, ">h", 5), 9), 9)
    assert kafka.responses[0].partition_responses[0].error_code == UnknownServerError.code
    assert trioka.responses[0].partition_responses[0].error_code == UnsupportedCompressionType.code


def test_nothing_follows_a_batch(sides: SideBySide) -> None:
    """Apache Kafka drops the beginning of a second batch; whoever sent it would not hear of it."""
    topic = new_name()
    sides.create_topic(topic)
    kafka, trioka = sides.both(produce(topic, records(1) + records(1)[:20], 9), 9)
    assert kafka.responses[0].partition_responses[0].error_code == 0
    assert trioka.responses[0].partition_responses[0].error_code == InvalidRecord.code


# -- Fetch -------------------------------------------------------------------------------------------------------------

FetchTarget = tuple[str | bytes, int, int] | tuple[str | bytes, int, int, int]  # topic, partition, offset, limit


def fetch(
    version: int,
    *wanted: FetchTarget,
    wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = EVERYTHING,
    isolation: int = 0,
    epoch: int = -1,
    last_epoch: int = -1,
    replica_id: int = -1,
) -> Callable[[Side], FetchRequest]:
    """A request that names its topics as its version does."""

    def topic(side: Side, name: str | bytes, partition: int, offset: int, *limit: int) -> FetchRequest.Topic:
        requested = FetchRequest.Topic.Partition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=limit[0] if limit else 1_000_000,
            current_leader_epoch=epoch if version >= 9 else -1,
            last_fetched_epoch=last_epoch if version >= 12 else -1,
        )
        if version < 13:
            assert isinstance(name, str)
            return FetchRequest.Topic(topic=name, partitions=[requested])
        topic_id = name if isinstance(name, bytes) else side.topic_id(name)
        return FetchRequest.Topic(topic_id=topic_id, partitions=[requested])

    return lambda side: FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[topic(side, *each) for each in wanted],
    )


@pytest.mark.parametrize("version", range(4, 19))
def test_records_are_fetched(sides: SideBySide, version: int) -> None:
    unknown = "nobody" if version < 13 else NOBODYS_ID
    places: list[Sequence[FetchTarget]] = [
        [],
        *[[("m", 0, offset)] for offset in (0, 5, 12, 13, -1, 2**62)],
        [(unknown, 0, 0)],
        [("m", 9, 0)],
        [("m", -1, 0)],
        [("empty", 0, 0)],
        [("empty", 0, 1)],
        [("m", 0, 0), (unknown, 0, 0)],
        [("m", 0, 0), ("m", 1, 0), ("empty", 0, 0)],
        *[[("m", 0, 0, limit)] for limit in (0, 1, 100, 250)],
        [("m", 0, 0, 0), ("m", 1, 0, 0)],
        [("empty", 0, 0), ("m", 1, 0, 1), ("m", 0, 0, 1)],
        [("m", 0, 99), ("m", 1, 0, 1)],
        [("m", 0, 0, 100), ("big", 0, 0, 100), ("m", 1, 0)],
        [("__cluster_metadata" if version < 13 else bytes(15) + b"\x01", 0, 0)],
    ]
    for wanted in places:
        for isolation in (0, 1):
            sides.same(fetch(version, *wanted, isolation=isolation), version)
    for max_bytes in (0, 1, 100, 150):
        sides.same(fetch(version, ("m", 0, 0, 90), ("m", 1, 0), max_bytes=max_bytes), version)
    sides.same(fetch(version, ("big", 0, 0, 100), ("m", 0, 0), max_bytes=1000), version)
    waiting: list[Sequence[FetchTarget]] = [[("m", 0, 0)], [("m", 0, 12)], [("m", 0, 13)], []]
    for wanted in waiting:
        sides.same(fetch(version, *wanted, min_bytes=1_000_000, wait_ms=20), version)
    for epoch in (0, 1, 5, -2):
        sides.same(fetch(version, ("m", 0, 0), epoch=epoch), version)
        sides.same(fetch(version, ("m", 0, 13), epoch=epoch), version)
    for epoch in (0, 1, -2):
        for place in (("m", 0, 5), ("m", 0, 13), ("empty", 0, 0)):
            sides.same(fetch(version, place, last_epoch=epoch), version)
    if version < 15:
        for replica_id in (1, 5, -2):
            sides.same(fetch(version, ("m", 0, 0), replica_id=replica_id), version)


@pytest.mark.parametrize("version", [4, 7, 12, 13, 18])
def test_an_isolation_level_that_does_not_exist_is_an_invalid_request(sides: SideBySide, version: int) -> None:
    """Apache Kafka trips over it, at the same places of the answer, and says UNKNOWN_SERVER_ERROR."""
    for answer, error in zip(
        sides.both(fetch(version, ("m", 0, 0), isolation=5), version), (UnknownServerError, InvalidRequest), strict=True
    ):
        assert answer.error_code == (error.code if version >= 7 else 0)
        assert [p.error_code for t in answer.responses for p in t.partitions] == ([error.code] if version < 13 else [])


# -- offsets -----------------------------------------------------------------------------------------------------------


def list_offsets(
    *wanted: tuple[str, int, int], epoch: int = -1, isolation: int = 0, replica_id: int = -1
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsRequest.Topic.Partition]] = {}
    for topic, partition, timestamp in wanted:
        requested = ListOffsetsRequest.Topic.Partition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
        )
        topics.setdefault(topic, []).append(requested)
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsRequest.Topic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


@pytest.fixture(scope="module")
def timed(sides: SideBySide) -> str:
    """A topic whose records do not stand in the order of their times."""
    sides.create_topic("timed")
    for times in ((100, 50, 200), (150, 200), (120,)):
        batch = build([Record(offset, NOW_MS + ms, b"k", b"v") for offset, ms in enumerate(times)])
        produced(sides, "timed", bytes(batch))
    return "timed"


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_found_by_time(sides: SideBySide, timed: str, version: int) -> None:
    times = [NOW_MS + ms for ms in (0, 50, 51, 100, 101, 121, 150, 151, 200, 201)]
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100, -LAST - 1, 0, 1, LAST, *times):
        for topic in (timed, "empty"):
            for isolation in (0,) if version < 2 else (0, 1):
                sides.same(list_offsets((topic, 0, timestamp), isolation=isolation), version)
    for wanted in ([(timed, 9, -1)], [("nobody", 0, -1)], [(timed, -1, -1)], []):
        sides.same(list_offsets(*wanted), version)
    sides.same(list_offsets((timed, 0, -1), (timed, 0, -2), ("m", 1, -1)), version, order=BY_PARTITION)
    for replica_id in (1, 5, -2):
        sides.same(list_offsets((timed, 0, -1), replica_id=replica_id), version)
    if version >= 4:
        for epoch in (0, 1, 99, -2):
            sides.same(list_offsets((timed, 0, -1), epoch=epoch), version)


@pytest.mark.parametrize("version", range(2, 5))
def test_ends_of_epochs_are_found(sides: SideBySide, version: int) -> None:
    def ends(*wanted: tuple[str, int, int, int], replica_id: int = -1) -> OffsetForLeaderEpochRequest:
        topics = [
            OffsetForLeaderEpochRequest.Topic(
                topic=topic,
                partitions=[
                    OffsetForLeaderEpochRequest.Topic.Partition(
                        partition=partition, current_leader_epoch=current, leader_epoch=epoch
                    )
                ],
            )
            for topic, partition, current, epoch in wanted
        ]
        return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics)

    for topic in ("m", "empty"):
        for current in (-1, 0, 1, -2):
            for epoch in (-2, -1, 0, 1, 100):
                sides.same(ends((topic, 0, current, epoch)), version)
    for wanted in ([("nobody", 0, -1, 0)], [("m", 9, -1, 0)], [("m", -1, -1, 0)], []):
        sides.same(ends(*wanted), version)
    sides.same(ends(("m", 0, -1, 0), ("nobody", 1, 0, 0)), version, order=BY_PARTITION)
    for replica_id in (1, -2):
        sides.same(ends(("m", 0, -1, 0), replica_id=replica_id), version)


def delete_records(*wanted: tuple[str, int, int]) -> DeleteRecordsRequest:
    topics: dict[str, list[DeleteRecordsRequest.Topic.Partition]] = {}
    for topic, partition, offset in wanted:
        requested = DeleteRecordsRequest.Topic.Partition(partition_index=partition, offset=offset)
        topics.setdefault(topic, []).append(requested)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=name, partitions=partitions) for name, partitions in topics.items()],
        timeout_ms=1000,
    )


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted(sides: SideBySide, version: int) -> None:
    topic, compacted, both = new_name(), new_name(), new_name()
    sides.create_topic(topic, 2)
    sides.create_topic(compacted, cleanup_policy="compact")
    sides.create_topic(both, cleanup_policy="compact,delete")
    for name in (topic, topic, compacted, both):
        produced(sides, name, records(4))
    for wanted in (
        [(topic, 0, 0)],
        [(topic, 0, 9)],
        [(topic, 0, -2)],
        [(topic, 9, 0)],
        [(topic, -1, 0)],
        [("nobody", 0, 0)],
        [("a b", 0, 0)],
        [("__cluster_metadata", 0, 0)],
        [(compacted, 0, -1)],
        [],
        [(topic, 0, 2)],
        [(topic, 0, 1)],
        [(topic, 0, 6), (topic, 0, 3), (topic, 1, 0)],
        [(both, 0, -1)],
        [(topic, 0, 5), (topic, 1, -1), ("nobody", 0, 0)],
    ):
        sides.same(delete_records(*wanted), version, order=BY_PARTITION)
    for timestamp in (-1, -2, -4, 0, NOW_MS, NOW_MS + 1):
        sides.same(list_offsets((topic, 0, timestamp)), 11)
    for offset in (0, 4, 5, 8):
        sides.same(fetch(12, (topic, 0, offset)), 12)
    sides.same(delete_records((topic, 0, -1)), version)
    sides.same(list_offsets((topic, 0, -2)), 11)


def test_the_newest_record_is_never_one_that_was_deleted(sides: SideBySide) -> None:
    """Apache Kafka names it until its segment is gone."""
    topic = new_name()
    sides.create_topic(topic)
    produced(sides, topic, records(2))
    sides.same(delete_records((topic, 0, -1)), 2)
    kafka, trioka = sides.both(list_offsets((topic, 0, -3)), 11)
    assert kafka.topics[0].partitions[0].offset == 0
    assert trioka.topics[0].partitions[0].offset == -1
