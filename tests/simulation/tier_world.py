"""A tiered partition of three brokers: leaders that are deposed and go on, replays that lag behind, a store that fails.

What ships and is simulated: the image of the remote log metadata with rule R and usable prefixes, the decisions and the
jobs (cluster/remote_log_*.py), and local retention (storage/cleaning/local_retention.py). Simulated around them are
logs as lists with segment borders of their own on each broker, high watermark and last stable offset, ISR, clean and
unclean elections, kills, the topic `__remote_log_metadata` as a list whose appends may fail after they took effect, and
the store (tier_store.py).

After every event the current leader, as if it had replayed everything, must serve every committed offset from its disk
or from finished segments (TI1 to TI4, TI6, TI8, TI9). In fair weather at the end nothing may be left over (TI5, TI10),
the bucket alone must give back what was finished (TI7), and a deleted topic leaves nothing.
"""

from collections.abc import Callable
from random import Random

from simulation import tier_early
from simulation.tier_end import check_restore, delete_topic
from simulation.tier_losses import expire, notice_missing
from simulation.tier_moves import reassign
from simulation.tier_parts import (
    ABOUT,
    NODES,
    RECORD_BYTES,
    BegunUpload,
    FaultProfile,
    Habits,
    Row,
    Running,
    SimBroker,
    Violation,
)
from simulation.tier_store import TOMBSTONE, SimStore
from simulation.tier_sweep import sweep

from trioka.cluster.remote_log import jobs as remote_log_jobs
from trioka.cluster.remote_log import plan as remote_log_plan
from trioka.cluster.remote_log import sweep as remote_log_sweep
from trioka.cluster.remote_log.jobs import (
    Author,
    CreateManifest,
    CreateTombstone,
    DeleteObjects,
    ObjectKind,
    PutSegment,
    ReadManifestKey,
    RecordNotWritten,
    Result,
    StoreFailed,
    WriteRecord,
)
from trioka.cluster.remote_log.metadata import Lineage, RemotePartition, RemoteSegment, SegmentState, epoch_record
from trioka.cluster.remote_log.plan import CancelCopy, Cause, CopySegment, MoveLogStart, Policy, Step
from trioka.protocol.schema import Entry
from trioka.storage.cleaning.local_retention import decide_local
from trioka.storage.cleaning.retention import SegmentAge
from trioka.storage.files.checkpoint import EpochEntry
from trioka.storage.log_config import LogConfig

HOUR_MS = 60 * 60 * 1000
EVENT_MS = 2 * HOUR_MS  # so that orphans become a day old within a run
FAIR_STEPS = 4000  # at most, until everything is at rest


