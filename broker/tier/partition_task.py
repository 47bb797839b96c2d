"""The task of one tiered partition that this broker leads, in one leader epoch.

It waits for events: a segment was closed, the high watermark passed its end, a record was replayed, a job has ended,
the configuration changed, a segment expires. Then it decides (cluster/remote_log/plan.py) and carries out the steps: at
most one copy and one deletion at a time. After a failure it waits, with exponential backoff. At rest it does nothing.
"""

import logging
from collections.abc import Hashable
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.remote_log.early import SendParts
from trioka.cluster.remote_log.jobs import (
    Author,
    Job,
    Outcome,
    RecordNotWritten,
    cancel_copy,
    copy_segment,
    delete_segment,
)
from trioka.cluster.remote_log.metadata import RemoteSegment, SegmentState, epoch_record
from trioka.cluster.remote_log.plan import (
    CancelCopy,
    Cause,
    CopySegment,
    DeleteSegment,
    MoveLogStart,
    Step,
    decide_as_leader,
    next_expiry_ms,
)
from trioka.protocol.errors import KafkaError
from trioka.protocol.remote_segment.object_key import TopicIdPartition

from ..replication.partitions import Replica
from .early_upload import BegunUpload, EarlyUploads
from .jobs import JobFailed, JobRunner
from .log_facts import facts_of, has_no_aborted, move_log_start, replicated_log_start

if TYPE_CHECKING:
    from .tiered_storage import TieredStorage

log = logging.getLogger("trioka.tier")

SHORTEST_WAIT_S: Final = 0.01  # between two decisions: events that come together are one


class Backoff:
    """How long to wait after a failure. Copies and deletions have one each: the deletion of what a failed copy has left
    succeeds, and must not make the next attempt of the copy come sooner."""

    def __init__(self, tier: "TieredStorage") -> None:
        self.until = 0.0
        self._tier = tier
        self._failures = 0

    @property
    def is_waiting(self) -> bool:
        return trio.current_time() < self.until

    def has_failed(self) -> None:
        self.until = trio.current_time() + self._tier.backoff_s(self._failures)
        self._failures += 1

    def has_succeeded(self) -> None:
        self.until, self._failures = 0.0, 0


