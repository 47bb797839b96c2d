"""Files: the two protocols that the room stands on, and the disk of the operating system.

This is the only module that opens files. Everything above it is given a `Disk` and cannot tell whether the
bytes go to ext4, to a tmpfs, or to a dictionary that forgets what was not synced (`memory_disk.py`). That is
what makes power loss, a full disk and a failing fsync ordinary test cases instead of rare mornings.

The protocols promise little, so that all of it can be simulated:

* A `File` has no cursor. Every read and write names its offset, so two users of one file cannot disturb each
  other, and a read never needs a lock.
* `write` writes everything or raises; a caller never sees a short write. After an error the bytes behind the
  offset are unknown, and so is the page cache: whoever catches an `OSError` of write, truncate or sync stops
  writing to that directory (`storage/failstop_disk.py` does it for all of them).
* `sync` makes the *content and size* of a file durable, `sync_directory` the *names* in one directory. Neither
  does the other's work. A new file that must survive needs both, a rename needs the second, and a new
  directory needs a sync of its parent.
* Every failure is an `OSError` with its errno.

Three choices that are not obvious:

**Maps.** Touching a mapped byte behind the end of a truncated file is SIGBUS, which no Python code survives. So
a `File` remembers the maps it handed out and closes them before it shrinks: a later touch is a `ValueError`.
A map that still has a memoryview on it (a reply half sent) cannot be closed; then `truncate` refuses with EBUSY
and leaves the file and that memoryview as they are, and the caller tries again when the reply has left. A file
that is open twice knows only its own maps; `file_pool.py`, which opens them, lets go of its map before a file shrinks.
Mapped bytes are never rewritten. Note that CPython keeps a descriptor of its own for each map, so a map that is kept
costs as much as an open file.

**Interrupted calls.** CPython itself repeats a system call that a signal interrupted (PEP 475), so nobody sees EINTR.

**Cold pages.** A read from the event loop that has to wait for the device stalls everyone. `is_resident` asks
the kernel whether it would, and `warm`, in another thread, sees to it that it would not. That one sends the bytes to
nowhere: they come into the page cache and are not copied from there, which is most of what reading them would cost.
"""

import errno
import fcntl
import mmap
import os
import resource
import stat
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700

NOWHERE: Final = os.devnull

TEMPORARY_SUFFIX: Final = ".tmp"
"""What `replace` adds to the name while the new content is not yet complete. Recovery may delete such files."""

WHOLE_FILE_LIMIT: Final = 256 * 1024 * 1024
"""`Disk.read` is for checkpoints, snapshots and indexes. Anything larger is read in ranges."""

MAPS_PER_FILE: Final = 64
"""A user keeps one map per file and shares it; 64 leaves room for replies on their way out."""

IOV_MAX: Final = os.sysconf("SC_IOV_MAX")

PROBE_STRIDE: Final = 128 * 1024
"""`is_resident` looks at one byte in so many: the kernel reads ahead in steps of this size."""

COUNT_FROM_BYTES: Final = 2 * mmap.PAGESIZE
"""Of more than this, it has the pages counted, where the kernel can: none may be missing, for what is missing would
come from the disk unchecked (warmth.py)."""


MOST_DESCRIPTORS: Final = 65_536
"""What a node asks for, where it is allowed; more would only be a burden to those who go through all of them."""


