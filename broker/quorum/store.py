"""The durable state of a quorum node: the metadata log, its snapshots, and the file `quorum-state`. All of this blocks.

A directory without a metadata log begins one. The files are those of Kafka's `StorageTool format`:
`bootstrap.checkpoint` holds the cluster's first records; if the voters are in the log and not in the configuration, the
bootstrap snapshot `00000000000000000000-0000000000.checkpoint` has them, and the first leader writes them to the log.

The voters and kraft.version are effective from the moment they are in the log, committed or not, until they are
truncated. So both are read from the whole log when it is opened, and kept with their offsets.

Snapshots: the last two are kept. The log starts where the older of them ends; each snapshot begins a segment, so that
older segments can be deleted.
"""

from collections.abc import Sequence
from typing import Final

from trioka.cluster.controller.bootstrap import fresh_records
from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from trioka.cluster.quorum.metadata_log import MetadataRecord, read_batch
from trioka.cluster.quorum.quorum_state import decode_quorum_state, encode_quorum_state
from trioka.cluster.quorum.raft_messages import EpochAndOffset, PersistentState
from trioka.cluster.quorum.snapshot import (
    Snapshot,
    SnapshotId,
    build_snapshot,
    parse_snapshot_name,
    read_snapshot,
    snapshot_name,
)
from trioka.cluster.quorum.voters import BEFORE_THE_LOG, ReplicaKey, VoterHistory, VoterSet
from trioka.protocol import batch
from trioka.protocol.internal_records.control import KRaftVersionRecord, VotersRecord
from trioka.protocol.internal_records.quorum_state import QuorumStateData
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.primitives import NULL_UUID
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.cleaning import retention
from trioka.storage.directory import LogDirectory
from trioka.storage.files.layout import BOOTSTRAP, QUORUM_STATE, TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import FOREVER_MS, NO_LIMIT, LogConfig

from ..clock import Clock
from ..config.layers import Config
from ..config.node_keys import (
    INTERNAL_METADATA_LOG_SEGMENT_BYTES,
    METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS,
    METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS,
    METADATA_LOG_SEGMENT_BYTES,
    METADATA_LOG_SEGMENT_MS,
)

METADATA_PARTITION: Final = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
READ_BYTES: Final = 1024 * 1024
MAX_SNAPSHOTS: Final = 2
EMPTY_SNAPSHOT: Final = SnapshotId(0, 0)
NO_NODE: Final = -1


class VotersDisagree(Exception):
    """The configuration names other voters than those among which this node has voted."""


@frozen
class QuorumSettings:
    """The configuration of the metadata log."""

    log: LogConfig
    snapshot_after_bytes: int
    snapshot_after_ms: int  # 0: only the size counts

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


