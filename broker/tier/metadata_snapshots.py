"""Files with snapshots of the remote log metadata (cluster/remote_log/snapshot.py), one for each partition of
`__remote_log_metadata`, in a log directory. Kafka ignores them. They only save time: a file that is missing, damaged or
of an earlier topic is ignored, and one that cannot be written is tried again later.
"""

import logging
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.remote_log.snapshot import MAX_SNAPSHOT_BYTES, MetadataSnapshot, decode_snapshot, encode_snapshot
from trioka.protocol.errors import KafkaError, ProtocolError
from trioka.storage.directory import LogDirectory

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.tier")

FEWEST_RECORDS: Final = 10_000  # between two snapshots of a partition
FILE_NAME: Final = "trioka-remote-log-metadata-{}.snapshot"


class MetadataSnapshots:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    @property
    def _directory(self) -> LogDirectory | None:
        """The first one that works and is on a disk."""
        usable = (each for each in self._broker.data_directories if each.failure is None and not each.in_memory)
        return next(usable, None)

    async def load(self, topic_id: bytes, index: int) -> MetadataSnapshot | None:
        directory = self._directory
        if directory is None:
            return None
        try:
            found = await trio.to_thread.run_sync(_load, directory, index)
        except (ProtocolError, KafkaError, OSError) as error:
            log.warning("the snapshot %s is ignored, and the topic is read: %s", FILE_NAME.format(index), error)
            return None
        if found is None or found.topic_id != topic_id or found.partition != index:
            return None
        return found

    async def save(self, snapshot: MetadataSnapshot) -> bool:
        directory = self._directory
        if directory is None:
            return False
        try:
            await trio.to_thread.run_sync(_save, directory, snapshot)
        except (KafkaError, OSError) as error:
            log.warning("the snapshot %s is not written: %s", FILE_NAME.format(snapshot.partition), error)
            return False
        return True


def is_due(records: int, segments: int) -> bool:
    """Whether a snapshot is worth writing: so many records were replayed since the last one, and it has so many
    segments. A start replays at most about as many records as it loads segments."""
    return records >= max(FEWEST_RECORDS, segments)


def _path(directory: LogDirectory, index: int) -> str:
    return f"{directory.path}/{FILE_NAME.format(index)}"


def _load(directory: LogDirectory, index: int) -> MetadataSnapshot | None:
    disk, path = directory.volume, _path(directory, index)
    if not disk.exists(path):
        return None
    if (size := disk.size(path)) > MAX_SNAPSHOT_BYTES:
        raise ProtocolError(f"it has {size} bytes; at most {MAX_SNAPSHOT_BYTES} are read")
    return decode_snapshot(disk.read(path))


def _save(directory: LogDirectory, snapshot: MetadataSnapshot) -> None:
    data = encode_snapshot(snapshot)
    if len(data) <= MAX_SNAPSHOT_BYTES:
        directory.volume.replace(_path(directory, snapshot.partition), data)
