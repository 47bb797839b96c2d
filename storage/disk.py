"""Files: the two protocols that storage is built on, and their implementation by the operating system.

This is the only module that opens files. Everything above it is given a `Disk` and cannot tell whether the
bytes go to ext4, to a tmpfs, or to a dictionary that forgets what was not synced (`memory_disk.py`). That makes
power loss, a full disk and a failing fsync ordinary test cases.

The protocols promise little, so that all of it can be simulated:

* A `File` has no cursor. Every read and write names its offset, so two users of one file cannot disturb each
  other, and a read never needs a lock.
* `write` writes everything or raises; a caller never sees a short write. After an error the bytes behind the
  offset are unknown, and so is the page cache: a caller that catches an `OSError` of write, truncate or sync stops
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
that is open twice knows only its own maps; `file_pool.py`, which opens them, closes its map before a file shrinks.
Mapped bytes are never rewritten. CPython keeps a descriptor of its own for each map, so a map that is kept costs as
much as an open file.

**Interrupted calls.** CPython itself repeats a system call that a signal interrupted (PEP 475), so no caller sees
EINTR.

**Cold pages.** A read from the event loop that has to wait for the device stalls everyone. `is_resident` checks
whether it would wait, and `warm`, in another thread, loads the pages. `warm` sends the bytes to /dev/null: they enter
the page cache and are not copied, and copying is most of the cost of a read.
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

DEV_NULL: Final = os.devnull

TEMPORARY_SUFFIX: Final = ".tmp"
"""What `replace` adds to the name while the new content is not yet complete. Recovery may delete such files."""

WHOLE_FILE_LIMIT: Final = 256 * 1024 * 1024
"""`Disk.read` is for checkpoints, snapshots and indexes. Anything larger is read in ranges."""

MAPS_PER_FILE: Final = 64
"""A user keeps one map per file and shares it; 64 leaves room for replies on their way out."""

IOV_MAX: Final = os.sysconf("SC_IOV_MAX")

PROBE_STRIDE: Final = 128 * 1024
"""`is_resident` probes one byte in this many: the kernel reads ahead in steps of this size."""

COUNT_FROM_BYTES: Final = 2 * mmap.PAGESIZE
"""Above this size the pages are counted, where the kernel supports it: none may be missing, because a missing page
would come from the disk unchecked (page_cache_probe.py)."""


MAX_DESCRIPTORS: Final = 65_536
"""The limit that a node sets if allowed. A higher one would slow down code that iterates over all descriptors."""


def descriptor_limit() -> int:
    """The limit of open files and connections of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Raises the soft limit, which is often 1,024, towards the hard limit, as a JVM does too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class File(Protocol):
    """An open file. Offsets are explicit, and a memoryview passed in is one of bytes."""

    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at `offset`; fewer than `size` only where the file ends."""

    def write(self, offset: int, *buffers: Buffer) -> int:
        """Writes all buffers consecutively and returns the number of bytes."""

    def truncate(self, size: int) -> None:
        """Sets the size. Shrinking closes every map; EBUSY, and the size stays, when a map has views."""

    def sync(self) -> None:
        """Make content and size durable (not the name). Blocks, so call it from a worker thread."""

    def map(self, size: int) -> Buffer:
        """The first `size` bytes, read-only; EINVAL when the file is shorter. Closed when the file shrinks."""

    def is_resident(self, offset: int, size: int) -> bool:
        """Whether a read of this range would (most likely) not wait for the device. True where unknown."""

    def read_resident(self, offset: int, size: int) -> Buffer | None:
        """The bytes at `offset`, all of them; None if a read would wait for the device, or the file ends before."""

    def warm(self, offset: int, size: int) -> None:
        """Bring these bytes into memory, as far as the file has them. Blocks, so call it from a worker thread."""

    def fileno(self) -> int:
        """For sendfile. A file without a descriptor raises EOPNOTSUPP: read instead."""

    def close(self) -> None:
        """Closes the descriptor. Maps stay valid; closing twice does nothing."""


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
        """Makes a directory with its parents if it does not exist. Durable once the parent is synced."""

    def rename(self, old: str, new: str) -> None:
        """Renames atomically, replacing a file of the new name. Durable once the directory is synced."""

    def remove(self, path: str) -> None:
        """Removes a file or an empty directory."""

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None:
        """Makes creations, renames and removals in this directory durable."""

    def read(self, path: str) -> bytes:
        """Reads a whole small file; EFBIG above `WHOLE_FILE_LIMIT`."""

    def replace(self, path: str, data: bytes) -> None:
        """Replaces the content so that after a crash the file has either all old or all new bytes."""

    def lock(self, path: str) -> File:
        """Opens (or creates) and locks the file until closed; EAGAIN if another process holds the lock."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int:
        """Of the volume that the path is on."""


