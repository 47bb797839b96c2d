"""trioka and Apache Kafka under the same load, in one run, on one machine: a table of ratios, a JSON file, a picture.

    python bench/side_by_side.py                            every row with a goal: five rounds, three seconds a measure
    python bench/side_by_side.py --only kafka --rounds 1    one of the two; there are no ratios then
    python bench/side_by_side.py --measures 'fetch-*'       some rows
    python bench/side_by_side.py --calibrate                Kafka against Kafka: every ratio should be about 1

Both brokers run at the same time; one is loaded while the other is idle, and they take turns after each measure. The
order alternates from round to round, so that other load affects both. Before the first round each is warmed up without
counting: a JVM that has not compiled its hot code yet is ten times slower than in normal operation. The start (ready,
memory) is measured first, with a fresh node each time and no other broker; then three nodes of each, in turn, by
`failover.py`.

A whole run of five rounds is published: its table, its figures and its picture go to docs/bench, and the table to
docs/PERFORMANCE.md. Anything less goes to build/bench.

A topic exists for one measure; at most `TOPIC_LIMIT_BYTES` are written to it. All files are in one temporary folder,
which is removed at the end, after the processes have stopped.
"""

import argparse
import contextlib
import datetime
import functools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from background_load import computing, stopped
from chart import note_of, picture
from cluster_nodes import NotInTime, ThreeNodes
from contestants import contestants
from load_generator import LoadFailed, run_latency, run_load
from machine import WarmMemory, machine
from measures import (
    BUSY,
    CLIENTS,
    EVERYTHING,
    FETCH_LOG_BYTES,
    FETCH_TOPIC,
    LOADS,
    MANY_PARTITIONS,
    REPLICATED,
    REPLICATED_LOADS,
    START,
    STREAM_LOG_BYTES,
    Measure,
    chosen,
    figures_of,
)
from nodes import (
    CannotStart,
    KafkaNode,
    Node,
    TriokaNode,
    cpu_seconds,
)
from publish import publish
from ratios import OURS, THEIRS, Line, as_data, lines_of, summary, table
from ratios import number as written
from real_clients import WAYS, RealClients
from replicated import ReplicatedLoad, clusters_of

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "docs" / "bench"
# One topic grows to at most this size; with the logs that are read the total stays below 5 GB.
TOPIC_LIMIT_BYTES = 3_000_000_000
DISK_LIMIT_BYTES = 5_000_000_000
WARMUP_SHARE = 1 / 3
# The length of a load in the warm-up; it is repeated until the time of the warm-up is over.
WARM_UP_LOAD_SECONDS = 1.0
USUAL_ROUNDS, USUAL_SECONDS = 5, 3.0
# The warm-up of fresh clusters of three nodes: three JVMs on two processors take that long to compile their hot code.
# After eight seconds Apache Kafka still had a queue of several seconds, which dominated its result.
CLUSTER_SECONDS, CLUSTER_WARM_UP_SECONDS = 8.0, 45.0
CLUSTER_TIMEOUT_SECONDS = 1800
SETTLE_SECONDS = 1.0
FILL_SECONDS = 120.0
# A generator that uses more than this share of a core may limit the result.
LOAD_BUSY_LIMIT = 0.85


