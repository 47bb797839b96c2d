"""Manifests without objects, for tests of what readers decide by them."""

from collections.abc import Sequence

from trioka.protocol.remote_segment.indexes import IndexRange, IndexRanges, LeaderEpoch
from trioka.protocol.remote_segment.manifest import SegmentContent, SegmentManifest, Uploader
from trioka.protocol.remote_segment.object_key import RemoteSegment, TopicIdPartition

PLACE = TopicIdPartition(b"t" * 16, "orders", 0)
NOTHING = IndexRange(0, 0)
RANGES = IndexRanges(
    offset=NOTHING, timestamp=NOTHING, producer_snapshot=NOTHING, leader_epoch=NOTHING, transaction=None
)
CONTENT = SegmentContent(
    crc32c=0,
    indexes_crc32c=0,
    min_timestamp_ms=0,
    records=1,
    batches=1,
    control_batches=0,
    codecs=frozenset(),
    retention_until_ms=None,
)


def made_up_manifest(
    start: int, end: int, epochs: Sequence[LeaderEpoch], *, uploader: int = 0, number: int = 0
) -> SegmentManifest:
    """Of a segment of the offsets from `start` up to `end`, exclusive."""
    return SegmentManifest(
        segment=RemoteSegment(PLACE, start, number.to_bytes(16)),
        end_offset=end - 1,
        max_timestamp_ms=0,
        broker_id=0,
        event_timestamp_ms=0,
        leader_epochs=tuple(epochs),
        size=1,
        indexes=RANGES,
        uploader=Uploader(cluster_id="c", incarnation=1, leader_epoch=uploader),
        content=CONTENT,
    )
