"""The image of `__remote_log_metadata`: transitions, rule R, usable prefixes and lookups."""

from dataclasses import replace
from typing import cast

import pytest
from support.remote_segments import ABOUT, DELETED, DELETING, FINISHED, a_partition, a_segment, lineage, update

from trioka.cluster.remote_log.codec import decode_record, encode_record, epoch_headers, partition_of, read_epoch
from trioka.cluster.remote_log.metadata import (
    NO_EPOCH,
    PartitionDeleteState,
    RemoteLogMetadata,
    RemotePartition,
    SegmentState,
    epoch_record,
    partition_delete_record,
    read_segment,
    segment_record,
)
from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records.remote_log import (
    RemoteLogSegmentMetadataRecord,
)


def test_a_segment_is_readable_only_between_finished_and_its_deletion() -> None:
    segment, history = a_segment(0, 9), lineage(20)
    partition = RemotePartition(ABOUT)
    partition.replay(segment_record(ABOUT, segment), 0)
    assert partition.segment_at(history, 5) is None
    partition.replay(update(segment, FINISHED), 0)
    found = partition.segment_at(history, 5)
    assert found is not None and found.segment_id == segment.segment_id
    partition.replay(update(segment, DELETING), 0)
    assert partition.segment_at(history, 5) is None
    partition.replay(update(segment, DELETED), 0)
    assert partition.segments == {}


@pytest.mark.parametrize("path", [[DELETED], [FINISHED, DELETED], [DELETING, FINISHED]])
def test_a_record_that_is_no_transition_changes_nothing(path: list[SegmentState]) -> None:
    segment, partition = a_segment(0, 9), RemotePartition(ABOUT)
    partition.replay(segment_record(ABOUT, segment), 0)
    counted = [partition.replay(update(segment, state), 0) for state in path]
    assert counted[-1] is False


def test_a_repeated_start_does_not_undo_a_finished_copy() -> None:
    segment = a_segment(0, 9)
    partition = a_partition(segment)
    assert not partition.replay(segment_record(ABOUT, segment), 0)
    assert [each.segment_id for each in partition.finished] == [segment.segment_id]


def test_a_record_of_an_older_leader_epoch_is_ignored() -> None:
    segment = a_segment(0, 9)
    partition = a_partition(segment)
    assert partition.replay(epoch_record(ABOUT, broker_id=2, now_ms=9), 4)
    assert not partition.replay(update(segment, DELETING), 3)
    assert partition.segment_at(lineage(20), 0) is not None
    assert partition.replay(update(segment, DELETING), 4)


def test_records_without_the_header_count_until_the_first_with_one() -> None:
    segment, partition = a_segment(0, 9), RemotePartition(ABOUT)
    assert partition.replay(segment_record(ABOUT, segment), NO_EPOCH)
    assert partition.replay(epoch_record(ABOUT, broker_id=2, now_ms=9), 0)
    assert not partition.replay(update(segment, FINISHED), NO_EPOCH)


def test_a_segment_that_straddles_an_unclean_election_serves_its_beginning() -> None:
    straddler = a_segment(0, 29, (0, 0), (1, 10), (2, 20))
    history = lineage(40, (0, 0), (1, 10), (3, 15))
    assert history.usable_end(straddler) == 15
    partition = a_partition(straddler)
    assert partition.segment_at(history, 14) is not None
    assert partition.segment_at(history, 15) is None
    assert partition.highest_offset(history) == 14


def test_a_segment_of_another_history_is_not_usable() -> None:
    other = a_segment(10, 19, (2, 10))
    assert lineage(40, (0, 0), (3, 10)).usable_end(other) == 10
    assert lineage(40, (0, 0), (2, 15)).usable_end(other) == 10  # the same epoch began later here
    assert lineage(15, (2, 0)).usable_end(other) == 15  # beyond the end of the log it is not proven


def test_epochs_below_the_log_start_do_not_make_a_segment_unusable() -> None:
    segment = a_segment(0, 99, (1, 0), (2, 50))
    assert lineage(200, (2, 60)).usable_end(segment) == 100
    assert lineage(200, (3, 60)).usable_end(segment) == 50  # its records from 60 on are another leader's


def test_overlapping_segments_of_two_leaders_cover_each_other() -> None:
    first, second, third = a_segment(0, 19), a_segment(5, 9), a_segment(15, 30)
    partition, history = a_partition(first, second, third), lineage(100)
    found = [partition.segment_at(history, offset) for offset in (12, 16)]
    assert [each and each.segment_id for each in found] == [first.segment_id, third.segment_id]
    assert partition.covered_until(history, 0) == 31
    assert partition.covered_until(history, 0, without=first.segment_id) == 0
    assert partition.covered_until(history, 5, without=second.segment_id) == 31


def test_a_hole_ends_the_coverage_and_the_next_segment_is_found_behind_it() -> None:
    partition, history = a_partition(a_segment(0, 9), a_segment(20, 29)), lineage(100)
    assert partition.covered_until(history, 0) == 10
    assert partition.segment_at(history, 10) is None
    following = partition.segment_after(history, 10)
    assert following is not None and following.start_offset == 20
    assert partition.highest_offset(history) == 29


def test_the_image_drops_a_partition_whose_deletion_is_finished() -> None:
    image, segment = RemoteLogMetadata(), a_segment(0, 9)
    image.replay(segment_record(ABOUT, segment), 1)
    for state in PartitionDeleteState:
        assert image.partition(ABOUT.topic_id, ABOUT.partition) is not None
        assert image.replay(partition_delete_record(ABOUT, state, broker_id=1, now_ms=1), 2)
    assert image.partition(ABOUT.topic_id, ABOUT.partition) is None


def test_records_survive_encoding() -> None:
    segment = a_segment(3, 9, (1, 3), (2, 5))
    for record in (
        segment_record(ABOUT, segment),
        update(segment, FINISHED),
        partition_delete_record(ABOUT, PartitionDeleteState.DELETE_PARTITION_MARKED, broker_id=1, now_ms=1),
    ):
        assert decode_record(encode_record(record)) == record
    read = decode_record(encode_record(segment_record(ABOUT, segment)))
    assert isinstance(read, RemoteLogSegmentMetadataRecord) and read_segment(read, 0) == segment
    assert read_epoch(epoch_headers(12)) == 12
    assert read_epoch(()) == NO_EPOCH


def test_a_record_with_an_unknown_state_starts_no_segment() -> None:
    for state in (-1, 4, 99):
        segment = replace(a_segment(3, 9, (1, 3)), state=cast(SegmentState, state))
        record = segment_record(ABOUT, segment)
        image = RemoteLogMetadata()
        assert not image.replay(record, 1)
        partition = image.partition(ABOUT.topic_id, ABOUT.partition)
        assert partition is not None and not partition.segments


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x01\x00", b"\x01\x63\x00", b"\x02\x00\x00", b"\x01\x00\x00\x01"])
def test_an_unknown_or_torn_record_is_refused(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_record(value)


def test_the_partition_of_the_topic_is_spread_over_all() -> None:
    used = {partition_of(bytes([n, *range(15)]), index, 50) for n in range(20) for index in range(10)}
    assert used <= set(range(50)) and len(used) > 40
