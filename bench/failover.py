"""Three nodes of trioka and three of Apache Kafka, one after the other: the effect of a failure on a client, and the
cost of replication. A table of ratios, and a JSON file.

    python bench/failover.py                              two rounds of everything, about ten minutes
    python bench/failover.py --rounds 1 --kills 1         a look
    python bench/failover.py --measures 'kill-*'          some rows; --list names them
    python bench/failover.py --only trioka                one of the two; there are no ratios then

In each round both sides have a fresh cluster of three processes, each broker and controller; only one cluster runs at a
time, and the order alternates. Both have the same properties: a broker's session of 4 s, three replicas of which two
must be in sync, and otherwise defaults. Kafka's nodes have 512 MB of heap each. A real client writes meanwhile
(`watched_producer.py`): librdkafka, acks=all, idempotent.

    replicated            acks=all at a fixed 1,000 records a second, over connections to all leaders (`load/`)
    kill-leader           kill -9 of a node that leads, and is not the active controller, until a record is acknowledged
    kill-controller       kill -9 of the active controller, until another node has created a topic
    controlled-shutdown   SIGTERM to a node that leads 1,000 partitions: until it has ended; how long a record waited
    rolling-restart       SIGTERM and start of each node in turn; afterwards every record exists exactly once

The median and the worst of all kills and stops count; of latencies, the best round. A run has so few kills that the
worst one is taken as the 99th percentile.
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
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from cluster_nodes import (
    NUMBERS,
    SESSION_S,
    UNREACHABLE,
    KafkaNodes,
    NotInTime,
    ThreeNodes,
    TriokaNodes,
    creation,
    disk_bytes,
)
from load_generator import LoadFailed, program, run_load
from measures import Figure, Measure
from nodes import CannotStart, allow_many_files, end_in_order
from ratios import OURS, THEIRS, as_data, lines_of, number, table
from watched_producer import NeverAcknowledged, WatchedProducer

ROOT = Path(__file__).resolve().parent.parent
CONNECTIONS: Final = 12
LED_PARTITIONS: Final = 1000
WRITTEN_PARTITIONS: Final = 10  # of those
ROLLED_PARTITIONS: Final = 6
RATE: Final = 200.0  # of the watched producer, records a second
CREATE_S: Final = 60.0
DISK_LIMIT_BYTES: Final = 3_000_000_000
FAILURES: Final = (LoadFailed, CannotStart, NotInTime, NeverAcknowledged, *UNREACHABLE)

Figures = dict[str, float]


def _cost(key: str, unit: str, goal: float | None = None, bound: float | None = None) -> Figure:
    return Figure(key=key, unit=unit, more_is_better=False, goal=goal, bound=bound)


MEASURES: Final = (
    Measure(
        name="replicated",
        work="acks=all, 3 replicas, 1,000/s",
        options={},
        figures=(
            _cost("p50", "p50 ms"),
            _cost("p99", "p99 ms", 0.5, 20),
            _cost("p99.9", "p99.9 ms"),
            _cost("cpu_ms_per_1000", "CPU-ms of 3 nodes per 1,000 records"),
        ),
    ),
    Measure(
        name="kill-leader",
        work="kill -9 of a leader, until a record is acknowledged",
        options={},
        figures=(_cost("median", "s, median"), _cost("worst", "s, worst", None, 1.2 * SESSION_S + 0.5)),
    ),
    Measure(
        name="kill-controller",
        work="kill -9 of the active controller, until a topic is created",
        options={},
        figures=(_cost("median", "s, median"), _cost("worst", "s, worst", None, 3.0)),
    ),
    Measure(
        name="controlled-shutdown",
        work="stop of a node that leads 1,000 partitions",
        options={},
        figures=(
            _cost("median", "s until it has ended, median"),
            _cost("wait_worst", "s that a record waited, worst"),
            _cost("errors", "errors of the client", None, 0),
        ),
    ),
    Measure(
        name="rolling-restart",
        work="restart of all nodes, one after the other",
        options={},
        figures=(
            _cost("wait_median", "s that a record waited, median of rounds"),
            _cost("wait_worst", "s that a record waited, worst"),
            _cost("median", "s in all, median"),
            _cost("errors", "errors of the client", None, 0),
        ),
    ),
)


# -- one cluster -------------------------------------------------------------------------------------------------------


def replicated(nodes: ThreeNodes, options: argparse.Namespace) -> Iterator[Figures]:
    topic, count, warm_s, rate = "replicated", len(NUMBERS), options.warm_up, options.rate
    nodes.create(topic, partitions=count)
    result = run_load(
        "replicate",
        {
            "leaders": ",".join(nodes.address(nodes.leader(topic, partition)) for partition in range(count)),
            "topic": topic,
            "connections": CONNECTIONS,
            "record": 100,
            "rate": rate,
            "idempotent": True,
            "warmup": warm_s,
            "seconds": options.seconds,
            "pid": ",".join(map(str, nodes.pids)),
        },
        seconds=options.seconds + warm_s,
    )
    sent = int((options.seconds + warm_s) * rate)
    if (end := nodes.end_of(topic, count)) != sent:
        raise LoadFailed(f"{sent} records were acknowledged, {end} are in the logs")
    yield {
        **{name: micros / 1000 for name, micros in result["micros"].items()},
        "cpu_ms_per_1000": result["broker_cpu_seconds"] / result["records"] * 1e6,
        "late_p99": result["lateness_micros"]["p99"] / 1000,
    }


def kill_leader(nodes: ThreeNodes, options: argparse.Namespace) -> Iterator[Figures]:
    topic = "kill-leader"
    nodes.create(topic, partitions=len(NUMBERS))
    for _ in range(options.kills):
        controller = nodes.controller()
        partition = next(p for p in range(len(NUMBERS)) if nodes.leader(topic, p) != controller)
        leader = nodes.leader(topic, partition)
        with WatchedProducer(nodes.bootstrap, topic, [partition], RATE) as producer:
            killed = nodes.kill(leader)
            yield {"seconds": producer.wait_for_ack(partition, killed) - killed}
        _no_errors(producer)
        nodes.start(leader)
        nodes.wait_healthy()
        _elect_preferred_leaders(nodes, topic)


def kill_controller(nodes: ThreeNodes, options: argparse.Namespace) -> Iterator[Figures]:
    for round_number in range(options.kills):
        controller = nodes.controller()
        others = [number for number in NUMBERS if number != controller]
        created: list[float] = []
        killed = nodes.kill(controller)
        asking = [
            threading.Thread(target=_create, args=(nodes, number, f"after-{round_number}-{number}", created))
            for number in others
        ]
        for each in asking:
            each.start()
        for each in asking:
            each.join()
        if not created:
            raise NotInTime(f"no topic was created within {CREATE_S:.0f} s after the controller was killed")
        yield {"seconds": min(created) - killed}
        nodes.start(controller)
        nodes.wait_healthy()


def _create(nodes: ThreeNodes, number: int, topic: str, created: list[float]) -> None:
    """Retry on this node until the topic exists."""
    for attempt in range(int(CREATE_S * 10)):
        with contextlib.suppress(*UNREACHABLE):
            response = nodes.ask(number, creation(f"{topic}-{attempt}", 1), timeout_s=CREATE_S)
            if not response.topics[0].error_code:
                created.append(time.perf_counter())
                return
        if created:
            return
        time.sleep(0.02)


def controlled_shutdown(nodes: ThreeNodes, options: argparse.Namespace) -> Iterator[Figures]:
    """Some of the partitions are a separate topic, which the producer writes to: a client without a leader requests its
    topic's metadata repeatedly, and that of a thousand partitions would dominate the result.
    """
    leader = next(number for number in NUMBERS if number != nodes.controller())
    others = [number for number in NUMBERS if number != leader]
    replicas = [[leader, *others], [leader, *others[::-1]]]
    written = range(WRITTEN_PARTITIONS)
    nodes.create("written", assignments=replicas * (WRITTEN_PARTITIONS // 2))
    nodes.create("silent", assignments=replicas * ((LED_PARTITIONS - WRITTEN_PARTITIONS) // 2))
    with WatchedProducer(nodes.bootstrap, "written", written, RATE) as producer:
        began = time.perf_counter()
        seconds = nodes.stop(leader)
        ended = time.perf_counter()
        for partition in written:
            producer.wait_for_ack(partition, ended)
    yield {"seconds": seconds, "wait": producer.longest_wait(began), "errors": len(producer.errors)}
    nodes.start(leader)
    nodes.wait_healthy()
    nodes.delete("silent")


def rolling_restart(nodes: ThreeNodes, options: argparse.Namespace) -> Iterator[Figures]:
    topic = "rolling-restart"
    nodes.create(topic, partitions=ROLLED_PARTITIONS)
    with WatchedProducer(nodes.bootstrap, topic, range(ROLLED_PARTITIONS), RATE) as producer:
        began = time.perf_counter()
        controller = nodes.controller()
        for number in sorted(
            NUMBERS, key=lambda each: each == controller
        ):  # the controller last, so that it moves once
            nodes.stop(number)
            nodes.start(number)
            nodes.wait_healthy()
        seconds = time.perf_counter() - began
    if not producer.errors and (end := nodes.end_of(topic, ROLLED_PARTITIONS)) != producer.handed_over:
        raise NotInTime(f"{producer.handed_over} records were acknowledged, {end} are in the logs")
    yield {"seconds": seconds, "wait": producer.longest_wait(began), "errors": len(producer.errors)}


def _no_errors(producer: WatchedProducer) -> None:
    if producer.errors:
        raise NotInTime(f"the client gave up: {producer.errors[0]}")


def _elect_preferred_leaders(nodes: ThreeNodes, topic: str) -> None:
    """Elect the preferred leaders for the next kill; otherwise the two surviving nodes would lead everything."""
    from trioka.protocol.messages.elect_leaders import ElectLeadersRequest

    wanted = ElectLeadersRequest.TopicPartition(topic=topic, partitions=list(range(len(NUMBERS))))
    nodes.ask_any(ElectLeadersRequest(election_type=0, topic_partitions=[wanted], timeout_ms=30_000), timeout_s=30.0)


RUNS: Final[Mapping[str, Callable[[ThreeNodes, argparse.Namespace], Iterator[Figures]]]] = {
    "replicated": replicated,
    "kill-leader": kill_leader,
    "kill-controller": kill_controller,
    "controlled-shutdown": controlled_shutdown,
    "rolling-restart": rolling_restart,
}


# -- both --------------------------------------------------------------------------------------------------------------


class Contest:
    """The results of all rounds so far."""

    def __init__(self, makers: Mapping[str, Callable[[], ThreeNodes]], options: argparse.Namespace) -> None:
        self._makers = makers
        self._options = options
        patterns = options.measures.split(",")
        self.measures = [one for one in MEASURES if any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)]
        self.samples: dict[str, dict[str, list[Figures]]] = {name: {} for name in makers}
        self.reasons: dict[str, dict[str, str]] = {name: {} for name in makers}

    def run(self) -> None:
        for round_number in range(self._options.rounds):
            names = list(self._makers)
            for name in names if round_number % 2 == 0 else names[::-1]:
                self._round(round_number, name)

    def _round(self, round_number: int, name: str) -> None:
        """Run one round. A failed measurement is reported, and its cluster is not used any more."""
        left = list(self.measures)
        tries = 0
        while left and tries <= len(self.measures):
            tries += 1
            try:
                with self._makers[name]() as nodes:
                    _say(f"round {round_number + 1}  {name}: three nodes are up")
                    while left:
                        measure = left.pop(0)
                        self._measure(round_number, name, nodes, measure)
            except FAILURES as failed:
                done = [one for one in self.measures if one not in left]
                measure = done[-1] if done else left.pop(0)
                self.reasons[name][measure.name] = str(failed).partition("\n")[0]
                _say(f"round {round_number + 1}  {name}  {measure.name}: {failed}")

    def _measure(self, round_number: int, name: str, nodes: ThreeNodes, measure: Measure) -> None:
        for figures in RUNS[measure.name](nodes, self._options):
            self.samples[name].setdefault(measure.name, []).append(figures)
            shown = ", ".join(f"{key} {number(value)}" for key, value in figures.items())
            _say(f"round {round_number + 1}  {name}  {measure.name}: {shown}")
        if (used := disk_bytes(nodes.folder)) > DISK_LIMIT_BYTES:
            raise NotInTime(f"{name} holds {used / 1e9:.1f} GB")

    def rounds(self) -> dict[str, dict[str, list[Mapping[str, float] | None]]]:
        """The rows of the table: latencies per round, everything else as one summary."""
        return {
            name: {
                measure: list(samples) if measure == "replicated" else [summary(samples)]
                for measure, samples in found.items()
            }
            for name, found in self.samples.items()
        }


def summary(samples: Sequence[Figures]) -> Figures:
    """The median and the worst of all rounds; errors are added up."""
    seconds = [each["seconds"] for each in samples]
    found = {"median": statistics.median(seconds), "worst": max(seconds)}
    if "wait" in samples[0]:
        waits = [each["wait"] for each in samples]
        found |= {"wait_median": statistics.median(waits), "wait_worst": max(waits)}
        found["errors"] = sum(each["errors"] for each in samples)
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def report(contest: Contest, options: argparse.Namespace, took_s: float) -> None:
    lines = list(lines_of(contest.measures, contest.rounds(), contest.reasons))
    data = {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}"},
        "settings": {
            "rounds": options.rounds,
            "kills": options.kills,
            "seconds": options.seconds,
            "warm_up": options.warm_up,
            "rate": options.rate,
            "session_seconds": SESSION_S,
            "python": platform.python_version(),
            "took_seconds": round(took_s),
        },
        "rows": as_data(lines),
        "samples": contest.samples,
    }
    print(table(lines))
    options.output.mkdir(parents=True, exist_ok=True)
    written = options.output / "failover.json"
    written.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    print(f"\ntook {took_s / 60:.1f} minutes; written: {written}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="fresh clusters of each side (2)")
    parser.add_argument("--kills", type=int, default=3, help="of a leader, and of a controller, in each round (3)")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of the measured load (15)")
    parser.add_argument("--warm-up", type=float, default=45.0, help="seconds of the same load before it (45)")
    parser.add_argument("--rate", type=int, default=1000, help="of that load, in records a second (1000)")
    parser.add_argument("--measures", default="*", metavar="PATTERN", help="only these rows: 'kill-*,replicated'")
    parser.add_argument("--only", choices=("kafka", "trioka"), help="one contestant")
    parser.add_argument(
        "--trioka", default="", metavar="COMMAND", help="another trioka than the one beside this Python"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where data may lie meanwhile (the system's choice)")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "build" / "bench", metavar="DIR", help="for the JSON file"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    options = parser.parse_args(arguments)
    if min(options.rounds, options.kills, options.rate, options.seconds, options.warm_up) <= 0:
        parser.error("there must be a round and a kill, and a load must take time")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.list:
        print("\n".join(f"{measure.name:<24}{measure.work}" for measure in MEASURES))
        return 0
    allow_many_files()
    end_in_order()
    program()  # build it before anything starts
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trioka-bench-", dir=options.folder, ignore_cleanup_errors=True) as folder:
        makers: dict[str, Callable[[], ThreeNodes]] = {
            OURS: functools.partial(TriokaNodes, Path(folder), shlex.split(options.trioka)),
            THEIRS: functools.partial(KafkaNodes, Path(folder)),
        }
        if options.only:
            makers.pop(THEIRS if options.only == "trioka" else OURS)
        contest = Contest(makers, options)
        contest.run()
    report(contest, options, time.monotonic() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
