"""Who else is at work while something is measured: processes that compute, another load, a reader whose data is cold.

Those that are context managers end what they started with their block, and with this process, whatever happens.
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

# Python rather than a shell: it is here, and computes without a system call.
COMPUTES = "while True: pass"
END_SECONDS = 10.0
# For a broker that was stopped: to say that it is alive, before it is stopped again.
CATCH_UP_SECONDS = 1.0


@contextlib.contextmanager
def computing(count: int | None = None) -> Iterator[None]:
    """So many processes that do nothing but compute; one for each core."""
    with contextlib.ExitStack() as stack:
        for _ in range(count or os.cpu_count() or 1):
            stack.enter_context(_running([sys.executable, "-c", COMPUTES]))
        yield


@contextlib.contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """These processes do not run meanwhile. A JVM at rest takes a twentieth of a processor, in short turns that come at
    any time: a latency that is measured beside it has them in its p99, and one beside a quieter broker has not."""
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
    """Another load of the same broker. If it ends before the block does, what was measured beside it does not count."""
    with _running([str(program()), command, *arguments_of(options)]) as process:
        yield
        if process.poll() is not None:
            said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
            raise LoadFailed(f"the neighbour ended too early: {said.partition(chr(10))[0] or 'it had written enough'}")


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
    """The page cache drops these files, so that whoever reads them next waits for the disk. What is not on the disk yet
    cannot be dropped, so it is synced first; and what somebody has mapped stays, so it must be done before they do.
    """
    for file in files:
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_from_disk(pid: int) -> int:
    """Bytes that a process has had read from a disk so far, by its own requests or by its page faults."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("read_bytes:"):
                return int(line.split()[1])
    return 0
