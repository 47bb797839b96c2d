"""Replaces several segments by one compacted segment, in steps, each of which a crash may end (S7).

    1  write <base>.log.cleaned and its indexes, sync them, sync the directory
    2  rename the indexes to .swap, sync the directory; rename the log to .swap, sync the directory
       ── from here on the change will happen, whatever happens ──
    3  rename the old segments to .deleted, sync the directory
    4  rename the log to its name, sync the directory; rename the indexes to theirs, sync the directory

What is found after a crash, and finished or dropped:

    .log.cleaned             step 1 or 2: the old segments are whole. Drop every .swap of that base, then the .cleaned
    .log.swap                step 3, or early in 4: the old segments in its range go, then step 4
    .index.swap, no log      step 4 after the log's rename: rename the rest
    .deleted                 on its way out in any case: drop

The log goes last in step 2 and first in step 4, with a sync of the directory between, because a `.txnindex` cannot be
rebuilt from a compacted log: while `.log.swap` exists, all the others are still `.swap`. Names and their meaning are
Kafka's; Kafka would finish a swap that trioka began, and the other way round.
"""

from collections.abc import Sequence
from contextlib import suppress

from ..files.disk import Disk
from ..files.file_pool import FilePool
from ..files.layout import SEGMENT_KINDS, Kind, SegmentFile, Suffix, parse_segment_file, segment_file
from .batch_scan import BadBatch
from .segment import Segment

_INDEX_KINDS = tuple(kind for kind in SEGMENT_KINDS if kind is not Kind.LOG)


def swap_in(new: Segment, old: Sequence[Segment]) -> None:
    """Steps 1 to 4. Afterwards `new` has its own name, and the old ones are `.deleted`."""
    assert new.suffix is Suffix.CLEANED
    disk, directory = new.files.disk, new.directory
    sync_files(new)
    disk.sync_directory(directory)

    for kind in _INDEX_KINDS:
        _rename(new, kind, Suffix.CLEANED, Suffix.SWAP)
    disk.sync_directory(directory)
    _rename(new, Kind.LOG, Suffix.CLEANED, Suffix.SWAP)
    disk.sync_directory(directory)
    new.renamed(Suffix.SWAP)

    for segment in old:
        segment.rename(Suffix.DELETED)
    disk.sync_directory(directory)

    _rename(new, Kind.LOG, Suffix.SWAP, Suffix.NONE)
    disk.sync_directory(directory)
    for kind in _INDEX_KINDS:
        _rename(new, kind, Suffix.SWAP, Suffix.NONE)
    disk.sync_directory(directory)
    new.renamed(Suffix.NONE)
    new.synced = True


def sync_files(segment: Segment) -> None:
    """Make the content of a closed segment durable: every file of it, but no name."""
    disk = segment.files.disk
    for kind in SEGMENT_KINDS:
        path = segment.path(kind)
        if kind is Kind.LOG or disk.exists(path):
            segment.files.get(path).sync()


def _rename(segment: Segment, kind: Kind, old: Suffix, new: Suffix) -> None:
    disk = segment.files.disk
    source = f"{segment.directory}/{segment_file(segment.base_offset, kind, old)}"
    target = f"{segment.directory}/{segment_file(segment.base_offset, kind, new)}"
    segment.files.forget(source)
    segment.files.forget(target)
    if kind is Kind.LOG or disk.exists(source):
        disk.rename(source, target)
    elif disk.exists(target):
        disk.remove(target)  # an index of a replaced segment, which is not needed


def finish_swaps(files: FilePool, directory: str, names: Sequence[str], *, now_ms: int) -> bool:
    """Cleans up after a crash. False if there was nothing to do, which the list of names shows."""
    found = [file for file in map(parse_segment_file, names) if file is not None and file.suffix]
    if not found:
        return False
    disk = files.disk
    half_made = {file.base_offset for file in found if file.suffix is Suffix.CLEANED and file.kind is Kind.LOG}
    logs = [file for file in found if file.suffix is Suffix.SWAP and file.kind is Kind.LOG]
    swapping = {file.base_offset for file in logs}

    worthless = [
        file
        for file in found
        if file.suffix is Suffix.SWAP and file.kind is not Kind.LOG and file.base_offset in half_made - swapping
    ]
    _remove(disk, directory, worthless)
    _remove(disk, directory, [file for file in found if file.suffix in (Suffix.CLEANED, Suffix.DELETED)])
    for log in logs:
        _finish(files, directory, log.base_offset, now_ms)
    for file in found:
        if file.suffix is Suffix.SWAP and file not in worthless and file.kind is not Kind.LOG:
            name = segment_file(file.base_offset, file.kind, Suffix.SWAP)
            disk.rename(f"{directory}/{name}", f"{directory}/{segment_file(file.base_offset, file.kind)}")
    disk.sync_directory(directory)
    return True


def _finish(files: FilePool, directory: str, base_offset: int, now_ms: int) -> None:
    """Steps 3 and 4 for a log that is `.swap`: removes the other segments in its range."""
    disk = files.disk
    segment = Segment.open(files, directory, base_offset, now_ms=now_ms, suffix=Suffix.SWAP)
    end = base_offset + 1
    with suppress(BadBatch):  # bytes behind the damage are checked when all segments are in place
        for place in segment.places():
            end = place.last_offset + 1
    replaced = [
        file
        for file in map(parse_segment_file, disk.list(directory))
        if file is not None
        and not file.suffix
        and file.kind is not Kind.SNAPSHOT
        and base_offset <= file.base_offset < end
    ]
    # The log goes first: without it its indexes are strays, which the next start would remove as well.
    _remove(disk, directory, sorted(replaced, key=lambda file: (file.kind is not Kind.LOG, file.base_offset)))
    files.forget(segment.log_path)
    disk.rename(segment.log_path, f"{directory}/{segment_file(base_offset, Kind.LOG)}")
    disk.sync_directory(directory)


def _remove(disk: Disk, directory: str, worthless: Sequence[SegmentFile]) -> None:
    for file in worthless:
        disk.remove(f"{directory}/{segment_file(*file)}")
    if worthless:
        disk.sync_directory(directory)
