"""The metadata quorum, from this node's side: it decides, writes, and follows what is written.

Today the quorum has one voter. That is no reason for another design: a change is decided by the controller, appended to
`__cluster_metadata-0`, made durable, committed (a majority of one has it), replayed, acted upon, and only then
answered. More voters change who commits, and nothing else here.

Changes are made one after the other: the controller must see the last one before it decides the next.

Starting: the newest snapshot is loaded, what the log has behind it is replayed, and a new epoch begins, which the file
`quorum-state` knows before anybody else does.

A directory without a metadata log begins one. Kafka leaves that to `StorageTool format`, and the files are the same:
`bootstrap.checkpoint` holds the cluster's first records; where the voters shall stand in the log and not in the
configuration, the snapshot of nothing, `00000000000000000000-0000000000.checkpoint`, says who they are, and the first
leader writes that into the log.

Snapshots: the last two are kept. The log starts where the older of them ends; each snapshot begins a segment, so that
what lies before can go.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import trio

from trioka.cluster.bootstrap import fresh_records
from trioka.cluster.changes import Change
from trioka.cluster.controller import Controller
from trioka.cluster.decision import Decision
from trioka.cluster.metadata import Metadata
from trioka.cluster.metadata_log import ControlMessage, MetadataRecord, build_batch, build_control_batch, read_batch
from trioka.cluster.quorum_state import decode_quorum_state, encode_quorum_state
from trioka.cluster.snapshot import SnapshotId, build_snapshot, parse_snapshot_name, read_snapshot, snapshot_name
from trioka.cluster.topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from trioka.protocol import batch
from trioka.protocol.ledgers.control import KRaftVersionRecord, LeaderChangeMessage, Voter, VotersRecord
from trioka.protocol.ledgers.quorum_state import QuorumStateData
from trioka.protocol.wire import NULL_UUID
from trioka.storage import retention
from trioka.storage.admission import Origin
from trioka.storage.directory import LogDirectory
from trioka.storage.layout import BOOTSTRAP, QUORUM_STATE, TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import FOREVER_MS, NO_LIMIT, LogConfig

from .clock import Clock
from .config.effective import Config
from .config.node_keys import (
    INTERNAL_METADATA_LOG_SEGMENT_BYTES,
    METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS,
    METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS,
    METADATA_LOG_SEGMENT_BYTES,
    METADATA_LOG_SEGMENT_MS,
)

log = logging.getLogger("trioka.quorum")

METADATA_PARTITION: Final = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
READ_BYTES: Final = 1024 * 1024
SNAPSHOTS_KEPT: Final = 2
OF_NOTHING: Final = SnapshotId(0, 0)

T = TypeVar("T")
Act = Callable[[Sequence[Change]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    """What the configuration says of the metadata's log."""

    log: LogConfig
    snapshot_after_bytes: int
    snapshot_after_ms: int  # 0: only bytes count

    @classmethod
    def of(cls, config: Config) -> "QuorumSettings":
        small = config[INTERNAL_METADATA_LOG_SEGMENT_BYTES]
        return cls(
            log=LogConfig(
                segment_bytes=config[METADATA_LOG_SEGMENT_BYTES] if small is None else small,
                segment_ms=max(config[METADATA_LOG_SEGMENT_MS], 1),
                retention_ms=NO_LIMIT,
                retention_bytes=NO_LIMIT,
                max_message_bytes=MAX_BATCH_BYTES,
                flush_ms=FOREVER_MS,
            ),
            snapshot_after_bytes=config[METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS],
            snapshot_after_ms=config[METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS],
        )


