"""Descriptors and maps, shared by all logs of a directory, and file ranges that are being sent.

Ten thousand partitions hold paths, not files. A reader gets a file from the pool, which opens it or finds it open, and
closes the one that was not used for the longest time when too many are open. How many are too many depends on what the
process may open: a pool smaller than the partitions that are written to in turn would open a file for each record,
which doubles what a record costs (`bench/growth.py`).

What makes a pool of log files different from any other: a segment may be renamed, replaced by a compacted one of the
same name, or deleted, while a reply is still being sent from it. So a `FileRange` holds the *file*, not the path. A
file that the pool has released or forgotten stays open while a range holds it, and is closed with the last of
them; under the same path the pool opens the file that is there now. Reference counting ends the life of a range at
once, in any thread, so no call is necessary.

Held files count. Reads of ten thousand partitions at once, or slow ones, would hold more files than the process may
open: when ranges hold half of the pool's limit, further reads return bytes in memory instead of a range of the file. So
a pool never has more than `limit` files open, and one.

**Threads.** The event loop's thread reads and appends, and worker threads make new logs, move logs and delete topics,
all through the pool of their directory. So no thread closes a file that another thread has got from `get` and is about
to use: a file is closed with its last reference, and the pool's is only one of them. Changes of more than one entry
take the lock; a lookup of an open file needs none, since it is the hot path of an append. A log that is loaded in a
worker thread uses a small pool of its own, so that a start does not close what is in use.

Maps are for indexes, which are bisected; the bytes of a log are never touched through a map by Python code, because a
read error of the device under a map is a signal that kills the process, and `read` merely raises. The kernel may touch
them: a large range is sent by `sendmsg` from a map of its file (`FileRange.view`), in one call with the rest of the
answer, which costs 0.7 of what sendfile does for a log in the page cache (bench/HISTORY.md). Such a map belongs to
its handle, and goes with it. It does not grow with its file, so the newest bytes of an active segment go by sendfile
until they are worth another map.
"""

from collections import OrderedDict, deque
from threading import RLock
from typing import Final
from weakref import WeakSet, ref

from .disk import Buffer, Disk, File, map_for_send
from .failstop_disk import OutOfDescriptors, is_out_of_descriptors

OPEN_FILES_LIMIT: Final = 512
"""Half of the usual soft limit of 1,024 descriptors, those in use by ranges included."""

MAX_OPEN_FILES: Final = 32_768
"""However many a process may open: each costs half a kilobyte here, and as much in the kernel."""

VIEWS_LIMIT: Final = 128
"""Maps of indexes; each costs a descriptor too."""

SENT_MAPS_LIMIT: Final = 64
"""Maps of logs that answers are sent from; each costs a descriptor too, and its sent bytes count as resident memory,
though they are in the page cache."""

HELD_MAPS_LIMIT: Final = 2 * SENT_MAPS_LIMIT
"""A map that a slow client is sent from outlives its handle. When there are so many, answers go by sendfile."""

RESERVED_DESCRIPTORS: Final = 128
"""For logs that are loaded, files that are synced, and other files that are open for a short time."""

MAP_AGAIN_BYTES: Final = 16 * 1024 * 1024
"""A mapped file is mapped again when it has grown by this much, or by a quarter: the kernel has to find each page
again then, which costs about as much as sending four pages."""


