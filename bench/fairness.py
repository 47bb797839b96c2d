"""The effect of other load on a client: its p99 beside the load, divided by its p99 alone. A table, and a JSON file.

    python bench/fairness.py                              both brokers, about five minutes
    python bench/fairness.py --only trioka --rounds 1     a look
    python bench/fairness.py --measures 'cold-*'          some rows; --list names them

    small-requests   10 MB/s (1,000 records of 10 KB a second) beside one record per request, 50 in flight, all it can
    large-requests   the same beside batches of 1 MB, 5 in flight, all it can
    cold-reader      1,000 records of 100 B a second beside a consumer that reads a log of 2 GB from its start, 1 MB a
                     time, after it was dropped from the page cache: all reads come from the disk

The result is a ratio within one broker: the best p99 of all rounds beside the load, divided by the best one alone.
Brackets show the single rounds. Both brokers run and take turns. A round does not count if the load ended early, or if
the reader's data came from memory.
"""

import argparse
import datetime
import fnmatch
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from background_load import forget, loading, read_from_disk
from contestants import contestants
from load_generator import LoadFailed, run_load
from machine import WarmMemory, machine
from measures import KIB, MIB
from nodes import CannotStart, Node
from ratios import number

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "docs" / "bench"
USUAL_ROUNDS, USUAL_SECONDS = 5, 2.5
WARMUP_SECONDS = 0.8
# The maximum that a background load writes, and the size of the log that is read; there is one at a time.
NEIGHBOUR_BYTES, COLD_BYTES = 4_000_000_000, 2_000_000_000
FETCH_BYTES = MIB
# With fewer bytes from the disk per second, the data was cached.
COLD_BYTES_PER_SECOND = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The measured client, the background load, and the limit of the factor by which its p99 grows."""

    name: str
    work: str
    client: Mapping[str, object]
    neighbour: str
    options: Mapping[str, object]
    goal: float
    share: float = 1  # of the usual length: for a load that would otherwise reach its byte limit before the end


TEN_MEGABYTES: Mapping[str, object] = {"record": 10_000, "rate": 1000}
THOUSAND: Mapping[str, object] = {"record": 100, "rate": 1000}

ROWS = (
    Row(
        name="small-requests",
        work="10 MB/s beside one record per request, saturating",
        client=TEN_MEGABYTES,
        neighbour="produce",
        options={"record": 100, "batch": 1, "in-flight": 50, "max-bytes": NEIGHBOUR_BYTES},
        goal=3,
    ),
    Row(
        name="large-requests",
        work="10 MB/s beside batches of 1 MB, saturating",
        client=TEN_MEGABYTES,
        neighbour="produce",
        options={"record": KIB, "batch": MIB, "in-flight": 5, "max-bytes": NEIGHBOUR_BYTES},
        goal=3,
        share=0.4,
    ),
    Row(
        name="cold-reader",
        work="1,000/s beside a reader of cold data",
        client=THOUSAND,
        neighbour="fetch",
        options={"size": FETCH_BYTES},
        goal=2,
    ),
)


@dataclass(frozen=True, slots=True)
class Round:
    """Milliseconds at p99, and the throughput of the background load."""

    alone: float
    beside: float
    neighbour_mb_per_second: float


def times(rounds: Sequence[Round]) -> float | None:
    """The best p99 beside the load, divided by the best alone."""
    if not rounds:
        return None
    return min(one.beside for one in rounds) / min(one.alone for one in rounds)


def is_met(row: Row, rounds: Sequence[Round]) -> bool | None:
    found = times(rounds)
    return None if found is None else found <= row.goal


RowResults = Mapping[str, Mapping[str, Sequence[Round]]]  # by broker, then by row
Reasons = Mapping[str, Mapping[str, str]]


def table(rows: Sequence[Row], found: RowResults, reasons: Reasons) -> str:
    lines = [("work", "", "p99 ms alone", "beside", "times", "background MB/s", "goal", "")]
    for row in rows:
        for name, by_row in found.items():
            rounds = by_row.get(row.name, ())
            grown = times(rounds)
            goal = f"≤ {row.goal:g}×"
            if grown is None:
                lines.append((row.work, name, reasons.get(name, {}).get(row.name, "–"), "", "–", "", goal, ""))
                continue
            single = [one.beside / one.alone for one in rounds]
            lines.append(
                (
                    row.work,
                    name,
                    number(min(one.alone for one in rounds)),
                    number(min(one.beside for one in rounds)),
                    f"{grown:.2f}×" + (f" ({min(single):.2f}–{max(single):.2f})" if len(single) > 1 else ""),
                    number(max(one.neighbour_mb_per_second for one in rounds)),
                    goal,
                    "met" if grown <= row.goal else "MISSED",
                )
            )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * max(3, width) for width in widths))
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def as_data(rows: Sequence[Row], found: RowResults, reasons: Reasons) -> list[dict[str, Any]]:
    return [
        {
            "row": row.name,
            "work": row.work,
            "contestant": name,
            "goal": row.goal,
            "alone_ms": [one.alone for one in by_row.get(row.name, ())],
            "beside_ms": [one.beside for one in by_row.get(row.name, ())],
            "neighbour_mb_per_second": [one.neighbour_mb_per_second for one in by_row.get(row.name, ())],
            "times": times(by_row.get(row.name, ())),
            "is_met": is_met(row, by_row.get(row.name, ())),
            "reason": reasons.get(name, {}).get(row.name, ""),
        }
        for row in rows
        for name, by_row in found.items()
    ]


class Fairness:
    def __init__(self, makers: Mapping[str, Callable[[], Node]], options: argparse.Namespace) -> None:
        self._makers = makers
        self._options = options
        patterns = options.measures.split(",")
        self.rows = [row for row in ROWS if any(fnmatch.fnmatch(row.name, pattern) for pattern in patterns)]
        self.found: dict[str, dict[str, list[Round]]] = {name: {} for name in makers}
        self.reasons: dict[str, dict[str, str]] = {name: {} for name in makers}
        self._topics = 0
        self._memory = WarmMemory(NEIGHBOUR_BYTES)

    def run(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(self._memory)
            nodes: dict[str, Node] = {}
            for name, make in self._makers.items():
                try:
                    nodes[name] = stack.enter_context(make())
                except CannotStart as failed:
                    self.reasons[name] = {row.name: str(failed).partition("\n")[0] for row in self.rows}
            for name, node in nodes.items():
                self._warm_up(name, node)
            for n in range(self._options.rounds):
                for row in self.rows:
                    for name in list(nodes) if n % 2 == 0 else list(nodes)[::-1]:
                        self._round(n, name, nodes[name], row)

    def _warm_up(self, name: str, node: Node) -> None:
        """Run both kinds of client until a JVM has compiled their code."""
        print(f"warm-up  {name}", file=sys.stderr, flush=True)
        until = time.monotonic() + self._options.warm_up
        while time.monotonic() < until:
            for client in (TEN_MEGABYTES, THOUSAND):
                self._p99(node, client, 1.0)

    def _round(self, n: int, name: str, node: Node, row: Row) -> None:
        seconds = self._options.seconds * row.share
        os.sync()  # otherwise the writeback of the last load would disturb this one
        try:
            alone = self._p99(node, row.client, seconds)
            with self._neighbour(node, row) as got:
                began, before = time.perf_counter(), got()
                beside = self._p99(node, row.client, seconds)
                speed = (got() - before) / (time.perf_counter() - began)
            if row.neighbour == "fetch" and speed < COLD_BYTES_PER_SECOND:
                raise LoadFailed("the reader's data was in memory, although it was dropped from the page cache")
        except LoadFailed as failed:
            self.reasons[name][row.name] = str(failed).partition("\n")[0]
            print(f"round {n + 1}  {name:<13} {row.work}: {failed}", file=sys.stderr, flush=True)
            return
        self.found[name].setdefault(row.name, []).append(Round(alone, beside, speed / 1e6))
        text = f"p99 {number(alone)} ms alone, {number(beside)} beside it ({speed / 1e6:,.0f} MB/s)"
        print(f"round {n + 1}  {name:<13} {row.work}: {text}", file=sys.stderr, flush=True)

    def _p99(self, node: Node, client: Mapping[str, object], seconds: float) -> float:
        self._topics += 1
        topic = f"client-{self._topics}"
        try:
            result = run_load(
                "latency",
                {
                    "address": node.address,
                    "topic": topic,
                    "seconds": seconds,
                    "warmup": min(WARMUP_SECONDS, seconds / 2),
                    **client,
                },
                seconds=seconds,
            )
        finally:
            node.reclaim(topic)
        return float(result["micros"]["p99"]) / 1000

    @contextmanager
    def _neighbour(self, node: Node, row: Row) -> Iterator[Callable[[], int]]:
        """Run the background load; the function returns its bytes from the broker's disk, or into its logs."""
        self._topics += 1
        topic = f"neighbour-{self._topics}"
        logs = f"{topic}-0/*.log"
        load = {"address": node.address, "topic": topic, "seconds": 600.0, "warmup": 0, "existing": True, **row.options}
        try:
            if row.neighbour == "fetch":
                self._memory.give(COLD_BYTES)
                run_load("fill", {"address": node.address, "topic": topic, "max-bytes": COLD_BYTES}, seconds=60)
                forget(sorted(node.data_dir.glob(logs)))
                self._memory.take()
                self._memory.give(COLD_BYTES)
                with loading("fetch", load):
                    yield lambda: read_from_disk(node.pid)
            else:
                run_load("create", {"address": node.address, "topic": topic})
                self._memory.give(NEIGHBOUR_BYTES)
                with loading("produce", load):
                    yield lambda: sum(log.stat().st_size for log in node.data_dir.glob(logs))
        finally:
            run_load("delete", {"address": node.address, "topic": topic})
            node.reclaim(topic)
            self._memory.take()


