"""The bytes of an object from a position on: ranges of 4 MiB, read ahead by threads, joined only where needed."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from .errors import DamagedSegment
from .store import ReadOnlyStore

RANGE_BYTES: Final = 4 * 1024 * 1024
RANGES_IN_FLIGHT: Final = 4


class Ranges:
    """Pieces of an object, in order. The first is read alone, for readers of a few records. Behind `read_to`, where
    the caller expects to be done, nothing is read ahead. `on_last` is called when the last piece is handed out."""

    def __init__(self, store: ReadOnlyStore, key: str, start: int, end: int, *, read_to: int | None = None) -> None:
        self._store = store
        self._key = key
        self._next = start
        self._end = end
        self._read_to = end if read_to is None else read_to
        self._window = 1
        self._pool = ThreadPoolExecutor(RANGES_IN_FLIGHT, thread_name_prefix="archive-range")
        self._in_flight: deque[Future[memoryview]] = deque()
        self.on_last: Callable[[], None] | None = None

    def __enter__(self) -> "Ranges":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        """Requests the first piece, for a reader that comes soon and goes on."""
        self._submit()
        self._window = RANGES_IN_FLIGHT

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __iter__(self) -> Iterator[memoryview]:
        while piece := self.take():
            yield piece

    def take(self) -> memoryview:
        """The next piece; empty at the end."""
        self._submit()
        self._window = RANGES_IN_FLIGHT
        if not self._in_flight:
            return memoryview(b"")
        piece = self._in_flight.popleft().result()
        if self.on_last is not None and not self._in_flight and self._next >= self._end:
            self.on_last()
        return piece

    def _submit(self) -> None:
        while self._next < self._end and len(self._in_flight) < self._window:
            if self._in_flight and self._next >= self._read_to:
                break
            # Pieces end at multiples of their size, so that readers of different offsets share them in caches.
            stop = min((self._next // RANGE_BYTES + 1) * RANGE_BYTES, self._end)
            self._in_flight.append(self._pool.submit(self._read, self._next, stop))
            self._next = stop

    def _read(self, start: int, stop: int) -> memoryview:
        found = self._store.read_range(self._key, start, stop - start)
        if len(found) != stop - start:
            raise DamagedSegment(f"{self._store.name}: {self._key} ends at byte {start + len(found)}, before {stop}")
        return found


class ReadAhead:
    """The beginning of the next object, which is requested while the end of the current one is used."""

    def __init__(self, open_ranges: Callable[[int], Ranges | None]) -> None:
        """`open_ranges` by the number of an object; None if it is not known where its reader will begin."""
        self._open = open_ranges
        self._begun: dict[int, Ranges] = {}

    def begin(self, number: int) -> None:
        ranges = self._open(number) if number not in self._begun else None
        if ranges is not None:
            self._begun[number] = ranges
            ranges.begin()

    def take(self, number: int) -> Ranges | None:
        """For the reader of the object, which closes it."""
        return self._begun.pop(number, None)

    def close(self) -> None:
        for ranges in self._begun.values():
            ranges.close()
        self._begun.clear()


class Window:
    """A view that begins at the reader's position and grows on demand. Only what lies in two ranges is copied."""

    __slots__ = ("_after", "_ranges", "view")

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._after = memoryview(b"")
        self.view = memoryview(b"")

    def grow(self, size: int) -> bool:
        """Makes `view` at least `size` bytes long; False if the object ends before."""
        if len(self.view) >= size:
            return True
        parts, have = [self.view], len(self.view)
        while have < size:
            piece = self._after or self._ranges.take()
            self._after = memoryview(b"")
            if not piece:
                break
            take = min(size - have, len(piece))
            if have == 0:
                take = len(piece)  # nothing to join: the whole piece is the view
            parts.append(piece[:take])
            self._after = piece[take:]
            have += take
        self.view = parts[-1] if not parts[0] and len(parts) == 2 else memoryview(b"".join(parts))
        return have >= size

    def skip(self, size: int) -> None:
        self.view = self.view[size:]