class PartitionTask:
    """Also a watcher of its replica (cluster/replication/purgatory.py): it is notified of appends and commits."""

    def __init__(self, tier: "TieredStorage", replica: Replica, about: TopicIdPartition) -> None:
        self.replica = replica
        self.about = about
        self.epoch = replica.leader_epoch
        self.is_ready = False  # the record of this epoch counted, so everything before it is replayed
        self.missing: set[bytes] = set()  # segments whose objects are lost
        self.scope = trio.CancelScope()
        self._tier = tier
        self._event = trio.Event()
        self._early = EarlyUploads(tier, replica, about)
        self._busy: dict[bytes, bool] = {}  # by segment: whether it is being deleted
        self._active = replica.log.segments.active
        self._log_start = replica.log.log_start_offset
        self._awaited = inf  # the end of a closed segment that is not committed yet
        self._awaits_followers = False  # they do not all have the log start yet
        self._decisions, self._copies, self._deletions = Backoff(tier), Backoff(tier), Backoff(tier)

    # -- events --------------------------------------------------------------------------------------------------------

    def on_notify(self, key: Hashable) -> None:
        if self._is_due():
            self.wake()

    def _is_due(self) -> bool:
        """Called for every append, so it compares a few numbers."""
        its_log = self.replica.log
        if its_log.segments.active is not self._active:
            return True
        if its_log.high_watermark >= self._awaited and its_log.last_stable_offset >= self._awaited:
            return True
        if its_log.log_start_offset != self._log_start:
            return True  # records were deleted by a client
        if self._early.is_due():
            return True
        return self._awaits_followers and replicated_log_start(self.replica) >= its_log.log_start_offset

    def on_notified(self) -> None: ...

    def wake(self) -> None:
        self._event.set()

    # -- the task ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        purgatory = self._tier.broker.purgatory
        purgatory.watch(self.replica, self)
        try:
            with self.scope:
                if await self._begin_epoch():
                    async with trio.open_nursery() as nursery:
                        await self._decide_forever(nursery)
        finally:
            purgatory.unwatch(self.replica, self)
            self._early.close()

    async def _begin_epoch(self) -> bool:
        """Makes the epoch known, and waits until its record is read back. False: a later leader was faster."""
        while True:
            record = epoch_record(self.about, broker_id=self._tier.broker_id, now_ms=self._tier.now_ms())
            try:
                self.is_ready = await self._tier.topic.write(self.about, record, self.epoch)
            except RecordNotWritten as error:
                log.info("%s: waiting for the remote log metadata: %s", self.about, error)
                self._copies.has_failed()
                await trio.sleep_until(self._copies.until)
            else:
                self._copies.has_succeeded()
                return self.is_ready

    async def _decide_forever(self, nursery: trio.Nursery) -> None:
        while self.replica.leads and self.replica.leader_epoch == self.epoch and not self.replica.log.closed:
            self._event = trio.Event()
            self._active = self.replica.log.segments.active
            self._log_start = self.replica.log.log_start_offset
            expiry_s = inf if self._decisions.is_waiting else self._decide(nursery)
            backoffs = (self._decisions, self._copies, self._deletions)
            retries = (each.until - trio.current_time() for each in backoffs if each.is_waiting)
            wait_s = min(self._tier.retry_interval_s, expiry_s, *retries)
            with trio.move_on_after(max(wait_s, SHORTEST_WAIT_S)):
                await self._event.wait()

    def _decide(self, nursery: trio.Nursery) -> float:
        """Starts what is to be done now. Returns the seconds until something expires."""
        tier = self._tier
        if tier.ownership.superseded_by is not None:
            return inf  # a restored cluster has the objects: no record may say otherwise (TI11)
        remote, policy, now_ms = tier.topic.partition(self.about), tier.policy_of(self.replica), tier.now_ms()
        try:
            facts = facts_of(self.replica)
            self._awaited = next(
                (s.next_offset for s in facts.segments if s.next_offset > facts.last_stable_offset), inf
            )
            self._awaits_followers = facts.replicated_log_start_offset < facts.log_start_offset
            steps = decide_as_leader(
                facts,
                remote,
                policy,
                now_ms=now_ms,
                busy=self._busy,
                is_deleting=any(self._busy.values()),
                missing=self.missing,
            )
            for step in list(steps):
                self._begin(step, nursery)
            send = self._early.decide(facts, remote, policy)
            if send is not None:
                nursery.start_soon(self._send_early, send)
            if tier.enforce_local_retention(self.replica, self.about):
                self.wake()  # there is a segment to copy
            expiry = next_expiry_ms(remote, policy)
        except (KafkaError, OSError) as error:
            self._decisions.has_failed()
            log.warning("%s: nothing can be decided: %s", self.about, error)
            return inf
        self._decisions.has_succeeded()
        return inf if expiry is None else (expiry - now_ms) / 1000

    def _begin(self, step: Step, nursery: trio.Nursery) -> None:
        author = Author(broker_id=self._tier.broker_id, epoch=self.epoch, now_ms=self._tier.now_ms())
        if isinstance(step, MoveLogStart):
            log.info("%s: the log starts at %d now: what was before %s", self.about, step.offset, step.cause.value)
            move_log_start(self._tier.broker, self.replica, step.offset)
        elif isinstance(step, CopySegment):
            if self._copies.is_waiting or False in self._busy.values():
                return
            if not self._early.is_sending(step.local.base_offset):
                begun = self._early.take(step.local.base_offset)
                segment = self._new_segment(step, begun)
                nursery.start_soon(self._copy, segment, copy_segment(self.about, segment, author), begun)
                self._busy[segment.segment_id] = False
        elif True not in self._busy.values() and not self._deletions.is_waiting:
            segment = step.segment
            make = cancel_copy if isinstance(step, CancelCopy) else delete_segment
            if isinstance(step, DeleteSegment):
                self._tier.on_deletion(self.about, segment, step.cause)
            self._busy[segment.segment_id] = True
            is_loss = isinstance(step, DeleteSegment) and step.cause is Cause.MISSING
            nursery.start_soon(self._delete, segment, make(self.about, segment, author), is_loss)

    async def _send_early(self, step: SendParts) -> None:
        await self._early.send(step)
        self.wake()

    def _new_segment(self, step: CopySegment, begun: BegunUpload | None) -> RemoteSegment:
        return RemoteSegment(
            segment_id=self._tier.new_segment_id() if begun is None else begun.segment_id,
            start_offset=step.local.base_offset,
            end_offset=step.local.next_offset - 1,
            broker_id=self._tier.broker_id,
            max_timestamp_ms=step.local.max_timestamp_ms,
            event_timestamp_ms=self._tier.now_ms(),
            leader_epochs=step.leader_epochs,
            size_bytes=step.local.size_bytes,
            state=SegmentState.COPY_SEGMENT_STARTED,
            uploader_epoch=self.epoch,
            txn_index_empty=has_no_aborted(self.replica.log, step.local.base_offset),
        )

    async def _copy(self, segment: RemoteSegment, job: Job, begun: BegunUpload | None) -> None:
        counts = self._tier.counts.of(self.about.topic)
        try:
            async with self._tier.copy_limiter:
                counts.copy_requests += 1
                if await self._run(segment, job, begun) is Outcome.DONE:
                    counts.copied_bytes += segment.size_bytes
                    counts.copied_segments += 1
                    offsets = segment.start_offset, segment.end_offset
                    log.info("%s: offsets %d to %d are in the object store", self.about, *offsets)
                else:
                    counts.copy_errors += 1
        finally:
            if begun is not None:
                self._tier.remove_upload(begun.upload)  # it was not completed if the job ended early

    async def _delete(self, segment: RemoteSegment, job: Job, is_loss: bool) -> None:
        counts = self._tier.counts.of(self.about.topic)
        async with self._tier.delete_limiter:
            counts.delete_requests += 1
            outcome = await self._run(segment, job)
            if outcome is None:
                counts.delete_errors += 1
            elif outcome is Outcome.DONE and is_loss:
                self._tier.counts.missing_segments += 1

    async def _run(self, segment: RemoteSegment, job: Job, begun: BegunUpload | None = None) -> Outcome | None:
        """None if it failed."""
        outcome: Outcome | None = None
        is_copy = not self._busy[segment.segment_id]
        backoff = self._copies if is_copy else self._deletions
        runner = JobRunner(self._tier, self.about, self.epoch, self.replica.log, begun)
        try:
            if is_copy:
                await runner.describe(segment)
            outcome = await runner.run(job)
            backoff.has_succeeded()
        except JobFailed as error:
            backoff.has_failed()
            pause_s = backoff.until - trio.current_time()
            log.warning("%s: %s; the next attempt is in %.1f s", self.about, error, pause_s)
        finally:
            job.close()
            self._busy.pop(segment.segment_id, None)
            self.wake()
        return outcome
