"""Descriptors and maps, shared by all logs of a directory, and ranges of files on their way to a reader.

Ten thousand partitions hold paths, not files. Who needs a file asks the pool, which opens it or finds it open, and
closes the one that was not used for the longest time when too many are open. How many are too many depends on what the
process may open: a pool smaller than the partitions that are written to in turn would open a file for each record,
which doubles what a record costs (`bench/growth.py`).

What makes a pool of log files different from any other: a segment may be renamed, replaced by a compacted one of the
same name, or deleted, while a reply is still being sent from it. So a `FileRange` holds the *file*, not the path. A
file that the pool has let go, or been told to forget, stays open for those who hold it, and is closed with the last of
them; under the same path the pool opens whatever stands there now. Letting go is the end of the range's life, and
reference counting sees it at once, in whichever thread, so there is nothing to forget.

A file from `get` is good until the next call here. All calls come from one thread: a log that is loaded in a worker
thread uses a small pool of its own.

Maps are for indexes, which are bisected; the bytes of a log are never touched through a map by Python code, because a
read error of the device under a map is a signal that kills the process, and `read` merely raises. The kernel may touch
them: a large range is sent by `sendmsg` from a map of its file (`FileRange.view`), in one call with the rest of the
answer, which costs 0.7 of what sendfile does for a log in the page cache (docs/PERFORMANCE.md). Such a map belongs to
its handle, and goes with it. It does not grow with its file, so the newest bytes of an active segment go by sendfile
until they are worth another map.
"""

import errno
from collections import OrderedDict, deque
from typing import Final
from weakref import ref

from .disk import Buffer, Disk, File, map_for_the_kernel
from .warm_parts import WarmParts

OPEN_FILES_LIMIT: Final = 512
"""Half of the usual soft limit of 1,024 descriptors. Files in use by a range count only while the pool has them."""

MOST_OPEN_FILES: Final = 32_768
"""However many a process may open: each costs half a kilobyte here, and as much in the kernel."""

VIEWS_LIMIT: Final = 128
"""Maps of indexes; each costs a descriptor too."""

SENT_MAPS_LIMIT: Final = 64
"""Maps of logs that answers are sent from; each costs a descriptor too, and shows as resident memory what it has sent,
though it is the page cache's."""

MAP_AGAIN_BYTES: Final = 16 * 1024 * 1024
"""A file that was mapped is mapped anew when it has grown by so much, or by a quarter: the kernel has to find each page
again then, which costs about what sending four pages does."""


class Handle:
    """An open file. Whoever holds the handle holds the file; it is closed with the last of them."""

    __slots__ = ("__weakref__", "_maps", "_view", "file")

    def __init__(self, file: File, maps: "deque[ref[Handle]]") -> None:
        self.file = file
        self._maps = maps  # the handles of the pool that have a map, the oldest first
        self._view: memoryview | None = None

    def __del__(self) -> None:
        self.file.close()

    def view(self, position: int, end: int) -> memoryview | None:
        """For a system call to send from, and for nothing else; None if there is no map of so much, nor a new one."""
        view = self._view
        if view is None or end > len(view):
            view = self._map(end)
        return None if view is None else view[position:end]

    def _map(self, at_least: int) -> memoryview | None:
        """A new map, which holds so much and is worth it."""
        held = self._view
        if held is not None:
            at_least = max(at_least, len(held) + min(MAP_AGAIN_BYTES, len(held) // 4))
        try:
            view = map_for_the_kernel(self.file.fileno(), at_least)
        except OSError:  # a file without a descriptor
            return None
        if view is not None and held is None:
            while len(self._maps) >= SENT_MAPS_LIMIT:
                oldest = self._maps.popleft()()
                if oldest is not None:
                    oldest._view = None
            self._maps.append(ref(self))
        self._view = view or held
        return view


def open_files_limit(descriptors: int) -> int:
    """How many of a process's descriptors a pool may have: two thirds of what is left besides the first few hundred."""
    return max(OPEN_FILES_LIMIT, min(MOST_OPEN_FILES, (descriptors - OPEN_FILES_LIMIT) * 2 // 3))


class FilePool:
    """The open files and the maps below one disk, by path; the least recently used go first."""

    __slots__ = ("_handles", "_sent_maps", "_views", "disk", "limit", "views_limit", "warm_parts")

    def __init__(self, disk: Disk, *, limit: int = OPEN_FILES_LIMIT, views_limit: int = VIEWS_LIMIT) -> None:
        assert limit > 0
        assert views_limit > 0
        self.disk = disk
        self.limit = limit
        self.views_limit = views_limit
        self._handles: OrderedDict[str, Handle] = OrderedDict()
        self._sent_maps: deque[ref[Handle]] = deque()
        self._views: dict[str, Buffer] = {}  # the oldest goes first: to map it again is cheap
        self.warm_parts = WarmParts()

    def __len__(self) -> int:
        return len(self._handles)

    def get(self, path: str, *, create: bool = False) -> File:
        handle = self._handles.get(path)
        if handle is None:
            handle = self._handle(path, create)
        else:
            self._handles.move_to_end(path)
        return handle.file

    def _handle(self, path: str, create: bool) -> Handle:
        handles = self._handles
        handle = handles.get(path)
        if handle is None:
            while len(handles) >= self.limit:
                handles.popitem(last=False)
            handle = handles[path] = Handle(self._open(path, create), self._sent_maps)
        else:
            handles.move_to_end(path)
        return handle

    def _open(self, path: str, create: bool) -> File:
        """Where others have taken the last descriptor, the older half of the pool is given back first."""
        try:
            return self.disk.open(path, create=create)
        except OSError as error:
            if error.errno != errno.EMFILE or not self._handles:
                raise
        for _ in range((len(self._handles) + 1) // 2):
            self._handles.popitem(last=False)
        return self.disk.open(path, create=create)

    def range(self, path: str, position: int, size: int) -> "FileRange":
        """A part of the file, which stays readable whatever becomes of the path."""
        handle = self._handles.get(path)  # nearly always: planning looked at a header
        return FileRange(self._handle(path, False) if handle is None else handle, position, size)

    def forget(self, path: str) -> None:
        """The path will stand for another file, or for none: rename and remove come after this."""
        self._views.pop(path, None)
        self._handles.pop(path, None)

    def forget_below(self, directory: str) -> None:
        """The same for all of a directory."""
        prefix = directory + "/"
        for path in [path for path in (*self._handles, *self._views) if path.startswith(prefix)]:
            self.forget(path)

    def view(self, path: str, size: int) -> Buffer:
        """At least the first `size` bytes of an index, mapped. The file grows; a map does not, so it is made anew."""
        view = self._views.get(path)
        if view is None or len(view) < size:
            self._views.pop(path, None)
            while len(self._views) >= self.views_limit:
                del self._views[next(iter(self._views))]
            view = self._views[path] = self.get(path).map(size)
        return view

    def forget_view(self, path: str) -> None:
        """Before the file shrinks: bytes behind its new end must not be touched."""
        self._views.pop(path, None)

    def close(self) -> None:
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

    def view(self) -> memoryview | None:
        """The same bytes where the kernel can send them from; no Python code may look at them. None if they are not
        mapped, and a map does not pay. It keeps the file, as the range does."""
        return self._handle.view(self.position, self.position + self.size)

    def is_resident(self) -> bool:
        """Whether reading it would not wait for the device: otherwise it is for a worker thread."""
        return self.file.is_resident(self.position, self.size)