class TierWorld:
    def __init__(self, seed: int, *, profile: FaultProfile | None = None, habits: Habits | None = None) -> None:
        self.random = Random(seed)
        self.profile = profile or FaultProfile.of(seed)
        self.habits = habits or Habits()
        self.brokers = [SimBroker(node) for node in NODES]
        self.store = SimStore(self.random, self.profile.failures)
        self.records: list[tuple[Entry, int]] = []
        self.truth = RemotePartition(ABOUT)  # as a replica that has replayed everything sees it
        self.leader = 0
        self.epoch = 0
        self.isr = set(NODES)
        self.high_watermark = self.stable = 0
        self.start = 0  # the log start of the partition, moved by leaders
        self.lost: set[int] = set()  # offsets that a lifecycle rule or an unclean election has taken
        self.now_ms = 0
        self.events = self.copies = self.deletions = self.cancelled = self.elections = self.swept = self.early_parts = (
            self.reassigned
        ) = 0
        self._values = self._ids = 0
        self._was_unclean = False  # the last election
        self.without_tombstone: set[bytes] = set()  # cancelled segments whose tombstones were swept
        self.is_fair = self.is_deleted = False
        self.take(0)

    def trace(self) -> object:
        return (
            self.events,
            self.copies,
            self.deletions,
            self.cancelled,
            self.epoch,
            self.start,
            len(self.records),
            self.early_parts,
        )

    # -- a run ---------------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._advance_clock()
            self._choose()()
            self._check()
        self._end()

    def _advance_clock(self) -> None:
        self.events += 1
        self.now_ms += EVENT_MS
        self.store.now_ms = self.now_ms

    def _choose(self) -> Callable[[], None]:
        profile = self.profile
        chances: dict[Callable[[], None], float] = {
            self._append: 6,
            self._fetch: 8,
            self.advance: 8,
            self._roll: 3,
            self._decide: 10,
            self._work: 20,
            self._replay_some: 12,
            self._trim: 3,
            lambda: sweep(self): 1,
            self.store.step: 4,
            self._elect: profile.elect,
            self._elect_unclean: profile.unclean,
            self._kill: profile.kill,
            self._replace: profile.replace,
            lambda: expire(self): profile.expire,
            lambda: notice_missing(self): 2 * profile.expire,
            self._upload_early: 12,
            lambda: reassign(self): profile.reassign,
        }
        return self.random.choices(list(chances), list(chances.values()))[0]

    @property
    def leading(self) -> SimBroker:
        return self.brokers[self.leader]

    # -- the log -------------------------------------------------------------------------------------------------------

    def _append(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            self._values += 1
            self.leading.log.append(Row(self.epoch, self._values))

    def _roll(self) -> None:
        broker = self.random.choice(self.brokers)
        if len(broker.log) > broker.borders[-1]:
            broker.borders.append(len(broker.log))

    def _fetch(self) -> None:
        self.fetch_by(self.random.choice(self.brokers))

    def fetch_by(self, follower: SimBroker) -> None:
        leader = self.leading
        if follower is leader or not follower.is_up:
            return
        follower.fetched_in = self.epoch
        leader.starts[follower.node] = follower.log_start
        agreed = 0
        for mine, theirs in zip(follower.log, leader.log, strict=False):
            if mine != theirs:
                break
            agreed += 1
        self._truncate(follower, agreed)
        follower.log_start = max(follower.log_start, min(leader.log_start, len(follower.log)))
        follower.local_start = max(follower.local_start, follower.log_start)
        if len(follower.log) < leader.local_start:  # OFFSET_MOVED_TO_TIERED_STORAGE
            follower.log = leader.log[: leader.local_start]
            follower.borders = [leader.local_start]
            follower.local_start = leader.local_start
            follower.log_start = leader.log_start
        follower.log += leader.log[len(follower.log) : len(follower.log) + self.random.randrange(1, 6)]
        follower.high_watermark = min(len(follower.log), leader.high_watermark)

    @staticmethod
    def _truncate(broker: SimBroker, end: int) -> None:
        if end >= len(broker.log):
            return
        del broker.log[end:]
        broker.local_start = min(broker.local_start, end)
        broker.log_start = min(broker.log_start, end)
        broker.high_watermark = min(broker.high_watermark, end)
        broker.borders = [border for border in broker.borders if border <= end] or [end]

    def advance(self) -> None:
        leader = self.leading
        self.high_watermark = max(self.high_watermark, min(len(self.brokers[node].log) for node in self.isr))
        leader.high_watermark = self.high_watermark
        if self.is_fair or self.random.random() < 0.25:  # otherwise a transaction is open
            self.stable = self.high_watermark
        for broker in self.brokers:
            is_there = broker.is_up and broker.fetched_in == self.epoch and len(broker.log) >= self.high_watermark
            if is_there and broker.log[: self.high_watermark] == leader.log[: self.high_watermark]:
                self.isr.add(broker.node)
        leader.isr = set(self.isr)
        slow = self.random.choice(NODES)
        if not self.is_fair and slow != self.leader and len(self.isr) > 2 and self.random.random() < 0.1:
            self.isr.discard(slow)

    # -- elections -----------------------------------------------------------------------------------------------------

    def _elect(self) -> None:
        fit = [n for n in self.isr if n != self.leader and self.brokers[n].is_up]
        if fit:
            self.take(self.random.choice(fit))

    def _elect_unclean(self) -> None:
        node = self.random.choice(NODES)
        broker = self.brokers[node]
        if node == self.leader or not broker.is_up:
            return
        self.isr = {node}
        self.take(node)
        self._was_unclean = True
        end = len(broker.log)
        self.high_watermark = self.stable = broker.high_watermark = end
        self.start = min(self.start, end)
        self.replay(broker)
        for offset in range(self.start, broker.local_start):  # history may be lost with the other replicas
            if self.truth.segment_at(broker.lineage(), offset) is None:
                self.lost.add(offset)

    def take(self, node: int) -> None:
        self.elections += 1
        self.epoch += 1
        self._was_unclean = False
        self.leader = node
        self.isr.add(node)
        leader = self.leading
        leader.epoch, leader.epoch_record_at = self.epoch, None
        leader.high_watermark = max(leader.high_watermark, min(self.high_watermark, len(leader.log)))
        leader.missing.clear()
        leader.starts, leader.isr = dict.fromkeys(NODES, 0), set(self.isr)
        for broker in self.brokers:
            if broker is not leader and broker.epoch >= 0 and (self.is_fair or self.random.random() < 0.5):
                broker.epoch = -1  # the others do not know yet, and go on
        leader.jobs = [job for job in leader.jobs if self.random.random() < 0.5]  # of its earlier leadership

    def _kill(self) -> None:
        broker = self.random.choice(self.brokers)
        if broker.node == self.leader:
            return
        broker.is_up = not broker.is_up
        if not broker.is_up:
            self.isr.discard(broker.node)
            broker.epoch, broker.jobs = -1, []

    def _replace(self) -> None:
        """A replica on a new disk knows nothing, and replays from the start."""
        node = self.random.choice(NODES)
        if node != self.leader and len(self.isr - {node}) > 1:
            self.isr.discard(node)
            self.brokers[node] = SimBroker(node)

    # -- the metadata topic --------------------------------------------------------------------------------------------

    def write(self, record: Entry, epoch: int) -> int:
        """The offset of the record. RecordNotWritten, and it may be there all the same."""
        fails = not self.is_fair and self.random.random() < self.profile.failures / 2
        if fails and self.random.random() < 0.5:
            raise RecordNotWritten("timeout")
        self.records.append((record, epoch))
        before = dict(self.truth.segments)
        self.truth.replay(record, epoch)
        if self._was_unclean and epoch < self.epoch:
            self._excuse(before)
        if fails:
            raise RecordNotWritten("timeout after the append")
        return len(self.records) - 1

    def _excuse(self, before: dict[bytes, RemoteSegment]) -> None:
        """An unclean election loses what its leader has not replayed: retention by the deposed leader, of which the
        replicas out of sync do not know, and which counts until the new leader's first record."""
        for segment_id, segment in before.items():
            if segment.is_finished and not self.truth.segments[segment_id].is_finished:
                self.lost.update(range(segment.start_offset, segment.next_offset))

    def replay(self, broker: SimBroker, count: int | None = None) -> None:
        end = len(self.records) if count is None else min(len(self.records), broker.replayed + count)
        for offset in range(broker.replayed, end):
            broker.counted[offset] = broker.image.replay(*self.records[offset])
        broker.replayed = end

    def _replay_some(self) -> None:
        self.replay(self.random.choice(self.brokers), self.random.choice((1, 3, None)))

    # -- decisions and jobs --------------------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        limit = 30 * RECORD_BYTES
        return Policy(copies=True, deletes_all=False, retention_ms=-1, retention_bytes=limit, copies_early=True)

    def _decide(self) -> None:
        leaders = [broker for broker in self.brokers if broker.epoch >= 0]
        self._decide_by(self.random.choice(leaders))

    def _decide_by(self, broker: SimBroker) -> None:
        """What a leader, or who believes to be one, does next."""
        if broker.epoch < 0 or not broker.is_up or self.is_deleted:
            return
        if not self._is_ready(broker):
            return
        busy = {job.segment.segment_id for job in broker.jobs if job.epoch == broker.epoch}
        steps = remote_log_plan.decide_as_leader(
            broker.facts(self.stable),
            broker.image,
            self.policy,
            now_ms=self.now_ms,
            busy=busy,
            is_deleting=any(job.deletes for job in broker.jobs),
            missing=broker.missing,
        )
        for step in list(steps):
            self._begin(broker, step)

    def _is_ready(self, broker: SimBroker) -> bool:
        if self.habits.decides_before_replay:
            return True
        if self.habits.writes_no_epoch_record:
            return broker.replayed == len(self.records)
        if broker.epoch_record_at is None:
            record = epoch_record(ABOUT, broker_id=broker.node, now_ms=self.now_ms)
            try:
                broker.epoch_record_at = self.write(record, broker.epoch)
            except RecordNotWritten:
                return False
        return broker.counted.get(broker.epoch_record_at, False)

    def _begin(self, broker: SimBroker, step: Step) -> None:
        author = Author(broker_id=broker.node, epoch=broker.epoch, now_ms=self.now_ms)
        if isinstance(step, MoveLogStart):
            self._move_log_start(broker, step)
        elif isinstance(step, CopySegment):
            if not any(not job.deletes and job.epoch == broker.epoch for job in broker.jobs):
                begun = tier_early.take(self, broker, step.local.base_offset)
                segment = self._new_segment(broker, step, begun)
                job = remote_log_jobs.copy_segment(ABOUT, segment, author)
                broker.jobs.append(Running(job, segment, broker.epoch, deletes=False, begun=begun))
        elif not any(job.deletes for job in broker.jobs):
            make = remote_log_jobs.cancel_copy if isinstance(step, CancelCopy) else remote_log_jobs.delete_segment
            job = make(ABOUT, step.segment, author)
            broker.jobs.append(Running(job, step.segment, broker.epoch, deletes=True))

    def _move_log_start(self, broker: SimBroker, step: MoveLogStart) -> None:
        """A write of the leader: a deposed one moves only its own log start, and no replica follows."""
        is_leader = broker.node == self.leader and broker.epoch == self.epoch
        if is_leader:
            if step.offset > self.high_watermark:
                raise Violation(f"TI9: the log start moves to {step.offset}, above {self.high_watermark}")
            if step.cause is Cause.UNREADABLE:
                for offset in range(max(broker.log_start, self.start), step.offset):
                    if offset not in self.lost:
                        raise Violation(f"TI9: the log start passes {offset}, which nothing has taken")
            self.start = max(self.start, step.offset)
        broker.log_start = max(broker.log_start, step.offset)
        broker.local_start = max(broker.local_start, broker.log_start)

    def _upload_early(self) -> None:
        tier_early.decide(self, self.random.choice(self.brokers))

    def new_segment_id(self) -> bytes:
        self._ids += 1
        return self._ids.to_bytes(16, "big")

    def _new_segment(self, broker: SimBroker, step: CopySegment, begun: BegunUpload | None) -> RemoteSegment:
        return RemoteSegment(
            segment_id=self.new_segment_id() if begun is None else begun.segment_id,
            start_offset=step.local.base_offset,
            end_offset=step.local.next_offset - 1,
            broker_id=broker.node,
            max_timestamp_ms=step.local.max_timestamp_ms,
            event_timestamp_ms=self.now_ms,
            leader_epochs=step.leader_epochs,
            size_bytes=step.local.size_bytes,
            state=SegmentState.COPY_SEGMENT_STARTED,
            uploader_epoch=broker.epoch,
        )

    def _work(self) -> None:
        running = [(broker, job) for broker in self.brokers if broker.is_up for job in broker.jobs]
        if running:
            self.work_on(*self.random.choice(running))

    def work_on(self, broker: SimBroker, running: Running) -> None:
        """One command of a job; the leader may change meanwhile. A copy that stood still until the tombstone that
        cancelled it was swept, a week later, has timed out."""
        if not running.deletes and running.segment.segment_id in self.without_tombstone:
            running.job.close()
            broker.jobs.remove(running)
            return
        try:
            result = self._execute(broker, running)
            if running.waits_for is not None:
                return
            running.command = running.job.send(result)
        except StopIteration:
            broker.jobs.remove(running)
        except (StoreFailed, RecordNotWritten):
            running.job.close()
            broker.jobs.remove(running)

    def _execute(self, broker: SimBroker, running: Running) -> Result:
        command = running.command
        if isinstance(command, WriteRecord):
            if running.waits_for is None:
                running.waits_for = self.write(command.record, command.epoch)
            if running.waits_for >= broker.replayed:
                return None
            offset, running.waits_for = running.waits_for, None
            return broker.counted[offset]
        if isinstance(command, PutSegment):
            self._put(broker, running, command.segment)
            return None
        if isinstance(command, CreateManifest):
            segment = command.segment
            lineage = broker.lineage() if broker.log else Lineage((), 0)
            content = ("manifest", segment, self._chain(lineage, segment.next_offset), running.epoch)
            created = self.store.create(segment, content)
            self.copies += created
            return created
        if isinstance(command, CreateTombstone):
            self.cancelled += 1
            return self.store.create(command.segment, TOMBSTONE)
        if isinstance(command, ReadManifestKey):
            return self.store.read_manifest_key(command.segment)
        assert isinstance(command, DeleteObjects)
        self._check_deletion(command.segment)
        for kind in command.kinds:
            self.store.delete(command.segment, kind)
        self.deletions += 1
        return None

    def _put(self, broker: SimBroker, running: Running, segment: RemoteSegment) -> None:
        rows = tuple(broker.log[segment.start_offset : segment.next_offset])
        if len(rows) != segment.next_offset - segment.start_offset or broker.local_start > segment.start_offset:
            raise StoreFailed("the segment is gone")  # the log was truncated meanwhile
        self.store.put(segment, ObjectKind.DATA, tier_early.completed(broker, running.begun, rows, segment))
        self.store.put(segment, ObjectKind.INDEXES, ())

    @staticmethod
    def _chain(lineage: Lineage, end: int) -> tuple[EpochEntry, ...]:
        return tuple(entry for entry in lineage.epochs if entry.start_offset < end)

    def _trim(self) -> None:
        self._trim_by(self.random.choice(self.brokers))

    def _trim_by(self, broker: SimBroker) -> None:
        """Local retention keeps as little as it may."""
        if not broker.is_up:
            return
        facts = broker.facts(self.stable)
        end = min(remote_log_plan.tiered_end(facts, broker.image), facts.high_watermark)
        if self.habits.deletes_locally_what_is_not_covered:
            end = facts.high_watermark
        borders = [segment.base_offset for segment in facts.segments]
        active = facts.segments[-1].next_offset if facts.segments else broker.borders[-1]
        ages = [SegmentAge(base, RECORD_BYTES, 0) for base in [*borders, active]]
        config = LogConfig(remote_storage=True, local_retention_ms=0, local_retention_bytes=0)
        gone = decide_local(ages, log_start_offset=broker.log_start, tiered_end=end, config=config, now_ms=1)
        if gone.forgotten:
            broker.local_start = max(broker.local_start, [*borders, active][len(gone.forgotten)])

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        leader, lineage = self.leading, self.leading.lineage()
        for segment in self.truth.finished:
            if lineage.usable_end(segment) > max(self.stable, self.start) > segment.start_offset:
                raise Violation(f"TI1: {segment.start_offset}–{segment.end_offset} is tiered, stable is {self.stable}")
            if segment.segment_id not in self.store.expired:
                self._check_objects(segment)
        for (segment_id, kind), each in self.store.objects.items():
            is_manifest = kind is ObjectKind.MANIFEST and each.content != TOMBSTONE
            has_data = (segment_id, ObjectKind.DATA) in self.store.objects or segment_id in self.store.expired
            if is_manifest and not has_data:
                raise Violation("TI6: a manifest without its data")
        self._check_readable(leader, lineage)

    def _check_objects(self, segment: RemoteSegment) -> None:
        for kind in ObjectKind:
            there = self.store.objects.get((segment.segment_id, kind))
            if there is None or there.content == TOMBSTONE:
                raise Violation(f"TI3: the {kind.value} of a finished segment at {segment.start_offset} is gone")

    def _check_readable(self, leader: SimBroker, lineage: Lineage) -> None:
        for offset in range(max(self.start, leader.log_start), min(self.high_watermark, len(leader.log))):
            if offset >= leader.local_start or offset in self.lost:
                continue
            segment = self.truth.segment_at(lineage, offset)
            if segment is None:
                starts = f"log start {self.start}, local start {leader.local_start}"
                raise Violation(f"TI2: {offset} is nowhere; {starts}, high watermark {self.high_watermark}")
            data = self.store.objects.get((segment.segment_id, ObjectKind.DATA))
            if data is not None and data.content[offset - segment.start_offset] != leader.log[offset]:
                raise Violation(f"TI4: {offset} has other bytes in the object store")

    def _check_deletion(self, segment: RemoteSegment) -> None:
        there = self.truth.segments.get(segment.segment_id)
        if there is not None and there.state is not SegmentState.DELETE_SEGMENT_STARTED:
            raise Violation(f"TI8: objects of a segment in state {there.state.name} are deleted")

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Fair weather; then nothing may be left over."""
        self.is_fair = True
        self.store.settle()
        for broker in self.brokers:
            broker.is_up = True
            if broker.node != self.leader:
                broker.epoch, broker.jobs = -1, []
        if self.profile.deletes_topic:
            self.is_deleted = True
            delete_topic(self)
            return
        for _ in range(40):
            for broker in self.brokers:
                self.fetch_by(broker)
            self.advance()
        self.stable = self.high_watermark
        leader = self.leading
        for _ in range(FAIR_STEPS):
            self._advance_clock()
            self.replay(leader)
            notice_missing(self)
            before = leader.log_start
            self._decide_by(leader)
            has_started = before == leader.log_start == leader.facts(self.stable).replicated_log_start_offset
            if not leader.jobs and self._is_ready(leader) and has_started:
                break
            for running in list(leader.jobs):
                self.work_on(leader, running)
            for broker in self.brokers:
                self.fetch_by(broker)
            self._check()
        else:
            raise Violation("TI5: the leader never comes to rest")
        self._check_at_rest(leader)

    def _check_at_rest(self, leader: SimBroker) -> None:
        self.now_ms += 2 * remote_log_sweep.ORPHAN_AGE_MS
        sweep(self)
        self._check()
        for (segment_id, kind), each in self.store.objects.items():
            if segment_id not in self.truth.segments and each.content != TOMBSTONE:
                raise Violation(f"TI5: an orphan is left: the {kind.value} of a segment at {each.segment.start_offset}")
        for segment in self.truth.segments.values():
            if segment.segment_id in self.store.expired:
                raise Violation(f"TI12: the segment at {segment.start_offset} lost objects, and stays")
            if not segment.is_finished:
                raise Violation(f"TI5: a segment stays in state {segment.state.name}")
        lineage = leader.lineage()
        for segment in self.truth.finished:
            first, end = max(segment.start_offset, leader.log_start), lineage.usable_end(segment)
            if end <= first or self.truth.covered_until(lineage, first, without=segment.segment_id) >= end:
                raise Violation(f"TI10: the segment at {segment.start_offset} is spare, and stays")
        if leader.log_start < leader.local_start and self.truth.segment_at(lineage, leader.log_start) is None:
            raise Violation(f"TI9: the log starts at {leader.log_start}, which cannot be read")
        check_restore(self, leader, lineage)