class Bench:
    """The rounds of all brokers."""

    def __init__(
        self,
        makers: dict[str, Callable[[], Node]],
        options: argparse.Namespace,
        clusters: dict[str, Callable[[], ThreeNodes]] | None = None,
    ) -> None:
        self.makers = makers
        self.clusters = clusters or {}
        self.options = options
        self.rounds: dict[str, dict[str, list[dict[str, float] | None]]] = {name: {} for name in makers}
        self.reasons: dict[str, dict[str, str]] = {name: {} for name in makers}
        self._topics = 0
        self._nodes: dict[str, Node] = {}  # running nodes, for all loads
        self._clients = RealClients()
        self._memory = WarmMemory(TOPIC_LIMIT_BYTES)

    def measures(self) -> list[Measure]:
        return chosen(self.options.measures)

    def run(self) -> None:
        wanted = self.measures()
        if START in wanted:
            for number in range(self.options.rounds):
                for name in self._order(number):
                    self._note(number, name, START, functools.partial(self._start_figures, name))
        if REPLICATED in wanted and not self.options.calibrate:
            self._run_cluster()
        loads = [measure for measure in wanted if measure in (*LOADS, *CLIENTS)]
        if loads:
            self._run_loads(loads)
        replicated = [measure for measure in wanted if measure in REPLICATED_LOADS]
        if replicated:
            self._run_replicated(replicated)

    def _run_replicated(self, loads: Sequence[Measure]) -> None:
        """Three nodes of each, all running at the same time; one side is loaded while the other is idle."""
        with contextlib.ExitStack() as stack:
            clusters: dict[str, ReplicatedLoad] = {}
            for name, make in self.clusters.items():
                try:
                    clusters[name] = ReplicatedLoad(stack.enter_context(make()))
                    clusters[name].warm_up(loads, self.options.warm_up, self.options.seconds)
                except (CannotStart, NotInTime, LoadFailed) as failed:
                    for measure in loads:
                        self.reasons[name].setdefault(measure.name, str(failed).partition("\n")[0])
            for number in range(self.options.rounds):
                for measure in loads:
                    for name in self._order(number):
                        if name in clusters:
                            take = functools.partial(clusters[name].figures, measure, self.options.seconds)
                            self._note(number, name, measure, take)

    def _run_cluster(self) -> None:
        """Three nodes of each, which `failover.py` starts and loads; its rounds are used here."""
        options = self.options
        with tempfile.TemporaryDirectory(prefix="trioka-bench-") as output:
            command = [sys.executable, str(Path(__file__).with_name("failover.py")), "--measures", REPLICATED.name]
            command += ["--rounds", str(options.rounds), "--output", output]
            share = min(1.0, options.seconds / USUAL_SECONDS)
            command += ["--seconds", str(CLUSTER_SECONDS * share), "--warm-up", str(CLUSTER_WARM_UP_SECONDS * share)]
            command += ["--only", options.only] if options.only else []
            command += ["--trioka", options.trioka] if options.trioka else []
            command += ["--folder", str(options.folder)] if options.folder else []
            try:
                subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    timeout=CLUSTER_TIMEOUT_SECONDS,
                    check=True,
                )
                rows = json.loads(Path(output, "failover.json").read_text())["rows"]
            except (OSError, ValueError, subprocess.SubprocessError) as failed:
                for name in self.makers:
                    self.reasons[name][REPLICATED.name] = f"failover.py: {failed}".partition("\n")[0]
                return
        for name in self.makers:
            self.rounds[name][REPLICATED.name] = taken_over(rows, "trioka" if name == OURS else "kafka")
            for row in rows:
                if name in row["reasons"]:
                    self.reasons[name][REPLICATED.name] = row["reasons"][name]

    def _order(self, number: int) -> list[str]:
        """The order of the brokers, which alternates from round to round."""
        names = list(self.makers)
        return names if number % 2 == 0 else names[::-1]

    def _note(
        self, number: int, name: str, measure: Measure, take: Callable[[], dict[str, float]]
    ) -> dict[str, float] | None:
        """Run a measure and store its result; a failure is stored as its reason, and the run continues."""
        figures: dict[str, float] | None = None
        if not self.reasons[name].get(measure.name, "").startswith("not served"):
            try:
                figures = take()
            except (LoadFailed, CannotStart) as failed:
                self.reasons[name][measure.name] = str(failed).partition("\n")[0]
        self.rounds[name].setdefault(measure.name, []).append(figures)
        shown = figures and ", ".join(f"{written(figures[one.key])} {one.unit}" for one in measure.figures)
        text = shown or self.reasons[name].get(measure.name, "")
        print(f"round {number + 1}  {name:<13} {measure.work}: {text}", file=sys.stderr, flush=True)
        return figures

    def _start_figures(self, name: str) -> dict[str, float]:
        """A fresh node: the time to its first response, and its memory when idle and with many partitions."""
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
            stack.enter_context(self._clients)
            stack.enter_context(self._memory)
            nodes = self._nodes
            for name, make in self.makers.items():
                try:
                    nodes[name] = stack.enter_context(make())
                    self._fill(nodes[name], loads)
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

    def _fill(self, node: Node, loads: Sequence[Measure]) -> None:
        """Fill the logs for reading, which no measure writes itself."""
        if any(measure.command == "fetch" for measure in loads):
            run_load("fill", {"topic": FETCH_TOPIC, "max-bytes": FETCH_LOG_BYTES, "address": node.address})
        for measure in loads:
            if measure.command == "stream":
                log = {key: measure.options[key] for key in ("record", "batch", "partitions", "topic")}
                run_load("fill", {**log, "spread": True, "max-bytes": STREAM_LOG_BYTES, "address": node.address})

    def warm_up(self, name: str, node: Node, loads: Sequence[Measure]) -> None:
        """Run every load once, and repeat until the time is over. What fails here fails in the first round too."""
        print(f"warm-up  {name}", file=sys.stderr, flush=True)
        until = time.monotonic() + self.options.warm_up
        seconds = min(self.options.seconds, WARM_UP_LOAD_SECONDS)
        while True:
            for measure in loads:
                with contextlib.suppress(LoadFailed):
                    self.load_figures(node, measure, seconds)
            if time.monotonic() >= until:
                return

    def load_figures(self, node: Node, measure: Measure, seconds: float | None = None) -> dict[str, float]:
        """The figures of one load, with the length of a measure or of other `seconds`."""
        self._topics += 1
        topic = f"bench-{self._topics}"
        length = self.options.seconds * measure.lengths if seconds is None else seconds
        options = {
            "address": node.address,
            "pid": node.pid,
            "topic": topic,
            "seconds": length,
            "warmup": (seconds or self.options.seconds) * WARMUP_SHARE,
            "max-bytes": 0 if measure.command in ("fetch", "stream") else TOPIC_LIMIT_BYTES,
            **measure.options,
        }
        if "spread" in measure.options:
            fill_each(node, topic, measure)
            options["existing"] = True
        if measure.command == "latency":
            os.sync()  # otherwise the writeback of earlier rows would disturb this one
        self._memory.give(written_by(measure))
        try:
            if measure in CLIENTS:
                return self._client_figures(node, measure, topic, length)
            with computing() if measure.beside == BUSY else contextlib.nullcontext():
                if measure.command == "latency" and seconds is None:
                    others = [each.pid for each in self._nodes.values() if each is not node]
                    return figures_of(run_latency(options, seconds=length, quietly=lambda: stopped(others)))
                return figures_of(run_load(measure.command, options, seconds=length))
        except LoadFailed as failed:
            raise LoadFailed(f"{failed}{node.exit_report()}") from failed
        finally:
            if "existing" in options:
                run_load("delete", {"address": node.address, "topic": topic})
            node.reclaim(topic)
            self._memory.take()
            if (used := node.disk_bytes()) > DISK_LIMIT_BYTES - TOPIC_LIMIT_BYTES:
                raise SystemExit(f"{node.name} still holds {used / 1e9:.1f} GB after a topic was deleted; stopping.")

    def _client_figures(self, node: Node, measure: Measure, topic: str, seconds: float) -> dict[str, float]:
        """A client writes a topic and reads it; the CPU is the broker's, for both together."""
        client, size = str(measure.options["client"]), int(str(measure.options["record"]))
        records = max(1, int(int(str(measure.options["records"])) * seconds / USUAL_SECONDS))
        run_load("create", {"address": node.address, "topic": topic})
        try:
            before = cpu_seconds(node.pid)
            took = {way: self._clients.seconds(client, way, node.address, topic, records, size) for way in WAYS}
            cpu = cpu_seconds(node.pid) - before
        finally:
            run_load("delete", {"address": node.address, "topic": topic})
        megabytes = records * size / 1e6
        speeds = {f"{way}_mb_per_second": megabytes / took[way] for way in WAYS}
        return {**speeds, "cpu_seconds_per_gb": cpu / (len(WAYS) * megabytes / 1000)}

    def busiest(self) -> dict[str, float]:
        """By measure, the largest share of one core that the load generator used."""
        found: dict[str, float] = {}
        for measures in self.rounds.values():
            for name, rounds in measures.items():
                shares = [one["load_busy"] for one in rounds if one and "load_busy" in one]
                found[name] = max([*shares, found.get(name, 0.0)])
        return {name: share for name, share in found.items() if share}

    def lateness(self) -> dict[str, dict[str, list[float]]]:
        """By measure and broker, the lateness of the generator itself in each round of a latency, in ms at p99.9."""
        found: dict[str, dict[str, list[float]]] = {}
        for name, measures in self.rounds.items():
            for measure, rounds in measures.items():
                late = [one["generator_late"] for one in rounds if one and "generator_late" in one]
                if late:
                    found.setdefault(measure, {})[name] = late
        return found