def report(fairness: Fairness, options: argparse.Namespace) -> None:
    data = {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "settings": {"rounds": options.rounds, "seconds": options.seconds, "warm_up": options.warm_up},
        "rows": as_data(fairness.rows, fairness.found, fairness.reasons),
    }
    print(table(fairness.rows, fairness.found, fairness.reasons))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "fairness.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    print(f"\nwritten: {options.output / 'fairness.json'}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=USUAL_ROUNDS, help="how often each row is taken (5)")
    parser.add_argument("--seconds", type=float, default=USUAL_SECONDS, help="length of each of its halves (2.5)")
    parser.add_argument("--warm-up", type=float, default=12.0, help="seconds of load before the first round (12)")
    parser.add_argument("--measures", default="*", metavar="PATTERN", help="only these rows: 'cold-*'")
    parser.add_argument("--only", choices=("kafka", "trioka"), help="one contestant")
    parser.add_argument(
        "--trioka", default="", metavar="COMMAND", help="another trioka than the one beside this Python"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where data may lie meanwhile; not in memory")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for the JSON file (docs/bench, or build/bench)")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("there must be a round, and it must take time")
    is_part = options.measures != "*" or options.only or options.trioka
    is_whole = not is_part and options.rounds >= USUAL_ROUNDS and options.seconds >= USUAL_SECONDS
    options.output = options.output or (PUBLISHED if is_whole else ROOT / "build" / "bench")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.list:
        print("\n".join(f"{row.name:<20}{row.work}" for row in ROWS))
        return 0
    with contestants(options) as (_, makers):
        fairness = Fairness(makers, options)
        fairness.run()
    report(fairness, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
