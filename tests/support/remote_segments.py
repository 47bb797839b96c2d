"""Remote segments, partitions and lineages of tests, in a line each."""

from itertools import count

from trioka.cluster.remote_log.metadata import (
    Lineage,
    RemotePartition,
    RemoteSegment,
    SegmentState,
    segment_record,
    update_record,
)
from trioka.protocol.internal_records.remote_log import RemoteLogSegmentMetadataUpdateRecord
from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.storage.files.checkpoint import EpochEntry

ABOUT = TopicIdPartition(bytes(range(16)), "orders", 3)
IDS = count(1)
FINISHED, DELETING = SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED


def a_segment(start: int, end: int, *epochs: tuple[int, int], size: int = 100) -> RemoteSegment:
    return RemoteSegment(
        segment_id=next(IDS).to_bytes(16, "big"),
        start_offset=start,
        end_offset=end,
        broker_id=1,
        max_timestamp_ms=end,
        event_timestamp_ms=7,
        leader_epochs=tuple(EpochEntry(*entry) for entry in epochs or [(0, start)]),
        size_bytes=size,
        state=SegmentState.COPY_SEGMENT_STARTED,
        uploader_epoch=0,
    )


def update(segment: RemoteSegment, state: SegmentState) -> RemoteLogSegmentMetadataUpdateRecord:
    return update_record(ABOUT, segment.segment_id, state, broker_id=1, now_ms=8)


def a_partition(*finished: RemoteSegment) -> RemotePartition:
    partition = RemotePartition(ABOUT)
    for segment in finished:
        assert partition.replay(segment_record(ABOUT, segment), 0)
        assert partition.replay(update(segment, FINISHED), 0)
    return partition


def lineage(end: int, *epochs: tuple[int, int]) -> Lineage:
    return Lineage(tuple(EpochEntry(*entry) for entry in epochs or [(0, 0)]), end)
