"""Measures the cost of trioka's file layers above the bare system calls.

    python bench/disk.py [--rounds 5] [--directory DIR]

Appends of 16 KB, as a log makes them: `os.pwritev` in a loop against `OsFile.write`, against the same file through a
`FailStopDisk`, and looked up in `FilePool` each time. CPU seconds of this process, user and system; each variant in
turn, the best round counts. The wrapper alone is measured on a file whose write does nothing, because 0.1 µs is not
measurable beside a system call.

Then the cost of loading 64 MB of an uncached file into the page cache, a megabyte at a time: by reading it, and by
`File.warm`.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from background_load import forget

from trioka.storage.files.disk import Buffer, File, OsDisk
from trioka.storage.files.failstop_disk import FailStopDisk, FailStopFile
from trioka.storage.files.file_pool import FilePool

SIZE = 16 * 1024
WRITES = 2_000  # 32 MB, overwritten repeatedly, so that it stays in the page cache
COLD_AT_ONCE = 1024 * 1024
COLD = 64  # megabytes


class Nowhere:
    """A file whose operations do nothing."""

    def write(self, offset: int, *buffers: Buffer) -> int:
        return SIZE


def cpu_us(loop: Callable[[], None], count: int) -> float:
    before = time.process_time()
    loop()
    return (time.process_time() - before) / count * 1e6


def append_loop(write: Callable[[int, bytes], object], count: int = WRITES) -> Callable[[], None]:
    data = os.urandom(SIZE)

    def loop() -> None:
        for number in range(count):
            write(number % WRITES * SIZE, data)

    return loop


def warming_loop(bring: Callable[[int, int], object]) -> Callable[[], None]:
    def loop() -> None:
        for number in range(COLD):
            bring(number * COLD_AT_ONCE, COLD_AT_ONCE)

    return loop


def warming(disk: OsDisk, path: str, rounds: int) -> None:
    """CPU only, without the wait for the disk."""
    file = disk.open(path, create=True)
    for number in range(COLD):
        file.write(number * COLD_AT_ONCE, os.urandom(COLD_AT_ONCE))
    ways: dict[str, Callable[[int, int], object]] = {"File.read": file.read, "File.warm": file.warm}
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, bring in ways.items():
            forget([Path(path)])
            best[name] = min(best[name], cpu_us(warming_loop(bring), COLD))
    for name, cost in best.items():
        print(f"{name:32} {cost:6.0f} µs CPU per cold megabyte      {cost / best['File.read']:5.2f}× reading it")
    file.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--directory", help="where to write; a new temporary directory by default")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        disk = OsDisk()
        file = disk.open(f"{directory}/f", create=True)
        descriptor = file.fileno()
        wrapped = FailStopDisk(disk, directory).open(f"{directory}/f")
        files = FilePool(disk)
        path = f"{directory}/f"
        ways: dict[str, Callable[[], None]] = {
            "os.pwritev": append_loop(lambda offset, data: os.pwritev(descriptor, (data,), offset)),
            "File.write": append_loop(file.write),
            "File.write through a FailStopDisk": append_loop(wrapped.write),
            "FilePool.get, File.write": append_loop(lambda offset, data: files.get(path).write(offset, data)),
        }
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(options.rounds):
            for name, loop in ways.items():
                best[name] = min(best[name], cpu_us(loop, WRITES))
        raw = best["os.pwritev"]
        for name, cost in best.items():
            print(f"{name:32} {cost:6.2f} µs CPU per append of 16 KB   {cost / raw:5.2f}× the bare call")
        files.close()

        nowhere = cast(File, Nowhere())
        through = FailStopFile(FailStopDisk(disk, directory), nowhere)
        count = 300_000
        bare = min(cpu_us(append_loop(nowhere.write, count), count) for _ in range(options.rounds))
        latched = min(cpu_us(append_loop(through.write, count), count) for _ in range(options.rounds))
        print(f"{'the Volume alone':32} {latched - bare:6.2f} µs")
        warming(disk, f"{directory}/cold", options.rounds)


if __name__ == "__main__":
    main()