def descriptors_limit() -> int:
    """How many files and connections this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def allow_many_descriptors() -> None:
    """Take what the system would give anyone who asks: the soft limit is often 1,024, and a JVM raises its own too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class File(Protocol):
    """An open file. Offsets are explicit, and a memoryview passed in is one of bytes."""

    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at `offset`; fewer than `size` only where the file ends."""

    def write(self, offset: int, *buffers: Buffer) -> int:
        """Write all buffers one behind the other and return how many bytes that were."""

    def truncate(self, size: int) -> None:
        """Set the size. Shrinking closes every map; EBUSY, and the size stays, when there are views of one."""

    def sync(self) -> None:
        """Make content and size durable (not the name). Blocks, so call it from a worker thread."""

    def map(self, size: int) -> Buffer:
        """The first `size` bytes, read-only; EINVAL when the file is shorter. Dies when the file shrinks."""

    def is_resident(self, offset: int, size: int) -> bool:
        """Whether a read of this range would (most likely) not wait for the device. True where unknown."""

    def read_resident(self, offset: int, size: int) -> Buffer | None:
        """The bytes at `offset`, all of them; None if a read would wait for the device, or the file ends before."""

    def warm(self, offset: int, size: int) -> None:
        """Bring these bytes into memory, as far as the file has them. Blocks, so call it from a worker thread."""

    def fileno(self) -> int:
        """For sendfile. A file without a descriptor raises EOPNOTSUPP: read instead."""

    def close(self) -> None:
        """Give the descriptor back. Maps stay valid; closing twice does nothing."""


class Disk(Protocol):
    """A tree of files. Paths are str, '/' between names."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes an empty file where there is none."""

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """With its parents; nothing happens when it is there already. Durable once the parent is synced."""

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces a file of the new name. Durable once the directory is synced."""

    def remove(self, path: str) -> None:
        """A file, or an empty directory."""

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Make the names in this directory durable: what was created, renamed and removed."""

    def read(self, path: str) -> bytes:
        """A whole small file; EFBIG above `WHOLE_FILE_LIMIT`."""

    def replace(self, path: str, data: bytes) -> None:
        """Put `data` there so that after a crash the file holds either the old or the new bytes, whole."""

    def lock(self, path: str) -> File:
        """Open (and create) the file and hold it against every other process until closed; EAGAIN if taken."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int:
        """Of the volume that the path is on."""


def replace_whole(disk: Disk, path: str, data: bytes) -> None:
    """The one correct order: write beside it, sync, rename over it, sync the directory.

    A temporary file left by an earlier crash is overwritten. After a failure one may stay behind; it never has
    the real name, so nobody reads it.
    """
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write(0, data)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path) or ".")


def make_durable_directory(disk: Disk, path: str) -> None:
    """A directory with its parents, whose names outlast a loss of power. What is synced in a directory is lost if its
    own name is."""
    made = []
    path = path.rstrip("/")
    while path and not disk.exists(path):
        made.append(path)
        path = os.path.dirname(path)
    if made:
        disk.make_directory(made[0])
    for each in made:
        disk.sync_directory(os.path.dirname(each) or ".")


def remove_whole_tree(disk: Disk, path: str) -> None:
    """Remove what is inside, in the order of the names, then the thing itself."""
    if disk.is_directory(path):
        for name in disk.list(path):
            remove_whole_tree(disk, f"{path}/{name}")
    disk.remove(path)


_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)  # 0 where the kernel cannot be asked
_PROBED: Final = [bytearray(1)]  # where `is_resident` reads to, and nobody looks


class OsFile:
    """A file of the operating system.

    `write` is the hot path (an append is one call), so the common cases make one system call and nothing else.
    """

    __slots__ = ("_can_tell", "_descriptor", "_maps", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._can_tell = bool(_NOWAIT)  # what is in memory; a tmpfs, say, cannot
        self._maps: list[weakref.ref[mmap.mmap]] | None = None

    def __repr__(self) -> str:
        return f"<OsFile {self.path}>"

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        found = os.pread(self._descriptor, size, offset)
        if len(found) == size or not found:
            return found
        # The end of the file is the usual reason, but the kernel may also stop early (2 GiB per call, a signal).
        parts = [found]
        missing = size - len(found)
        while missing and found:
            found = os.pread(self._descriptor, missing, offset + size - missing)
            parts.append(found)
            missing -= len(found)
        return b"".join(parts)

    def write(self, offset: int, *buffers: Buffer) -> int:
        if len(buffers) == 1:
            (buffer,) = buffers
            size = len(buffer)
            written = os.pwrite(self._descriptor, buffer, offset)
        else:
            size = sum(map(len, buffers))
            written = os.pwritev(self._descriptor, buffers, offset) if len(buffers) <= IOV_MAX else 0
        return size if written == size else self._write_rest(offset, written, buffers)

    def _write_rest(self, offset: int, written: int, buffers: Sequence[Buffer]) -> int:
        """Go on behind the `written` bytes of a short write until all is there or the kernel says why not."""
        views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        size = sum(map(len, views))
        first, done, step = 0, 0, written  # the views before `first` are written, and `done` bytes in all
        while True:
            done += step
            while step and step >= len(views[first]):
                step -= len(views[first])
                first += 1
            if done >= size:
                return size
            views[first] = views[first][step:]
            step = os.pwritev(self._descriptor, views[first : first + IOV_MAX], offset + done)
            if not step:
                raise OSError(errno.EIO, "the kernel wrote nothing and gave no reason", self.path)

    def truncate(self, size: int) -> None:
        if self._maps is not None and size < self.size():
            self._close_maps()
        os.ftruncate(self._descriptor, size)

    def _close_maps(self) -> None:
        for reference in self._maps or ():
            view = reference()
            try:
                if view is not None:
                    view.close()
            except BufferError:
                raise OSError(errno.EBUSY, "a map of the file is still in use, it cannot shrink", self.path) from None
        self._maps = None

    def sync(self) -> None:
        if self._descriptor < 0:  # fdatasync, unlike the others, has a ValueError for it
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        _sync_data(self._descriptor)

    def map(self, size: int) -> Buffer:
        if size == 0:
            return b""  # there is no empty map
        live = [reference for reference in self._maps or () if _is_open(reference())]
        if len(live) >= MAPS_PER_FILE:
            raise OSError(errno.EMFILE, f"{MAPS_PER_FILE} maps of one file are in use", self.path)
        if not 0 < size <= self.size():
            raise OSError(errno.EINVAL, f"cannot map {size} bytes, the file is shorter", self.path)
        view = mmap.mmap(self._descriptor, size, prot=mmap.PROT_READ)
        live.append(weakref.ref(view))
        self._maps = live
        return view

    def is_resident(self, offset: int, size: int) -> bool:
        if not self._can_tell or size <= 0:
            return True
        try:
            os.preadv(self._descriptor, _PROBED, offset + size - 1, _NOWAIT)
            if size > COUNT_FROM_BYTES:
                has_all = self._is_all_cached(offset, size)
                if has_all is not None:
                    return has_all
            for position in range(offset, offset + size - 1, PROBE_STRIDE):
                os.preadv(self._descriptor, _PROBED, position, _NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            self._cannot_tell(error)
        return True

    def read_resident(self, offset: int, size: int) -> Buffer | None:
        if self._can_tell:
            found = bytearray(size)
            try:
                return found if os.preadv(self._descriptor, (found,), offset, _NOWAIT) == size else None
            except BlockingIOError:
                return None
            except OSError as error:
                self._cannot_tell(error)
        read = os.pread(self._descriptor, size, offset)
        return read if len(read) == size else None

    def warm(self, offset: int, size: int) -> None:
        nowhere = os.open(NOWHERE, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while size > 0 and (sent := os.sendfile(nowhere, self._descriptor, offset, size)):
                offset, size = offset + sent, size - sent
        finally:
            os.close(nowhere)

    def _cannot_tell(self, error: OSError) -> None:
        """Takes note if that is what the error says."""
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise error
        self._can_tell = False

    def _is_all_cached(self, offset: int, size: int) -> bool | None:
        from .cachestat import cached_pages, touched_pages

        count = cached_pages(self._descriptor, offset, size)
        if count is None:
            return None
        if count < touched_pages(offset, size):
            size = min(size, self.size() - offset)  # there is nothing to wait for behind the end
            return size <= 0 or count >= touched_pages(offset, size)
        return True

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        # The number is forgotten first: once the kernel has it back, it may name another file.
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        with suppress(OSError):  # too late to matter
            self.close()


def map_for_the_kernel(descriptor: int, at_least: int) -> memoryview | None:
    """A whole file, for a system call to send from; None if it has not so many bytes, or cannot be mapped.

    No Python code may look at these bytes. Nobody closes this map when the file shrinks or its disk fails, and then a
    look is SIGBUS; inside of `sendmsg` it is EFAULT, an OSError like any other.
    """
    try:
        size = os.fstat(descriptor).st_size
        return memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ)) if size >= max(at_least, 1) else None
    except OSError:
        return None


def let_pages_go(file: File, offset: int, size: int) -> None:
    """Tell the kernel that nobody needs these bytes in memory. Dirty ones stay, as do those that are mapped."""
    try:
        os.posix_fadvise(file.fileno(), offset, size, os.POSIX_FADV_DONTNEED)
    except (OSError, AttributeError):  # a file without a descriptor, or a system that cannot be told
        return


def _is_open(view: mmap.mmap | None) -> bool:
    return view is not None and not view.closed


def _kind(path: str) -> int | None:
    """What stands there: None for nothing. A disk that fails must not look like one where nothing is."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


