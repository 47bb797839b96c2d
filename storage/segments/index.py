"""The two sparse indexes of a segment: offset → position, and timestamp → offset.

    .index       | relative offset int32 | position int32 |              8 bytes, one entry per index.interval.bytes
    .timeindex   | timestamp int64 | relative offset int32 |             12 bytes, at the same moments, if time moved

Big-endian, Kafka's format to the byte. An offset entry means: the batch whose *last* offset is `base + relative`
begins at `position`. A time entry means: up to and including the batch that ends at `base + relative` no record is
newer than `timestamp`. Both files rise in both columns.

Kafka maps its indexes writable and preallocates them to ten megabytes. Here they are as long as they have entries: new
entries are collected in memory and written out when the tail is full, at a roll, and at close. The part on disk is
looked up in a read-only map. So an append costs an index no system call, and an idle log no memory.

**Every use of an index is checked against the log.** It has no checksum, so the format cannot reveal a flipped bit; but
an entry can be compared with the batch header at its position, and `segment.py` does that at every use. A wrong answer
(or an impossible size, or a decreasing order) is `CorruptIndex`, after which the segment scans its log and rebuilds the
index. A bisection over entries of which one is damaged ends either at a sound entry that is too low, which costs a
longer scan, or at the damaged one, which the comparison finds.

Plain ints and `unpack_from` on buffers, no entry objects: a look-up over 262,144 mapped entries (a full segment of a
GiB) is 18 probes and stands on the path of every fetch. `bench/log.py` prints what it costs.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from ..files.disk import Buffer
from ..files.file_pool import FilePool

TAIL_ENTRIES: Final = 512
"""So many new entries wait in memory, at most: 4 KB of an offset index, 2 MiB of log."""

GUESSES: Final = 3
"""Looks at where an entry should be, before all entries are bisected."""

_INT = Struct(">i")
_unpack_int: Final = _INT.unpack_from
_LONG = Struct(">q")
_OFFSET_ENTRY = Struct(">ii")
_FOUR_OFFSET_ENTRIES: Final = Struct(">8i")
_TIME_ENTRY = Struct(">qi")

_UNKNOWN: Final = -1

Unpack = Callable[[Any, int], tuple[Any, ...]]


class CorruptIndex(Exception):
    """An index does not agree with its log, or with itself. It must be rebuilt."""


def _count_up_to(buffer: Buffer, low: int, high: int, width: int, at: int, unpack: Unpack, target: int) -> int:
    """The number of entries whose key, `at` bytes into the entry, is at most `target`; between `low` and `high`."""
    while low < high:
        middle = (low + high) >> 1
        if unpack(buffer, middle * width + at)[0] <= target:
            low = middle + 1
        else:
            high = middle
    return low


class EntryFile:
    """Entries of one width: the older ones in a file, the newest in memory. Independent of their meaning."""

    __slots__ = ("files", "path", "stored", "tail", "width")

    def __init__(self, files: FilePool, path: str, width: int) -> None:
        self.files = files
        self.path = path
        self.width = width
        self.stored = _UNKNOWN  # entries in the file; found out at the first use, so that opening costs nothing
        self.tail = bytearray()

    def __len__(self) -> int:
        return (self.stored if self.stored >= 0 else self._find_size()) + len(self.tail) // self.width

    def _find_size(self) -> int:
        disk = self.files.disk
        size = disk.size(self.path) if disk.exists(self.path) else 0
        if size % self.width:
            raise CorruptIndex(f"{self.path}: {size} bytes are not a whole number of entries of {self.width}")
        self.stored = size // self.width
        return self.stored

    def append(self, entry: bytes) -> None:
        self.tail += entry
        if len(self.tail) >= TAIL_ENTRIES * self.width:
            self.write_out()

    def write_out(self, *, create: bool = False) -> None:
        """Hand the tail to the file. Not synced: see `sync`. With `create` the file is there afterwards anyway."""
        if self.tail or create:
            start = len(self) * self.width - len(self.tail)
            file = self.files.get(self.path, create=True)
            if self.tail:
                file.write(start, self.tail)
            self.stored = (start + len(self.tail)) // self.width
            self.tail = bytearray()

    def view(self) -> Buffer:
        """The entries that are in the file."""
        return self.files.view(self.path, self.stored * self.width)

    def buffer(self, entry: int) -> tuple[Buffer, int]:
        """The location of this entry: a buffer, and the number of the entry at the buffer's start."""
        if self.stored < 0:
            self._find_size()
        return (self.view(), 0) if entry < self.stored else (self.tail, self.stored)

    def count_up_to(self, unpack: Unpack, at: int, target: int, low: int = 0, high: int | None = None) -> int:
        """The number of entries with a key of at most `target`; the answer is known to be between `low` and `high`."""
        count = len(self)
        high = count if high is None or high > count else high
        stored, tail = self.stored, self.tail
        if high > stored and tail and unpack(tail, at)[0] <= target:
            low = max(low - stored, 0)
            return stored + _count_up_to(tail, low, high - stored, self.width, at, unpack, target)
        if high > stored:
            high = stored
        if low >= high:
            return low
        view = self.view()
        return _count_up_to(view, low, high, self.width, at, unpack, target)

    def count_near(self, at: int, target: int, guess: int) -> int:
        """The same for a key of four bytes, with a guess: offsets and positions grow together and evenly, so a few
        probes around it are enough, instead of one for each bit of the number of entries."""
        stored, unpack = self.stored, _unpack_int
        if stored <= 0 or (self.tail and unpack(self.tail, at)[0] <= target):
            return self.count_up_to(unpack, at, target)
        width = self.width
        view = self.files.view(self.path, stored * width)
        guess = 0 if guess < 0 else stored - 1 if guess >= stored else guess
        step = 2
        if unpack(view, guess * width + at)[0] <= target:
            low, high = guess + 1, guess + step
            while high < stored and unpack(view, high * width + at)[0] <= target:
                low, step = high + 1, step * 4
                high += step
            high = min(high, stored)
        else:
            low, high = guess - step, guess
            while low >= 0 and unpack(view, low * width + at)[0] > target:
                high, step = low, step * 4
                low -= step
            low = max(low + 1, 0)
        while low < high:  # `_count_up_to`, without the call
            middle = (low + high) >> 1
            if unpack(view, middle * width + at)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= len(self):
            return
        if count >= self.stored:
            del self.tail[(count - self.stored) * self.width :]
        else:
            self.tail.clear()
            self.files.forget_view(self.path)
            self.files.get(self.path, create=True).truncate(count * self.width)
            self.stored = count

    def clear(self) -> None:
        """Removes all entries, before a rebuild."""
        self.tail.clear()
        self.files.forget_view(self.path)
        self.files.get(self.path, create=True).truncate(0)
        self.stored = 0


