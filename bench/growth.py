"""The cost of a request as connections, partitions, logs and groups grow: a table with exponents, a JSON file,
pictures.

    python bench/growth.py                              both brokers, about seven minutes
    python bench/growth.py --only trioka --rounds 1     a look
    python bench/growth.py --measures 'partitions-*'    some curves; --list names them

The cost is the CPU of the broker's process, from `/proc`, for each request of a constant load while only one size
grows. `curves.py` computes an exponent, and flags a cost that grows faster than the work.

One broker runs at a time, and a fresh one for each size that grows. A cost is the best of the rounds. Logs are sparse
files (sparse_log.py), so that 20 GB of them use 1.3 GB of disk; they are read at a thousand evenly spread positions,
which are cached by then, so that the searched size grows and not the amount of memory needed. Apache Kafka's curve ends
at a thousand partitions: it syncs a file at the first write to a partition, and ten thousand of those would take longer
than all the rest.
"""

import argparse
import datetime
import fnmatch
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contestants import contestants
from curves import FASTER, Curve, as_data, table
from group_members import HEARTBEAT, ClassicGroup, MemberConnections
from growth_chart import pictures
from load_generator import LoadFailed, run_load
from machine import machine
from measures import KIB
from nodes import CannotStart, KafkaNode, Node
from ratios import OURS, THEIRS
from replay import MIN_CPU_SECONDS, WARMUP_SHARE, cpu_micros
from sparse_log import BATCH_BYTES, VALUE_BYTES, make_sparse_logs

from trioka.cli.client.connection import Connection
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.schema import Request

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "docs" / "bench"
USUAL_ROUNDS, USUAL_SECONDS = 2, 1.0
ANSWER_SECONDS = 120.0
RETRY_SECONDS = 0.01
PARTITIONS_OF_CONNECTIONS = 16
PARTITIONS_AT_ONCE = 1000
IN_FLIGHT = 20
METADATA_VERSION, COMMIT_VERSION = 12, 8
LOG_RECORD, LOG_BATCH = KIB, 16 * KIB
LOG_PLACES = 1000
LOG_APPENDS = 5000  # fewer use too little CPU to measure
DISK_LIMIT_BYTES = 4_000_000_000
GROUP_TOPIC = "grouped"
MOST_PARTITIONS = {OURS: 10_000, THEIRS: 1_000}

SIZES: Mapping[str, Sequence[int]] = {
    "connections": (1, 10, 100, 1000),
    "partitions": (1, 10, 100, 1000, 10_000),
    "bytes of log": (1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 20_000_000_000),
    "groups": (1, 10, 100, 1000),
}


def _curve(name: str, of: str, what: str, exponent: float = 0) -> Curve:
    return Curve(name=name, of=of, what=what, exponent=exponent)


CURVES = (
    _curve("connections-busy", "connections", "a record of each in turn"),
    _curve("connections-idle", "connections", "a record, all others silent"),
    _curve("partitions-one", "partitions", "a record to one of them"),
    _curve("partitions-all", "partitions", "a record to each of them", 1),
    _curve("partitions-session", "partitions", "a record through a session", 1),
    _curve("partitions-metadata", "partitions", "Metadata of all of them", 1),
    _curve("log-fetch", "bytes of log", "64 KB from anywhere"),
    _curve("log-produce", "bytes of log", "16 KB more"),
    _curve("groups-heartbeat", "groups", "a heartbeat"),
    _curve("groups-commit", "groups", "a commit of an offset"),
)


