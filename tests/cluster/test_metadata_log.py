"""How records stand in the metadata log: their frame, their versions, their batches."""

from random import Random
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed
from support.random_messages import sample

from trioka.cluster import metadata_log
from trioka.cluster.metadata_log import RECORDS, LogEntry, build_batch, build_control_batch, read_batch
from trioka.protocol import batch
from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
)
from trioka.protocol.internal_records.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from trioka.protocol.record import Record
from trioka.protocol.schema import Entry, Message

EVERY_VERSION = [
    (declared, version)
    for declared in RECORDS.values()
    for version in range(declared.__versions__.first, declared.__versions__.last + 1)
]


@pytest.fixture
def log() -> ModuleType:
    return metadata_log


def entries_of(data: bytes | bytearray) -> list[LogEntry]:
    found: list[LogEntry] = []
    for header in batch.headers(data):
        batch.verify(data, header)
        found += read_batch(data, header)
    return found


def test_a_record_is_framed_by_its_frame_version_key_and_version(log: ModuleType) -> None:
    value = log.encode_record(FeatureLevelRecord(name="metadata.version", feature_level=30))
    assert value.hex() == "010c00" + "11" + b"metadata.version".hex() + "001e" + "00"


def test_there_are_twenty_six_records_in_all() -> None:
    """Kafka has retired the keys 6, 13 and 16."""
    assert set(RECORDS) == set(range(29)) - {6, 13, 16}


@pytest.mark.parametrize(("declared", "version"), EVERY_VERSION)
def test_a_record_comes_back_in_the_version_it_was_written_in(declared: type[Entry], version: int) -> None:
    for seed in range(20):
        record = sample(declared, version, Random(seed))
        assert metadata_log.decode_record(metadata_log.encode_record(record, version)) == (record, version)


@pytest.mark.parametrize(("declared", "version"), EVERY_VERSION)
def test_a_record_that_is_cut_off_or_too_long_is_refused(declared: type[Entry], version: int) -> None:
    value = metadata_log.encode_record(sample(declared, version, Random(3)), version)
    for wrong in [*(value[:end] for end in range(len(value))), value + b"\0"]:
        with pytest.raises(ProtocolError):
            metadata_log.decode_record(wrong)


@pytest.mark.parametrize(
    ("value", "names"),
    [(b"\x02\x0c\x00", "frame version 2"), (b"\x01\x06\x00", "key 6"), (b"\x01\x7f\x00", "key 127"), (b"", "0 bytes")],
)
def test_an_unwritten_config_is_named(value: bytes, names: str) -> None:
    with pytest.raises(ProtocolError, match=names):
        metadata_log.decode_record(value)


def test_a_future_version_is_reported_with_the_name_of_the_record(log: ModuleType) -> None:
    with pytest.raises(ProtocolError, match="TopicRecord has versions 0, not 1"):
        log.decode_record(b"\x01\x02\x01" + bytes(20))


@pytest.mark.parametrize(
    ("level", "register", "partition"), [(7, 1, 0), (8, 2, 0), (17, 3, 1), (23, 3, 2), (29, 3, 2), (30, 4, 2)]
)
def test_an_older_cluster_writes_older_records(level: int, register: int, partition: int) -> None:
    assert metadata_log.written_version(RegisterBrokerRecord.with_defaults(), level) == register
    assert metadata_log.written_version(PartitionRecord.with_defaults(), level) == partition
    assert metadata_log.written_version(NoOpRecord(), level) == 0


def test_a_change_of_a_broker_is_written_in_the_lowest_version_that_can_say_it(log: ModuleType) -> None:
    def version(**said: Any) -> int:
        return int(log.written_version(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, **said)))

    assert version(fenced=1) == 0
    assert version(in_controlled_shutdown=1) == 1
    assert version(log_dirs=[bytes(16)]) == 2
    assert version(cordoned_log_dirs=[]) == 3


