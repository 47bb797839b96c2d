"""The metadata quorum on this node: carries out Raft's actions, appends the controller's decisions, replays the log.

`cluster/quorum/raft.py` decides; this module acts in the given order: state is persisted before any later message is
sent (K1), records are appended, truncated, committed.

    decided by the controller ─→ appended ─→ durable here and at a majority ─→ replayed ─→ applied ─→ answered
    fetched from the leader   ─→ appended ─→ durable here, and acknowledged ─┘

The image, `metadata`, holds committed records only, on the leader too, so that nothing has to be reverted. Changes are
made one after the other: the controller must see the last one before it decides the next.

A leader is *active* when the first record of its epoch is committed and replayed: then its image has everything that
leaders before it have committed. On any other node, and when leadership is lost in between, `change` raises
NotController; whether the change takes effect is unknown then.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Final, TypeVar

import trio

from trioka.cluster.controller.controller import Controller
from trioka.cluster.decision import Decision
from trioka.cluster.image.brokers import FeatureRange
from trioka.cluster.image.features import KRAFT_VERSION
from trioka.cluster.image.image_delta import Change
from trioka.cluster.image.image_diff import differences
from trioka.cluster.image.metadata import Metadata
from trioka.cluster.quorum import metadata_log
from trioka.cluster.quorum.metadata_log import ControlMessage, MetadataRecord
from trioka.cluster.quorum.raft import Leader, Raft, RaftSettings
from trioka.cluster.quorum.raft_messages import (
    Action,
    AppendVoters,
    BecomeLeader,
    Commit,
    LoadSnapshot,
    Persist,
    SendRequest,
    StepDown,
    Truncate,
)
from trioka.cluster.quorum.snapshot import Snapshot, SnapshotId, build_snapshot
from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol import batch
from trioka.protocol.errors import KafkaError, KafkaStorageError, NotController
from trioka.protocol.internal_records.control import KRaftVersionRecord, LeaderChangeMessage, Voter, VotersRecord
from trioka.storage.directory import ForeignDirectory
from trioka.storage.files.sync import retry_out_of_descriptors

from ..clock import Clock
from ..config.addresses import Endpoint, Server
from ..config.listeners import Node
from ..network.descriptors import free_descriptors
from .store import READ_BYTES, QuorumSettings, QuorumStore

log = logging.getLogger("trioka.quorum")
lifecycle = logging.getLogger("trioka.lifecycle")

UNKNOWN: Final = -1
SNAPSHOT_CHUNK_BYTES: Final = 8 * 1024 * 1024  # of a snapshot, in one answer
MAX_COMMIT_SAMPLES: Final = 64  # commits whose duration is kept, for metrics

T = TypeVar("T")
Act = Callable[[Sequence[Change]], Awaitable[None]]
Send = Callable[[SendRequest], None]


class Quorum:
    """`files` are open; `run` starts the node. `send` sends a request to another node; the response is passed to a
    method of `raft`, whose actions `step` executes."""

    def __init__(
        self,
        files: QuorumStore,
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
        self.endpoints: tuple[Endpoint, ...] = ()  # of this node's controller listener
        self.controller: Controller | None = None
        self.snapshot_bytes = SNAPSHOT_CHUNK_BYTES
        self.introduced: dict[int, VotersRecord.Voter] = {}  # reported to this leader, and not in the log yet
        self.is_voter_joining = False  # its supported versions are being requested; no other voter may join meanwhile
        self.disk = trio.Lock()  # held by a follower append, a truncation or a flush
        self.send: Send = _no_peers
        self.on_failure: Callable[[KafkaError], None] = lambda error: None  # ends the broker
        self._settings = settings
        self._clock = clock
        self._me = ReplicaKey(node.id, directory_id)
        self._lock = trio.Lock()  # of changes
        self._applying = trio.Lock()
        self._act: Act | None = None
        self._applied = 0  # records before it are in the image
        self._active_epoch = -1
        self._activating_epoch = -1
        self._failure: KafkaError | None = None
        self._refusal: str | None = None
        self._act_failure: tuple[int, Exception] = (-1, NotController())
        self._moved = trio.Event()
        self._unsynced = trio.Event()
        self._learned: dict[int, Server] = {}
        self._leader_high_watermark = -1  # the first one that a leader has sent since the start
        self._snapshot_end = 0  # of the newest snapshot
        self._snapshot_ms = clock.now_ms()
        self._bytes_since_snapshot = 0
        self._contained_ms = -1  # timestamp of the newest record in the image
        self._commits_s: deque[float] = deque([0.0], maxlen=MAX_COMMIT_SAMPLES)  # durations of the last commits
        self._load_snapshot()
        self.raft = Raft(self._me, files, files.voters, files.load_state(), raft_settings, random, self.now_ms())
        self._role = self.raft.role  # after the last step
        self._nursery: trio.Nursery

    def _load_snapshot(self) -> None:
        if self.files.snapshots and self.files.snapshots[-1].offset > 0:
            newest = self.files.snapshots[-1]
            content = self.files.read_snapshot(newest)
            self.metadata.load(content.records, newest.offset - 1, newest.epoch)
            self._snapshot_end = self._applied = newest.offset
            self._contained_ms = content.last_contained_log_timestamp_ms

    # -- queries -------------------------------------------------------------------------------------------------------

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
        """The offset before which all records are in the image and applied."""
        return self._applied

    @property
    def commit_latency_ms(self) -> tuple[float, float]:
        """Average and maximum duration of the last commits."""
        return 1000 * sum(self._commits_s) / len(self._commits_s), 1000 * max(self._commits_s)

    @property
    def kraft_version(self) -> int:
        return self.files.kraft_version

    @property
    def voters(self) -> VotersRecord | None:
        """The voters, if they are in the log (kraft.version 1); None if they are in the configuration."""
        return self.files.voters_record

    @property
    def voter_ranges(self) -> dict[int, FeatureRange]:
        """The kraft.version ranges that other voters reported to this leader."""
        kraft_versions = {node_id: voter.kraft_version_feature for node_id, voter in self.introduced.items()}
        return {
            node_id: FeatureRange(name=KRAFT_VERSION, first=text.min_supported_version, last=text.max_supported_version)
            for node_id, text in kraft_versions.items()
        }

    @property
    def caught_up(self) -> bool:
        """Whether the image has reached the first high watermark that this node got from a leader."""
        if self.raft.is_leader:
            return self.is_active
        return 0 <= self._leader_high_watermark <= self._applied

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    @property
    def moved(self) -> trio.Event:
        """Set when anything changes: the log end offset, the high watermark, the replayed offset, the leader."""
        return self._moved

    def refuse(self, reason: str) -> None:
        """This node cannot join its cluster. Ignored if it has joined already."""
        self._refusal = reason
        self._wake()

    async def wait_caught_up(self) -> None:
        """Raises ForeignDirectory if this node belongs to another cluster."""
        while not self.caught_up:
            self.check()
            if self._refusal is not None:
                raise ForeignDirectory(self._refusal)
            await self._moved.wait()

    def leader_address(self) -> Server | None:
        """The endpoints of the leader's controller listener."""
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
        """Remember the endpoint of a leader; there is one at a time."""
        if host and 0 < port < 65536:
            self._learned = {node_id: Server(host, port)}

    def on_high_watermark(self, high_watermark: int) -> None:
        """Record the high watermark of a leader."""
        if self._leader_high_watermark < 0:
            self._leader_high_watermark = high_watermark
            self._wake()

    def now_ms(self) -> int:
        return int(self._clock.now() * 1000)

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Runs the node until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._tick)
            self._nursery.start_soon(self._make_durable)
            self._nursery.start_soon(self._apply)
            task_status.started()

    def resign(self) -> None:
        """Resigns as leader, so that the other nodes need not detect it."""
        if self.raft.is_leader and self.has_peers:
            self.step(self.raft.resign(self.now_ms()))

    @property
    def has_peers(self) -> bool:
        """Whether this node has peers to request votes from or to follow."""
        return not self.raft.is_voter or len(self.raft.voters.latest) > 1

    @property
    def may_have_peers(self) -> bool:
        """The same, now or later: voters in the log may be changed at any time."""
        return self.has_peers or self.kraft_version > 0

    @property
    def has_followers(self) -> bool:
        """Whether another node fetches from this leader."""
        role = self.raft.role
        return isinstance(role, Leader) and bool(role.progress)

    @property
    def advertised_high_watermark(self) -> int:
        """The high watermark that a leader may send; unknown until it has committed a record of its epoch, because
        other nodes would take a low value for the end of all committed records."""
        role = self.raft.role
        known = self.log.high_watermark
        return UNKNOWN if isinstance(role, Leader) and known <= role.epoch_start else known

    def act_with(self, act: Act) -> None:
        """From now on `act` is called with the changes."""
        self._act = act

    @property
    def applying(self) -> trio.Lock:
        """Holding it prevents changes of the image."""
        return self._applying

    async def _tick(self) -> None:
        while self._failure is None:
            deadline = (self.raft.next_deadline() + 1) / 1000
            with trio.move_on_at(deadline):
                await self._moved.wait()
            with self.failing():
                self.step(self.raft.tick(self.now_ms()))

    def wake(self) -> None:
        """The next deadline may be earlier than the one that is waited for."""
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    def check(self) -> None:
        """Raises KafkaStorageError if this node no longer takes part in the quorum."""
        if self._failure is not None:
            raise self._failure

    # -- actions of Raft -----------------------------------------------------------------------------------------------

    def step(self, actions: Sequence[Action]) -> None:
        """Executes the actions in order. Persisting blocks the loop, so that no other action comes in between."""
        for action in actions:
            match action:
                case Persist(persisted=persisted):
                    with self.failing(is_raised=True):
                        self.files.save(persisted)
                case SendRequest():
                    self.send(action)
                case BecomeLeader(epoch=epoch, granted=granted):
                    self._begin_epoch(epoch, granted)
                case StepDown(epoch=epoch):
                    lifecycle.info("node %d is no longer the quorum leader (epoch %d)", self.node_id, epoch)
                case Truncate(offset=offset):
                    self.files.truncate(offset)
                case Commit(high_watermark=high_watermark):
                    self.log.advance_high_watermark(high_watermark)
                case AppendVoters() | LoadSnapshot():
                    pass  # the callers of these actions execute them, with their own context
        if actions or self._role is not self.raft.role:
            self._role = self.raft.role
            self._wake()

    def _begin_epoch(self, epoch: int, granted: Sequence[ReplicaKey]) -> None:
        """Becomes leader. The first leader also writes the voters, so far only in the bootstrap snapshot."""
        lifecycle.info("node %d is the quorum leader in epoch %d", self.node_id, epoch)
        self.introduced.clear()
        messages: list[ControlMessage] = [
            LeaderChangeMessage(
                version=0,  # the only version that Kafka writes
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
        data = metadata_log.build_control_batch(
            messages, base_offset=self.log.log_end_offset, epoch=self.epoch, now_ms=self._clock.now_ms()
        )
        return self._append(data)

    def _append(self, data: bytearray) -> int:
        """Appends the batch and returns the log end offset. A disk failure is final: the directory is offline from then
        on."""
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
        """Flushes the whole log."""
        return self.files.durable_offset >= self.log.log_end_offset

    async def sync(self) -> None:
        """Flush everything that is in the log now. The caller holds `disk`."""
        end = self.log.log_end_offset
        if end > self.files.durable_offset:
            with trio.CancelScope(shield=True):
                await retry_out_of_descriptors(
                    lambda: trio.to_thread.run_sync(self.files.sync), lambda: free_descriptors([self.log.files])
                )
            self.files.durable_offset = max(self.files.durable_offset, end)

    @contextmanager
    def failing(self, *, is_raised: bool = False) -> Iterator[None]:
        """Wraps disk writes: a failure ends this node's part in the quorum, but not the process. A leader that cannot
        write must resign, although it can still send messages to its followers."""
        try:
            yield
        except KafkaStorageError as error:
            self._fail(error)
            if is_raised:
                raise

    def _fail(self, error: KafkaError) -> None:
        """The metadata directory is offline: this node can no longer vote, lead or follow."""
        if self._failure is not None:
            return
        log.error("the metadata log can no longer be written: %s", error)
        self._failure = error
        if self.raft.is_leader and self.has_peers:
            self.step(self.raft.resign(self.now_ms()))
        self._wake()
        self.on_failure(error)

    # -- committed records ---------------------------------------------------------------------------------------------

    async def _apply(self) -> None:
        while self._failure is None:
            if self._applied < self.log.high_watermark:
                async with self._applying:
                    with self.failing():  # the records are read from the log again
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
                    log.error("internal error: replaying decided records failed", exc_info=error)
        else:
            await trio.lowlevel.checkpoint()
        self._applied = read.next_offset
        if self._bytes_since_snapshot >= self._settings.snapshot_after_bytes:
            await self._take_snapshot()

    def _replay(self, data: bytes | bytearray, start: int) -> list[Change]:
        changes: list[Change] = []
        for header in batch.headers(data):
            if not header.is_control:
                for entry in metadata_log.read_batch(data, header):
                    if entry.offset >= start and entry.record is not None:
                        changes += self.metadata.replay(entry.record, entry.offset, entry.epoch)
                self._contained_ms = header.max_timestamp
            self._bytes_since_snapshot += header.size
        return changes

    def _is_to_be_activated(self) -> bool:
        role = self.raft.role
        return isinstance(role, Leader) and self._applied > role.epoch_start and self._activating_epoch != self.epoch

    async def _activate(self, epoch: int) -> None:
        """Whether the image has all records that earlier leaders have committed."""
        assert self.controller is not None
        try:
            async with self._lock:
                first = self.controller.bootstrap(self.files.bootstrap_records())
                if first:
                    await self._commit(first, epoch)
                self._active_epoch = epoch
        except KafkaError as error:
            log.warning("node %d could not become the active controller: %s", self.node_id, error)
        self._wake()

    # -- changes -------------------------------------------------------------------------------------------------------

    @property
    def is_changing(self) -> bool:
        """Whether a decision is not yet committed and applied."""
        return self._lock.locked()

    async def change(self, decide: Callable[[Controller], Decision[T]]) -> Decision[T]:
        """Runs a decision of the controller, and returns when it is applied on this node."""
        async with self._lock:
            self.check()
            if not self.is_active:
                raise NotController
            assert self.controller is not None
            epoch = self.epoch
            await self._wait_applied(self.log.log_end_offset, epoch)  # an earlier call may have been cancelled
            decision = decide(self.controller)
            if decision.records:
                await self._commit(decision.records, epoch)
        return decision

    async def _commit(self, records: Sequence[MetadataRecord], epoch: int) -> None:
        if not self.raft.is_leader or self.epoch != epoch:
            raise NotController
        start = self.log.log_end_offset
        data = metadata_log.build_batch(
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
        """Waits until this leader's records before `end` are committed; NotController if it loses leadership before. A
        leader that was removed from the voters resigns with that very record, which is then committed."""
        epoch = self.epoch
        while not self._is_written(end, epoch, self.log.high_watermark):
            await self._moved.wait()

    async def _wait_applied(self, end: int, epoch: int) -> None:
        while not self._is_written(end, epoch, self._applied):
            await self._moved.wait()

    def _is_written(self, end: int, epoch: int, reached: int) -> bool:
        """Whether the records that this leader of `epoch` appended before `end` are committed, according to
        `reached`."""
        self.check()
        if self.raft.is_leader and self.epoch == epoch:
            return reached >= end
        if reached >= end and self.log.epochs.epoch_for_offset(end - 1) == epoch:
            return True
        raise NotController

    # -- snapshots -----------------------------------------------------------------------------------------------------

    @property
    def wants_snapshot(self) -> bool:
        """Whether a snapshot is due: by default after an hour with changes."""
        interval_ms = self._settings.snapshot_after_ms
        is_late = interval_ms > 0 and self._clock.now_ms() - self._snapshot_ms >= interval_ms
        return is_late and self.metadata.offset + 1 > self._snapshot_end

    async def take_snapshot(self) -> SnapshotId | None:
        """Writes the image as a snapshot. Log records before the previous snapshot are deleted."""
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
            self.files.delete_before_snapshots()
        self._snapshot_end, self._snapshot_ms = snapshot.offset, self._clock.now_ms()
        self._bytes_since_snapshot = 0
        log.info("metadata snapshot at offset %d, %d bytes", snapshot.offset, len(data))
        return snapshot

    async def reset_to_snapshot(self, snapshot: SnapshotId, content: Snapshot) -> None:
        """Replaces the image by the leader's snapshot, which is on disk already, and applies the differences."""
        with trio.CancelScope(shield=True):
            async with self._applying:
                async with self.disk:
                    await trio.to_thread.run_sync(self.files.reset_to_snapshot, snapshot, content)
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


def _no_peers(ask: SendRequest) -> None:
    raise AssertionError(f"a single-node quorum cannot send {ask}")
