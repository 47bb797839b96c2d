"""The epochs and producers of a log at an offset, from the indexes of the remote segment that has it."""

from typing import TYPE_CHECKING, NamedTuple

import trio

from trioka.cluster.remote_log.metadata import Lineage
from trioka.protocol.errors import KafkaStorageError, ProtocolError
from trioka.protocol.remote_segment.indexes import SegmentIndexes, decode_leader_epochs
from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.storage.files.checkpoint import EpochEntry

from ..store.object_store import ObjectStoreError
from ..store.segment_objects import remote_segment_of
from .remote_index import read_indexes

if TYPE_CHECKING:
    from ..tiered_storage import TieredStorage


class FollowerHistory(NamedTuple):
    """What a follower begins with, at `next_offset`."""

    next_offset: int
    last_epoch: int  # of the record before it
    epochs: tuple[EpochEntry, ...]  # of the whole log up to there
    producer_snapshot: bytes


async def history_at(tier: "TieredStorage", about: TopicIdPartition, offset: int, epoch: int) -> FollowerHistory:
    """At the end of the segment that has this record of this epoch. KafkaStorageError if there is none, or it cannot be
    read."""
    reader = tier.reader
    partition = tier.topic.image.partition(about.topic_id, about.partition)
    lineage = Lineage((EpochEntry(epoch, offset),), offset + 1)
    segment = None if partition is None else partition.segment_at(lineage, offset)
    if segment is None:
        raise KafkaStorageError(f"{about}: no segment with offset {offset} of epoch {epoch} is known yet")
    name = remote_segment_of(about, segment)
    try:
        manifest, data = await reader.load_indexes(name)
        indexes: SegmentIndexes = await trio.to_thread.run_sync(read_indexes, data, manifest)
        chain = decode_leader_epochs(indexes.leader_epoch)
    except (ObjectStoreError, ProtocolError) as error:
        raise KafkaStorageError(f"{name}: {error}") from None
    epochs = tuple(EpochEntry(entry.epoch, entry.start_offset) for entry in chain)
    last = segment.leader_epochs[-1].epoch
    if not epochs or epochs[-1].epoch != last:
        raise KafkaStorageError(f"{name}: its leader epochs end with {epochs[-1:]}, and not with {last}")
    return FollowerHistory(segment.next_offset, last, epochs, indexes.producer_snapshot)