class QuorumStore:
    """The files of the quorum node, created by `open`; Raft's view of the log."""

    def __init__(self, directory: LogDirectory, metadata_log: Log, clock: Clock, configured: VoterSet) -> None:
        self.log = metadata_log
        self.durable_offset = metadata_log.recovery_point
        self.voters = VoterHistory(configured)
        self.are_voters_logged = False
        self._directory = directory
        self._clock = clock
        self._voter_records: list[tuple[int, VotersRecord]] = []
        self._kraft_versions: list[tuple[int, int]] = [(BEFORE_THE_LOG, 0)]
        self._snapshots = self._find_snapshots()

    @classmethod
    def open(
        cls,
        directory: LogDirectory,
        clock: Clock,
        settings: QuorumSettings,
        configured: VoterSet,
        initial_voters: VotersRecord | None = None,
    ) -> "QuorumStore":
        """`initial_voters` are the voters of a new quorum; `configured` are the voters if the log has none."""
        metadata_log = directory.logs.get(METADATA_PARTITION)
        if metadata_log is None:
            metadata_log = directory.create(
                METADATA_PARTITION, settings.log, now_ms=clock.now_ms(), topic_id=CLUSTER_METADATA_TOPIC_ID
            )
        files = cls(directory, metadata_log, clock, configured)
        if not files.is_formatted:
            files.format(fresh_records(), initial_voters)
        files._begin_with_snapshot()
        files._read_controls()
        return files

    # -- the log, for Raft ---------------------------------------------------------------------------------------------

    @property
    def start(self) -> EpochAndOffset:
        offset = self.log.log_start_offset
        for snapshot in self._snapshots:
            if snapshot.offset == offset:
                return EpochAndOffset(snapshot.epoch, offset)
        return EpochAndOffset(max(self.log.epochs.epoch_for_offset(offset - 1), 0), offset)

    @property
    def end(self) -> EpochAndOffset:
        if self.log.epochs.latest_epoch < 0:
            return self.start
        return EpochAndOffset(self.log.epochs.latest_epoch, self.log.log_end_offset)

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def end_of_epoch(self, epoch: int) -> EpochAndOffset:
        end = self.end
        if epoch >= end.epoch:
            return end
        earliest = self.log.epochs.earliest
        if earliest is None or epoch < earliest.epoch:
            return EpochAndOffset(min(self.start.epoch, epoch), self.start.offset)
        return EpochAndOffset(*self.log.end_offset_for_epoch(epoch))

    def append(self, data: bytearray, epoch: int) -> int:
        """Appends a decision of this node, the leader. It is durable after the next sync. Returns the log end
        offset."""
        for header in list(batch.headers(data)):
            one = memoryview(data)[header.position : header.end]
            self.log.append_as_leader(
                one, leader_epoch=epoch, now_ms=self._clock.now_ms(), origin=AppendOrigin.RAFT_LEADER
            )
        self._note_controls(data)
        return self.log.log_end_offset

    def append_fetched(self, data: memoryview) -> None:
        """Appends records from the leader. An incomplete batch is skipped."""
        before = self.log.log_end_offset
        self.log.append_as_follower(data, now_ms=self._clock.now_ms())
        if self.log.log_end_offset > before:
            self._note_controls(data)

    def sync(self) -> None:
        """Runs in a worker thread. The caller then sets `durable_offset` to the former log end offset."""
        self.log.sync()

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset, now_ms=self._clock.now_ms())
        self.durable_offset = min(self.durable_offset, self.log.log_end_offset)
        self.voters.truncate(offset)
        self._voter_records = [found for found in self._voter_records if found[0] < offset]
        self._kraft_versions = [found for found in self._kraft_versions if found[0] < offset]
        self.are_voters_logged = any(found[0] != BEFORE_THE_LOG for found in self._voter_records)

    # -- voters --------------------------------------------------------------------------------------------------------

    @property
    def kraft_version(self) -> int:
        return self._kraft_versions[-1][1]

    @property
    def voters_record(self) -> VotersRecord | None:
        """The voters, if they are in the log (kraft.version 1); None if they are in the configuration."""
        return self._voter_records[-1][1] if self._voter_records else None

    def voters_before(self, offset: int) -> tuple[int, VotersRecord | None]:
        """The kraft.version and the voters before this offset, for a snapshot that ends there."""
        versions = [version for at, version in self._kraft_versions if at < offset]
        records = [record for at, record in self._voter_records if at < offset]
        return versions[-1], records[-1] if records else None

    def _read_controls(self) -> None:
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            read = self.log.read(offset, READ_BYTES)
            if read.records is None:
                break
            self._note_controls(read.records.read())
            offset = read.next_offset

    def _note_controls(self, data: bytes | bytearray | memoryview) -> None:
        for header in batch.headers(data):
            if not header.is_control or header.last_offset >= self.log.log_end_offset:
                continue
            for entry in read_batch(data, header):
                if isinstance(entry.control, KRaftVersionRecord):
                    self._kraft_versions.append((entry.offset, entry.control.kraft_version))
                elif isinstance(entry.control, VotersRecord) and entry.offset > self.voters.latest_offset:
                    self._voter_records.append((entry.offset, entry.control))
                    self.voters.append(entry.offset, voter_set(entry.control))
                    self.are_voters_logged = True

    # -- quorum-state --------------------------------------------------------------------------------------------------

    def load_state(self) -> PersistentState:
        """Reads quorum-state. If the log has newer epochs than the file, the log's apply."""
        volume, path = self._directory.volume, self._path(QUORUM_STATE)
        epoch, leader_id, voted = 0, NO_NODE, None
        if volume.exists(path):
            state, _ = decode_quorum_state(volume.read(path).decode())
            self._check_voters(path, state)
            epoch, leader_id = max(state.leader_epoch, 0), state.leader_id
            if state.voted_id != NO_NODE:
                voted = ReplicaKey(state.voted_id, state.voted_directory_id)
        if self.end.epoch > epoch:
            return PersistentState(epoch=self.end.epoch)
        return PersistentState(epoch=epoch, leader_id=None if leader_id == NO_NODE else leader_id, voted=voted)

    def _check_voters(self, path: str, state: QuorumStateData) -> None:
        """Two sets of voters could elect a leader each, so the configured set must never change (K3)."""
        known = sorted(voter.voter_id for voter in state.current_voters or ())
        configured = [voter.id for voter in self.voters.latest]
        if known and not self.kraft_version and known != configured:
            raise VotersDisagree(
                f"controller.quorum.voters names {configured}, and {path} names {known} as voters; "
                "voters in the configuration cannot be changed"
            )

    def save(self, persisted: PersistentState) -> None:
        """Durable on return (K1)."""
        version = 1 if self.kraft_version else 0
        voted = persisted.voted
        state = QuorumStateData(
            leader_id=NO_NODE if persisted.leader_id is None else persisted.leader_id,
            leader_epoch=persisted.epoch,
            # Kafka omits the vote once the leader is known; its readers of this file require that.
            voted_id=NO_NODE if voted is None or persisted.leader_id is not None else voted.id,
            voted_directory_id=(
                NULL_UUID if voted is None or persisted.leader_id is not None or not version else voted.directory
            ),
            cluster_id="",
            applied_offset=0,
            current_voters=(
                [QuorumStateData.CurrentVoter(voter_id=voter.id) for voter in self.voters.latest] if not version else []
            ),
        )
        self._directory.volume.replace(self._path(QUORUM_STATE), encode_quorum_state(state, version).encode())

    # -- creation ------------------------------------------------------------------------------------------------------

    @property
    def is_formatted(self) -> bool:
        return self.log.log_end_offset > 0 or self._directory.volume.exists(f"{self._directory.path}/{BOOTSTRAP}")

    def format(self, first: Sequence[MetadataRecord], initial_voters: VotersRecord | None) -> None:
        """Writes what `StorageTool format` writes. bootstrap.checkpoint comes last: it marks the directory as
        complete."""
        volume, now_ms = self._directory.volume, self._clock.now_ms()
        if initial_voters is not None:
            snapshot = build_snapshot(
                [],
                epoch=0,
                now_ms=now_ms,
                last_contained_log_timestamp_ms=now_ms,
                kraft_version=1,
                voters=initial_voters,
            )
            volume.replace(self._path(snapshot_name(EMPTY_SNAPSHOT)), b"".join(snapshot))
            self._snapshots = self._find_snapshots()
        made = build_snapshot(first, epoch=0, now_ms=now_ms, last_contained_log_timestamp_ms=0)
        volume.replace(f"{self._directory.path}/{BOOTSTRAP}", b"".join(made))

    def bootstrap_records(self) -> tuple[MetadataRecord, ...] | None:
        path = f"{self._directory.path}/{BOOTSTRAP}"
        if not self._directory.volume.exists(path):
            return None
        return read_snapshot(self._directory.volume.read(path)).records

    # -- snapshots -----------------------------------------------------------------------------------------------------

    @property
    def snapshots(self) -> list[SnapshotId]:
        """The snapshots in the directory, the oldest first."""
        return self._snapshots

    def _find_snapshots(self) -> list[SnapshotId]:
        names = self._directory.volume.list(self.log.directory)
        return sorted(found for found in map(parse_snapshot_name, names) if found is not None)

    def read_snapshot(self, snapshot: SnapshotId) -> Snapshot:
        return read_snapshot(self._directory.volume.read(self._path(snapshot_name(snapshot))))

    def snapshot_chunk(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """A piece of the file, and the file's size."""
        file = self._directory.volume.open(self._path(snapshot_name(snapshot)))
        try:
            size = file.size()
            return file.read(position, min(max_bytes, size - position)) if 0 <= position < size else b"", size
        finally:
            file.close()

    def write_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        volume = self._directory.volume
        volume.replace(self._path(snapshot_name(snapshot)), data)
        found = self._find_snapshots()
        for old in found[:-MAX_SNAPSHOTS]:
            volume.remove(self._path(snapshot_name(old)))
        self._snapshots = found[-MAX_SNAPSHOTS:]

    def delete_before_snapshots(self) -> None:
        now_ms = self._clock.now_ms()
        self.log.roll(now_ms=now_ms)
        self.log.delete_records_before(self._snapshots[0].offset)
        retention.enforce(self.log, now_ms=now_ms)

    def reset_to_snapshot(self, snapshot: SnapshotId, content: Snapshot) -> None:
        """Installs a snapshot of the leader; the log continues behind it."""
        for old in self._find_snapshots():
            if old != snapshot:
                self._directory.volume.remove(self._path(snapshot_name(old)))
        self._snapshots = [snapshot]
        self.log.truncate_fully_and_start_at(snapshot.offset, now_ms=self._clock.now_ms())
        self.durable_offset = snapshot.offset
        self._begin_with(snapshot, content)

    def _begin_with_snapshot(self) -> None:
        if not self._snapshots:
            return
        newest = self._snapshots[-1]
        if not self._leads_to(newest):
            self.log.truncate_fully_and_start_at(newest.offset, now_ms=self._clock.now_ms())
            self.durable_offset = newest.offset
        self._begin_with(newest, self.read_snapshot(newest))

    def _leads_to(self, snapshot: SnapshotId) -> bool:
        """Whether the log has the snapshot's records or starts behind them. If not, the node crashed after it had
        received a leader's snapshot and before the log was restarted."""
        metadata_log = self.log
        if not metadata_log.log_start_offset < snapshot.offset:
            return metadata_log.log_start_offset == snapshot.offset
        is_there = snapshot.offset <= metadata_log.log_end_offset
        return is_there and metadata_log.epochs.epoch_for_offset(snapshot.offset - 1) == snapshot.epoch

    def _begin_with(self, snapshot: SnapshotId, content: Snapshot) -> None:
        """The voters of a snapshot apply from its last record on; records before it are older."""
        self.log.advance_high_watermark(snapshot.offset)
        at = snapshot.offset - 1 if snapshot.offset else BEFORE_THE_LOG
        self._kraft_versions = [(BEFORE_THE_LOG, content.kraft_version)]
        self._voter_records = []
        if content.voters is not None:
            self._voter_records = [(at, content.voters)]
            self.voters.restart(at, voter_set(content.voters))
            self.are_voters_logged = snapshot.offset > 0

    def _path(self, name: str) -> str:
        return f"{self.log.directory}/{name}"


def voter_set(record: VotersRecord) -> VoterSet:
    return VoterSet.of(ReplicaKey(voter.voter_id, voter.voter_directory_id) for voter in record.voters)