class Quorum:
    """Made by `open`, which blocks; `lead` begins."""

    def __init__(
        self, directory: LogDirectory, metadata_log: Log, clock: Clock, node_id: int, settings: QuorumSettings
    ) -> None:
        self.metadata = Metadata()
        self.epoch = 0
        self.node_id = node_id
        self.log = metadata_log
        self._directory = directory
        self._settings = settings
        self._clock = clock
        self._lock = trio.Lock()
        self._kraft_version = 0
        self._voters: VotersRecord | None = None
        self._are_voters_logged = False
        self._snapshot_end = 0  # of the newest
        self._snapshot_ms = clock.now_ms()
        self._bytes_since_snapshot = 0
        self._last_append_ms = -1
        self.controller: Controller | None = None
        self._act: Act | None = None

    @classmethod
    def open(
        cls,
        directory: LogDirectory,
        clock: Clock,
        node_id: int,
        settings: QuorumSettings,
        founders: VotersRecord | None = None,
    ) -> "Quorum":
        """What the directory knows: the metadata up to its last record. Blocks.

        `founders` vote in a quorum that begins here. None: the configuration says who votes, now and later."""
        metadata_log = directory.logs.get(METADATA_PARTITION)
        if metadata_log is None:
            metadata_log = directory.create(
                METADATA_PARTITION, settings.log, now_ms=clock.now_ms(), topic_id=CLUSTER_METADATA_TOPIC_ID
            )
        quorum = cls(directory, metadata_log, clock, node_id, settings)
        quorum._found(founders)
        quorum._load_snapshot()
        quorum._replay_log()
        return quorum

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def kraft_version(self) -> int:
        return self._kraft_version

    @property
    def voters(self) -> VotersRecord | None:
        """Who votes, if the log says so (kraft.version 1); None where the configuration does."""
        return self._voters

    # -- loading -------------------------------------------------------------------------------------------------------

    def _found(self, founders: VotersRecord | None) -> None:
        """What `StorageTool format` writes. bootstrap.checkpoint comes last: it says that this is done."""
        volume, path, now_ms = self._directory.volume, f"{self._directory.path}/{BOOTSTRAP}", self._clock.now_ms()
        if self.log.log_end_offset > 0 or volume.exists(path):
            return
        if founders is not None:
            snapshot = build_snapshot(
                [], epoch=0, now_ms=now_ms, last_contained_log_timestamp_ms=now_ms, kraft_version=1, voters=founders
            )
            volume.replace(self._path(snapshot_name(OF_NOTHING)), b"".join(snapshot))
        first = build_snapshot(fresh_records(), epoch=0, now_ms=now_ms, last_contained_log_timestamp_ms=0)
        volume.replace(path, b"".join(first))

    def _path(self, name: str) -> str:
        return f"{self.log.directory}/{name}"

    def _snapshots(self) -> list[SnapshotId]:
        names = self._directory.volume.list(self.log.directory)
        return sorted(found for found in map(parse_snapshot_name, names) if found is not None)

    def _load_snapshot(self) -> None:
        found = self._snapshots()
        if not found:
            return
        newest = found[-1]
        snapshot = read_snapshot(self._directory.volume.read(self._path(snapshot_name(newest))))
        self._kraft_version, self._voters = snapshot.kraft_version, snapshot.voters
        self._snapshot_end = newest.offset
        self._are_voters_logged = newest.offset > 0
        if newest.offset > 0:
            self.metadata.load(snapshot.records, newest.offset - 1, newest.epoch)
        if self.log.log_end_offset < newest.offset:
            self.log.truncate_fully_and_start_at(newest.offset, now_ms=self._clock.now_ms())

    def _replay_log(self) -> None:
        offset = max(self._snapshot_end, self.log.log_start_offset)
        while offset < self.log.log_end_offset:
            read = self.log.read(offset, READ_BYTES)
            if read.records is None:
                break
            self._replay(read.records.read(), offset)
            offset = read.next_offset
        self.log.advance_high_watermark(self.log.log_end_offset)

    def _replay(self, data: bytes | bytearray, start: int = 0) -> list[Change]:
        changes: list[Change] = []
        for header in batch.headers(data):
            for entry in read_batch(data, header):
                if entry.offset < start:
                    continue
                if entry.record is not None:
                    changes += self.metadata.replay(entry.record, entry.offset, entry.epoch)
                elif isinstance(entry.control, KRaftVersionRecord):
                    self._kraft_version = entry.control.kraft_version
                elif isinstance(entry.control, VotersRecord):
                    self._voters, self._are_voters_logged = entry.control, True
            self._bytes_since_snapshot += header.size
        return changes

    # -- leading -------------------------------------------------------------------------------------------------------

    async def lead(self, controller: Controller, act: Act) -> None:
        """Begins a new epoch. From here on `change` works, and `act` is called with what has changed."""
        self.controller, self._act = controller, act
        await trio.to_thread.run_sync(self._begin_epoch)
        now_ms = self._clock.now_ms()
        control = build_control_batch(
            self._first_of_epoch(), base_offset=self.log.log_end_offset, epoch=self.epoch, now_ms=now_ms
        )
        await self._append(control)
        self._replay(control)
        first = controller.bootstrap(self._bootstrap_records())
        if first:
            await self._commit(first)

    def _first_of_epoch(self) -> list[ControlMessage]:
        """Who leads. The first leader also writes who votes, which until then only the snapshot of nothing says."""
        leader = LeaderChangeMessage(
            version=0,  # Kafka writes no other, whatever the quorum's version is
            leader_id=self.node_id,
            voters=[Voter(voter_id=self.node_id)],
            granting_voters=[Voter(voter_id=self.node_id)],
        )
        if self._voters is None or self._are_voters_logged:
            return [leader]
        return [leader, KRaftVersionRecord(version=0, kraft_version=self._kraft_version), self._voters]

    def _begin_epoch(self) -> None:
        volume, path = self._directory.volume, self._path(QUORUM_STATE)
        version = 1 if self._kraft_version else 0
        before = -1
        if volume.exists(path):
            state, _ = decode_quorum_state(volume.read(path).decode())
            before = state.leader_epoch
        self.epoch = max(before, self.log.epochs.latest_epoch) + 1
        state = QuorumStateData(
            leader_id=self.node_id,
            leader_epoch=self.epoch,
            voted_id=-1,
            voted_directory_id=NULL_UUID,
            cluster_id="",
            applied_offset=0,
            current_voters=[QuorumStateData.CurrentVoter(voter_id=self.node_id)] if version == 0 else [],
        )
        volume.replace(path, encode_quorum_state(state, version).encode())

    def _bootstrap_records(self) -> tuple[MetadataRecord, ...] | None:
        path = f"{self._directory.path}/{BOOTSTRAP}"
        if not self._directory.volume.exists(path):
            return None
        return read_snapshot(self._directory.volume.read(path)).records

    @property
    def is_changing(self) -> bool:
        """Whether a decision is on its way, and has not yet come true."""
        return self._lock.locked()

    async def change(self, decide: Callable[[Controller], Decision[T]]) -> Decision[T]:
        """Lets the controller decide, and returns when its decision has come true on this broker."""
        assert self.controller is not None, "nobody leads yet"
        async with self._lock:
            decision = decide(self.controller)
            if decision.records:
                await self._commit(decision.records)
        return decision

    async def _commit(self, records: Sequence[MetadataRecord]) -> None:
        data = build_batch(
            records,
            base_offset=self.log.log_end_offset,
            epoch=self.epoch,
            now_ms=self._clock.now_ms(),
            metadata_version=self.metadata.features.metadata_version,
        )
        await self._append(data)
        changes = self._replay(data)
        assert self._act is not None
        await self._act(changes)
        if self._bytes_since_snapshot >= self._settings.snapshot_after_bytes:
            await self.take_snapshot()

    async def _append(self, data: bytearray) -> None:
        """Appended, durable, committed. A failure of the disk is final: the directory is offline from then on."""
        self._last_append_ms = self._clock.now_ms()
        for header in list(batch.headers(data)):
            one = memoryview(data)[header.position : header.end]
            self.log.append_as_leader(
                one, leader_epoch=self.epoch, now_ms=self._last_append_ms, origin=Origin.RAFT_LEADER
            )
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self.log.sync)
        self.log.advance_high_watermark(self.log.log_end_offset)

    # -- snapshots -----------------------------------------------------------------------------------------------------

    @property
    def wants_snapshot(self) -> bool:
        """An hour has passed, by default, and something has happened in it."""
        interval_ms = self._settings.snapshot_after_ms
        is_late = interval_ms > 0 and self._clock.now_ms() - self._snapshot_ms >= interval_ms
        return is_late and self.metadata.offset + 1 > self._snapshot_end

    async def take_snapshot(self) -> SnapshotId | None:
        """The metadata as it is now, as a file. What the log has before the snapshot before this one is let go."""
        metadata = self.metadata
        if metadata.in_transaction or metadata.offset < 0:
            return None
        snapshot = SnapshotId(metadata.offset + 1, metadata.epoch)
        data = b"".join(
            build_snapshot(
                metadata.records(),
                epoch=metadata.epoch,
                now_ms=self._clock.now_ms(),
                last_contained_log_timestamp_ms=self._last_append_ms,
                kraft_version=self._kraft_version,
                voters=self._voters,
                metadata_version=metadata.features.metadata_version,
            )
        )
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._write_snapshot, snapshot, data)
        self._snapshot_end, self._snapshot_ms = snapshot.offset, self._clock.now_ms()
        self._bytes_since_snapshot = 0
        self._let_go_before_snapshots()
        log.info("metadata snapshot at offset %d, %d bytes", snapshot.offset, len(data))
        return snapshot

    def _write_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        volume = self._directory.volume
        volume.replace(self._path(snapshot_name(snapshot)), data)
        for old in self._snapshots()[:-SNAPSHOTS_KEPT]:
            volume.remove(self._path(snapshot_name(old)))

    def _let_go_before_snapshots(self) -> None:
        now_ms = self._clock.now_ms()
        self.log.roll(now_ms=now_ms)
        self.log.delete_records_before(self._snapshots()[0].offset)
        retention.enforce(self.log, now_ms=now_ms)