class Handle:
    """An open file. Each handle, and the file itself, keeps it open; it is closed with the last of them."""

    __slots__ = ("__weakref__", "_map_from", "_maps", "_open", "_view", "file")

    def __init__(self, file: File, maps: "SentMaps", open_ones: set[int]) -> None:
        self.file = file
        self._maps = maps
        self._open = open_ones
        self._open.add(id(self))
        self._view: memoryview | None = None
        self._map_from = 0  # a range that ends before this is not worth asking for the size of the file again

    def __del__(self) -> None:
        self._open.discard(id(self))

    def view(self, position: int, end: int) -> memoryview | None:
        """Only for a system call that sends it; None if no map is large enough, and no new one can be made."""
        view = self._view
        if view is None or end > len(view):
            if end < self._map_from:
                return None
            view = self._map(end)
        return None if view is None else view[position:end]

    def _map(self, at_least: int) -> memoryview | None:
        """A new map, which holds so much and is worth it."""
        held = self._view
        if held is not None:
            at_least = max(at_least, len(held) + min(MAP_AGAIN_BYTES, len(held) // 4))
        if len(self._maps.alive) >= HELD_MAPS_LIMIT:
            return None
        try:
            view = map_for_send(self.file.fileno(), at_least)
        except OSError:  # a file without a descriptor
            return None
        if view is not None:
            self._maps.alive.add(view.obj)
            if held is None:
                self._maps.keep(self)
        elif held is not None:
            self._map_from = at_least  # the file has grown by too little: a reader at its end reads each new batch
        self._view = view or held
        return view

    def forget_map(self) -> None:
        self._view = None
        self._map_from = 0


class SentMaps:
    """The maps of a pool that answers are sent from."""

    __slots__ = ("_handles", "alive")

    def __init__(self) -> None:
        self._handles: deque[ref[Handle]] = deque()  # handles that have a map, the oldest first
        self.alive: WeakSet[object] = WeakSet()  # also those that only an unsent answer holds

    def keep(self, handle: Handle) -> None:
        while len(self._handles) >= SENT_MAPS_LIMIT:
            oldest = self._handles.popleft()()
            if oldest is not None:
                oldest.forget_map()
        self._handles.append(ref(handle))


def open_files_limit(descriptors: int, pools: int = 1) -> int:
    """The limit of open files for each of this many pools in a process with this many descriptors: together half of the
    descriptors, or two thirds of those above the first few hundred, if that is more. Connections need the others."""
    files = max(descriptors // 2, (descriptors - OPEN_FILES_LIMIT) * 2 // 3)
    return max(1, min(MAX_OPEN_FILES, files) // pools)


def reserved_descriptors(descriptors: int) -> int:
    """The number of descriptors that neither pools nor connections may use."""
    return min(RESERVED_DESCRIPTORS, descriptors // 8)


class FilePool:
    """The open files and the maps below one disk, by path; the least recently used go first."""

    __slots__ = ("_handles", "_lock", "_open", "_sent_maps", "_views", "disk", "limit", "views_limit")

    def __init__(self, disk: Disk, *, limit: int = OPEN_FILES_LIMIT, views_limit: int = VIEWS_LIMIT) -> None:
        assert limit > 0
        assert views_limit > 0
        self.disk = disk
        self.limit = limit
        self.views_limit = views_limit
        self._lock = RLock()
        self._handles: OrderedDict[str, Handle] = OrderedDict()
        self._open: set[int] = set()  # the ids of all handles, also of those that only ranges hold
        self._sent_maps = SentMaps()
        self._views: dict[str, Buffer] = {}  # the oldest goes first: to map it again is cheap

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def open_files(self) -> int:
        """The number of files that the pool or a range holds open."""
        return len(self._open)

    def get(self, path: str, *, create: bool = False) -> File:
        handle = self._handles.get(path)
        if handle is None:
            return self._handle(path, create).file
        try:  # noqa: SIM105  # this is done for each append, and a context manager costs ten times as much
            self._handles.move_to_end(path)
        except KeyError:  # another thread has released it since; it stays open for this caller
            pass
        return handle.file

    def _handle(self, path: str, create: bool) -> Handle:
        with self._lock:
            handles = self._handles
            handle = handles.get(path)
            if handle is None:
                while handles and len(self._open) >= self.limit:
                    handles.popitem(last=False)
                handle = handles[path] = Handle(self._open_file(path, create), self._sent_maps, self._open)
            return handle

    def _open_file(self, path: str, create: bool) -> File:
        """Opens a file. Without a free descriptor, the older half of the pool is closed first."""
        try:
            return self.disk.open(path, create=create)
        except (OSError, OutOfDescriptors) as error:
            if not is_out_of_descriptors(error) or not self.release_descriptors():
                raise
        return self.disk.open(path, create=create)

    def release_descriptors(self) -> bool:
        """Descriptors are short: the older half of the files is closed, and every map. False if there was nothing."""
        with self._lock:
            if not self._handles and not self._views:
                return False
            for _ in range((len(self._handles) + 1) // 2):
                self._handles.popitem(last=False)
            self._views.clear()
            return True

    def range(self, path: str, position: int, size: int) -> "FileRange":
        """A part of the file, which stays readable after the path is renamed or removed."""
        handle = self._handles.get(path)  # nearly always: planning looked at a header
        return FileRange(self._handle(path, False) if handle is None else handle, position, size)

    def for_response(self, part: "FileRange") -> "FileRange | memoryview":
        """An answer may be on its way for long: its bytes, where ranges hold too many files already."""
        return memoryview(part.read()) if self.is_over_limit else part

    @property
    def is_over_limit(self) -> bool:
        """Whether ranges hold so many files that no other range may hold one."""
        return len(self._open) - len(self._handles) >= max(1, self.limit // 2)

    def forget(self, path: str) -> None:
        """Call it before a rename or removal: the path will be another file's, or none's."""
        self._views.pop(path, None)
        self._handles.pop(path, None)

    def forget_below(self, directory: str) -> None:
        """The same for all of a directory."""
        prefix = directory + "/"
        with self._lock:
            for path in [path for path in (*self._handles, *self._views) if path.startswith(prefix)]:
                self.forget(path)

    def view(self, path: str, size: int) -> Buffer:
        """At least the first `size` bytes of an index, mapped. A map does not grow with its file, so it is remade."""
        view = self._views.get(path)
        if view is None or len(view) < size:
            with self._lock:
                self._views.pop(path, None)
                while len(self._views) >= self.views_limit:
                    del self._views[next(iter(self._views))]
                view = self._views[path] = self._map(path, size)
        return view

    def _map(self, path: str, size: int) -> Buffer:
        """A map has a descriptor of its own."""
        try:
            return self.get(path).map(size)
        except (OSError, OutOfDescriptors) as error:
            if not is_out_of_descriptors(error) or not self.release_descriptors():
                raise
        return self.get(path).map(size)

    def forget_view(self, path: str) -> None:
        """Call it before the file shrinks: bytes behind its new end must not be touched."""
        self._views.pop(path, None)

    def close(self) -> None:
        with self._lock:
            self._views.clear()
            self._handles.clear()


class FileRange:
    """Bytes of a file, not read yet: what a fetch sends, by `view`, by sendfile from `file.fileno()`, or by `read`."""

    __slots__ = ("_handle", "position", "size")

    def __init__(self, handle: Handle, position: int, size: int) -> None:
        self._handle = handle
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<FileRange {self.size} bytes at {self.position} of {self.file!r}>"

    @property
    def file(self) -> File:
        """Open for as long as this range lives."""
        return self._handle.file

    def read(self) -> bytes:
        return self.file.read(self.position, self.size)

    def split(self, size: int) -> "tuple[FileRange, FileRange]":
        """The first `size` bytes, and the rest."""
        first = FileRange(self._handle, self.position, size)
        return first, FileRange(self._handle, self.position + size, self.size - size)

    def view(self) -> memoryview | None:
        """The same bytes where the kernel can send them from; no Python code may look at them. None if they are not
        mapped, and a map does not pay. It keeps the file, as the range does."""
        return self._handle.view(self.position, self.position + self.size)

    def is_resident(self) -> bool:
        """Whether reading it would not wait for the device: otherwise it is for a worker thread."""
        return self.file.is_resident(self.position, self.size)
