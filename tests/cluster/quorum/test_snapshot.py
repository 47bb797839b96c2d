"""Snapshots as files: what they hold, and that half of one is nothing."""

from contextlib import suppress

import pytest
from support.small_cluster import SmallCluster

from trioka.cluster.image.metadata import Metadata
from trioka.cluster.quorum.snapshot import SnapshotId, build_snapshot, parse_snapshot_name, read_snapshot, snapshot_name
from trioka.protocol import batch
from trioka.protocol.errors import CorruptMessage, InvalidRecord, ProtocolError
from trioka.protocol.internal_records.control import VotersRecord
from trioka.protocol.internal_records.metadata import NoOpRecord

VOTERS = VotersRecord(version=0, voters=[])


def snapshot_of(cluster: SmallCluster) -> bytes:
    return b"".join(
        build_snapshot(
            cluster.metadata.records(),
            epoch=1,
            now_ms=2000,
            last_contained_log_timestamp_ms=1000,
            kraft_version=1,
            voters=VOTERS,
        )
    )


def small_cluster() -> SmallCluster:
    cluster = SmallCluster(brokers=2)
    cluster.create("orders", partitions=3, configs={"retention.ms": "5"})
    return cluster


def test_a_snapshot_makes_the_same_image() -> None:
    cluster = small_cluster()
    snapshot = read_snapshot(snapshot_of(cluster))
    assert snapshot.kraft_version == 1 and snapshot.voters == VOTERS
    assert snapshot.last_contained_log_timestamp_ms == 1000
    metadata = Metadata()
    metadata.load(snapshot.records, cluster.metadata.offset, 1)
    assert metadata == cluster.metadata and metadata.offset == cluster.metadata.offset


def test_a_snapshot_begins_and_ends_with_a_control_batch_and_counts_from_nought() -> None:
    headers = list(batch.headers(snapshot_of(small_cluster())))
    assert [header.is_control for header in headers] == [True, False, True]
    assert [header.record_count for header in headers][::2] == [3, 1]
    assert [header.base_offset for header in headers][:2] == [0, 3]
    assert {header.leader_epoch for header in headers} == {1}


def test_without_kraft_version_a_snapshot_says_nothing_of_voters() -> None:
    data = b"".join(build_snapshot([], epoch=0, now_ms=0, last_contained_log_timestamp_ms=0))
    assert [header.record_count for header in batch.headers(data)] == [1, 1]
    assert read_snapshot(data).records == () and read_snapshot(data).voters is None


def test_a_large_snapshot_is_written_in_pieces() -> None:
    pieces = list(build_snapshot([NoOpRecord()] * 9000, epoch=0, now_ms=0, last_contained_log_timestamp_ms=0))
    assert len(pieces) == 5
    assert len(read_snapshot(b"".join(pieces)).records) == 9000


def test_a_snapshot_that_is_cut_off_anywhere_is_refused() -> None:
    data = snapshot_of(small_cluster())
    for end in range(len(data)):
        with pytest.raises((ProtocolError, CorruptMessage)):
            read_snapshot(data[:end])


def test_a_flipped_bit_is_noticed() -> None:
    """Base offsets and leader epochs stand before the checksum, and a snapshot does not need them."""
    data = snapshot_of(small_cluster())
    sound = read_snapshot(data)
    for position in range(17, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with suppress(ProtocolError, CorruptMessage, InvalidRecord):
            assert read_snapshot(damaged) == sound


def test_two_snapshots_behind_each_other_are_none() -> None:
    data = snapshot_of(small_cluster())
    with pytest.raises(ProtocolError, match="second header or footer"):
        read_snapshot(data + data)


def test_a_log_is_no_snapshot() -> None:
    data = snapshot_of(small_cluster())
    second = list(batch.headers(data))[1]
    with pytest.raises(ProtocolError, match="does not begin"):
        read_snapshot(data[second.position :])


def test_a_snapshot_is_named_after_the_offset_that_follows_it_and_the_last_epoch() -> None:
    name = "00000000000000000042-0000000003.checkpoint"
    assert snapshot_name(SnapshotId(42, 3)) == name
    assert parse_snapshot_name(name) == SnapshotId(42, 3)


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.checkpoint",
        "00000000000000000042-0000000003.checkpoint.part",
        "00000000000000000042-0000000003.checkpoint.deleted",
        "42-3.checkpoint",
        "00000000000000000042.log",
    ],
)
def test_other_files_are_no_snapshots(name: str) -> None:
    assert parse_snapshot_name(name) is None
