"""One log directory, and its first failure is its last.

After a write or an fsync failed, nobody knows what the page cache still holds: the kernel may have dropped the
pages and will report the next fsync as a success. So there is no second try. A `Volume` is the `Disk` of one log
directory; the first I/O failure of any file in it is kept in `failure`, `on_failure` is told once, and from then on
every operation raises `KafkaStorageError` without touching the disk. (Fsyncs run in worker threads, so `on_failure`
may be called from one.)

Some errors are answers and not failures: the file is not there, it exists already, its map is in use. They pass through
as they are and change nothing (`ANSWERS`).

A shortage of descriptors (EMFILE, ENFILE) says nothing about the disk either. Whatever had to open something and could
not raises `OutOfDescriptors`, which a client is told as KAFKA_STORAGE_ERROR and tries again, and the volume stays
online. A write or an fsync uses a descriptor that it has: there the same numbers are failures like any other.

The price is one call and one test per operation: 0.2 µs on a write that takes 3 (`bench/disk.py`).
"""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from trioka.protocol.errors import KafkaStorageError

from .disk import Buffer, Disk, File, make_durable_directory, remove_whole_tree, replace_whole

ANSWERS: Final = frozenset(
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
"""What an operation may say without anything being wrong with the disk."""

SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The process, or the whole machine, has no descriptor left."""


class OutOfDescriptors(KafkaStorageError):
    """No descriptor is left to open a file. Nothing was done, and the disk is well: it may be tried again."""


def is_shortage(error: BaseException) -> bool:
    """Whether this is a lack of descriptors, from a volume or from a disk without one."""
    return isinstance(error, OutOfDescriptors) or (isinstance(error, OSError) and error.errno in SHORTAGES)


class Volume:
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

    def judge(self, error: OSError, answers: frozenset[int] = ANSWERS, *, is_open: bool = False) -> Exception:
        """What to raise for this error: itself when it is an answer, else the end of this volume. A shortage of
        descriptors is neither, unless what failed `is_open` already and needs none."""
        if error.errno in answers:
            return error
        if error.errno in SHORTAGES and not is_open:
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
            return VolumeFile(self, self._disk.open(path, create=create))
        except OSError as error:
            raise self.judge(error) from error

    def exists(self, path: str) -> bool:
        self._enter(path)
        try:
            return self._disk.exists(path)
        except OSError as error:
            raise self.judge(error) from error

    def is_directory(self, path: str) -> bool:
        self._enter(path)
        try:
            return self._disk.is_directory(path)
        except OSError as error:
            raise self.judge(error) from error

    def size(self, path: str) -> int:
        self._enter(path)
        try:
            return self._disk.size(path)
        except OSError as error:
            raise self.judge(error) from error

    def list(self, path: str) -> list[str]:
        self._enter(path)
        try:
            return self._disk.list(path)
        except OSError as error:
            raise self.judge(error) from error

    def make_directory(self, path: str) -> None:
        self._enter(path)
        try:
            self._disk.make_directory(path)
        except OSError as error:
            raise self.judge(error) from error

    def make_root(self) -> None:
        """The directory itself, if it is not there yet. Durable: with its name, all that is synced in it would go."""
        self._enter(self.root)
        try:
            make_durable_directory(self._disk, self.root)
        except OSError as error:
            raise self.judge(error) from error

    def rename(self, old: str, new: str) -> None:
        self._enter(old)
        self._enter(new)
        try:
            self._disk.rename(old, new)
        except OSError as error:
            raise self.judge(error) from error

    def remove(self, path: str) -> None:
        self._enter(path)
        try:
            self._disk.remove(path)
        except OSError as error:
            raise self.judge(error) from error

    def remove_tree(self, path: str) -> None:
        remove_whole_tree(self, path)

    def sync_directory(self, path: str) -> None:
        self._enter(path)
        try:
            self._disk.sync_directory(path)
        except OSError as error:
            raise self.judge(error, NO_ANSWERS if path == self.root else GONE) from error

    def read(self, path: str) -> bytes:
        self._enter(path)
        try:
            return self._disk.read(path)
        except OSError as error:
            raise self.judge(error) from error

    def replace(self, path: str, data: bytes) -> None:
        replace_whole(self, path, data)

    def lock(self, path: str) -> File:
        self._enter(path)
        try:
            return VolumeFile(self, self._disk.lock(path))
        except OSError as error:
            raise self.judge(error) from error

    def free_bytes(self, path: str) -> int:
        self._enter(path)
        try:
            return self._disk.free_bytes(path)
        except OSError as error:
            raise self.judge(error) from error

    def total_bytes(self, path: str) -> int:
        self._enter(path)
        try:
            return self._disk.total_bytes(path)
        except OSError as error:
            raise self.judge(error) from error

    def _enter(self, path: str) -> None:
        """Both must hold: the volume is online, and the path is in it. The second is a matter of our own code."""
        self.check()
        inside = path == self.root or path.startswith(self.root + "/")
        assert inside and "/../" not in f"{path}/", f"{path} is not below {self.root}"


NO_ANSWERS: Final[frozenset[int]] = frozenset()
"""A write or a sync has nothing to answer: whatever it raises is a failure."""

GONE: Final = frozenset({errno.ENOENT})
"""A partition's directory may have been deleted meanwhile, while one thread made it durable: it was not even opened."""

TRUNCATE_ANSWERS: Final = frozenset({errno.EBUSY})


@contextmanager
def finishing(disk: Disk) -> Iterator[None]:
    """Around steps that are done all or not at all: names and memory disagree in between. Where one of them finds no
    descriptor, the volume goes offline, and the next start finishes them or takes them back."""
    try:
        yield
    except OutOfDescriptors as error:
        reason = error.__cause__
        take_offline(disk, reason if isinstance(reason, OSError) else OSError(errno.EMFILE, str(error)))
        raise


def take_offline(disk: Disk, error: OSError) -> None:
    """Of a disk that is no volume nobody keeps a record."""
    if isinstance(disk, Volume):
        disk.fail(error)


class VolumeFile:
    """A File of a Volume. (Plain try blocks instead of one wrapper for all: a write is on the hot path.)"""

    __slots__ = ("_file", "_volume", "_write")

    def __init__(self, volume: Volume, file: File) -> None:
        self._volume = volume
        self._file = file
        self._write = file.write

    def __repr__(self) -> str:
        return f"<VolumeFile {self._file!r}>"

    def size(self) -> int:
        self._volume.check()
        try:
            return self._file.size()
        except OSError as error:
            raise self._volume.judge(error) from error

    def read(self, offset: int, size: int) -> bytes:
        if self._volume.failure is not None:
            raise self._volume.offline()
        try:
            return self._file.read(offset, size)
        except OSError as error:
            raise self._volume.judge(error) from error

    def write(self, offset: int, *buffers: Buffer) -> int:
        if self._volume.failure is not None:
            raise self._volume.offline()
        try:
            return self._write(offset, *buffers)
        except OSError as error:
            raise self._volume.judge(error, NO_ANSWERS, is_open=True) from error

    def truncate(self, size: int) -> None:
        self._volume.check()
        try:
            self._file.truncate(size)
        except OSError as error:
            raise self._volume.judge(error, TRUNCATE_ANSWERS, is_open=True) from error

    def sync(self) -> None:
        self._volume.check()
        try:
            self._file.sync()
        except OSError as error:
            raise self._volume.judge(error, NO_ANSWERS, is_open=True) from error

    def map(self, size: int) -> Buffer:
        self._volume.check()
        try:
            return self._file.map(size)
        except OSError as error:
            raise self._volume.judge(error) from error

    def is_resident(self, offset: int, size: int) -> bool:
        self._volume.check()
        try:
            return self._file.is_resident(offset, size)
        except OSError as error:
            raise self._volume.judge(error) from error

    def read_resident(self, offset: int, size: int) -> Buffer | None:
        if self._volume.failure is not None:
            raise self._volume.offline()
        try:
            return self._file.read_resident(offset, size)
        except OSError as error:
            raise self._volume.judge(error) from error

    def warm(self, offset: int, size: int) -> None:
        self._volume.check()
        try:
            self._file.warm(offset, size)
        except OSError as error:
            raise self._volume.judge(error) from error

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        # Descriptors are given back offline as well; whatever close has to say comes too late to matter.
        try:
            self._file.close()
        except OSError as error:
            self._volume.fail(error)
