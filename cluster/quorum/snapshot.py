"""Snapshots: the metadata as a file, so that no node has to replay the log from its beginning.

A file `<offset, 20 digits>-<epoch, 10 digits>.checkpoint` replaces all records of the log *before* that offset; the
epoch is that of the last of these records. It is a sequence of batches, numbered from 0, all of that epoch:

    a control batch    SnapshotHeader · KRaftVersion · Voters     the last two from kraft.version 1 on
    batches            metadata records, in the order of metadata.py
    a control batch    SnapshotFooter

A file without a footer is incomplete, and is ignored. `bootstrap.checkpoint` has the same form; it is written
when a node is formatted and holds the first records of a cluster whose log is still empty.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from trioka.protocol import batch
from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records.control import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from trioka.protocol.lazy_dataclass import frozen
from trioka.storage.files.layout import CheckpointState, metadata_snapshot, parse_metadata_snapshot

from .metadata_log import (
    LATEST_METADATA_VERSION,
    ControlMessage,
    LogEntry,
    MetadataRecord,
    build_batch,
    build_control_batch,
    read_batch,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

RECORDS_PER_BATCH: Final = 4_000  # so that a large snapshot is written piece by piece


class SnapshotId(NamedTuple):
    """The first offset that a snapshot does not contain, and the epoch of the last record that it contains."""

    offset: int
    epoch: int


def snapshot_name(snapshot: SnapshotId) -> str:
    return metadata_snapshot(snapshot.offset, snapshot.epoch)


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """None for any other file: unfinished and deleted snapshots have one more suffix."""
    parsed = parse_metadata_snapshot(name)
    if parsed is None or parsed.state is not CheckpointState.WHOLE:
        return None
    return SnapshotId(parsed.end_offset, parsed.epoch)


@frozen
class Snapshot:
    """The content of a snapshot. `kraft_version` is 0, and `voters` is None, if the snapshot has no such records."""

    records: tuple[MetadataRecord, ...]
    last_contained_log_timestamp_ms: int
    kraft_version: int = 0
    voters: VotersRecord | None = None


def build_snapshot(
    records: Iterable[MetadataRecord],
    *,
    epoch: int,
    now_ms: int,
    last_contained_log_timestamp_ms: int,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
    metadata_version: int = LATEST_METADATA_VERSION,
) -> Iterator[bytearray]:
    """The batches of a snapshot, one behind the other. Only one of them is in memory at a time."""
    control: list[ControlMessage] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp_ms)
    ]
    if kraft_version > 0:
        control.append(KRaftVersionRecord(version=0, kraft_version=kraft_version))
        if voters is not None:
            control.append(voters)
    offset = 0
    yield build_control_batch(control, base_offset=offset, epoch=epoch, now_ms=now_ms)
    offset += len(control)
    left = iter(records)
    while some := list(islice(left, RECORDS_PER_BATCH)):
        yield build_batch(some, base_offset=offset, epoch=epoch, now_ms=now_ms, metadata_version=metadata_version)
        offset += len(some)
    yield build_control_batch([SnapshotFooterRecord(version=0)], base_offset=offset, epoch=epoch, now_ms=now_ms)


def read_snapshot(buffer: "ReadableBuffer") -> Snapshot:
    """The content of a snapshot file, whole and checked: CRCs, a header in front, a footer at the end.

    CorruptMessage for a wrong CRC, ProtocolError for everything else that is wrong.
    """
    entries: list[LogEntry] = []
    for header in batch.headers(buffer):
        batch.verify(buffer, header)
        entries.extend(read_batch(buffer, header))
    if not entries or not isinstance(entries[0].control, SnapshotHeaderRecord):
        raise ProtocolError("snapshot: it does not begin with a snapshot header")
    if not isinstance(entries[-1].control, SnapshotFooterRecord):
        raise ProtocolError("snapshot: it does not end with a snapshot footer, so it was not finished")
    kraft_version, voters = 0, None
    for entry in entries[1:-1]:
        if isinstance(entry.control, SnapshotHeaderRecord | SnapshotFooterRecord):
            raise ProtocolError(f"snapshot: a second header or footer, at offset {entry.offset}")
        if isinstance(entry.control, KRaftVersionRecord):
            kraft_version = entry.control.kraft_version
        elif isinstance(entry.control, VotersRecord):
            voters = entry.control
    return Snapshot(
        records=tuple(entry.record for entry in entries if entry.record is not None),
        last_contained_log_timestamp_ms=entries[0].control.last_contained_log_timestamp,
        kraft_version=kraft_version,
        voters=voters,
    )