class Growth:
    """The costs of all brokers."""

    def __init__(self, makers: Mapping[str, Callable[[], Node]], options: argparse.Namespace) -> None:
        self._makers = makers
        self._options = options
        patterns = options.measures.split(",")
        self.curves = [one for one in CURVES if any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)]
        self.found: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in makers}
        self.reasons: dict[str, dict[str, str]] = {name: {} for name in makers}

    def run(self) -> None:
        by_size: Mapping[str, Callable[[Node, str, int], Iterator[tuple[str, Callable[[], float]]]]] = {
            "connections": self._connections,
            "partitions": self._partitions,
            "bytes of log": self._log,
            "groups": self._groups,
        }
        for of, work in by_size.items():
            if any(curve.of == of for curve in self.curves):
                for name in self._makers:
                    self._grow(name, of, work)

    def _grow(
        self, name: str, of: str, work: Callable[[Node, str, int], Iterator[tuple[str, Callable[[], float]]]]
    ) -> None:
        """Measure all sizes of one kind, on a fresh broker."""
        sizes = [size for size in SIZES[of] if self._may_be(of, name, size)]
        try:
            with self._makers[name]() as node:
                if of == "bytes of log":
                    self._make_logs(node, sizes)
                self._warm_up(node)
                for size in sizes:
                    for curve, take in work(node, name, size):
                        self._note(name, of, curve, size, take)
                    if (used := node.disk_bytes()) > DISK_LIMIT_BYTES:
                        raise LoadFailed(f"it holds {used / 1e9:.1f} GB of disk already")
        except (CannotStart, LoadFailed) as failed:
            for curve in self.curves:
                if curve.of == of:
                    self.reasons[name].setdefault(curve.name, str(failed).partition("\n")[0])

    def _may_be(self, of: str, name: str, size: int) -> bool:
        options = self._options
        if of == "bytes of log":
            return not options.most_bytes or size <= options.most_bytes
        return (not options.most or size <= options.most) and (of != "partitions" or size <= MOST_PARTITIONS[name])

    def _note(self, name: str, of: str, curve: str, size: int, take: Callable[[], float]) -> None:
        """The best of all rounds; a failure ends the curve, with its reason."""
        if curve not in {one.name for one in self.curves} or curve in self.reasons[name]:
            return
        try:
            cost = min(take() for _ in range(self._options.rounds))
        except LoadFailed as failed:
            self.reasons[name][curve] = str(failed).partition("\n")[0]
            print(f"{name:<13} {curve} at {size:,}: {failed}", file=sys.stderr, flush=True)
            return
        self.found[name].setdefault(curve, []).append((size, cost))
        print(f"{name:<13} {curve} at {size:,} {of}: {cost:,.1f} CPU-µs", file=sys.stderr, flush=True)

    def _warm_up(self, node: Node) -> None:
        """A JVM compiles hot code; trioka needs no warm-up."""
        if isinstance(node, KafkaNode):
            until = time.monotonic() + self._options.warm_up
            while time.monotonic() < until:
                for batch in (1, LOG_BATCH):
                    self._load(node, "produce", topic=f"warm-up-{time.monotonic_ns()}", record=100, batch=batch)

    def _load(self, node: Node, command: str, **options: object) -> float:
        """CPU time of the broker per request of a load, in µs."""
        seconds = self._options.seconds
        requested = {
            "address": node.address,
            "pid": node.pid,
            "seconds": seconds,
            "warmup": seconds * WARMUP_SHARE,
            "min-cpu": MIN_CPU_SECONDS,
            **{key.replace("_", "-"): value for key, value in options.items()},
        }
        try:
            result = run_load(command, requested, seconds=seconds)
        except LoadFailed as failed:
            raise LoadFailed(f"{failed}{node.exit_report()}") from failed
        if not options.get("existing") and command == "produce":
            node.reclaim(str(options["topic"]))
        if not result["requests"]:
            raise LoadFailed("not one request was answered in time")
        return float(result["broker_cpu_seconds"] / result["requests"] * 1e6)

    # Each of these yields curves and how to measure their cost, when the broker has grown to that size.

    def _connections(self, node: Node, _: str, size: int) -> Iterator[tuple[str, Callable[[], float]]]:
        single = {"record": 100, "batch": 1, "in_flight": 1, "partitions": PARTITIONS_OF_CONNECTIONS}
        yield (
            "connections-busy",
            lambda: self._load(node, "produce", topic=f"busy-{time.monotonic_ns()}", connections=size, **single),
        )
        yield (
            "connections-idle",
            lambda: self._load(node, "produce", topic=f"idle-{time.monotonic_ns()}", idle=size, **single),
        )

    def _partitions(self, node: Node, name: str, size: int) -> Iterator[tuple[str, Callable[[], float]]]:
        topic, began = f"partitions-{size}", time.perf_counter()
        _create(node, topic, size)
        print(f"{name:<13} {size:,} partitions are made in {time.perf_counter() - began:.2f} s", file=sys.stderr)
        there: dict[str, object] = {"topic": topic, "partitions": size, "record": 100, "batch": 1, "existing": True}
        first = {"address": node.address, "spread": True, "in-flight": 1, "seconds": 0.01, "warmup": 0, **there}
        run_load("produce", first)  # to each partition, because the first record has extra costs
        yield "partitions-all", lambda: self._load(node, "produce", spread=True, in_flight=1, **there)
        yield "partitions-one", lambda: self._load(node, "produce", rotate=True, in_flight=IN_FLIGHT, **there)
        yield "partitions-session", lambda: self._load(node, "tail", **there)
        requested = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=False)
        yield "partitions-metadata", lambda: self._replay(node, [requested], METADATA_VERSION, 1)

    def _make_logs(self, node: Node, sizes: Sequence[int]) -> None:
        for size in sizes:
            run_load("create", {"address": node.address, "topic": f"log-{size}"})
        node.stop()
        make_sparse_logs(node.data_dir, {f"log-{size}": size for size in sizes})
        node.start()

    def _log(self, node: Node, _: str, size: int) -> Iterator[tuple[str, Callable[[], float]]]:
        topic = f"log-{size}"
        read: dict[str, object] = {"topic": topic, "record": VALUE_BYTES, "batch": BATCH_BYTES, "size": BATCH_BYTES}
        once = {"address": node.address, "places": LOG_PLACES, "max-bytes": (LOG_PLACES + 1) * BATCH_BYTES, **read}
        run_load("fetch", {**once, "seconds": ANSWER_SECONDS, "warmup": 0}, seconds=ANSWER_SECONDS)
        yield "log-fetch", lambda: self._load(node, "fetch", places=LOG_PLACES, **read)
        if size >= LOG_APPENDS * LOG_BATCH:  # otherwise it would be a different log afterwards
            yield "log-produce", lambda: self._append(node, topic)

    def _append(self, node: Node, topic: str) -> float:
        more = {"topic": topic, "record": LOG_RECORD, "batch": LOG_BATCH, "max-bytes": LOG_APPENDS * LOG_BATCH}
        result = run_load("fill", {"address": node.address, "pid": node.pid, "existing": True, **more})
        return float(result["broker_cpu_seconds"] / result["requests"] * 1e6)

    def _groups(self, node: Node, _: str, size: int) -> Iterator[tuple[str, Callable[[], float]]]:
        address = ("127.0.0.1", node.port)
        if size == SIZES["groups"][0]:
            run_load("create", {"address": node.address, "topic": GROUP_TOPIC})
            _until_coordinated(address)
        crowd = MemberConnections(address, size)
        try:
            groups = ClassicGroup(crowd, [f"groups-{size}-{n}" for n in range(size)], GROUP_TOPIC, 1)
            groups.form()
            beats = groups.beats()
            yield "groups-heartbeat", lambda: self._replay(node, beats, HEARTBEAT, IN_FLIGHT)
            commits = [_commit(beat.group_id, beat.generation_id, beat.member_id) for beat in beats]
            yield "groups-commit", lambda: self._replay(node, commits, COMMIT_VERSION, IN_FLIGHT)
        except AssertionError as failed:
            raise LoadFailed(f"groups: {failed}") from failed
        finally:
            crowd.close()

    def _replay(self, node: Node, requests: Sequence[Request], version: int, in_flight: int) -> float:
        return cpu_micros(node, requests, version, in_flight=in_flight, seconds=self._options.seconds)


