"""Replaces damaged ranges of a segment by good copies from other replicas, and changes nothing else.

    1  request exactly the offsets of the damage from other replicas     (broker/replication/healing.py)
    2  `accept`: the bytes are whole batches of these offsets, each with a right CRC, and with the epochs that this log
       has there: a batch with the same offset and the same leader epoch is the same batch on every replica
    3  `build`: write a new segment file, of the sound batches of the old one, each checked again, and the good copies
       between them; make it durable (in a worker thread)
    4  `install_repair`: swap it in for the old one (segment_swap.py), in steps each of which a crash may end

The old file goes only after the new one is durable under its name, so no good byte is ever without a copy on this disk.
Ranges without a good copy stay as they are: the damaged bytes are copied too, and stay listed in `damaged-ranges`.

A crash between the swap and the new list leaves an old list beside a repaired segment. The next start verifies it: it
scans each segment in the list (recovery.py).

Only closed segments are repaired, and only below the recovery point. `prepare` ensures that: it closes the active one.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from trioka.protocol.batch import HEADER_SIZE, BatchHeader, check_crc, read_header
from trioka.protocol.errors import KafkaError, ProtocolError, UnsupportedForMessageFormat

from .batch_scan import NO_EPOCH, NO_OFFSET, BadBatch, find_next_batch, scan
from .disk import File
from .file_pool import FilePool, FileRange
from .index_rebuild import rebuild_txn_index
from .layout import Suffix
from .producer_state import marker_of
from .quarantine import Damage
from .segment import Segment

if TYPE_CHECKING:
    from .log import Log

REPAIR_FILES: Final = 8
COPY_BYTES: Final = 1024 * 1024
"""Written at once."""


class BadPatch(Exception):
    """The answer of a replica is no good copy of a damaged range."""


class LogChanged(Exception):
    """The log has changed while a segment of it was mended. Nothing was replaced; try again."""


class Patch(NamedTuple):
    """Good batches for the beginning of a damaged range, or for all of it."""

    damage: Damage
    data: bytes
    end_offset: int  # of the covered range: the damage's own end, if nothing of it is missing any more

    @property
    def is_whole(self) -> bool:
        return self.end_offset >= self.damage.end_offset


# What is good enough -------------------------------------------------------------------------------------------------


def accept(
    damage: Damage, data: bytes, epochs: tuple[int, int], *, compacted: bool, log_start_offset: int = 0
) -> Patch:
    """The part of a replica's answer that may replace the damage; the answer begins at the damage or before. `epochs`
    are the leader epochs of this log before and after it, -1 where they are not known. Only a compacted log may have
    offsets without a record; records before the log start offset are not needed. BadPatch if nothing is usable,
    or if anything is wrong with it."""
    kept: list[bytes] = []
    end_offset = damage.first_offset
    for header in _headers(data):
        if header.last_offset < damage.first_offset:
            continue
        if header.base_offset >= damage.end_offset:
            if compacted:
                end_offset = damage.end_offset  # and there is nothing before it
            break
        if not kept and header.base_offset <= log_start_offset:
            end_offset = max(end_offset, header.base_offset)
        _check_batch(data, header, damage, end_offset, epochs, compacted)
        kept.append(data[header.position : header.end])
        end_offset = header.last_offset + 1
    if not kept and end_offset < damage.end_offset:
        raise BadPatch(f"nothing from offset {damage.first_offset} on")
    return Patch(damage, b"".join(kept), end_offset)


def _headers(data: bytes) -> Iterator[BatchHeader]:
    """A torn batch at the end is left out, as clients do."""
    position = 0
    while position < len(data):
        try:
            header = read_header(data, position)
        except UnsupportedForMessageFormat as error:
            raise BadPatch(str(error)) from None
        except ProtocolError as error:
            if position:
                return
            raise BadPatch(str(error)) from None
        if header.end > len(data):
            return
        yield header
        position = header.end


def _check_batch(
    data: bytes, header: BatchHeader, damage: Damage, expected: int, epochs: tuple[int, int], compacted: bool
) -> None:
    place = f"offsets {header.base_offset} to {header.last_offset}"
    if not check_crc(data, header):
        raise BadPatch(f"{place} fail their CRC")
    if header.last_offset_delta < 0 or header.base_offset < expected or header.last_offset >= damage.end_offset:
        raise BadPatch(f"{place} are no batch of [{expected}, {damage.end_offset})")
    if header.base_offset != expected and not compacted:
        raise BadPatch(f"{place} follow {expected - 1}, and the log is not compacted")
    before, after = epochs
    if (before >= 0 and header.leader_epoch < before) or (0 <= after < header.leader_epoch):
        raise BadPatch(f"{place} have leader epoch {header.leader_epoch}, between {before} and {after}")


def epochs_around(log: "Log", damage: Damage) -> tuple[int, int]:
    """The leader epochs of the log before and after a damaged range."""
    before = log.epochs.epoch_for_offset(damage.first_offset - 1) if damage.first_offset else NO_EPOCH
    after = damage.end_offset if damage.end_offset < log.log_end_offset else log.log_end_offset - 1
    return before, log.epochs.epoch_for_offset(after)


# How it is put in ----------------------------------------------------------------------------------------------------


class RepairPlan(NamedTuple):
    """A segment that is to be mended, as it was when that began."""

    log: "Log"
    old: Segment
    held: FileRange  # the whole of its file, which stays readable after a rename or removal
    damages: tuple[Damage, ...]  # all of the segment
    limit: int  # where the next segment begins
    interval: int
    now_ms: int


class RepairedSegment(NamedTuple):
    new: Segment
    left: tuple[Damage, ...]  # by their places in the new segment


def repairable_segments(log: "Log") -> dict[Segment, tuple[Damage, ...]]:
    """The segments that have damage, and all of the damage of each."""
    found: dict[Segment, list[Damage]] = {}
    for damage in log.quarantine.damages:
        segment = log.segments.holding(damage.base_offset)
        limit = log.segments.expected_end(segment, log.log_end_offset)
        if segment.base_offset == damage.base_offset and damage.end_offset <= limit:
            found.setdefault(segment, []).append(damage)
    return {segment: tuple(damages) for segment, damages in found.items()}


def prepare(log: "Log", segment: Segment, *, now_ms: int) -> None:
    """Before a segment is repaired: it must be closed. The caller then makes the log durable."""
    if segment is log.segments.active:
        log.roll(now_ms=now_ms)


def begin(log: "Log", segment: Segment, *, now_ms: int) -> RepairPlan:
    """LogChanged if it is not closed, or not durable."""
    limit = log.segments.expected_end(segment, log.log_end_offset)
    if segment is log.segments.active or segment not in log.segments or log.recovery_point < limit:
        raise LogChanged(f"{segment} is not closed and durable")
    damages = repairable_segments(log).get(segment, ())
    interval = log.config.index_interval_bytes
    return RepairPlan(log, segment, segment.range(0, segment.size), damages, limit, interval, now_ms)


def build(work: RepairPlan, patches: Sequence[Patch]) -> RepairedSegment:
    """Writes the new segment, durable beside the old one. Blocks: call it in a worker thread. BadBatch if the old one
    has more damage than is known."""
    old = work.old
    files = FilePool(old.files.disk, limit=REPAIR_FILES, views_limit=REPAIR_FILES)
    new = Segment.create(files, old.directory, old.base_offset, now_ms=work.now_ms, suffix=Suffix.CLEANED)
    try:
        left = _Copy(work, new).run({patch.damage: patch for patch in patches})
        new.close_indexes()
        if files.disk.exists(old.txn_index.path):
            files.get(new.txn_index.path, create=True).write(0, files.disk.read(old.txn_index.path))
        for path in new.paths():
            if files.disk.exists(path):
                files.get(path).sync()
    except BaseException:
        with suppress(OSError, KafkaError):
            new.remove()
        raise
    finally:
        files.close()
    return RepairedSegment(new, tuple(left))


class _Copy:
    def __init__(self, work: RepairPlan, new: Segment) -> None:
        self._work = work
        self._new = new
        self._last_offset, self._epoch = NO_OFFSET, NO_EPOCH

    def run(self, patches: dict[Damage, Patch]) -> list[Damage]:
        file, position = self._work.held.file, 0
        left: list[Damage] = []
        for damage in sorted(self._work.damages, key=lambda damage: damage.position):
            self._copy(file, position, damage.position)
            patch = patches.get(damage)
            if patch is None:
                left.append(self._copy_as_it_is(file, damage))
            else:
                self._put(patch)
                if not patch.is_whole:
                    left += self._narrow(self._copy_as_it_is(file, _rest(patch)))
            position, self._last_offset = damage.end_position, damage.end_offset - 1
        self._copy(file, position, self._work.held.size)
        self._new.next_offset = max(self._last_offset + 1, self._new.next_offset)
        for damage in left:
            if damage.end_position > damage.position:
                self._new.note_hole(damage.position, damage.end_position)
        return left

    def _copy(self, file: File, position: int, end: int) -> None:
        """Sound batches, each checked."""
        buffer, headers = bytearray(), list[BatchHeader]()
        for found in scan(
            file,
            end=end,
            base_offset=self._work.old.base_offset,
            position=position,
            last_offset=self._last_offset,
            epoch=self._epoch,
            limit=self._work.limit,
        ):
            header = found.header
            headers.append(header._replace(position=len(buffer)))
            buffer += found.buffer[header.position : header.end]
            self._last_offset, self._epoch = header.last_offset, max(self._epoch, header.leader_epoch)
            if len(buffer) >= COPY_BYTES:
                self._new.append_batches(buffer, headers, self._work.interval)
                buffer, headers = bytearray(), []
        if buffer:
            self._new.append_batches(buffer, headers, self._work.interval)

    def _put(self, patch: Patch) -> None:
        if patch.data:
            headers = list(_headers(patch.data))
            self._new.append_batches(patch.data, headers, self._work.interval)
            self._epoch = max(self._epoch, *(header.leader_epoch for header in headers))

    def _copy_as_it_is(self, file: File, damage: Damage) -> Damage:
        """Copies the remaining damage unchanged; returns its position in the new segment."""
        start, position = self._new.size, damage.position
        while position < damage.end_position:
            piece = file.read(position, min(COPY_BYTES, damage.end_position - position))
            self._new.files.get(self._new.log_path).write(self._new.size, piece)
            self._new.size += len(piece)
            position += len(piece)
        return replace(damage, position=start, end_position=self._new.size)

    def _narrow(self, damage: Damage) -> list[Damage]:
        """If the beginning of a range was repaired, more of it may turn out to be sound, because the position of its
        batches is known now."""
        found: list[Damage] = []
        file, position = self._new.files.get(self._new.log_path), damage.position
        base_offset, last_offset = damage.base_offset, damage.first_offset - 1
        while position < damage.end_position:
            end, limit = damage.end_position, damage.end_offset
            try:
                for batch in scan(
                    file, end=end, base_offset=base_offset, position=position, last_offset=last_offset, limit=limit
                ):
                    position, last_offset = batch.position + batch.header.size, batch.header.last_offset
            except BadBatch as bad:
                following = find_next_batch(
                    file, position=bad.position, end=end, base_offset=base_offset, last_offset=last_offset, limit=limit
                )
                if following is not None:
                    end, limit = following, read_header(file.read(following, HEADER_SIZE)).base_offset
                found.append(
                    replace(
                        damage, first_offset=last_offset + 1, end_offset=limit, position=bad.position, end_position=end
                    )
                )
                position, last_offset = end, limit - 1
        if last_offset + 1 < damage.end_offset:  # bytes are missing altogether
            found.append(replace(damage, first_offset=last_offset + 1, position=damage.end_position))
        return found


def _rest(patch: Patch) -> Damage:
    """The rest of the damaged range. The size of the patch determines where its damaged bytes begin."""
    damage = patch.damage
    position = min(damage.position + len(patch.data), damage.end_position)
    return replace(damage, first_offset=patch.end_offset, position=position)


def install_repair(work: RepairPlan, built: RepairedSegment, patches: Sequence[Patch]) -> None:
    """Replaces the old segment by the new one, and removes the repaired damage from the list. LogChanged, without any
    change, if the log has changed since `begin`. Blocks for some syncs of the directory."""
    log, old, new = work.log, work.old, built.new
    is_same = (
        old in log.segments and old.size == work.held.size and repairable_segments(log).get(old, ()) == work.damages
    )
    if log.closed or not is_same or old is log.segments.active:
        discard(built)
        raise LogChanged(f"{old} is not what it was")
    new.use(log.files)
    new.txn_checked = False
    log.segments.replace(new, [old], log.recovery_point)
    log.segments.retire([old], work.now_ms + log.config.file_delete_delay_ms)
    log.quarantine.replace(work.damages, built.left)
    if any(_is_missing(new, marker) for patch in patches for marker in _aborts(patch)):
        rebuild_txn_index(log.segments, new, log.log_start_offset)
    known = log.report.damages if log.report is not None else ()
    lowest = min((patch.damage.first_offset for patch in patches if _was_found_by(known, patch)), default=None)
    if lowest is not None:
        log.replay_producers_from(lowest, now_ms=work.now_ms)


def discard(built: RepairedSegment) -> None:
    """Delete a `.cleaned` segment that is no longer needed."""
    built.new.remove()


def _aborts(patch: Patch) -> Iterator[int]:
    """The offsets of the markers by which transactions were aborted."""
    for header in _headers(patch.data):
        if header.is_control:
            try:
                marker = marker_of(patch.data, header)
            except KafkaError:
                continue
            if marker is not None and not marker.commit:
                yield header.base_offset


def _is_missing(segment: Segment, marker: int) -> bool:
    """Whether the transaction index, if it was built from a damaged log, lacks this marker."""
    return all(entry.last_offset != marker for entry in segment.txn_index)


def _was_found_by(known: Sequence[Damage], patch: Patch) -> bool:
    """Whether recovery found this damage, so that the producers lack these batches."""
    first, end = patch.damage.first_offset, patch.damage.end_offset
    return any(damage.first_offset < end and first < damage.end_offset for damage in known)
