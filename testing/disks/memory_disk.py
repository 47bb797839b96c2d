"""A disk in memory that loses unsynced changes in a crash, and fails on request.

Every file keeps two things: its durable bytes, and the changes since its last sync, in order. Names are kept apart from
files: a create, a rename or a remove is pending until its *directory* is synced, and syncing a file does not sync its
name. `crash` decides which pending changes survive (`testing/disks/crash_models.py` defines the rules) and returns a
new disk in the state after a power loss; the old one is unchanged, so that a test can try every outcome of the same
crash.

    disk = MemoryDisk()
    disk.make_directory("/logs")
    ...
    found = disk.crash(CrashModel.ANY_SUBSET, Random(7))

Faults (`disk_faults.py`): `disk.faults.add(Fault(nth=3, kinds=frozenset({Kind.SYNC}), effect=Effect.DROPS))`. A full
disk is `capacity_bytes`. A slow one uses `before`, which is called with each operation before it happens. `flip_bit`
flips bits of stored data. Everything is deterministic: the only randomness is the Random that `crash` gets.

Two simplifications: a file that was removed while open is lost in a crash even if the remove is, and relative paths
begin at the same root as absolute ones.
"""

import contextlib
import copy
import errno
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final

from trioka.storage.disk import WHOLE_FILE_LIMIT, Buffer, File, remove_recursively, write_atomically

from .crash_models import (
    ALL,
    CrashModel,
    Entry,
    Link,
    Names,
    Pending,
    Survival,
    Truncate,
    Write,
    draw,
    link,
    overwrite,
    resize,
    surviving_content,
    surviving_names,
)
from .disk_faults import DiskOperation, Effect, Fault, Faults, Kind

ROOT: Final = 0

REMEMBERED_OPERATIONS: Final = 10_000
"""The number of operations in the log of a disk; older ones are dropped."""

PENDING_PER_FILE: Final = 10_000
"""After this many changes of a file without a sync, the disk writes the oldest back by itself, as a kernel does."""


class Inode:
    """A file: the bytes as a reader sees them, the durable bytes, and the changes between."""

    __slots__ = ("changes", "content", "durable")

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.content = bytearray(durable)
        self.changes: list[Write | Truncate] = []

    def write_back(self) -> None:
        # Not a copy of `content`: a failed sync may have dropped changes, which never become durable.
        if self.changes:
            self.durable = surviving_content(self.durable, [(change, ALL) for change in self.changes])
            self.changes = []


