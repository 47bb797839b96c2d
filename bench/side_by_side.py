"""trioka and Apache Kafka under the same load, in one run, on one machine: a table of ratios, a JSON file, a picture.

    python bench/side_by_side.py                            everything: five rounds, three seconds a measure
    python bench/side_by_side.py --only kafka --rounds 1    one of the two; there are no ratios then
    python bench/side_by_side.py --measures 'fetch-*'       some rows
    python bench/side_by_side.py --calibrate                Kafka against Kafka: every ratio should be about 1

Both brokers run at the same time, one is loaded while the other rests, and they take turns: measure by measure, and in
each round the other one begins. So a busy minute of the machine hits both. Before the first round each is loaded for a
while and nothing is counted: a JVM that has not compiled its hot code yet is ten times slower, and nobody's broker is
new all day. The start (ready, memory) is measured first, with a fresh node each time and nothing beside it.

A topic lives for one measure; at most `TOPIC_LIMIT_BYTES` are written before it goes. All files lie in one temporary
folder, which is deleted in the end, as are the processes.
"""

import argparse
import contextlib
import datetime
import fnmatch
import functools
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from chart import note_of, picture
from load_generator import LoadFailed, program, run_load
from measures import FETCH_LOG_BYTES, FETCH_TOPIC, LOADS, MANY_PARTITIONS, START, Measure, figures_of
from nodes import (
    CannotStart,
    KafkaNode,
    Node,
    TriokaNode,
    allow_many_files,
    cpu_seconds,
    end_in_order,
)
from ratios import OURS, THEIRS, Line, as_data, lines_of, table
from ratios import number as written

ROOT = Path(__file__).resolve().parent.parent
# One topic grows to at most this much; with the logs that are read the whole stays below 5 GB.
TOPIC_LIMIT_BYTES = 3_000_000_000
DISK_LIMIT_BYTES = 5_000_000_000
WARMUP_SHARE = 1 / 3
SETTLE_SECONDS = 1.0
# A generator that is busy for more than this share of a core may be what is measured.
LOAD_BUSY_LIMIT = 0.85


class Bench:
    """The rounds of all contestants, as they come."""

    def __init__(self, makers: dict[str, Callable[[], Node]], options: argparse.Namespace) -> None:
        self.makers = makers
        self.options = options
        self.rounds: dict[str, dict[str, list[dict[str, float] | None]]] = {name: {} for name in makers}
        self.reasons: dict[str, dict[str, str]] = {name: {} for name in makers}
        self._topics = 0

    def measures(self) -> list[Measure]:
        patterns = self.options.measures.split(",")
        return [one for one in (*LOADS, START) if any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)]

    def run(self) -> None:
        chosen = self.measures()
        if START in chosen:
            for number in range(self.options.rounds):
                for name in self._order(number):
                    self._note(number, name, START, functools.partial(self._start_figures, name))
        loads = [measure for measure in chosen if measure is not START]
        if loads:
            self._run_loads(loads)

    def _order(self, number: int) -> list[str]:
        """Who begins changes from round to round."""
        names = list(self.makers)
        return names if number % 2 == 0 else names[::-1]

    def _note(
        self, number: int, name: str, measure: Measure, take: Callable[[], dict[str, float]]
    ) -> dict[str, float] | None:
        """Take a measure and keep it; a failure is kept as its reason, and the run goes on."""
        figures: dict[str, float] | None = None
        if not self.reasons[name].get(measure.name, "").startswith("not served"):
            try:
                figures = take()
            except (LoadFailed, CannotStart) as failed:
                self.reasons[name][measure.name] = str(failed).partition("\n")[0]
        self.rounds[name].setdefault(measure.name, []).append(figures)
        shown = figures and ", ".join(f"{written(figures[one.key])} {one.unit}" for one in measure.figures)
        said = shown or self.reasons[name].get(measure.name, "")
        print(f"round {number + 1}  {name:<13} {measure.work}: {said}", file=sys.stderr, flush=True)
        return figures

    def _start_figures(self, name: str) -> dict[str, float]:
        """A fresh node: how soon it answers, what it takes at rest, and what with many partitions."""
        with self.makers[name]() as node:
            time.sleep(SETTLE_SECONDS)
            began, before = time.perf_counter(), cpu_seconds(node.pid)
            time.sleep(self.options.seconds)
            idle = (cpu_seconds(node.pid) - before) / (time.perf_counter() - began)
            at_rest = node.rss_bytes()
            run_load("create", {"address": node.address, "topic": "bench-many", "partitions": MANY_PARTITIONS})
            time.sleep(SETTLE_SECONDS)
            return {
                "ready_seconds": node.ready_seconds,
                "rss_mb": at_rest / 1e6,
                "idle_cpu_percent": idle * 100,
                "rss_many_mb": node.rss_bytes() / 1e6,
            }

    def _run_loads(self, loads: Sequence[Measure]) -> None:
        with contextlib.ExitStack() as stack:
            nodes: dict[str, Node] = {}
            for name, make in self.makers.items():
                try:
                    nodes[name] = stack.enter_context(make())
                    if any(measure.command == "fetch" for measure in loads):
                        log = {"topic": FETCH_TOPIC, "max-bytes": FETCH_LOG_BYTES, "address": nodes[name].address}
                        run_load("fill", log)
                except (CannotStart, LoadFailed) as failed:
                    print(f"{name}: {failed}", file=sys.stderr)
                    for measure in loads:
                        self.reasons[name].setdefault(measure.name, str(failed).partition("\n")[0])
            for name, node in nodes.items():
                self.warm_up(name, node, loads)
            for number in range(self.options.rounds):
                for measure in loads:
                    for name in self._order(number):
                        if name in nodes:
                            self._note(
                                number, name, measure, functools.partial(self.load_figures, nodes[name], measure)
                            )

    def warm_up(self, name: str, node: Node, loads: Sequence[Measure]) -> None:
        """Every load once, and again until the time is over. What fails here fails in the first round too."""
        print(f"warm-up  {name}", file=sys.stderr, flush=True)
        until = time.monotonic() + self.options.warm_up
        while True:
            for measure in loads:
                with contextlib.suppress(LoadFailed):
                    self.load_figures(node, measure)
            if time.monotonic() >= until:
                return

    def load_figures(self, node: Node, measure: Measure) -> dict[str, float]:
        self._topics += 1
        topic = f"bench-{self._topics}"
        seconds = self.options.seconds * measure.lengths
        options = {
            "address": node.address,
            "pid": node.pid,
            "topic": topic,
            "seconds": seconds,
            "warmup": self.options.seconds * WARMUP_SHARE,
            "max-bytes": 0 if measure.command == "fetch" else TOPIC_LIMIT_BYTES,
            **measure.options,
        }
        try:
            return figures_of(run_load(measure.command, options, seconds=seconds))
        finally:
            node.reclaim(topic)
            if (used := node.disk_bytes()) > DISK_LIMIT_BYTES - TOPIC_LIMIT_BYTES:
                raise SystemExit(f"{node.name} still holds {used / 1e9:.1f} GB after a topic was deleted; stopping.")

    def busiest(self) -> dict[str, float]:
        """By measure, the largest share of one core that the load generator used."""
        found: dict[str, float] = {}
        for measures in self.rounds.values():
            for name, rounds in measures.items():
                shares = [one["load_busy"] for one in rounds if one and "load_busy" in one]
                found[name] = max([*shares, found.get(name, 0.0)])
        return {name: share for name, share in found.items() if share}


