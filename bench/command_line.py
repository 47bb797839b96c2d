"""CPU of `trioka produce` and `trioka consume` beside kcat, for small lines.

    python bench/command_line.py                 seven rounds of 200,000 lines (a minute)
    python bench/command_line.py --rounds 3

Each round runs all commands once, trioka's and kcat's in turns, against one broker of trioka; the median of the rounds
counts. CPU is that of the command's process alone, with the interpreter's start. Each command moves the same lines.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from trioka.testing import Broker

LINES = 200_000
PARTITIONS = 3
TIMEOUT_S = 120
GOAL = 3.0


def commands(at: str, lines: Path, number: int) -> Iterator[tuple[str, list[str], list[str]]]:
    """What is measured, trioka's command and kcat's; `number` makes groups new."""
    trioka = [sys.executable, "-m", "trioka"]
    produce, consume = [*trioka, "produce", "-b", at, "-f", str(lines)], [*trioka, "consume", "full", "-b", at]
    kcat = ["kcat", "-b", at, "-q"]
    yield "produce", [*produce, "sink"], [*kcat, "-P", "-t", "sink", "-l", str(lines)]
    yield "produce -z lz4", [*produce, "sink", "-z", "lz4"], [*kcat, "-P", "-t", "sink", "-z", "lz4", "-l", str(lines)]
    yield "produce -K", [*produce, "sink", "-K", " "], [*kcat, "-P", "-t", "sink", "-K", " ", "-l", str(lines)]
    yield "consume", [*consume, "-e"], [*kcat, "-C", "-t", "full", "-e"]
    committed = ["-X", "isolation.level=read_committed"]
    yield (
        "consume --read-committed",
        [*consume, "-e", "--read-committed"],
        [*kcat, "-C", "-t", "full", "-e", *committed],
    )
    of_group = ["-X", "auto.offset.reset=earliest", "-e", "-G", f"kcat-{number}", "full"]
    yield "consume -g", [*consume, "-e", "-g", f"trioka-{number}"], [*kcat, *of_group]


def cpu_s(command: Sequence[str]) -> float:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    problems = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {problems.decode()}")
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    measured: dict[str, list[tuple[float, float]]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker(process=True, **{"group.initial.rebalance.delay.ms": 0}) as broker,
    ):
        lines = Path(folder) / "lines"
        lines.write_bytes(b"".join(b"line %d\n" % number for number in range(LINES)))
        for topic in ("sink", "full"):
            broker.create_topic(topic, PARTITIONS)
        at = broker.bootstrap_servers
        cpu_s([sys.executable, "-m", "trioka", "produce", "full", "-b", at, "-f", str(lines)])
        for number in range(rounds):
            for what, ours, theirs in commands(at, lines, number):
                pair = [cpu_s(ours), cpu_s(theirs)] if number % 2 else [cpu_s(theirs), cpu_s(ours)][::-1]
                measured.setdefault(what, []).append((pair[0], pair[1]))
    sys.stdout.write(f"{'CPU-s, ' + format(LINES, ',') + ' lines':<28}{'trioka':>9}{'kcat':>9}{'ratio':>8}\n")
    for what, pairs in measured.items():
        our_s, their_s = (statistics.median(column) for column in zip(*pairs, strict=True))
        met = "" if our_s <= GOAL * their_s else f"  above the goal of {GOAL:g}"
        sys.stdout.write(f"{what:<28}{our_s:>9.2f}{their_s:>9.2f}{our_s / their_s:>7.1f}×{met}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
