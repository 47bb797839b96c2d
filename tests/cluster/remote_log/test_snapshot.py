"""Snapshots of the remote log metadata: all that was replayed, or nothing."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.remote_segments import ABOUT, DELETING, FINISHED, a_segment, update

from trioka.cluster.remote_log import snapshot as remote_log_snapshot
from trioka.cluster.remote_log.metadata import (
    DELETED_EPOCH,
    PartitionDeleteState,
    RemoteLogMetadata,
    RemotePartition,
    epoch_record,
    partition_delete_record,
    segment_record,
)
from trioka.protocol.errors import ProtocolError
from trioka.protocol.remote_segment.object_key import TopicIdPartition

TOPIC_ID = bytes(range(100, 116))
OTHER = TopicIdPartition(bytes(16), "a.topic_with-a.name", 2**31 - 1)


@pytest.fixture
def snapshots() -> ModuleType:
    return remote_log_snapshot


def replayed() -> list[RemotePartition]:
    """One with a segment in each state, and one that is being deleted."""
    one, other = RemotePartition(ABOUT), RemotePartition(OTHER)
    segments = [a_segment(0, 9), a_segment(10, 19), a_segment(20, 2**40)]
    for segment in segments:
        one.replay(segment_record(ABOUT, segment), 3)
    one.replay(update(segments[0], FINISHED), 3)
    one.replay(update(segments[1], FINISHED), 3)
    one.replay(update(segments[1], DELETING), 4)
    other.replay(segment_record(OTHER, a_segment(0, 9)), -1)
    other.replay(
        partition_delete_record(OTHER, PartitionDeleteState.DELETE_PARTITION_MARKED, broker_id=1, now_ms=0),
        DELETED_EPOCH,
    )
    return [one, other]


def snapshot(module: ModuleType, partitions: list[RemotePartition]) -> bytes:
    states = tuple(module.state_of(each) for each in partitions)
    data: bytes = module.encode_snapshot(module.MetadataSnapshot(TOPIC_ID, 7, 2**40, states))
    return data


def test_a_snapshot_has_all_that_was_replayed(snapshots: ModuleType) -> None:
    partitions = replayed()
    found = snapshots.decode_snapshot(snapshot(snapshots, partitions))
    assert (found.topic_id, found.partition, found.next_offset) == (TOPIC_ID, 7, 2**40)
    for state, partition in zip(found.partitions, partitions, strict=True):
        again = snapshots.restored(state)
        assert snapshots.state_of(again) == snapshots.state_of(partition)
        assert list(again.finished) == list(partition.finished)


def test_a_record_of_a_deposed_leader_does_not_count_after_a_snapshot(snapshots: ModuleType) -> None:
    (state, _) = snapshots.decode_snapshot(snapshot(snapshots, replayed())).partitions
    again = snapshots.restored(state)
    assert not again.replay(epoch_record(ABOUT, broker_id=1, now_ms=0), 3)
    assert again.replay(epoch_record(ABOUT, broker_id=1, now_ms=0), 4)


def test_the_log_start_does_not_pass_what_the_records_before_a_snapshot_named(snapshots: ModuleType) -> None:
    partition = RemotePartition(ABOUT)
    partition.had_segments = True
    (state,) = snapshots.decode_snapshot(snapshot(snapshots, [partition])).partitions
    assert snapshots.restored(state).had_segments


def test_a_snapshot_in_place_of_the_records_gives_the_same_image(snapshots: ModuleType) -> None:
    image = RemoteLogMetadata()
    for state in snapshots.decode_snapshot(snapshot(snapshots, replayed())).partitions:
        image.put(snapshots.restored(state))
    known = image.partition(ABOUT.topic_id, ABOUT.partition)
    assert known is not None and [segment.start_offset for segment in known.finished] == [0]
    assert image.replay(update(known.finished[0], DELETING), 4)
    assert not known.finished


@pytest.mark.parametrize("size", [0, 1, 8, 30, 100])
def test_a_torn_snapshot_is_none(snapshots: ModuleType, size: int) -> None:
    whole = snapshot(snapshots, replayed())
    with pytest.raises(ProtocolError):
        snapshots.decode_snapshot(whole[:size])
    with pytest.raises(ProtocolError):
        snapshots.decode_snapshot(whole[:-1])


def test_no_byte_of_a_snapshot_can_be_wrong(snapshots: ModuleType) -> None:
    whole = snapshot(snapshots, replayed())
    for at in range(len(whole)):
        with pytest.raises(ProtocolError):
            snapshots.decode_snapshot(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        (
            "partition.max_epoch = state.max_epoch",
            "partition.max_epoch = -1",
            test_a_record_of_a_deposed_leader_does_not_count_after_a_snapshot,
        ),
        (
            "partition.had_segments = state.had_segments",
            "partition.had_segments = bool(state.segments)",
            test_the_log_start_does_not_pass_what_the_records_before_a_snapshot_named,
        ),
        (
            "if _CRC.unpack(data[-_CRC.size :])[0] != crc32c(content):",
            "if False:",
            test_no_byte_of_a_snapshot_can_be_wrong,
        ),
        (
            "partition.delete_state = state.delete_state",
            "partition.delete_state = None",
            test_a_snapshot_has_all_that_was_replayed,
        ),
    ],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(remote_log_snapshot, right, wrong, rule)
