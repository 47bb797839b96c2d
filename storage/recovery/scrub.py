"""Scrubbing: the bytes of a segment are read again in the background and compared with their checksums.

A segment is checked piece by piece in a worker thread (`SegmentScrub.step`), so that the caller can keep to a rate;
it holds the file, so that it does not matter whether the segment is renamed or removed meanwhile. What it finds is
noted by the log's own thread (`note`), if the segment is still what it was.

Bytes in the page cache are checked there. Other bytes are read from the disk and dropped from the cache again, so
that a scrub of old segments does not evict what readers need. If some bytes were not in memory, bytes that were checked
earlier may have been read from the disk again since: the log then treats the whole segment as unchecked
(`Segment.checked`), and checks what it hands out again. The same holds while a piece is read (`distrusted`): its bytes
enter memory before they are compared with their checksum, and must not be sent as checked.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from trioka.protocol.batch import HEADER_SIZE, read_header

from ..files.disk import drop_page_cache
from ..segments.batch_scan import CHUNK_BYTES, NO_EPOCH, BadBatch, ScannedBatch, find_next_batch, scan
from ..segments.quarantine import Damage
from ..segments.segment import Segment

if TYPE_CHECKING:
    from ..log import Log

STEP_BYTES: Final = CHUNK_BYTES
"""Checked at once, roughly: a batch is never cut."""


class SegmentScrub:
    """One pass over one segment, as it is at its start."""

    def __init__(self, log: "Log", segment: Segment) -> None:
        self._segment = segment
        self._held = segment.range(0, segment.size)
        self._cuts = log.cuts
        self._known = {
            damage.position: damage
            for damage in log.quarantine.damages
            if damage.base_offset == segment.base_offset and damage.end_position > damage.position
        }
        self._limit = log.segments.expected_end(segment, log.log_end_offset)
        self._position = 0  # nothing is read before it any more
        self._last_offset, self._epoch = segment.base_offset - 1, NO_EPOCH
        self._batches: Iterator[ScannedBatch] | None = None
        self.found: list[Damage] = []
        self.was_cold = False

    @property
    def position(self) -> int:
        return self._position

    @property
    def is_done(self) -> bool:
        return self._position >= self._held.size

    def distrusted(self) -> AbstractContextManager[None]:
        """Hold it in the log's own thread while a worker thread takes the next steps."""
        return self._segment.checked.suspended(self._position)

    def run(self) -> None:
        """All of it at once. Blocks."""
        while not self.is_done:
            self.step()

    def step(self) -> int:
        """The next piece: how many bytes it had. Blocks: call it in a worker thread."""
        start, file = self._position, self._held.file
        is_cold = not file.is_resident(start, min(STEP_BYTES, self._held.size - start))
        while self._position < self._held.size and self._position - start < STEP_BYTES:
            self._check_next()
        if is_cold:
            self.was_cold = True
            drop_page_cache(file, start, self._position - start)
        return self._position - start

    def _check_next(self) -> None:
        known = self._known.get(self._position)
        if known is not None:
            self._go_on_behind(known.end_position, known.end_offset)
            return
        if self._batches is None:
            end = min((at for at in self._known if at > self._position), default=self._held.size)
            self._batches = scan(
                self._held.file,
                end=end,
                base_offset=self._segment.base_offset,
                position=self._position,
                last_offset=self._last_offset,
                epoch=self._epoch,
                limit=self._limit,
            )
        try:
            found = next(self._batches, None)
        except BadBatch as bad:
            self._note_damage(bad)
            return
        if found is None:
            self._batches = None  # known damage comes next
            return
        self._position = found.position + found.header.size
        self._last_offset, self._epoch = found.header.last_offset, max(self._epoch, found.header.leader_epoch)

    def _note_damage(self, bad: BadBatch) -> None:
        size = min((at for at in self._known if at > bad.position), default=self._held.size)
        following = find_next_batch(
            self._held.file,
            position=bad.position,
            end=size,
            base_offset=self._segment.base_offset,
            last_offset=self._last_offset,
            limit=self._limit,
        )
        end_position = size if following is None else following
        end_offset = self._limit if size == self._held.size else self._known[size].first_offset
        if following is not None:
            end_offset = read_header(self._held.file.read(following, HEADER_SIZE)).base_offset
        damage = Damage(
            first_offset=self._last_offset + 1,
            end_offset=max(end_offset, self._last_offset + 1),
            base_offset=self._segment.base_offset,
            position=bad.position,
            end_position=end_position,
            reason=bad.reason,
        )
        self.found.append(damage)
        self._go_on_behind(damage.end_position, damage.end_offset)

    def _go_on_behind(self, position: int, offset: int) -> None:
        self._position, self._last_offset, self._batches = position, offset - 1, None

    def note(self, log: "Log") -> list[Damage]:
        """Reports the findings to the log, in the log's own thread; nothing, if the segment was removed or cut
        meanwhile, because the pass may have read other bytes. Returns the new damage."""
        segment = self._segment
        if self.was_cold:
            segment.checked.cut(0)
        if not self.found or log.closed or segment not in log.segments or log.cuts != self._cuts:
            return []
        for damage in self.found:
            segment.note_hole(damage.position, damage.end_position)
        known = log.quarantine.damages
        log.quarantine.add(self.found)
        return [damage for damage in self.found if damage not in known]
