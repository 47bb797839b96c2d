"""Takes a log directory offline at its first I/O failure.

After a failed write or fsync the content of the page cache is unknown: the kernel may have dropped the
pages and will report the next fsync as a success. So there is no second try. A `FailStopDisk` is the `Disk` of one log
directory; the first I/O failure of any file in it is kept in `failure`, `on_failure` is called once, and from then on
every operation raises `KafkaStorageError` without touching the disk. (Fsyncs run in worker threads, so `on_failure`
may be called from one.)

Some errors are answers and not failures: the file is not there, it exists already, its map is in use. They pass through
as they are and change nothing (`EXPECTED_ERRORS`).

A shortage of descriptors (EMFILE, ENFILE) is no failure of the disk either. An operation that had to open a file and
could not raises `OutOfDescriptors`, which a client gets as KAFKA_STORAGE_ERROR and retries, and the volume stays
online. A write or an fsync uses an open descriptor: there the same numbers are failures like any other.

The price is one call and one test per operation: 0.2 µs on a write that takes 3 (`bench/disk.py`).
"""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from trioka.protocol.errors import KafkaStorageError

from .disk import Buffer, Disk, File, make_durable_directory, remove_recursively, write_atomically

EXPECTED_ERRORS: Final = frozenset(
    {
        errno.ENOENT,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENOTEMPTY,
        errno.EBUSY,  # a map is in use
        errno.EINVAL,
        errno.EOPNOTSUPP,
        errno.EAGAIN,  # the lock is taken
        errno.EFBIG,  # too large to be read whole
    }
)
"""Errors that an operation may raise without a failure of the disk."""

DESCRIPTOR_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The process, or the whole machine, has no descriptor left."""


class OutOfDescriptors(KafkaStorageError):
    """No descriptor is left to open a file. Nothing was done, and the disk is well: it may be tried again."""


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether this is a lack of descriptors, from a volume or from a disk without one."""
    return isinstance(error, OutOfDescriptors) or (isinstance(error, OSError) and error.errno in DESCRIPTOR_ERRORS)


class FailStopDisk:
    """A Disk that holds the files below `root` and goes offline at the first failure."""

    def __init__(self, disk: Disk, root: str, on_failure: Callable[[OSError], None] | None = None) -> None:
        self.root = root.rstrip("/")
        self.failure: OSError | None = None
        self._disk = disk
        self._on_failure = on_failure
        self._failing = threading.Lock()

    def __repr__(self) -> str:
        return f"<Volume {self.root}{' offline' if self.failure else ''}>"

    def fail(self, error: OSError) -> None:
        """Go offline for this reason. Only the first counts, and two fsyncs may fail in two threads at once."""
        with self._failing:
            first, self.failure = self.failure is None, self.failure or error
        if first and self._on_failure is not None:
            self._on_failure(error)

    def error_for(
        self, error: OSError, answers: frozenset[int] = EXPECTED_ERRORS, *, is_open: bool = False
    ) -> Exception:
        """The error to raise: the same one if it is expected, else the end of this volume. A shortage of descriptors is
        neither, unless the failed file `is_open` already and needs none."""
        if error.errno in answers:
            return error
        if error.errno in DESCRIPTOR_ERRORS and not is_open:
            return OutOfDescriptors(f"no descriptor is left in this process for {self.root}: {error}")
        self.fail(error)
        return self.offline()

    def offline(self) -> KafkaStorageError:
        return KafkaStorageError(f"{self.root} is offline: {self.failure}")

    def check(self) -> None:
        if self.failure is not None:
            raise self.offline()

    def open(self, path: str, *, create: bool = False) -> File:
        self._enter(path)
        try:
            return FailStopFile(self, self._disk.open(path, create=create))
        except OSError as error:
            raise self.error_for(error) from error

    def exists(self, path: str) -> bool:
        self._enter(path)
        try:
            return self._disk.exists(path)
        except OSError as error:
            raise self.error_for(error) from error

    def is_directory(self, path: str) -> bool:
        self._enter(path)
        try:
            return self._disk.is_directory(path)
        except OSError as error:
            raise self.error_for(error) from error

    def size(self, path: str) -> int:
        self._enter(path)
        try:
            return self._disk.size(path)
        except OSError as error:
            raise self.error_for(error) from error

    def list(self, path: str) -> list[str]:
        self._enter(path)
        try:
            return self._disk.list(path)
        except OSError as error:
            raise self.error_for(error) from error

    def make_directory(self, path: str) -> None:
        self._enter(path)
        try:
            self._disk.make_directory(path)
        except OSError as error:
            raise self.error_for(error) from error

    def make_root(self) -> None:
        """The directory itself, if it is not there yet. Durable: with its name, all that is synced in it would go."""
        self._enter(self.root)
        try:
            make_durable_directory(self._disk, self.root)
        except OSError as error:
            raise self.error_for(error) from error

    def rename(self, old: str, new: str) -> None:
        self._enter(old)
        self._enter(new)
        try:
            self._disk.rename(old, new)
        except OSError as error:
            raise self.error_for(error) from error

    def remove(self, path: str) -> None:
        self._enter(path)
        try:
            self._disk.remove(path)
        except OSError as error:
            raise self.error_for(error) from error

    def remove_tree(self, path: str) -> None:
        remove_recursively(self, path)

    def sync_directory(self, path: str) -> None:
        self._enter(path)
        try:
            self._disk.sync_directory(path)
        except OSError as error:
            raise self.error_for(error, NO_EXPECTED_ERRORS if path == self.root else GONE) from error

    def read(self, path: str) -> bytes:
        self._enter(path)
        try:
            return self._disk.read(path)
        except OSError as error:
            raise self.error_for(error) from error

    def replace(self, path: str, data: bytes) -> None:
        write_atomically(self, path, data)

    def lock(self, path: str) -> File:
        self._enter(path)
        try:
            return FailStopFile(self, self._disk.lock(path))
        except OSError as error:
            raise self.error_for(error) from error

    def free_bytes(self, path: str) -> int:
        self._enter(path)
        try:
            return self._disk.free_bytes(path)
        except OSError as error:
            raise self.error_for(error) from error

    def total_bytes(self, path: str) -> int:
        self._enter(path)
        try:
            return self._disk.total_bytes(path)
        except OSError as error:
            raise self.error_for(error) from error

    def _enter(self, path: str) -> None:
        """Requires that the volume is online and that the path is in it. A foreign path is a bug of the caller."""
        self.check()
        inside = path == self.root or path.startswith(self.root + "/")
        assert inside and "/../" not in f"{path}/", f"{path} is not below {self.root}"


