"""Copies of the cluster's own state in the object store, so that `trioka tier restore` can build a cluster from it.

    _trioka/<cluster id>/metadata/<offset>-<epoch>.checkpoint       the metadata image, as a KRaft snapshot
    _trioka/<cluster id>/__consumer_offsets-<p>/<incarnation>-<start>-<end>.log    batches of that log, as they are

The image is copied by the leader of the first partition of `__remote_log_metadata`: a cluster that has tiered topics
has one, and it is a broker in every layout of the cluster. Committed offsets are copied by the leader of each partition
of their topic: everything once for each leadership, then what was added. After MAX_ADDED objects everything is copied
again, and the objects of before are deleted.

Every `trioka.tier.restore.copies.ms` local offsets are compared. Nothing is requested of the store if none has moved.
A copy that is written twice, or by a leader that was replaced meanwhile, does no harm: all leaders copy only what is
committed, and a reader of the copies takes each offset once.
"""

import logging
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.quorum.snapshot import SnapshotId, build_snapshot, parse_snapshot_name, snapshot_name
from trioka.protocol.errors import KafkaError
from trioka.storage.log import Log

from ..config import tier_keys
from ..replication.partitions import Replica
from .store.object_store import PART_BYTES, ObjectStoreError
from .store.ownership import incarnation_prefix

if TYPE_CHECKING:
    from .tiered_storage import TieredStorage

log = logging.getLogger("trioka.tier")

OFFSETS_TOPIC: Final = "__consumer_offsets"
KEPT_SNAPSHOTS: Final = 3
MAX_ADDED: Final = 50  # objects of a partition with what was added, before everything is copied again
READ_BYTES: Final = 1 << 20


def metadata_prefix(cluster_id: str) -> str:
    return f"{incarnation_prefix(cluster_id)}metadata/"


def offsets_prefix(cluster_id: str, partition: int) -> str:
    return f"{incarnation_prefix(cluster_id)}{OFFSETS_TOPIC}-{partition}/"


class _CopiedLog:
    """How far a partition was copied in one leadership."""

    __slots__ = ("added", "end", "epoch", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.epoch = replica.leader_epoch
        self.end = -1  # nothing yet
        self.added = 0


class ClusterCopies:
    def __init__(self, tier: "TieredStorage") -> None:
        self._tier = tier
        self._metadata_end = -1
        self._logs: dict[int, _CopiedLog] = {}

    async def run(self) -> None:
        while True:
            await trio.sleep(self._tier.broker.config[tier_keys.TIER_RESTORE_COPIES_MS] / 1000)
            try:
                await self.copy_changes()
            except (ObjectStoreError, KafkaError, OSError) as error:
                log.warning("the copies for a restore in %s are not up to date: %s", self._tier.store.url, error)

    async def copy_changes(self) -> None:
        """Raises ObjectStoreError if the store does not answer, or another incarnation owns it."""
        tier = self._tier
        if not tier.topic.partition_count:
            return
        if tier.topic.leads(0):
            await self._copy_metadata()
        for replica in tier.broker.partitions.of_topic(OFFSETS_TOPIC):
            if replica.leads:
                await self._copy_log(replica)
            else:
                self._logs.pop(replica.index, None)

    async def _require_ownership(self) -> None:
        await self._tier.ownership.check_recently()
        self._tier.require_ownership()

    # -- metadata ------------------------------------------------------------------------------------------------------

    async def _copy_metadata(self) -> None:
        tier, metadata = self._tier, self._tier.broker.metadata
        snapshot = SnapshotId(metadata.offset + 1, metadata.epoch)
        if metadata.in_transaction or snapshot.offset == self._metadata_end:
            return
        now_ms = tier.now_ms()
        data = b"".join(
            build_snapshot(
                metadata.records(),
                epoch=snapshot.epoch,
                now_ms=now_ms,
                last_contained_log_timestamp_ms=now_ms,
                metadata_version=metadata.features.metadata_version,
            )
        )
        await self._require_ownership()
        prefix = metadata_prefix(tier.cluster_id)
        await tier.store.put(prefix + snapshot_name(snapshot), data)
        self._metadata_end = snapshot.offset
        listed = await tier.store.list(prefix)
        names = {found.key: parse_snapshot_name(found.key.removeprefix(prefix)) for found in listed}
        whole = sorted((each, key) for key, each in names.items() if each is not None)
        await tier.store.delete([key for _, key in whole[:-KEPT_SNAPSHOTS]])

    # -- committed offsets ---------------------------------------------------------------------------------------------

    async def _copy_log(self, replica: Replica) -> None:
        copied = self._logs.get(replica.index)
        if copied is None or copied.replica is not replica or copied.epoch != replica.leader_epoch:
            copied = self._logs[replica.index] = _CopiedLog(replica)
        its_log = replica.log
        end = its_log.high_watermark
        if end == copied.end or its_log.closed:
            return
        await self._require_ownership()
        if 0 <= copied.end < end and its_log.log_start_offset <= copied.end and copied.added < MAX_ADDED:
            copied.added += len(await self._put(replica, copied.end, end))
        else:
            before = {found.key for found in await self._tier.store.list(self._prefix(replica))}
            written = await self._put(replica, its_log.log_start_offset, end)
            await self._tier.store.delete(sorted(before - written))
            copied.added = 0
        copied.end = end

    def _prefix(self, replica: Replica) -> str:
        return offsets_prefix(self._tier.cluster_id, replica.index)

    async def _put(self, replica: Replica, start: int, end: int) -> set[str]:
        """Objects with what the log has between two offsets; returns their keys."""
        written: set[str] = set()
        while start < end:
            data, next_offset = await _read(replica.log, start, end)
            if next_offset == start:
                break  # the log was truncated or compacted to nothing there
            if data:
                name = f"{self._tier.incarnation:010d}-{start:020d}-{next_offset:020d}.log"
                key = self._prefix(replica) + name
                await self._tier.store.put(key, data)
                written.add(key)
            start = next_offset
        return written


async def _read(its_log: Log, start: int, end: int) -> tuple[bytes, int]:
    """Whole batches, about PART_BYTES of them, and the offset behind them."""
    parts: list[bytes] = []
    offset = start
    while offset < end and sum(map(len, parts)) < PART_BYTES:
        read = its_log.read(offset, READ_BYTES, upto=end)
        if read.records is None:
            return b"".join(parts), max(offset, end)
        parts.append(await trio.to_thread.run_sync(read.records.read))
        offset = read.next_offset
    return b"".join(parts), offset