def _create(node: Node, topic: str, partitions: int) -> None:
    """Create a large topic in steps: neither broker writes more than ten thousand metadata records for one request, and
    even a thousand take a while.
    """
    run_load("create", {"address": node.address, "topic": topic, "partitions": min(partitions, PARTITIONS_AT_ONCE)})
    connection = Connection("127.0.0.1", node.port, timeout_s=ANSWER_SECONDS)
    try:
        for count in range(2 * PARTITIONS_AT_ONCE, partitions + 1, PARTITIONS_AT_ONCE):
            more = CreatePartitionsRequest.Topic(name=topic, count=count, assignments=None)
            requested = CreatePartitionsRequest(topics=[more], timeout_ms=30_000, validate_only=False)
            if code := connection.ask(requested).results[0].error_code:
                raise LoadFailed(f"CreatePartitions of {topic}: error {code}")
    finally:
        connection.close()


def _commit(group: str, generation: int, member: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=0, committed_metadata="")
    topics = [OffsetCommitRequest.Topic(name=GROUP_TOPIC, partitions=[partition])]
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics
    )


def _until_coordinated(address: tuple[str, int]) -> None:
    """Wait for the coordinator, which a commit without a member needs."""
    connection = Connection(*address, timeout_s=ANSWER_SECONDS)
    try:
        deadline = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < deadline:
            if not connection.ask(FindCoordinatorRequest(coordinator_keys=["any"])).coordinators[0].error_code:
                answer = connection.ask(_commit("any", -1, ""), COMMIT_VERSION)
                if not answer.topics[0].partitions[0].error_code:
                    return
            time.sleep(RETRY_SECONDS)
        raise LoadFailed(f"there was no coordinator for {ANSWER_SECONDS:.0f} s")
    finally:
        connection.close()


