"""What happens when a read finds that objects of a segment are missing.

A lifecycle rule, a hand or a late listing may be the cause. The objects are looked for again after a while; if one is
still missing, the task of the partition wakes, and decides (cluster/remote_log/plan.py): it records the loss, or
leaves the segment as it is if trioka.tier.missing.policy is `fail`. Only the leader acts; a follower's consumers meet
the error until it did. Damaged objects stay: another reader may have met another copy.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.remote_log.metadata import RemoteSegment
from trioka.protocol.remote_segment.object_key import ObjectSuffix, TopicIdPartition

from ..config.trioka_keys import TIER_MISSING_POLICY
from .reads.reader import Loss, RemoteReader
from .store.object_store import ObjectNotFound, ObjectStoreError
from .store.segment_objects import remote_segment_of

if TYPE_CHECKING:
    from .tiered_storage import TieredStorage

CONFIRM_S: Final = 5.0
SKIP: Final = "skip"


def open_reader(tier: "TieredStorage", nursery: trio.Nursery) -> RemoteReader:
    """The reader of a broker, which reports losses to the partitions' tasks."""
    return RemoteReader(
        lambda: tier.broker.config,
        nursery.start_soon,
        lambda: tier.store,
        tier.topic.image,
        tier.losses.report,
        partial(_may_skip, tier),
        tier.counts,
    )


def _may_skip(tier: "TieredStorage", about: TopicIdPartition) -> bool:
    """Whether offsets without a segment are gone: this broker leads the partition and knows all of its segments."""
    task = tier.tasks.get(about)
    return task is not None and task.is_ready and tier.broker.config[TIER_MISSING_POLICY] == SKIP


class SegmentLosses:
    def __init__(self, tier: "TieredStorage", nursery: trio.Nursery) -> None:
        self._tier: Final = tier
        self._nursery: Final = nursery
        self._checking: Final[set[bytes]] = set()

    def report(self, about: TopicIdPartition, segment: RemoteSegment, loss: Loss) -> None:
        if loss is Loss.MISSING and segment.segment_id not in self._checking and about in self._tier.tasks:
            self._checking.add(segment.segment_id)
            self._nursery.start_soon(self._confirm, about, segment)

    async def _confirm(self, about: TopicIdPartition, segment: RemoteSegment) -> None:
        try:
            await trio.sleep(CONFIRM_S)
            is_missing = await self._is_missing(about, segment)
        finally:
            self._checking.discard(segment.segment_id)
        task = self._tier.tasks.get(about)
        if is_missing and task is not None and self._tier.broker.config[TIER_MISSING_POLICY] == SKIP:
            task.missing.add(segment.segment_id)
            task.wake()

    async def _is_missing(self, about: TopicIdPartition, segment: RemoteSegment) -> bool:
        name = remote_segment_of(about, segment)
        try:
            for suffix in ObjectSuffix:
                await self._tier.store.size(name.key(suffix))
        except ObjectNotFound:
            return True
        except ObjectStoreError:
            return False
        return False
