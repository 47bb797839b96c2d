"""The machine's disk, with failures and delays when a test requests them.

`testing/disks/memory_disk.py` supports more kinds of failures; it is for simulations. A broker under test has real
files, so that tests cover memory maps and sendfile.
"""

import errno
import os
import time

from trioka.storage.files.disk import Buffer, Disk, File, OsDisk, remove_recursively, write_atomically


class DiskCondition:
    """The condition of a disk and of all its open files."""

    __slots__ = ("is_full", "slowness_s")

    def __init__(self) -> None:
        self.is_full = False
        self.slowness_s = 0.0

    def write(self, path: str) -> None:
        """Called before each write."""
        self.sleep_if_slow()
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def sleep_if_slow(self) -> None:
        if self.slowness_s:
            time.sleep(self.slowness_s)


class FaultyFile:
    """A File of the machine, with the failures of its disk."""

    __slots__ = (
        "_condition",
        "_file",
        "_path",
        "close",
        "fileno",
        "is_resident",
        "map",
        "read",
        "read_resident",
        "size",
        "warm",
    )

    def __init__(self, path: str, file: File, condition: DiskCondition) -> None:
        self._path = path
        self._file = file
        self._condition = condition
        self.size, self.read, self.map = file.size, file.read, file.map
        self.is_resident, self.read_resident = file.is_resident, file.read_resident
        self.warm, self.fileno, self.close = file.warm, file.fileno, file.close

    def __repr__(self) -> str:
        return f"<FaultyFile {self._path}>"

    def write(self, offset: int, *buffers: Buffer) -> int:
        self._condition.write(self._path)
        return self._file.write(offset, *buffers)

    def truncate(self, size: int) -> None:
        if size > self._file.size():
            self._condition.write(self._path)
        self._file.truncate(size)

    def sync(self) -> None:
        self._condition.sleep_if_slow()
        self._file.sync()


class FaultyDisk:
    """A Disk of the machine, with injected failures."""

    __slots__ = ("_disk", "condition")

    def __init__(self, disk: Disk | None = None) -> None:
        self._disk = disk or OsDisk()
        self.condition = DiskCondition()

    def open(self, path: str, *, create: bool = False) -> File:
        if create and not self._disk.exists(path):
            self.condition.write(path)
        return FaultyFile(path, self._disk.open(path, create=create), self.condition)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def is_directory(self, path: str) -> bool:
        return self._disk.is_directory(path)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def make_directory(self, path: str) -> None:
        if not self._disk.exists(path):
            self.condition.write(path)
        self._disk.make_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._disk.rename(old, new)

    def remove(self, path: str) -> None:
        self._disk.remove(path)

    def remove_tree(self, path: str) -> None:
        remove_recursively(self, path)

    def sync_directory(self, path: str) -> None:
        self.condition.sleep_if_slow()
        self._disk.sync_directory(path)

    def read(self, path: str) -> bytes:
        return self._disk.read(path)

    def replace(self, path: str, data: bytes) -> None:
        write_atomically(self, path, data)

    def lock(self, path: str) -> File:
        return self._disk.lock(path)

    def free_bytes(self, path: str) -> int:
        return 0 if self.condition.is_full else self._disk.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self._disk.total_bytes(path)
