"""Background load during a measurement: processes that compute, another load, a reader of uncached data.

Context managers end what they started at the end of the block, and with this process in any case.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from load_generator import LoadFailed, arguments_of, program
from nodes import die_with_parent

# Python rather than a shell, because it is installed, and computes without system calls.
COMPUTES = "while True: pass"
END_SECONDS = 10.0
# How long a stopped broker runs in between to keep its sessions alive.
CATCH_UP_SECONDS = 1.0


@contextlib.contextmanager
def computing(count: int | None = None) -> Iterator[None]:
    """Run this many processes that only compute, for example one per core."""
    with contextlib.ExitStack() as stack:
        for _ in range(count or os.cpu_count() or 1):
            stack.enter_context(_running([sys.executable, "-c", COMPUTES]))
        yield


@contextlib.contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """Stop these processes during the block. An idle JVM uses a twentieth of a processor, in short bursts at any time,
    which would disturb the p99 of a latency that is measured beside it.
    """
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        if pids:
            time.sleep(CATCH_UP_SECONDS)


@contextlib.contextmanager
def loading(command: str, options: Mapping[str, object]) -> Iterator[None]:
    """Run another load of the same broker. If it ends before the block does, the measurement does not count."""
    with _running([str(program()), command, *arguments_of(options)]) as process:
        yield
        if process.poll() is not None:
            text = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
            raise LoadFailed(
                f"the background load ended too early: {text.partition(chr(10))[0] or 'it had written enough'}"
            )


@contextlib.contextmanager
def _running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=die_with_parent(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(END_SECONDS)
        assert process.stderr is not None
        process.stderr.close()


def forget(files: Sequence[Path]) -> None:
    """Drop these files from the page cache, so that the next reader waits for the disk. Dirty pages cannot be dropped,
    so the files are synced first; mapped pages cannot either, so call this before they are mapped.
    """
    for file in files:
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_from_disk(pid: int) -> int:
    """Bytes that a process has read from a disk so far, by reads or by page faults."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("read_bytes:"):
                return int(line.split()[1])
    return 0