def write_atomically(disk: Disk, path: str, data: bytes) -> None:
    """The one correct order: write beside it, sync, rename over it, sync the directory.

    A temporary file left by an earlier crash is overwritten. After a failure one may stay behind; it never has
    the real name, so it is never read.
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
    """Creates a directory with its parents, whose names survive a loss of power. A synced file in a directory is lost
    if the name of the directory is."""
    made = []
    path = path.rstrip("/")
    while path and not disk.exists(path):
        made.append(path)
        path = os.path.dirname(path)
    if made:
        disk.make_directory(made[0])
    for each in made:
        disk.sync_directory(os.path.dirname(each) or ".")


def remove_recursively(disk: Disk, path: str) -> None:
    """Removes a directory's content in the order of the names, then the directory itself."""
    if disk.is_directory(path):
        for name in disk.list(path):
            remove_recursively(disk, f"{path}/{name}")
    disk.remove(path)


_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)  # 0 where the kernel does not support it
_PROBED: Final = [bytearray(1)]  # where `is_resident` reads to; the byte is ignored


class OsFile:
    """A file of the operating system.

    `write` is the hot path (an append is one call), so the common cases make one system call and nothing else.
    """

    __slots__ = ("_descriptor", "_maps", "_supports_nowait", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._supports_nowait = bool(_NOWAIT)  # whether bytes are in memory; a tmpfs, for example, does not support it
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
        """Continues behind the `written` bytes of a short write until all are written or a write fails."""
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
        if not self._supports_nowait or size <= 0:
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
            self._note_unsupported(error)
        return True

    def read_resident(self, offset: int, size: int) -> Buffer | None:
        if self._supports_nowait:
            found = bytearray(size)
            try:
                return found if os.preadv(self._descriptor, (found,), offset, _NOWAIT) == size else None
            except BlockingIOError:
                return None
            except OSError as error:
                self._note_unsupported(error)
        read = os.pread(self._descriptor, size, offset)
        return read if len(read) == size else None

    def warm(self, offset: int, size: int) -> None:
        dev_null = os.open(DEV_NULL, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while size > 0 and (sent := os.sendfile(dev_null, self._descriptor, offset, size)):
                offset, size = offset + sent, size - sent
        finally:
            os.close(dev_null)

    def _note_unsupported(self, error: OSError) -> None:
        """Records that the kernel does not support the check, if the error shows it."""
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise error
        self._supports_nowait = False

    def _is_all_cached(self, offset: int, size: int) -> bool | None:
        from .cachestat import cached_pages, touched_pages

        count = cached_pages(self._descriptor, offset, size)
        if count is None:
            return None
        if count < touched_pages(offset, size):
            size = min(size, self.size() - offset)  # no wait is needed behind the end
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
        with suppress(OSError):  # an error cannot be handled here
            self.close()


def map_for_send(descriptor: int, at_least: int) -> memoryview | None:
    """A whole file, mapped for a system call that sends it; None if it is shorter than that, or cannot be mapped.

    Python code must not read these bytes. Nothing closes this map when the file shrinks or its disk fails, and then a
    read is SIGBUS; inside of `sendmsg` it is EFAULT, an OSError like any other.
    """
    try:
        size = os.fstat(descriptor).st_size
        return memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ)) if size >= max(at_least, 1) else None
    except OSError:
        return None


def drop_page_cache(file: File, offset: int, size: int) -> None:
    """Advise the kernel to drop these bytes from the page cache. Dirty ones stay, as do those that are mapped."""
    try:
        os.posix_fadvise(file.fileno(), offset, size, os.POSIX_FADV_DONTNEED)
    except (OSError, AttributeError):  # a file without a descriptor, or a system without fadvise
        return


def _is_open(view: mmap.mmap | None) -> bool:
    return view is not None and not view.closed


def _kind(path: str) -> int | None:
    """The file type; None if the path does not exist. A failing disk must not look like an empty one."""
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
                with suppress(OSError):  # tried again at the next call
                    self._descriptor = os.open(DEV_NULL, os.O_RDONLY | os.O_CLOEXEC)

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


def read_settings_file(path: str) -> bytes:
    """The content of a file written by an operator, which may be read-only."""
    with open(path, "rb") as file:
        content = file.read(WHOLE_FILE_LIMIT + 1)
    if len(content) > WHOLE_FILE_LIMIT:
        raise OSError(errno.EFBIG, f"more than {WHOLE_FILE_LIMIT} bytes", path)
    return content


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
        remove_recursively(self, path)

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
        write_atomically(self, path, data)

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
