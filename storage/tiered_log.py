"""Logs whose oldest segments are only in the object store.

    log start ───────────────── local log start ───────────── log end
    │  only in the object store  │ segment │ segment │ active segment
                                                └ up to here also in the object store

The log start offset is the first offset that consumers may read; the local log start offset is the first one on the
disk. Both are in checkpoints, written before files are removed. A log that is not tiered has both at the same offset,
and no entry in the second checkpoint.

The leader epochs reach back to the log start: they tell which remote segments are of this log's history. The producers
of the remote part are in the producer snapshots of the local part.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

from .files.checkpoint import EpochEntry
from .log import Log
from .producers.producer_snapshot import decode
from .recovery.index_rebuild import PRODUCER_EXPIRATION_MS
from .recovery.producers_at import NoProducerSnapshot, SegmentFile, snapshot_at_end
from .segments.segment import Segment

BEGUN_REMOTELY: Final = "producer snapshot of the object store"  # in place of a path, in errors


def delete_local_segments(log: Log, gone: Sequence[Segment], *, now_ms: int) -> None:
    """Deletes the oldest segments, which are in the object store. The log's start does not move. Blocks."""
    if not gone:
        return
    start = log.segments[len(gone)].base_offset
    assert start <= log.high_watermark, f"{log.name}: {start} is not replicated"
    _keep_producers(log, start)
    log.local_log_start_offset = max(log.local_log_start_offset, start)
    if log.keep is not None:
        log.keep(log)
    log.epochs.truncate_from_start(log.log_start_offset)
    log.segments.drop(gone)
    log.segments.retire(gone, now_ms + log.config.file_delete_delay_ms)
    log.quarantine.cut(log.local_log_start_offset, log.log_end_offset)
    log.producers.snapshots.remove_before(start)


def _keep_producers(log: Log, start: int) -> None:
    """The producers at the new local start are durable before anything says that the log starts there: afterwards they
    could not be computed from this disk any more. Blocks."""
    snapshots = log.producers.snapshots
    number = log.segments.number_for(start)
    segments = [
        SegmentFile(each.log_path, each.base_offset, following.base_offset, each.size)
        for each, following in pairwise(log.segments[: number + 1])
    ]
    directory, disk = snapshots.directory, log.files.disk
    with suppress(
        NoProducerSnapshot
    ):  # an earlier crash has taken them; the object store has them (broker/tier/jobs.py)
        data = snapshot_at_end(disk, directory, segments, begins_empty=not log.has_remote_part)
        path = snapshots.path(start)
        if disk.exists(path) and disk.read(path) == data:
            snapshots.settle(start)
        else:
            snapshots.write(start, decode(path, data), sync=True)


def begin_behind_remote_part(
    log: Log,
    offset: int,
    *,
    log_start_offset: int,
    epochs: Iterable[EpochEntry],
    producer_snapshot: bytes,
    now_ms: int,
) -> None:
    """Empties a follower's log and continues at `offset`: everything before it is in the object store. The epochs and
    the producers are those of the leader's log at this offset. CorruptFile for a damaged snapshot, which changes
    nothing. Blocks."""
    snapshot = decode(BEGUN_REMOTELY, producer_snapshot)
    log.truncate_fully_and_start_at(offset, now_ms=now_ms, log_start_offset=min(log_start_offset, offset))
    log.producers.start_with(snapshot, offset, now_ms=now_ms, expiration_ms=PRODUCER_EXPIRATION_MS)
    log.epochs.replace(entry for entry in epochs if entry.start_offset < offset)
    log.epochs.truncate_from_start(log.log_start_offset)


def lacks_remote_history(log: Log) -> bool:
    """Whether a crash interrupted `begin_behind_remote_part`: the epochs are written last."""
    return log.has_remote_part and not log.epochs.entries