def report(growth: Growth, options: argparse.Namespace) -> None:
    """The table to standard output, the files to `output`."""
    data: dict[str, Any] = {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "settings": {"rounds": options.rounds, "seconds": options.seconds, "warm_up": options.warm_up},
        "rows": as_data(growth.curves, growth.found, growth.reasons),
    }
    print(table(growth.curves, growth.found, growth.reasons))
    faster = [f"{row['curve']} ({row['contestant']})" for row in data["rows"] if row["verdict"] == FASTER]
    print(f"\n{FASTER.lower()}: {', '.join(faster) or 'nothing'}")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "growth.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    for name, drawn in pictures(data).items():
        (options.output / name).write_text(drawn)
    print(f"written: growth.json and {len(pictures(data))} pictures, in {options.output}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=USUAL_ROUNDS, help="of which the best counts, at each size (2)")
    parser.add_argument("--seconds", type=float, default=USUAL_SECONDS, help="length of a load (1)")
    parser.add_argument("--warm-up", type=float, default=10.0, help="seconds of load for a fresh JVM (10)")
    parser.add_argument("--measures", default="*", metavar="PATTERN", help="only these curves: 'groups-*'")
    parser.add_argument("--only", choices=("kafka", "trioka"), help="one contestant")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="no size above this one, but for bytes of log")
    parser.add_argument("--most-bytes", type=int, default=0, metavar="N", help="no log above this size")
    parser.add_argument(
        "--trioka", default="", metavar="COMMAND", help="another trioka than the one beside this Python"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where data may lie meanwhile (the system's choice)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for JSON and SVG (docs/bench, or build/bench)")
    parser.add_argument("--list", action="store_true", help="print the names of the curves and stop")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("there must be a round, and it must take time")
    is_part = options.measures != "*" or options.only or options.most or options.most_bytes or options.trioka
    is_whole = not is_part and options.rounds >= USUAL_ROUNDS and options.seconds >= USUAL_SECONDS
    options.output = options.output or (PUBLISHED if is_whole else ROOT / "build" / "bench")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.list:
        print("\n".join(f"{curve.name:<24}{curve.what}, by {curve.of}" for curve in CURVES))
        return 0
    with contestants(options) as (_, makers):
        growth = Growth(makers, options)
        growth.run()
    report(growth, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