def fill_each(node: Node, topic: str, measure: Measure) -> None:
    """The first record of a partition creates and syncs its files, which is not part of a stream: Apache Kafka takes
    half a minute for a thousand of them.
    """
    log = {key: measure.options[key] for key in ("record", "batch", "partitions", "spread")}
    size = int(str(log["record"])) * int(str(log["partitions"]))
    run_load("fill", {**log, "address": node.address, "topic": topic, "max-bytes": size}, seconds=FILL_SECONDS)


def written_by(measure: Measure) -> int:
    """An approximate maximum of the bytes of new files of a measure; small files do not count."""
    if measure in CLIENTS:
        return 2 * int(str(measure.options["records"])) * int(str(measure.options["record"]))
    return TOPIC_LIMIT_BYTES if int(str(measure.options.get("batch", 0))) > 1 and measure.command == "produce" else 0


def taken_over(rows: Sequence[Mapping[str, Any]], side: str) -> list[dict[str, float] | None]:
    """Another program's rows, each with one figure of all rounds, as rounds of all figures."""
    by_figure = {row["figure"]: row[f"{side}_rounds"] for row in rows if row["measure"] == REPLICATED.name}
    count = min((len(values) for values in by_figure.values()), default=0)
    return [{figure: values[n] for figure, values in by_figure.items()} for n in range(count)]


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
        "generator_late": bench.lateness(),
        "rows": as_data(lines),
    }
    print(table(lines))
    print(f"\n{summary(lines)}")
    for name, share in data["load_busy"].items():
        if share > LOAD_BUSY_LIMIT:
            print(f"{name}: the load generator was busy for {share:.0%} of a core and may have been the limit.")
    output.mkdir(parents=True, exist_ok=True)
    (output / "side_by_side.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    print(f"\nwritten: {output / 'side_by_side.json'}")
    if options.calibrate:
        print("Apache Kafka was both contestants; the ratios show the noise of the machine and the method.")
    elif any(line.ratio is not None for line in lines):
        (output / "side_by_side.svg").write_text(picture(data["rows"], note_of(data)))
        print(f"written: {output / 'side_by_side.svg'}")
    if output == PUBLISHED:
        publish(ROOT / "docs" / "PERFORMANCE.md", data)
        print("written: docs/PERFORMANCE.md, its table of the whole broker")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=USUAL_ROUNDS, help="how often each measure is taken (5)")
    parser.add_argument(
        "--seconds", type=float, default=USUAL_SECONDS, help="length of a measure, without its warm-up (3)"
    )
    parser.add_argument(
        "--warm-up", type=float, default=30.0, help="seconds of load before the first round, at least (30)"
    )
    parser.add_argument("--measures", default="", metavar="PATTERN", help="these rows: 'produce-*,start'; '*' is all")
    parser.add_argument("--only", choices=("kafka", "trioka"), help="one contestant")
    parser.add_argument("--calibrate", action="store_true", help="Apache Kafka in both places")
    parser.add_argument("--against", type=Path, metavar="TREE", help="trioka as it is there, in Apache Kafka's place")
    parser.add_argument(
        "--trioka", default="", metavar="COMMAND", help="another trioka than the one beside this Python"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where data may lie meanwhile (the system's choice)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for JSON and SVG (docs/bench, or build/bench)")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("there must be a round, and it must take time")
    options.output = (options.output or (PUBLISHED if is_whole(options) else ROOT / "build" / "bench")).resolve()
    return options


def is_whole(options: argparse.Namespace) -> bool:
    """Whether a run is complete enough to publish: every row, both brokers, all rounds, their full length."""
    part = options.measures or options.only or options.calibrate or options.trioka
    return not part and options.rounds >= USUAL_ROUNDS and options.seconds >= USUAL_SECONDS


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.list:
        print("\n".join(f"{measure.name:<32}{measure.work}" for measure in EVERYTHING))
        return 0
    contest(options)
    return 0


@contextlib.contextmanager
def whole_bench(options: argparse.Namespace) -> Iterator[Bench]:
    """The bench with a data folder for the time of the block."""
    with contestants(options) as (folder, makers):
        if options.calibrate and OURS in makers:
            makers[OURS] = lambda: KafkaNode(folder)
        if options.against and THEIRS in makers:
            print(f"In Apache Kafka's place: the trioka of {options.against}.", file=sys.stderr)
            makers[THEIRS] = lambda: TriokaNode(folder, tree=options.against.resolve())
        yield Bench(makers, options, clusters_of(folder, options))


def contest(options: argparse.Namespace) -> Bench:
    """Run everything and report."""
    with whole_bench(options) as bench:
        bench.run()
    lines = list(lines_of(bench.measures(), bench.rounds, bench.reasons))
    report(bench, lines, options.output)
    return bench


if __name__ == "__main__":
    sys.exit(main())
