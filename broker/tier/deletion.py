"""Deletion of what deleted topics have left in the object store: a job of the broker that leads the partition of
`__remote_log_metadata` with their records.

The job is in the records, so it survives its broker: every leader of such a partition looks for partitions whose topic
does not exist any more.

    RemotePartitionDelete MARKED ─▶ STARTED ─▶ each segment: cancelled or deleted ─▶ FINISHED

Its records have the highest leader epoch (DELETED_EPOCH): nothing that a former leader of the partition writes counts
after the first of them.

A topic that this broker does not know is not necessarily deleted: the metadata may be behind. So the active controller
is asked where its metadata ends, and the topic must still be unknown when this broker has replayed up to there. The
topic was in the metadata before the first record about it was written.
"""

import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster.remote_log_jobs import Author, RecordNotWritten, cancel_copy, delete_segment
from trioka.cluster.remote_log_metadata import (
    DELETED_EPOCH,
    PartitionDeleteState,
    RemotePartition,
    SegmentState,
    partition_delete_record,
)
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.describe_quorum import DescribeQuorumRequest
from trioka.protocol.remote_segment.object_key import TopicIdPartition

from .jobs import JobFailed, JobRunner
from .object_store import ObjectStoreError

if TYPE_CHECKING:
    from .tiered_storage import TieredStorage

log = logging.getLogger("trioka.tier")

METADATA_TOPIC: Final = "__cluster_metadata"
ASK_TIMEOUT_S: Final = 30.0
DELETIONS_AT_ONCE: Final = 4  # partitions of deleted topics


class TopicDeletions:
    def __init__(self, tier: "TieredStorage", nursery: trio.Nursery) -> None:
        self._tier = tier
        self._nursery = nursery
        self._running: set[TopicIdPartition] = set()
        self._limiter = trio.CapacityLimiter(DELETIONS_AT_ONCE)

    def __len__(self) -> int:
        """The partitions that are being deleted."""
        return len(self._running)

    def on_topic_deleted(self, topic_id: bytes) -> None:
        for partition in list(self._tier.topic.image):
            if partition.id.topic_id == topic_id:
                self.on_replayed(partition.id)

    def on_leader(self, index: int) -> None:
        """This broker leads a partition of the metadata topic: what was replayed of it before is looked at, and what is
        replayed from now on by `on_replayed`."""
        for partition in list(self._tier.topic.image):
            if self._tier.topic.index_of(partition.id) == index:
                self.on_replayed(partition.id)

    def on_replayed(self, about: TopicIdPartition) -> None:
        topic = self._tier.topic
        if about in self._running or topic.image.partition(about.topic_id, about.partition) is None:
            return
        if self._tier.broker.metadata.topics.by_id(about.topic_id) is None and topic.leads(topic.index_of(about)):
            self._running.add(about)
            self._nursery.start_soon(self._run, about)

    async def _run(self, about: TopicIdPartition) -> None:
        failures = 0
        try:
            async with self._limiter:
                while self._tier.topic.leads(self._tier.topic.index_of(about)):
                    try:
                        if not await self._is_deleted(about) or await self._delete(about):
                            return
                    except (JobFailed, RecordNotWritten, ObjectStoreError, KafkaError) as error:
                        pause_s = self._tier.backoff_s(failures)
                        failures += 1
                        log.warning(
                            "%s: segments of the deleted topic remain, the next attempt is in %.1f s: %s",
                            about,
                            pause_s,
                            error,
                        )
                        await trio.sleep(pause_s)
        except Exception as mistake:  # must not affect other partitions or the broker
            log.error("internal error: the segments of %s are not deleted", about, exc_info=mistake)
        finally:
            self._running.discard(about)

    async def _is_deleted(self, about: TopicIdPartition) -> bool:
        """Whether the topic is not in the metadata of the active controller either."""
        broker = self._tier.broker
        asked = DescribeQuorumRequest.Topic.Partition(partition_index=0)
        request = DescribeQuorumRequest(
            topics=[DescribeQuorumRequest.Topic(topic_name=METADATA_TOPIC, partitions=[asked])]
        )
        response: Any = await broker.controller.send_request(request, timeout_s=ASK_TIMEOUT_S)
        end = response.topics[0].partitions[0].high_watermark
        while broker.quorum.applied < end:
            await broker.quorum.moved.wait()
        return broker.metadata.topics.by_id(about.topic_id) is None

    async def _delete(self, about: TopicIdPartition) -> bool:
        """True when nothing is left."""
        tier = self._tier
        await tier.topic.caught_up(tier.topic.index_of(about))
        partition = tier.topic.image.partition(about.topic_id, about.partition)
        if partition is None:
            return True
        if not partition.segments and partition.delete_state is None:
            tier.topic.image.forget(about.topic_id, about.partition)  # only records of its leaders' epochs
            return True
        await tier.ownership.check_recently()
        log.info("%s: the topic was deleted, its %d segments go from the object store", about, len(partition.segments))
        for state in (PartitionDeleteState.DELETE_PARTITION_MARKED, PartitionDeleteState.DELETE_PARTITION_STARTED):
            if partition.delete_state is None or partition.delete_state < state:
                await self._write(about, state)
        await self._delete_segments(about, partition)
        if partition.segments:
            return False
        await self._write(about, PartitionDeleteState.DELETE_PARTITION_FINISHED)
        tier.counts.forget(about.topic)
        return True

    async def _delete_segments(self, about: TopicIdPartition, partition: RemotePartition) -> None:
        tier, counts = self._tier, self._tier.counts.of(about.topic)
        for segment in list(partition.segments.values()):
            author = Author(broker_id=tier.broker_id, epoch=DELETED_EPOCH, now_ms=tier.now_ms())
            make = cancel_copy if segment.state is SegmentState.COPY_SEGMENT_STARTED else delete_segment
            async with tier.delete_limiter:
                counts.delete_requests += 1
                try:
                    await JobRunner(tier, about, DELETED_EPOCH).run(make(about, segment, author))
                except JobFailed:
                    counts.delete_errors += 1
                    raise

    async def _write(self, about: TopicIdPartition, state: PartitionDeleteState) -> None:
        record = partition_delete_record(about, state, broker_id=self._tier.broker_id, now_ms=self._tier.now_ms())
        await self._tier.topic.write(about, record, DELETED_EPOCH)