class MemoryDisk:
    def __init__(self, files: Mapping[str, bytes] | None = None, *, capacity_bytes: int | None = None) -> None:
        """A disk with these files and their directories, all durable."""
        self._inodes: dict[int, Inode] = {}
        self._names: Names = {ROOT: {}}
        self._durable_names: Names = {ROOT: {}}
        self._links: list[Link] = []
        self._next_inode = ROOT + 1
        self._locked: set[int] = set()
        self.capacity_bytes = capacity_bytes
        self.faults = Faults()
        self.before: Callable[[DiskOperation], None] | None = None
        self.operations: deque[DiskOperation] = deque(maxlen=REMEMBERED_OPERATIONS)
        self.operation_count = 0
        for path, data in (files or {}).items():
            self.make_directory(os.path.dirname(path))
            self.open(path, create=True).write(0, data)
        self.settle()

    @classmethod
    def found(cls, names: Names, contents: Mapping[int, bytes]) -> "MemoryDisk":
        """A disk with these directories and files, all durable: the state after a crash."""
        disk = cls()
        disk._names = {directory: dict(entries) for directory, entries in names.items()}
        disk._durable_names = {directory: dict(entries) for directory, entries in names.items()}
        disk._inodes = {inode: Inode(content) for inode, content in contents.items()}
        disk._next_inode = 1 + max([*names, *contents])
        return disk

    # The interface of Disk (disk.py).

    def open(self, path: str, *, create: bool = False) -> File:
        directory, name = self._parent(path)
        number = self._names[directory].get(name)
        missing = number is None
        if missing and not create:
            self.begin(Kind.OPEN, path)
            raise _error(errno.ENOENT, path)
        self.begin(Kind.CREATE if missing else Kind.OPEN, path)
        if number is None:
            number = self._new_inode()
            self._inodes[number] = Inode()
            self._link(Entry(directory, name, number))
        elif number in self._names:
            raise _error(errno.EISDIR, path)
        return MemoryFile(self, number, path)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return self._find(path) in self._names

    def size(self, path: str) -> int:
        return len(self._file(path).content)

    def list(self, path: str) -> list[str]:
        self.begin(Kind.LIST, path)
        return sorted(self._names[self._directory(path)])

    def make_directory(self, path: str) -> None:
        directory, above = ROOT, ""
        for name in _split(path):
            above = f"{above}/{name}"
            number = self._names[directory].get(name)
            if number is None:
                self.begin(Kind.MAKE_DIRECTORY, above)
                number = self._new_inode()
                self._names[number], self._durable_names[number] = {}, {}
                self._link(Entry(directory, name, number))
            elif number not in self._names:
                raise _error(errno.EEXIST, path)
            directory = number

    def rename(self, old: str, new: str) -> None:
        self.begin(Kind.RENAME, old, f"to {new}")
        source, target = self._parent(old), self._parent(new)
        number = self._names[source[0]].get(source[1])
        if number is None:
            raise _error(errno.ENOENT, old)
        replaced = self._names[target[0]].get(target[1])
        if replaced == number:
            return
        if replaced in self._names:
            if number not in self._names:
                raise _error(errno.EISDIR, new)
            if self._names[replaced]:
                raise _error(errno.ENOTEMPTY, new)
        elif replaced is not None and number in self._names:
            raise _error(errno.ENOTDIR, new)
        self._link(Entry(*source, None), Entry(*target, number))

    def remove(self, path: str) -> None:
        self.begin(Kind.REMOVE, path)
        directory, name = self._parent(path)
        number = self._names[directory].get(name)
        if number is None:
            raise _error(errno.ENOENT, path)
        if self._names.get(number):
            raise _error(errno.ENOTEMPTY, path)
        self._link(Entry(directory, name, None))

    def remove_tree(self, path: str) -> None:
        remove_recursively(self, path)

    def sync_directory(self, path: str) -> None:
        fault = self.begin(Kind.SYNC_DIRECTORY, path)
        directory = self._directory(path)
        if fault is None:
            self._links_arrive(lambda change: any(entry.directory == directory for entry in change.entries))

    def read(self, path: str) -> bytes:
        file = self.open(path)
        if file.size() > WHOLE_FILE_LIMIT:
            raise _error(errno.EFBIG, path)
        return file.read(0, file.size())

    def replace(self, path: str, data: bytes) -> None:
        write_atomically(self, path, data)

    def lock(self, path: str) -> File:
        file = self.open(path, create=True)
        assert isinstance(file, MemoryFile)
        if file.inode in self._locked:
            raise _error(errno.EAGAIN, path)
        self._locked.add(file.inode)
        return file

    def free_bytes(self, path: str) -> int:
        return max(0, self.total_bytes(path) - self.used_bytes())

    def total_bytes(self, path: str) -> int:
        return 1 << 40 if self.capacity_bytes is None else self.capacity_bytes

    # Crashes.

    def pending(self) -> Sequence[Pending]:
        """The changes that a crash may lose, in order. Leaves out changes to files without a name."""
        reachable = {inode for entries in self._durable_names.values() for inode in entries.values()}
        reachable.update(entry.inode for change in self._links for entry in change.entries if entry.inode is not None)
        changes: list[Pending] = [*self._links]
        for number in reachable & self._inodes.keys():
            changes.extend(self._inodes[number].changes)
        return sorted(changes, key=lambda change: change.number)

    def crash(self, model: CrashModel, random: Random) -> "MemoryDisk":
        """A random state of the disk after a power loss."""
        pending = self.pending()
        return self.after(pending, draw(model, pending, random))

    def after_kill(self) -> "MemoryDisk":
        """The disk as the next process finds it: all writes are present, and no more of them durable than before."""
        found = copy.deepcopy(self)
        found._locked.clear()
        return found

    def after(self, pending: Sequence[Pending], survivals: Sequence[Survival]) -> "MemoryDisk":
        """The disk after exactly this part of the pending changes survived."""
        survived = list(zip(pending, survivals, strict=True))
        names = surviving_names(self._durable_names, [(c, s) for c, s in survived if isinstance(c, Link)])
        files: dict[int, list[tuple[Write | Truncate, Survival]]] = {}
        for change, survival in survived:
            if not isinstance(change, Link):
                files.setdefault(change.inode, []).append((change, survival))
        contents = {
            number: surviving_content(self._inodes[number].durable, files.get(number, ())) for _, number in walk(names)
        }
        return self.found(names, contents)

    def durable_names(self) -> Names:
        return self._durable_names

    def durable_content(self, inode: int) -> bytes:
        return self._inodes[inode].durable

    def settle(self) -> None:
        """Make everything durable."""
        for inode in self._inodes.values():
            inode.write_back()
        self._links_arrive(lambda change: True)

    def files(self) -> dict[str, bytes]:
        """Every file as a reader sees it, by path."""
        return {path: bytes(self._inodes[number].content) for path, number in sorted(walk(self._names))}

    def flip_bit(self, path: str, offset: int, bit: int) -> None:
        """Flip a bit of a file's stored data. Makes the file's pending changes durable first."""
        inode = self._file(path)
        inode.write_back()
        inode.content[offset] ^= 1 << bit
        inode.durable = bytes(inode.content)

    def used_bytes(self) -> int:
        return sum(len(self._inodes[number].content) for _, number in walk(self._names))

    # Used by MemoryFile.

    def inode(self, number: int) -> Inode:
        return self._inodes[number]

    def changed(self, inode: Inode, change: Write | Truncate) -> None:
        inode.changes.append(change)
        if len(inode.changes) > PENDING_PER_FILE:
            inode.write_back()

    def begin(self, kind: Kind, path: str, detail: str = "") -> Fault | None:
        """Log an operation; return a fault that still executes a part of it, raise any other."""
        self.operation_count += 1
        operation = DiskOperation(number=self.operation_count, kind=kind, path=path, detail=detail)
        self.operations.append(operation)
        if self.before is not None:
            self.before(operation)
        fault = self.faults.meet(kind)
        if fault is None:
            return None
        if (
            (fault.effect is Effect.HALF and kind is Kind.WRITE)
            or (fault.effect is Effect.DROPS and kind is Kind.SYNC)
            or (fault.effect is Effect.LIES and kind in (Kind.SYNC, Kind.SYNC_DIRECTORY))
        ):
            return fault
        raise _error(fault.error, path)

    def unlock(self, number: int) -> None:
        self._locked.discard(number)

    def _new_inode(self) -> int:
        self._next_inode += 1
        return self._next_inode - 1

    def _link(self, *entries: Entry) -> None:
        change = Link(number=self.operation_count, entries=entries)
        link(self._names, change)
        self._links.append(change)

    def _links_arrive(self, arrives: Callable[[Link], bool]) -> None:
        arriving = [change for change in self._links if arrives(change)]
        self._links = [change for change in self._links if not arrives(change)]
        for change in arriving:
            link(self._durable_names, change)
        if arriving:
            self._forget_unnamed()

    def _forget_unnamed(self) -> None:
        named = {ROOT}
        for names in (self._names, self._durable_names):
            named.update(inode for entries in names.values() for inode in entries.values())
        named.update(entry.inode for change in self._links for entry in change.entries if entry.inode is not None)
        for number in self._inodes.keys() - named:
            del self._inodes[number]
        for number in self._names.keys() - named:
            del self._names[number], self._durable_names[number]
        self._links = [change for change in self._links if any(e.directory in self._names for e in change.entries)]

    def _find(self, path: str) -> int | None:
        number = ROOT
        for name in _split(path):
            found = self._names.get(number, {}).get(name)
            if found is None:
                return None
            number = found
        return number

    def _parent(self, path: str) -> tuple[int, str]:
        *above, name = _split(path)
        return self._directory("/".join(above)), name

    def _directory(self, path: str) -> int:
        number = self._find(path)
        if number is None:
            raise _error(errno.ENOENT, path)
        if number not in self._names:
            raise _error(errno.ENOTDIR, path)
        return number

    def _file(self, path: str) -> Inode:
        number = self._find(path)
        if number is None:
            raise _error(errno.ENOENT, path)
        if number in self._names:
            raise _error(errno.EISDIR, path)
        return self._inodes[number]