def test_a_batch_holds_its_records_under_following_offsets() -> None:
    records = [TopicRecord(name=f"t{number}", topic_id=bytes([number]) * 16) for number in range(3)]
    data = build_batch(records, base_offset=40, epoch=7, now_ms=1234)
    assert entries_of(data) == [LogEntry(40 + number, 7, 1234, record, None) for number, record in enumerate(records)]
    assert len(list(batch.headers(data))) == 1


def test_more_records_than_a_batch_holds_become_several_batches(log: ModuleType) -> None:
    data = log.build_batch([NoOpRecord()] * 25_000, base_offset=5, epoch=1, now_ms=0)
    headers = list(batch.headers(data))
    assert [header.record_count for header in headers] == [10_000, 10_000, 5_000]
    assert [header.base_offset for header in headers] == [5, 10_005, 20_005]


def test_no_batch_is_larger_than_eight_mebibytes(log: ModuleType) -> None:
    large = TopicRecord(name="x" * 0x7FFF, topic_id=bytes(16))
    data = log.build_batch([large] * 600, base_offset=0, epoch=1, now_ms=0)
    headers = list(batch.headers(data))
    assert len(headers) == 3
    assert all(header.size <= 8 << 20 for header in headers)
    assert sum(header.record_count for header in headers) == 600


VOTERS = VotersRecord(
    version=0,
    voters=[
        VotersRecord.Voter(
            voter_id=1,
            voter_directory_id=bytes(range(16)),
            endpoints=[VotersRecord.Voter.Endpoint(name="CONTROLLER", host="localhost", port=9093)],
            kraft_version_feature=VotersRecord.Voter.KRaftVersionFeature(
                min_supported_version=0, max_supported_version=1
            ),
        )
    ],
)


@pytest.mark.parametrize(
    "message",
    [
        LeaderChangeMessage(version=0, leader_id=1, voters=[Voter(voter_id=1)], granting_voters=[]),
        LeaderChangeMessage(
            version=1, leader_id=1, voters=[Voter(voter_id=1, voter_directory_id=bytes(range(16)))], granting_voters=[]
        ),
        KRaftVersionRecord(version=0, kraft_version=1),
        VOTERS,
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=99),
        SnapshotFooterRecord(version=0),
    ],
)
def test_a_control_record_comes_back(message: Message) -> None:
    data = build_control_batch([message], base_offset=3, epoch=2, now_ms=5)  # type: ignore[list-item]
    assert entries_of(data) == [LogEntry(3, 2, 5, None, message)]  # type: ignore[arg-type]
    assert batch.read_header(data).is_control


def test_a_control_record_of_the_future_is_stepped_over() -> None:
    record = Record(0, 1, (0).to_bytes(2, "big") + (99).to_bytes(2, "big"), b"whatever")
    assert entries_of(batch.build([record], control=True)) == [LogEntry(0, -1, 1, None, None)]


@pytest.mark.parametrize("value", [None, b"", b"\0", b"\xff\xff\0"])
def test_a_control_record_without_a_sound_value_is_refused(value: bytes | None) -> None:
    record = Record(0, 1, (0).to_bytes(2, "big") + (5).to_bytes(2, "big"), value)
    with pytest.raises(ProtocolError):
        entries_of(batch.build([record], control=True))


def test_a_record_without_a_value_is_refused() -> None:
    with pytest.raises(ProtocolError, match="offset 0: it has no value"):
        entries_of(batch.build([Record(0, 1, None, None)]))


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "uvarint(FRAME_VERSION) + uvarint(record.__key__) + uvarint(version)",
        "uvarint(FRAME_VERSION) + uvarint(version) + uvarint(record.__key__)",
        test_a_record_is_framed_by_its_frame_version_key_and_version,
    ),
    (
        "return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0",
        "return 2",
        test_a_change_of_a_broker_is_written_in_the_lowest_version_that_can_say_it,
    ),
    (
        "len(values) == MAX_RECORDS_PER_BATCH or",
        "False or",
        test_more_records_than_a_batch_holds_become_several_batches,
    ),
    ("size += len(value) + RECORD_OVERHEAD_BYTES", "size += 1", test_no_batch_is_larger_than_eight_mebibytes),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(metadata_log, right, wrong, rule)
