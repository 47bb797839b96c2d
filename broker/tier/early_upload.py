"""Uploads parts of the active segment while it is written, as cluster/remote_log/early.py decides.

    parts of the active segment ──▶ it is closed ──▶ `take`: the copy (jobs.py) sends the rest and completes the upload

One upload of a partition at a time, and EARLY_UPLOADS_AT_ONCE of a broker, since each may hold a few parts in memory
when the store is slow. What was sent was read and checked before, as everything that goes to the object store.
"""

import logging
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.remote_log.early import (
    AbandonUpload,
    ActiveSegment,
    BeginUpload,
    EarlyUpload,
    SendParts,
    decide_early,
)
from trioka.cluster.remote_log.metadata import RemotePartition
from trioka.cluster.remote_log.plan import LogFacts, Policy
from trioka.protocol.errors import KafkaError
from trioka.protocol.remote_segment.object_key import ObjectSuffix, RemoteSegment, TopicIdPartition
from trioka.storage.segments.batch_scan import BadBatch
from trioka.storage.segments.segment import Segment

from ..replication.partitions import Replica
from .store import object_store
from .store.object_store import ObjectStoreError
from .store.segment_objects import Scan, SegmentGone, Upload

if TYPE_CHECKING:
    from .tiered_storage import TieredStorage

log = logging.getLogger("trioka.tier")

EARLY_UPLOADS_AT_ONCE: Final = 16  # of a broker


class BegunUpload:
    """The upload of a segment that is still written, or was closed just now."""

    def __init__(self, segment_id: bytes, base_offset: int, begun_ms: int, scan: Scan, upload: Upload) -> None:
        self.segment_id: Final = segment_id
        self.base_offset: Final = base_offset
        self.begun_ms: Final = begun_ms
        self.scan: Final = scan
        self.upload: Final = upload

    def facts(self) -> EarlyUpload:
        return EarlyUpload(
            segment_id=self.segment_id,
            base_offset=self.base_offset,
            begun_ms=self.begun_ms,
            sent_bytes=self.upload.sent_bytes,
            checked_offset=self.scan.next_offset,
        )


class EarlyUploads:
    """Of one partition, in one leadership."""

    def __init__(self, tier: "TieredStorage", replica: Replica, about: TopicIdPartition) -> None:
        self.due_bytes = 0  # the size of the active segment at which the next decision is due
        self._tier = tier
        self._replica = replica
        self._about = about
        self.begun: BegunUpload | None = None
        self._is_sending = False
        self._ended_at = -1

    def is_due(self) -> bool:
        """Called for every append and commit."""
        its_log = self._replica.log
        begun = self.begun
        return (
            its_log.segments.active.size >= self.due_bytes > 0
            and not self._is_sending
            and min(its_log.high_watermark, its_log.last_stable_offset)
            > (its_log.segments.active.base_offset if begun is None else begun.scan.next_offset)
        )

    def is_sending(self, base_offset: int) -> bool:
        return self._is_sending and self.begun is not None and self.begun.base_offset == base_offset

    def take(self, base_offset: int) -> BegunUpload | None:
        """For the copy of this segment, which was closed."""
        begun = self.begun
        if begun is None or begun.base_offset != base_offset:
            return None
        self.begun = None
        self._tier.early_uploads.discard(self)
        return begun

    def decide(self, facts: LogFacts, remote: RemotePartition, policy: Policy) -> SendParts | None:
        """What to send now."""
        active = self._replica.log.segments.active
        self.due_bytes = 0
        if self._is_sending:
            return None
        step = decide_early(
            ActiveSegment(base_offset=active.base_offset, size_bytes=active.size),
            facts,
            remote,
            policy,
            None if self.begun is None else self.begun.facts(),
            part_bytes=object_store.PART_BYTES,
            now_ms=self._tier.now_ms(),
            ended_at=self._ended_at,
        )
        if isinstance(step, AbandonUpload):
            self._end(step.reason)
        elif isinstance(step, BeginUpload):
            step = self._begin(step.base_offset, min(facts.high_watermark, facts.last_stable_offset))
        elif step is None:
            self._wait_for_parts(policy, active)
        if isinstance(step, SendParts):
            self._is_sending = True
            return step
        return None

    def _wait_for_parts(self, policy: Policy, active: Segment) -> None:
        """Until the active segment has another part. If it has one already, it is something else that is waited for:
        the high watermark, or an event that leads to a decision by itself."""
        if not policy.copies or not policy.copies_early:
            return
        begun = self.begun
        if begun is not None and begun.base_offset == active.base_offset:
            self.due_bytes = begun.upload.sent_bytes + object_store.PART_BYTES
        elif begun is None and active.base_offset != self._ended_at and active.size < object_store.PART_BYTES:
            self.due_bytes = object_store.PART_BYTES

    def _begin(self, base_offset: int, end_offset: int) -> SendParts | None:
        tier = self._tier
        if len(tier.early_uploads) >= EARLY_UPLOADS_AT_ONCE or not tier.may_write():
            return None  # until the next decision
        tier.early_uploads.add(self)
        segment_id = tier.new_segment_id()
        key = RemoteSegment(self._about, base_offset, segment_id).key(ObjectSuffix.LOG)
        self.begun = BegunUpload(
            segment_id,
            base_offset,
            tier.now_ms(),
            Scan(base_offset, self._replica.log.config.index_interval_bytes),
            Upload(tier.store, key, tier.read_limiter),
        )
        return SendParts(end_offset=end_offset)

    async def send(self, step: SendParts) -> None:
        """Sends the whole parts of batches before the offset. After a failure the segment is copied whole."""
        begun, its_log = self.begun, self._replica.log
        tier, active = self._tier, its_log.segments.active
        try:
            if begun is None or active.base_offset != begun.base_offset:
                return  # it was closed just now
            disk, path, size = its_log.files.disk, active.log_path, active.size
            await trio.to_thread.run_sync(begun.scan.read, disk, path, size, step.end_offset, limiter=tier.read_limiter)
            part = object_store.PART_BYTES
            await tier.copy_quota.acquire((begun.scan.position - begun.upload.sent_bytes) // part * part)
            tier.require_ownership()
            await begun.upload.send(disk, path, begun.scan.position, whole_parts=part)
        except (ObjectStoreError, SegmentGone, BadBatch, KafkaError, OSError) as error:
            self._is_sending = False
            self._end(str(error))
        finally:
            self._is_sending = False

    def _end(self, reason: str) -> None:
        if self.begun is not None:
            log.info("%s: the early upload of the segment at %d ends: %s", self._about, self.begun.base_offset, reason)
            self._ended_at = self.begun.base_offset
            self.close()

    def close(self) -> None:
        """The leadership has ended, or the upload."""
        begun, self.begun = self.begun, None
        self._tier.early_uploads.discard(self)
        if begun is not None:
            self._tier.remove_upload(begun.upload)