class OffsetIndex:
    """Offset → position, relative to the segment's base offset."""

    __slots__ = ("_last", "base_offset", "entries")

    def __init__(self, files: FilePool, path: str, base_offset: int) -> None:
        self.entries = EntryFile(files, path, _OFFSET_ENTRY.size)
        self.base_offset = base_offset
        self._last = _UNKNOWN  # the last entry's relative offset, to keep the order; -1 is below all

    def append(self, last_offset: int, position: int) -> None:
        """The batch that ends with `last_offset` begins at `position`."""
        relative = last_offset - self.base_offset
        assert self._last < relative < 2**31, f"{self.entries.path}: {relative} after {self._last}"
        entries = self.entries
        entries.tail += _OFFSET_ENTRY.pack(relative, position)  # and not entries.append: a batch of 16 KB comes by here
        if len(entries.tail) >= TAIL_ENTRIES * _OFFSET_ENTRY.size:
            entries.write_out()
        self._last = relative

    def load_last(self) -> tuple[int, int] | None:
        """The last entry as (offset, position). Must have been called before the first append to an older index."""
        count = len(self.entries)
        if count == 0:
            return None
        offset, position = self.entry(count - 1)
        self._last = offset - self.base_offset
        return offset, position

    def entry(self, number: int) -> tuple[int, int]:
        """(Offset, position) of an entry. Raises CorruptIndex if its values are impossible."""
        entries = self.entries
        if number < entries.stored:
            relative, position = _OFFSET_ENTRY.unpack_from(
                entries.files.view(entries.path, entries.stored * 8), number * 8
            )
        else:
            buffer, first = entries.buffer(number)
            relative, position = _OFFSET_ENTRY.unpack_from(buffer, (number - first) * _OFFSET_ENTRY.size)
        if relative < 0 or position < 0:
            raise CorruptIndex(f"{self.entries.path}: entry {number} is ({relative}, {position})")
        return self.base_offset + relative, position

    def count_up_to(self, offset: int) -> int:
        """The number of entries for `offset` or less: a search for it starts at the last of them."""
        last, relative = self._last, offset - self.base_offset
        if last < 0 and len(self.entries):
            self.load_last()
        return self.entries.count_near(0, relative, self.entries.stored * relative // (last + 1) if last > 0 else 0)

    def count_before(self, position: int, guess: int) -> int:
        """How many entries point to `position` or before it."""
        return self.entries.count_near(4, position, guess)

    # The two look-ups of a read. Offsets and positions grow together and evenly, at least for a while, so a linear
    # guess is nearly always right or next to it, and the four entries there usually contain the answer; otherwise they
    # show the direction. 0.9 µs, where counting and then reading the entries takes 1.7.

    def around_offset(self, offset: int) -> tuple[int, int, int, int] | None:
        """(Offset, position) of the last entry for `offset` or less, and of the next entry, or (-1, -1) if there is
        none; None if every entry is above it."""
        entries, last, relative = self.entries, self._last, offset - self.base_offset
        if last > 0:
            count = entries.stored + len(entries.tail) // 8
            if relative >= last:
                return self._around(count)
            found = self._guessed(count * relative // (last + 1), count, 0, relative)
            if found is not None:
                return found
        return self._around(self.count_up_to(offset))

    def around_position(self, position: int, log_size: int) -> tuple[int, int, int, int] | None:
        """The same for the last entry that points to `position`, in a log of that size, or before it."""
        entries = self.entries
        count = entries.stored + len(entries.tail) // 8
        guess = count * position // log_size
        return self._guessed(guess, count, 1, position) or self._around(self.count_before(position, guess))

    def _guessed(self, guess: int, count: int, at: int, target: int) -> tuple[int, int, int, int] | None:
        """The two entries around `target`, as the offset or (`at` 1) as the position. None if they are not at the
        guess, nor at the next ones, or not in one buffer."""
        entries = self.entries
        stored = entries.stored
        if count < 4:
            return None
        for _ in range(GUESSES):
            guess = 2 if guess < 2 else count - 2 if guess > count - 2 else guess
            if 2 <= guess < stored - 1:
                four = _FOUR_OFFSET_ENTRIES.unpack_from(entries.files.view(entries.path, stored * 8), guess * 8 - 16)
            elif 0 <= stored <= guess - 2:
                four = _FOUR_OFFSET_ENTRIES.unpack_from(entries.tail, (guess - stored) * 8 - 16)
            else:
                return None
            low, high = four[at], four[at + 6]
            if low <= target < high:
                first = 0 if target < four[at + 2] else 2 if target < four[at + 4] else 4
                relative, position, next_relative, next_position = four[first : first + 4]
                if relative < 0 or position < 0:
                    raise CorruptIndex(f"{entries.path}: an entry near {guess} is ({relative}, {position})")
                return self.base_offset + relative, position, self.base_offset + next_relative, next_position
            if low >= high:
                return None
            guess += (target - low) * 3 // (high - low) - 1
        return None

    def _around(self, number: int) -> tuple[int, int, int, int] | None:
        if number == 0:
            return None
        after = self.entry(number) if number < len(self.entries) else (_UNKNOWN, _UNKNOWN)
        return *self.entry(number - 1), *after

    def is_full(self, limit_bytes: int) -> bool:
        return (len(self.entries) + 1) * _OFFSET_ENTRY.size > limit_bytes

    def truncate_to(self, offset: int) -> None:
        """Forget the batches that end at `offset` or later. Before the next append, `load_last`."""
        self.entries.cut(self.count_up_to(offset - 1))
        self._last = _UNKNOWN

    def clear(self) -> None:
        self.entries.clear()
        self._last = _UNKNOWN


class TimeIndex:
    """Timestamp → offset, relative to the segment's base offset. Timestamps rise strictly."""

    __slots__ = ("base_offset", "entries", "last")

    def __init__(self, files: FilePool, path: str, base_offset: int) -> None:
        self.entries = EntryFile(files, path, _TIME_ENTRY.size)
        self.base_offset = base_offset
        self.last = _UNKNOWN  # the last entry's timestamp; records without one have -1 and make no entry

    def append(self, timestamp: int, offset: int) -> None:
        """`timestamp` is the largest so far, of the batch that ends with `offset`. No news makes no entry."""
        if timestamp > self.last:
            self.entries.append(_TIME_ENTRY.pack(timestamp, offset - self.base_offset))
            self.last = timestamp

    def load_last(self) -> tuple[int, int] | None:
        """The last entry as (timestamp, offset). Must have been called before the first append to an older index."""
        count = len(self.entries)
        if count == 0:
            return None
        last = self.entry(count - 1)
        self.last = last[0]
        return last

    def entry(self, number: int) -> tuple[int, int]:
        """(Timestamp, offset) of an entry. Raises CorruptIndex if its values are impossible."""
        buffer, first = self.entries.buffer(number)
        timestamp, relative = _TIME_ENTRY.unpack_from(buffer, (number - first) * _TIME_ENTRY.size)
        if relative < 0 or timestamp < 0:
            raise CorruptIndex(f"{self.entries.path}: entry {number} is ({timestamp}, {relative})")
        return timestamp, self.base_offset + relative

    def count_up_to(self, timestamp: int) -> int:
        """How many entries are of this time or earlier: before the last of them nothing is newer."""
        return self.entries.count_up_to(_LONG.unpack_from, 0, timestamp)

    def is_full(self, limit_bytes: int) -> bool:
        # One place is kept free for the entry that closes the segment.
        return (len(self.entries) + 2) * _TIME_ENTRY.size > limit_bytes

    def truncate_to(self, offset: int) -> None:
        """Forget the batches that end at `offset` or later. Before the next append, `load_last`."""
        self.entries.cut(self.entries.count_up_to(_INT.unpack_from, 8, offset - 1 - self.base_offset))
        self.last = _UNKNOWN

    def clear(self) -> None:
        self.entries.clear()
        self.last = _UNKNOWN