class _Spare:
    """A descriptor that is kept for directories. To sync one is often the last of several steps, and the others cannot
    be taken back: a process that has run out of descriptors must still be able to finish them."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._lock = threading.Lock()

    def keep(self) -> None:
        with self._lock:
            if self._descriptor < 0:
                with suppress(OSError):  # the next time, perhaps
                    self._descriptor = os.open(NOWHERE, os.O_RDONLY | os.O_CLOEXEC)

    def open_directory(self, path: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            return os.open(path, flags)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
            return os.open(path, flags)


_SPARE: Final = _Spare()


class OsDisk:
    """The file systems of this machine."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(path, os.open(path, flags, FILE_MODE))

    def exists(self, path: str) -> bool:
        return _kind(path) is not None

    def is_directory(self, path: str) -> bool:
        return _kind(path) == stat.S_IFDIR

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        # os.makedirs gives the mode to the last directory only.
        parent = os.path.dirname(path.rstrip("/"))
        if parent and not self.is_directory(parent):
            self.make_directory(parent)
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:
            if not self.is_directory(path):
                raise

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.rmdir(path)
        else:
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        remove_whole_tree(self, path)

    def sync_directory(self, path: str) -> None:
        descriptor = _SPARE.open_directory(path)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            _SPARE.keep()

    def read(self, path: str) -> bytes:
        file = self.open(path)
        try:
            size = file.size()
            if size > WHOLE_FILE_LIMIT:
                raise OSError(errno.EFBIG, f"{size} bytes are too many to be read at once", path)
            return file.read(0, size)
        finally:
            file.close()

    def replace(self, path: str, data: bytes) -> None:
        replace_whole(self, path, data)

    def lock(self, path: str) -> File:
        # Kafka holds `.lock` with the same kind of lock (POSIX, of the process), so the two see each other.
        file = self.open(path, create=True)
        try:
            fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        return file

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize
