"""The metadata quorum, from this node's side: it decides, writes, and follows what is written.

`cluster/raft.py` knows what is to be done; here it is done, one thing after the other: what must not be forgotten is
saved before anything that follows is sent (K1), records are appended, cut off, called committed.

    decided by the controller ─→ appended ─→ durable here and at a majority ─→ replayed ─→ acted upon ─→ answered
    fetched from the leader   ─→ appended ─→ durable here, and acknowledged ─┘

The image, `metadata`, knows what is committed and nothing else, on the leader too, so that nothing has to be unlearned.
Changes are made one after the other: the controller must see the last one before it decides the next. A quorum of one
is a quorum: its majority is this node.

A leader is *active* when the first record of its epoch is committed and replayed: then its image has everything that
leaders before it have committed. On any other node, and when leadership is lost in between, `change` is NotController;
whether the change comes true is unknown then.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Final, TypeVar

import trio

from trioka.cluster.brokers import FeatureRange
from trioka.cluster.controller import Controller
from trioka.cluster.decision import Decision
from trioka.cluster.features import KRAFT_VERSION
from trioka.cluster.image_delta import Change
from trioka.cluster.image_diff import differences
from trioka.cluster.metadata import Metadata
from trioka.cluster.metadata_log import ControlMessage, MetadataRecord, build_batch, build_control_batch, read_batch
from trioka.cluster.raft import Leader, Raft, RaftSettings
from trioka.cluster.raft_messages import Action, AppendVoters, Ask, Cease, Commit, Lead, LoadSnapshot, Save, Truncate
from trioka.cluster.snapshot import Snapshot, SnapshotId, build_snapshot
from trioka.cluster.voters import ReplicaKey
from trioka.protocol import batch
from trioka.protocol.errors import KafkaError, KafkaStorageError, NotController
from trioka.protocol.internal_records.control import KRaftVersionRecord, LeaderChangeMessage, Voter, VotersRecord
from trioka.storage.directory import ForeignDirectory
from trioka.storage.sync import despite_shortages

from ..clock import Clock
from ..config.addresses import Endpoint, Server
from ..config.listeners import Node
from ..network.descriptors import free_descriptors
from .store import METADATA_PARTITION, READ_BYTES, QuorumFiles, QuorumSettings

__all__ = ["METADATA_PARTITION", "Quorum", "QuorumSettings"]

log = logging.getLogger("trioka.quorum")

UNKNOWN: Final = -1
SNAPSHOT_PIECE_BYTES: Final = 8 * 1024 * 1024  # of a snapshot, in one answer
COMMITS_KEPT: Final = 64  # whose length is remembered, for metrics

T = TypeVar("T")
Act = Callable[[Sequence[Change]], Awaitable[None]]
Send = Callable[[Ask], None]


class Quorum:
    """`files` were opened before; `run` begins. `send` puts a question to another node, and its answer comes back by
    one of the methods of `raft`, whose actions `step` carries out."""

    def __init__(
        self,
        files: QuorumFiles,
        clock: Clock,
        node: Node,
        directory_id: bytes,
        cluster_id: str,
        settings: QuorumSettings,
        raft_settings: RaftSettings,
        random: Random,
    ) -> None:
        self.files = files
        self.log = files.log
        self.node = node
        self.node_id = node.id
        self.cluster_id = cluster_id
        self.metadata = Metadata()
        self.raft_settings = raft_settings
        self.endpoints: tuple[Endpoint, ...] = ()  # where this node's controller listens
        self.controller: Controller | None = None
        self.snapshot_bytes = SNAPSHOT_PIECE_BYTES
        self.introduced: dict[int, VotersRecord.Voter] = {}  # what voters have told this leader, while no log has it
        self.is_voter_joining = False  # one is asked what it understands; nobody else joins meanwhile
        self.disk = trio.Lock()  # while somebody appends as a follower, cuts, or makes durable
        self.send: Send = _nobody
        self.on_failure: Callable[[KafkaError], None] = lambda error: None  # the broker cannot go on without metadata
        self._settings = settings
        self._clock = clock
        self._me = ReplicaKey(node.id, directory_id)
        self._lock = trio.Lock()  # of changes
        self._applying = trio.Lock()
        self._act: Act | None = None
        self._applied = 0  # everything before it is in the image
        self._active_epoch = -1
        self._activating_epoch = -1
        self._failure: KafkaError | None = None
        self._refusal: str | None = None
        self._act_failure: tuple[int, Exception] = (-1, NotController())
        self._moved = trio.Event()
        self._unsynced = trio.Event()
        self._learned: dict[int, Server] = {}
        self._leader_high_watermark = -1  # of the leader, as first heard of in this life
        self._snapshot_end = 0  # of the newest
        self._snapshot_ms = clock.now_ms()
        self._bytes_since_snapshot = 0
        self._contained_ms = -1  # when the newest record in the image was written
        self._commits_s: deque[float] = deque([0.0], maxlen=COMMITS_KEPT)  # how long the last ones took
        self._load_snapshot()
        self.raft = Raft(self._me, files, files.voters, files.load_standing(), raft_settings, random, self.now_ms())
        self._role = self.raft.role  # as it was after the last step
        self._nursery: trio.Nursery

    def _load_snapshot(self) -> None:
        if self.files.snapshots and self.files.snapshots[-1].offset > 0:
            newest = self.files.snapshots[-1]
            content = self.files.read_snapshot(newest)
            self.metadata.load(content.records, newest.offset - 1, newest.epoch)
            self._snapshot_end = self._applied = newest.offset
            self._contained_ms = content.last_contained_log_timestamp_ms

    # -- what others want to know --------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.raft.epoch

    @property
    def leader_id(self) -> int | None:
        return self.raft.leader_id

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller, and may decide."""
        return self.raft.is_leader and self._active_epoch == self.raft.epoch

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def applied(self) -> int:
        """Everything before this offset is in the image, and acted upon."""
        return self._applied

    @property
    def commit_latency_ms(self) -> tuple[float, float]:
        """Of the last commits: how long they took on average, and at most."""
        return 1000 * sum(self._commits_s) / len(self._commits_s), 1000 * max(self._commits_s)

    @property
    def kraft_version(self) -> int:
        return self.files.kraft_version

    @property
    def voters(self) -> VotersRecord | None:
        """Who votes, if the log says so (kraft.version 1); None where the configuration does."""
        return self.files.voters_record

    @property
    def voter_ranges(self) -> dict[int, FeatureRange]:
        """What other voters understand of kraft.version, as they have told this leader."""
        told = {node_id: voter.kraft_version_feature for node_id, voter in self.introduced.items()}
        return {
            node_id: FeatureRange(name=KRAFT_VERSION, first=said.min_supported_version, last=said.max_supported_version)
            for node_id, said in told.items()
        }

    @property
    def caught_up(self) -> bool:
        """Whether the image is as new as the leader's was when this node first heard of it."""
        if self.raft.is_leader:
            return self.is_active
        return 0 <= self._leader_high_watermark <= self._applied

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    @property
    def moved(self) -> trio.Event:
        """Set when anything changes: the log's end, what is committed, what is replayed, who leads."""
        return self._moved

    def refuse(self, reason: str) -> None:
        """It cannot join, and never will. One that has joined is not concerned: it has talked to the right ones."""
        self._refusal = reason
        self._wake()

    async def wait_caught_up(self) -> None:
        """ForeignDirectory if it turns out that it is not of this cluster."""
        while not self.caught_up:
            self.check()
            if self._refusal is not None:
                raise ForeignDirectory(self._refusal)
            await self._moved.wait()

    def leader_address(self) -> Server | None:
        """Where the leader's controller listens."""
        return None if self.leader_id is None else self.address_of(self.leader_id)

    def address_of(self, node_id: int) -> Server | None:
        record = self.files.voters_record
        for voter in () if record is None else record.voters:
            if voter.voter_id == node_id and voter.endpoints:
                names = {endpoint.name: endpoint for endpoint in voter.endpoints}
                chosen = names.get(self.node.controller_names[0], voter.endpoints[0])
                return Server(chosen.host, chosen.port)
        for configured in self.node.voters:
            if configured.id == node_id:
                return configured.server
        return self._learned.get(node_id)

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Somebody said where a leader is. One is remembered: there is one at a time."""
        if host and 0 < port < 65536:
            self._learned = {node_id: Server(host, port)}

    def heard(self, high_watermark: int) -> None:
        """A leader said how far it is."""
        if self._leader_high_watermark < 0:
            self._leader_high_watermark = high_watermark
            self._wake()

    def now_ms(self) -> int:
        return int(self._clock.now() * 1000)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._tick)
            self._nursery.start_soon(self._make_durable)
            self._nursery.start_soon(self._apply)
            task_status.started()

    def resign(self) -> None:
        """A leader says that it stops, so that the others need not find out."""
        if self.raft.is_leader and self.has_company:
            self.step(self.raft.resign(self.now_ms()))

    @property
    def has_company(self) -> bool:
        """Whether there is anybody to ask, or to follow."""
        return not self.raft.is_voter or len(self.raft.voters.latest) > 1

    @property
    def may_have_company(self) -> bool:
        """Now or later: where the log says who votes, there may be others tomorrow."""
        return self.has_company or self.kraft_version > 0

    @property
    def is_followed(self) -> bool:
        """Whether somebody fetches what this leader writes."""
        role = self.raft.role
        return isinstance(role, Leader) and bool(role.progress)

    @property
    def told_high_watermark(self) -> int:
        """What a leader may tell. As long as nothing of its epoch is committed it does not know how much is: others
        would take the little that it knows for all there is."""
        role = self.raft.role
        known = self.log.high_watermark
        return UNKNOWN if isinstance(role, Leader) and known <= role.epoch_start else known

    def act_with(self, act: Act) -> None:
        """From here on `act` is called with what has changed."""
        self._act = act

    @property
    def applying(self) -> trio.Lock:
        """Whoever holds it sees an image that stands still."""
        return self._applying

    async def _tick(self) -> None:
        while self._failure is None:
            deadline = (self.raft.next_deadline() + 1) / 1000
            with trio.move_on_at(deadline):
                await self._moved.wait()
            with self.failing():
                self.step(self.raft.tick(self.now_ms()))

    def poke(self) -> None:
        """What the ticking waits for may be earlier than it was."""
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    def check(self) -> None:
        """KafkaStorageError if this node has no part in the quorum any more."""
        if self._failure is not None:
            raise self._failure

    # -- what Raft wants done ------------------------------------------------------------------------------------------

    def step(self, actions: Sequence[Action]) -> None:
        """In order. Saving waits for the disk right here: it happens when leaders change, and nothing may come in
        between."""
        for action in actions:
            match action:
                case Save(standing=standing):
                    with self.failing(is_raised=True):
                        self.files.save(standing)
                case Ask():
                    self.send(action)
                case Lead(epoch=epoch, granted=granted):
                    self._begin_epoch(epoch, granted)
                case Cease(epoch=epoch):
                    log.info("node %d does not lead the metadata any more (epoch %d)", self.node_id, epoch)
                case Truncate(offset=offset):
                    self.files.truncate(offset)
                case Commit(high_watermark=high_watermark):
                    self.log.advance_high_watermark(high_watermark)
                case AppendVoters() | LoadSnapshot():
                    pass  # these are done by those who asked for them, with what only they know
        if actions or self._role is not self.raft.role:
            self._role = self.raft.role
            self._wake()

    def _begin_epoch(self, epoch: int, granted: Sequence[ReplicaKey]) -> None:
        """Who leads. The first leader also writes who votes, which until then only the snapshot of nothing says."""
        log.info("node %d leads the metadata in epoch %d", self.node_id, epoch)
        self.introduced.clear()
        messages: list[ControlMessage] = [
            LeaderChangeMessage(
                version=0,  # Kafka writes no other, whatever the quorum's version is
                leader_id=self.node_id,
                voters=[Voter(voter_id=voter.id) for voter in self.raft.voters.latest],
                granting_voters=[Voter(voter_id=voter.id) for voter in granted],
            )
        ]
        voters = self.files.voters_record
        if voters is not None and not self.files.are_voters_logged:
            messages += [KRaftVersionRecord(version=0, kraft_version=self.kraft_version), voters]
        self.append_control(messages)

    def append_control(self, messages: Sequence[ControlMessage]) -> int:
        data = build_control_batch(
            messages, base_offset=self.log.log_end_offset, epoch=self.epoch, now_ms=self._clock.now_ms()
        )
        return self._append(data)

    def _append(self, data: bytearray) -> int:
        """Where the log ends then. A failure of the disk is final: the directory is offline from then on."""
        assert self.raft.is_leader
        with self.failing(is_raised=True):
            self.files.append(data, self.epoch)
        end = self.log.log_end_offset
        self._unsynced.set()
        self._wake()
        return end

    async def _make_durable(self) -> None:
        while self._failure is None:
            if self.is_durable:
                await self._unsynced.wait()
            self._unsynced = trio.Event()
            with self.failing():
                async with self.disk:
                    await self.sync()
                self.step(self.raft.flushed(self.now_ms()))

    @property
    def is_durable(self) -> bool:
        """All that is in the log."""
        return self.files.durable_offset >= self.log.log_end_offset

    async def sync(self) -> None:
        """Everything that is in the log now is durable then. Whoever calls holds `disk`."""
        end = self.log.log_end_offset
        if end > self.files.durable_offset:
            with trio.CancelScope(shield=True):
                await despite_shortages(
                    lambda: trio.to_thread.run_sync(self.files.sync), lambda: free_descriptors([self.log.files])
                )
            self.files.durable_offset = max(self.files.durable_offset, end)

    @contextmanager
    def failing(self, *, is_raised: bool = False) -> Iterator[None]:
        """Around what writes: a failure of the disk is the end of this node in its quorum, and not of the process. A
        leader that cannot write must not go on to lead, though its followers hear of it all the time."""
        try:
            yield
        except KafkaStorageError as error:
            self._fail(error)
            if is_raised:
                raise

    def _fail(self, error: KafkaError) -> None:
        """The metadata's directory is offline: this node can neither vote nor lead nor follow any more."""
        if self._failure is not None:
            return
        log.error("the metadata cannot be written any more: %s", error)
        self._failure = error
        if self.raft.is_leader and self.has_company:
            self.step(self.raft.resign(self.now_ms()))
        self._wake()
        self.on_failure(error)

    # -- what is committed comes true ----------------------------------------------------------------------------------

    async def _apply(self) -> None:
        while True:
            if self._applied < self.log.high_watermark:
                async with self._applying:
                    await self._apply_some()
                self._wake()
            elif self._is_to_be_activated():
                self._activating_epoch = self.epoch
                self._nursery.start_soon(self._activate, self.epoch)
            else:
                await self._moved.wait()

    async def _apply_some(self) -> None:
        read = self.log.read(self._applied, READ_BYTES, upto=self.log.high_watermark)
        assert read.records is not None, "what is committed can be read"
        changes = self._replay(read.records.read(), self._applied)
        if self._act is not None and changes:
            try:
                await self._act(changes)
            except Exception as error:
                self._act_failure = (read.next_offset, error)
                if not isinstance(error, KafkaError):
                    log.error("a mistake of ours: what was decided did not come true", exc_info=error)
        else:
            await trio.lowlevel.checkpoint()
        self._applied = read.next_offset
        if self._bytes_since_snapshot >= self._settings.snapshot_after_bytes:
            await self._take_snapshot()

    def _replay(self, data: bytes | bytearray, start: int) -> list[Change]:
        changes: list[Change] = []
        for header in batch.headers(data):
            if not header.is_control:
                for entry in read_batch(data, header):
                    if entry.offset >= start and entry.record is not None:
                        changes += self.metadata.replay(entry.record, entry.offset, entry.epoch)
                self._contained_ms = header.max_timestamp
            self._bytes_since_snapshot += header.size
        return changes

    def _is_to_be_activated(self) -> bool:
        role = self.raft.role
        return isinstance(role, Leader) and self._applied > role.epoch_start and self._activating_epoch != self.epoch

    async def _activate(self, epoch: int) -> None:
        """The image has everything that leaders before this one have committed."""
        assert self.controller is not None
        try:
            async with self._lock:
                first = self.controller.bootstrap(self.files.bootstrap_records())
                if first:
                    await self._commit(first, epoch)
                self._active_epoch = epoch
        except KafkaError as error:
            log.warning("node %d does not become the active controller: %s", self.node_id, error)
        self._wake()

    # -- changes -------------------------------------------------------------------------------------------------------

    @property
    def is_changing(self) -> bool:
        """Whether a decision is on its way, and has not yet come true."""
        return self._lock.locked()

    async def change(self, decide: Callable[[Controller], Decision[T]]) -> Decision[T]:
        """Lets the controller decide, and returns when its decision has come true on this node."""
        async with self._lock:
            self.check()
            if not self.is_active:
                raise NotController
            assert self.controller is not None
            epoch = self.epoch
            await self._wait_applied(self.log.log_end_offset, epoch)  # somebody may have gone away before
            decision = decide(self.controller)
            if decision.records:
                await self._commit(decision.records, epoch)
        return decision

    async def _commit(self, records: Sequence[MetadataRecord], epoch: int) -> None:
        if not self.raft.is_leader or self.epoch != epoch:
            raise NotController
        start = self.log.log_end_offset
        data = build_batch(
            records,
            base_offset=start,
            epoch=epoch,
            now_ms=self._clock.now_ms(),
            metadata_version=self.metadata.features.metadata_version,
        )
        began = self._clock.now()
        end = self._append(data)
        await self._wait_applied(end, epoch)
        self._commits_s.append(self._clock.now() - began)
        failed_at, failure = self._act_failure
        if start < failed_at <= end:
            raise failure

    async def wait_committed(self, end: int) -> None:
        """Until this leader's records before `end` are committed; NotController if it ceases to lead before. A leader
        that was voted out ceases with the very record that says so, and that one is committed."""
        epoch = self.epoch
        while not self._is_written(end, epoch, self.log.high_watermark):
            await self._moved.wait()

    async def _wait_applied(self, end: int, epoch: int) -> None:
        while not self._is_written(end, epoch, self._applied):
            await self._moved.wait()

    def _is_written(self, end: int, epoch: int, reached: int) -> bool:
        """Whether what this leader of `epoch` has appended before `end` is there for good, as far as was `reached`."""
        self.check()
        if self.raft.is_leader and self.epoch == epoch:
            return reached >= end
        if reached >= end and self.log.epochs.epoch_for_offset(end - 1) == epoch:
            return True
        raise NotController

    # -- snapshots -----------------------------------------------------------------------------------------------------

    @property
    def wants_snapshot(self) -> bool:
        """An hour has passed, by default, and something has happened in it."""
        interval_ms = self._settings.snapshot_after_ms
        is_late = interval_ms > 0 and self._clock.now_ms() - self._snapshot_ms >= interval_ms
        return is_late and self.metadata.offset + 1 > self._snapshot_end

    async def take_snapshot(self) -> SnapshotId | None:
        """The metadata as it is now, as a file. What the log has before the snapshot before this one is let go."""
        async with self._applying:
            return await self._take_snapshot()

    async def _take_snapshot(self) -> SnapshotId | None:
        metadata = self.metadata
        if metadata.in_transaction or metadata.offset < 0 or metadata.offset + 1 <= self._snapshot_end:
            return None
        snapshot = SnapshotId(metadata.offset + 1, metadata.epoch)
        kraft_version, voters = self.files.voters_before(snapshot.offset)
        data = b"".join(
            build_snapshot(
                metadata.records(),
                epoch=metadata.epoch,
                now_ms=self._clock.now_ms(),
                last_contained_log_timestamp_ms=self._contained_ms,
                kraft_version=kraft_version,
                voters=voters,
                metadata_version=metadata.features.metadata_version,
            )
        )
        async with self.disk:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self.files.write_snapshot, snapshot, data)
            self.files.let_go_before_snapshots()
        self._snapshot_end, self._snapshot_ms = snapshot.offset, self._clock.now_ms()
        self._bytes_since_snapshot = 0
        log.info("metadata snapshot at offset %d, %d bytes", snapshot.offset, len(data))
        return snapshot

    async def begin_anew(self, snapshot: SnapshotId, content: Snapshot) -> None:
        """The leader's snapshot, which is written down already, takes the place of all that this node knew. What is
        different now is acted upon like any other change."""
        with trio.CancelScope(shield=True):
            async with self._applying:
                async with self.disk:
                    await trio.to_thread.run_sync(self.files.begin_anew, snapshot, content)
                before, after = self.metadata, Metadata()
                after.load(content.records, snapshot.offset - 1, snapshot.epoch)
                self.metadata = after
                if self.controller is not None:
                    self.controller.metadata = after
                self._applied = self._snapshot_end = snapshot.offset
                self._snapshot_ms, self._bytes_since_snapshot = self._clock.now_ms(), 0
                self._contained_ms = content.last_contained_log_timestamp_ms
                if self._act is not None:
                    await self._act(differences(before, after))
        self._wake()


def _nobody(ask: Ask) -> None:
    raise AssertionError(f"a quorum of one has nobody to ask: {ask}")
