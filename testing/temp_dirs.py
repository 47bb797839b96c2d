"""Folders for the data of brokers under test, in memory where the system has a memory file system.

Names are unique, so any number of test processes may run in parallel. A folder is removed with its broker, or at the
end of the interpreter. A killed process removes nothing, and its folders would use memory until the next reboot. So
each folder has a file that its process holds locked, and the first new folder of a process removes those whose lock is
free, because their process has ended.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from typing import BinaryIO, Final

FAST_FOLDER: Final = "/dev/shm"  # a file system in memory: the same file operations, without disk I/O
PREFIX: Final = "trioka-test-"
OWNER: Final = "owner"
LOG_TAIL_BYTES: Final = 20_000  # of a process's output, shown when it does not respond

_kept: dict[str, tuple[int, int]] = {}  # the owner (a forked child must not remove its parent's folders) and the lock
_has_swept = False


def place() -> str:
    return FAST_FOLDER if os.access(FAST_FOLDER, os.W_OK) else tempfile.gettempdir()


def new_folder() -> str:
    global _has_swept
    if not _has_swept:
        _has_swept = True
        sweep()
    while True:
        folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place())
        with suppress(OSError):  # another process removed it before it was locked
            lock = _lock(f"{folder}/{OWNER}", os.O_CREAT)
            if os.path.exists(f"{folder}/{OWNER}"):
                _kept[folder] = (os.getpid(), lock)
                return folder
            os.close(lock)


def remove(folder: str) -> None:
    _, lock = _kept.pop(folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def sweep() -> None:
    """Remove the folders of processes that were killed."""
    for entry in os.scandir(place()):
        if entry.name.startswith(PREFIX) and entry.path not in _kept:
            with suppress(OSError):  # in use, owned by another user, or not locked yet
                lock = _lock(f"{entry.path}/{OWNER}")
                try:
                    shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(lock)


def _lock(path: str, flags: int = 0) -> int:
    """Raise OSError if the file does not exist or is locked. (Not a POSIX lock, as a broker's own: the process loses
    those when any descriptor of the file is closed.)
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def appending(path: str) -> BinaryIO:
    """A file that a process appends to."""
    return open(path, "ab")


def log_tail(path: str) -> str:
    """The end of a text file; nothing if it does not exist."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


@atexit.register
def _remove_all() -> None:
    for folder, (owner, _) in list(_kept.items()):
        if owner == os.getpid():
            remove(folder)


def write(path: str, text: str) -> None:
    """Create a file in such a folder, readable by its owner only."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
