"""Folders for the data of brokers that keep none, in memory where the system has a memory file system.

Names are unique, so any number of processes may run in parallel. A folder is removed with its broker, or at the end of
the interpreter. A killed process removes nothing, and its folders would use memory until the next reboot. So each
folder has a file that its process holds locked, and the first new folder of a process removes those whose lock is free,
because their process has ended.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from typing import Final

FAST_FOLDER: Final = "/dev/shm"  # a file system in memory: the same file operations, without disk I/O
MIN_FREE_BYTES: Final = 256 << 20  # containers often have 64 MB there, which a few segments fill
MIN_LEFT_BYTES: Final = 128 << 20  # a broker in memory ends when less is left, before the machine has none
OWNER: Final = "owner"

_kept: dict[str, tuple[int, int]] = {}  # the owner (a forked child must not remove its parent's folders) and the lock
_swept: set[str] = set()


def place() -> str:
    """The memory file system if it has enough free space, otherwise the usual folder of temporary files."""
    if os.access(FAST_FOLDER, os.W_OK) and free_bytes(FAST_FOLDER) >= MIN_FREE_BYTES:
        return FAST_FOLDER
    return tempfile.gettempdir()


def is_memory_short() -> bool:
    return free_bytes(FAST_FOLDER) < MIN_LEFT_BYTES


def free_bytes(folder: str) -> int:
    """What fits into the folder; for one in memory, no more than the memory that is available."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if folder == FAST_FOLDER:
        with suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return min(free, int(line.split()[1]) * 1024)
    return free


def new_folder(prefix: str) -> str:
    if prefix not in _swept:
        _swept.add(prefix)
        sweep(prefix)
    while True:
        folder = tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=place())
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


def sweep(prefix: str) -> None:
    """Remove the folders of processes that were killed, in memory and on the disk."""
    for where in {FAST_FOLDER, tempfile.gettempdir()}:
        with suppress(OSError):
            for entry in os.scandir(where):
                if entry.name.startswith(prefix) and entry.path not in _kept:
                    _remove_abandoned(entry.path)


def _remove_abandoned(folder: str) -> None:
    with suppress(OSError):  # in use, owned by another user, or not locked yet
        lock = _lock(f"{folder}/{OWNER}")
        try:
            shutil.rmtree(folder, ignore_errors=True)
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


@atexit.register
def _remove_all() -> None:
    for folder, (owner, _) in list(_kept.items()):
        if owner == os.getpid():
            remove(folder)
