"""Folders that a broker under test keeps its data in, in memory where the system has such a place.

Each has a name of its own, so any number of test processes may run side by side. They are removed with their broker,
and when the interpreter ends, should somebody have forgotten one. A process that is killed removes nothing, and what it
leaves would take memory until the next start of the machine. So each folder has a file that its process holds locked,
and the first new folder of a process sweeps away those whose lock is free: nobody is there to hold it.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from typing import BinaryIO, Final

FAST_FOLDER: Final = "/dev/shm"  # memory that looks like a disk: the same files, and nothing touches the real one
PREFIX: Final = "trioka-test-"
OWNER: Final = "owner"
WORDS_BYTES: Final = 20_000  # of what a process said, when somebody wants to know why it does not answer

_kept: dict[str, tuple[int, int]] = {}  # by whom (a forked child must not remove what its parent uses), and the lock
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
        with suppress(OSError):  # somebody swept it away before it was locked
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
    """Removes the folders of processes that were killed."""
    for entry in os.scandir(place()):
        if entry.name.startswith(PREFIX) and entry.path not in _kept:
            with suppress(OSError):  # it is somebody's, or of another user, or not locked yet
                lock = _lock(f"{entry.path}/{OWNER}")
                try:
                    shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(lock)


def _lock(path: str, flags: int = 0) -> int:
    """An OSError if it is not there, or locked. (Not a lock of the process, as a broker's own: those are lost when any
    descriptor of the file is closed.)"""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def appending(path: str) -> BinaryIO:
    """A file for a process to write to."""
    return open(path, "ab")


def last_words(path: str) -> str:
    """The end of a text file; nothing, if it is not there."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - WORDS_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


@atexit.register
def _remove_all() -> None:
    for folder, (owner, _) in list(_kept.items()):
        if owner == os.getpid():
            remove(folder)