NO_EXPECTED_ERRORS: Final[frozenset[int]] = frozenset()
"""Writes and syncs have no expected errors: every error is a failure."""

GONE: Final = frozenset({errno.ENOENT})
"""Another thread may have deleted a partition's directory before it was made durable: opening it fails then."""

TRUNCATE_ERRORS: Final = frozenset({errno.EBUSY})


@contextmanager
def must_complete(disk: Disk) -> Iterator[None]:
    """Wraps steps that must all complete: between them names and memory disagree. If a step finds no descriptor, the
    volume goes offline, and the next start finishes or reverts the steps."""
    try:
        yield
    except OutOfDescriptors as error:
        reason = error.__cause__
        take_offline(disk, reason if isinstance(reason, OSError) else OSError(errno.EMFILE, str(error)))
        raise


def take_offline(disk: Disk, error: OSError) -> None:
    """A disk that is no FailStopDisk keeps no failure."""
    if isinstance(disk, FailStopDisk):
        disk.fail(error)


class FailStopFile:
    """A File of a Volume. (Plain try blocks instead of one wrapper for all: a write is on the hot path.)"""

    __slots__ = ("_file", "_volume", "_write")

    def __init__(self, volume: FailStopDisk, file: File) -> None:
        self._volume = volume
        self._file = file
        self._write = file.write

    def __repr__(self) -> str:
        return f"<FailStopFile {self._file!r}>"

    def size(self) -> int:
        self._volume.check()
        try:
            return self._file.size()
        except OSError as error:
            raise self._volume.error_for(error) from error

    def read(self, offset: int, size: int) -> bytes:
        if self._volume.failure is not None:
            raise self._volume.offline()
        try:
            return self._file.read(offset, size)
        except OSError as error:
            raise self._volume.error_for(error) from error

    def write(self, offset: int, *buffers: Buffer) -> int:
        if self._volume.failure is not None:
            raise self._volume.offline()
        try:
            return self._write(offset, *buffers)
        except OSError as error:
            raise self._volume.error_for(error, NO_EXPECTED_ERRORS, is_open=True) from error

    def truncate(self, size: int) -> None:
        self._volume.check()
        try:
            self._file.truncate(size)
        except OSError as error:
            raise self._volume.error_for(error, TRUNCATE_ERRORS, is_open=True) from error

    def sync(self) -> None:
        self._volume.check()
        try:
            self._file.sync()
        except OSError as error:
            raise self._volume.error_for(error, NO_EXPECTED_ERRORS, is_open=True) from error

    def map(self, size: int) -> Buffer:
        self._volume.check()
        try:
            return self._file.map(size)
        except OSError as error:
            raise self._volume.error_for(error) from error

    def is_resident(self, offset: int, size: int) -> bool:
        self._volume.check()
        try:
            return self._file.is_resident(offset, size)
        except OSError as error:
            raise self._volume.error_for(error) from error

    def read_resident(self, offset: int, size: int) -> Buffer | None:
        if self._volume.failure is not None:
            raise self._volume.offline()
        try:
            return self._file.read_resident(offset, size)
        except OSError as error:
            raise self._volume.error_for(error) from error

    def warm(self, offset: int, size: int) -> None:
        self._volume.check()
        try:
            self._file.warm(offset, size)
        except OSError as error:
            raise self._volume.error_for(error) from error

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        # Descriptors are closed offline as well; an error of close comes too late to matter.
        try:
            self._file.close()
        except OSError as error:
            self._volume.fail(error)