def machine() -> dict[str, object]:
    return {"cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}", "cpu": _processor()}


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def report(bench: Bench, lines: Sequence[Line], output: Path) -> None:
    """The table to standard output, the files to `output`."""
    options = bench.options
    data: dict[str, Any] = {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "settings": {
            "rounds": options.rounds,
            "seconds": options.seconds,
            "warm_up": options.warm_up,
            "calibration": options.calibrate,
            "python": platform.python_version(),
        },
        "load_busy": bench.busiest(),
        "rows": as_data(lines),
    }
    print(table(lines))
    for name, share in data["load_busy"].items():
        if share > LOAD_BUSY_LIMIT:
            print(f"{name}: the load generator was busy for {share:.0%} of a core and may have been the limit.")
    output.mkdir(parents=True, exist_ok=True)
    (output / "side_by_side.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    print(f"\nwritten: {output / 'side_by_side.json'}")
    if options.calibrate:
        print("Apache Kafka stood in both places; the ratios show how much the machine and the method disturb.")
    elif any(line.ratio is not None for line in lines):
        (output / "side_by_side.svg").write_text(picture(data["rows"], note_of(data)))
        print(f"written: {output / 'side_by_side.svg'}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each measure is taken (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a measure, without its warm-up (3)")
    parser.add_argument(
        "--warm-up", type=float, default=30.0, help="seconds of load before the first round, at least (30)"
    )
    parser.add_argument("--measures", default="*", metavar="PATTERN", help="only these rows: 'produce-*,start'")
    parser.add_argument("--only", choices=("kafka", "trioka"), help="one contestant")
    parser.add_argument("--calibrate", action="store_true", help="Apache Kafka in both places")
    parser.add_argument(
        "--trioka", default="", metavar="COMMAND", help="another trioka than the one beside this Python"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where data may lie meanwhile (the system's choice)")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench", metavar="DIR", help="for JSON and SVG")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("there must be a round, and it must take time")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.list:
        print("\n".join(f"{measure.name:<32}{measure.work}" for measure in (*LOADS, START)))
        return 0
    contest(options)
    return 0


@contextlib.contextmanager
def contestants(options: argparse.Namespace) -> Iterator[Bench]:
    """Whoever takes part, with a place for their data while the block lasts."""
    allow_many_files()
    end_in_order()
    program()  # built before anything is started
    with tempfile.TemporaryDirectory(prefix="trioka-bench-", dir=options.folder, ignore_cleanup_errors=True) as folder:
        parent = Path(folder)
        makers: dict[str, Callable[[], Node]] = {
            OURS: lambda: TriokaNode(parent, shlex.split(options.trioka)),
            THEIRS: lambda: KafkaNode(parent),
        }
        if options.calibrate:
            makers[OURS] = makers[THEIRS]
        if options.only:
            makers.pop(THEIRS if options.only == "trioka" else OURS)
        yield Bench(makers, options)


def contest(options: argparse.Namespace) -> Bench:
    """Run all of it, and report."""
    with contestants(options) as bench:
        bench.run()
    lines = list(lines_of(bench.measures(), bench.rounds, bench.reasons))
    report(bench, lines, options.output)
    return bench


if __name__ == "__main__":
    sys.exit(main())