class MemoryFile:
    """An open file of a MemoryDisk. It refers to the inode, so it stays valid under a new name."""

    __slots__ = ("_closed", "_disk", "_inode", "_maps", "inode", "path")

    def __init__(self, disk: MemoryDisk, inode: int, path: str) -> None:
        self._disk = disk
        self._inode = disk.inode(inode)
        self._maps: list[tuple[weakref.ref[memoryview], bytearray]] = []
        self._closed = False
        self.inode = inode
        self.path = path

    def __repr__(self) -> str:
        return f"<MemoryFile {self.path}>"

    def size(self) -> int:
        self._check_open()
        return len(self._inode.content)

    def read(self, offset: int, size: int) -> bytes:
        self._begin(Kind.READ, f"{size} bytes at {offset}")
        return bytes(self._inode.content[offset : offset + size])

    def write(self, offset: int, *buffers: Buffer) -> int:
        data = b"".join(buffers)
        fault = self._begin(Kind.WRITE, f"{len(data)} bytes at {offset}")
        arriving, error = len(data), 0
        if fault is not None:
            arriving, error = len(data) // 2, fault.error
        capacity = self._disk.capacity_bytes
        if capacity is not None:
            free = capacity - self._disk.used_bytes() + len(self._inode.content) - offset
            if arriving > free:
                arriving, error = max(0, free), errno.ENOSPC
        if arriving:
            change = Write(number=self._disk.operation_count, inode=self.inode, offset=offset, data=data[:arriving])
            overwrite(self._inode.content, offset, change.data)
            self._disk.changed(self._inode, change)
        if error:
            raise _error(error, self.path)
        return len(data)

    def truncate(self, size: int) -> None:
        self._begin(Kind.TRUNCATE, f"to {size} bytes")
        if size < len(self._inode.content):
            self._release_maps()
        if size != len(self._inode.content):
            change = Truncate(number=self._disk.operation_count, inode=self.inode, size=size)
            resize(self._inode.content, size)
            self._disk.changed(self._inode, change)

    def sync(self) -> None:
        fault = self._begin(Kind.SYNC)
        if fault is None:
            self._inode.write_back()
        elif fault.effect is Effect.DROPS:
            # The kernel marks the pages clean: readers still see them, but they are never written.
            self._inode.changes = [change for change in self._inode.changes if isinstance(change, Truncate)]
            raise _error(fault.error, self.path)

    def map(self, size: int) -> Buffer:
        self._begin(Kind.MAP, f"{size} bytes")
        if not 0 <= size <= len(self._inode.content):
            raise _error(errno.EINVAL, self.path)
        behind = self._inode.content[:size]
        view = memoryview(behind).toreadonly()
        self._maps = [known for known in self._maps if _is_viewed(known[1])]
        self._maps.append((weakref.ref(view), behind))
        return view

    def is_resident(self, offset: int, size: int) -> bool:
        self._check_open()
        return True

    def read_resident(self, offset: int, size: int) -> Buffer | None:
        read = self.read(offset, size)
        return read if len(read) == size else None

    def warm(self, offset: int, size: int) -> None:
        self.read(offset, size)

    def fileno(self) -> int:
        raise _error(errno.EOPNOTSUPP, self.path)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._disk.unlock(self.inode)

    def _release_maps(self) -> None:
        for reference, behind in self._maps:
            with contextlib.suppress(BufferError):  # a memoryview exists: the next line detects it
                if (view := reference()) is not None:
                    view.release()
            if _is_viewed(behind):
                raise _error(errno.EBUSY, self.path)
        self._maps = []

    def _begin(self, kind: Kind, detail: str = "") -> Fault | None:
        self._check_open()
        return self._disk.begin(kind, self.path, detail)

    def _check_open(self) -> None:
        if self._closed:
            raise _error(errno.EBADF, self.path)


def _is_viewed(behind: bytearray) -> bool:
    """Whether a memoryview of the buffer exists, which is the only reason why it cannot be resized."""
    try:
        behind.append(0)
    except BufferError:
        return True
    behind.pop()
    return False


def walk(names: Names) -> Iterator[tuple[str, int]]:
    """The path and the inode of each file that is reachable through these names."""
    waiting = [("", ROOT)]
    while waiting:
        above, directory = waiting.pop()
        for name, number in names[directory].items():
            if number in names:
                waiting.append((f"{above}/{name}", number))
            else:
                yield f"{above}/{name}", number


def _split(path: str) -> list[str]:
    return [name for name in os.path.normpath(path).split("/") if name not in ("", ".")]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
