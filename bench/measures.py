"""The measures as a table: the load of each row, its figures, and the goal of each figure.

A figure is better when it is more (MB/s) or less (CPU, latency, memory). Its goal is a ratio, trioka : Apache Kafka,
and for some figures an absolute bound as well. MB and GB are 10⁶ and 10⁹ bytes of record batches as they are sent.
"""

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from load_generator import lateness

KIB = 1024
MIB = 1024 * KIB

# The default maximum of unanswered requests of real clients.
IN_FLIGHT = 5
# The size of the log that is read: larger than the processor's caches, smaller than the page cache.
FETCH_LOG_BYTES = 256_000_000
FETCH_TOPIC = "bench-fetch"
# Latency needs more samples than throughput: p99.9 of three seconds at 1,000/s would be the third-worst request.
LATENCY_LENGTHS = 2
PARTITIONS_OF_MANY_CONNECTIONS = 16
MANY_PARTITIONS = 1000
RECORDS_OF_A_TRANSACTION = 100
# One stream over many partitions: a record for each of them in every Produce, and records of each in every Fetch.
STREAM_LOG_BYTES = 128_000_000
STREAM_TOPIC = "bench-stream"
STREAM_FETCH_BYTES = 8 * MIB
# The bytes that a real client writes and reads in a measure of three seconds: the fastest client reads a gigabyte in
# one.
CLIENT_RECORDS = 1_000_000


# The background load: as many processes as there are cores, which only compute.
BUSY = "busy"

ALL_REPLICAS = -1  # acks


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    key: str
    unit: str
    more_is_better: bool
    goal: float | None = None
    bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One row: `options` go to the load generator's `command`. Rows without a command are measured in another way.

    `beside` names the background load. Rows that are `extra` have no goal, and are measured only if they are named.
    """

    name: str
    work: str
    figures: tuple[Figure, ...]
    command: str = ""
    options: Mapping[str, object]
    lengths: int = 1
    beside: str = ""
    extra: bool = False


def _speed(key: str, unit: str, goal: float | None = None) -> Figure:
    return Figure(key=key, unit=unit, more_is_better=True, goal=goal)


def _cost(key: str, unit: str, goal: float | None = None, bound: float | None = None) -> Figure:
    return Figure(key=key, unit=unit, more_is_better=False, goal=goal, bound=bound)


def _produce(
    record: int, batch: int, speed: float | None = None, cpu: float | None = None, idempotent: bool = False
) -> Measure:
    size = f"{batch // KIB} KB" if batch < MIB else f"{batch // MIB} MB"
    kind = f"{record} B" if record < KIB else f"{record // KIB} KiB"
    return Measure(
        name=f"produce-{kind}-{size}".replace(" ", "") + "-idempotent" * idempotent,
        work=f"produce {kind} records, {size} batches" + ", idempotent" * idempotent,
        command="produce",
        options={"record": record, "batch": batch, "in-flight": IN_FLIGHT, "idempotent": idempotent},
        figures=(
            _speed("mb_per_second", "MB/s", speed),
            _speed("records_per_second", "records/s"),
            _cost("cpu_seconds_per_gb", "CPU-s/GB", cpu),
        ),
        extra=speed is None,
    )


def _single(connections: int, in_flight: int, goal: float) -> Measure:
    many = connections > 1
    return Measure(
        name=f"single-{connections}x{in_flight}",
        work="one record per request, " + (f"{connections:,} connections" if many else f"{in_flight} in flight"),
        command="produce",
        options={
            "record": 100,
            "batch": 1,
            "in-flight": in_flight,
            "connections": connections,
            "partitions": PARTITIONS_OF_MANY_CONNECTIONS if many else 1,
        },
        figures=(
            _speed("requests_per_second", "requests/s", goal),
            _cost("cpu_micros_per_request", "CPU-µs/request"),
        ),
    )


def _transactions(connections: int) -> Measure:
    many = connections > 1
    return Measure(
        name=f"transactions-{connections}",
        work=f"transactions of {RECORDS_OF_A_TRANSACTION} records, "
        + (f"{connections} producers" if many else "one producer"),
        command="transact",
        options={
            "record": 100,
            "count": RECORDS_OF_A_TRANSACTION,
            "connections": connections,
            "partitions": PARTITIONS_OF_MANY_CONNECTIONS if many else 1,
        },
        figures=(
            _speed("requests_per_second", "transactions/s"),
            _speed("records_per_second", "records/s"),
            _cost("cpu_micros_per_request", "CPU-µs/transaction"),
        ),
        extra=True,
    )


def _fetch(size: int, connections: int, speed: float) -> Measure:
    text = f"{size // KIB} KB" if size < MIB else f"{size // MIB} MB"
    return Measure(
        name=f"fetch-{text}".replace(" ", "") + (f"x{connections}" if connections > 1 else ""),
        work=f"fetch {text}" + (f", {connections} connections" if connections > 1 else ""),
        command="fetch",
        options={"topic": FETCH_TOPIC, "size": size, "connections": connections},
        figures=(_speed("mb_per_second", "MB/s", speed), _cost("cpu_seconds_per_gb", "CPU-s/GB", 0.9)),
    )


def _latency(
    name: str, work: str, consume: bool, p99: Figure, p999: Figure, beside: str = "", ordinary: bool = False
) -> Measure:
    return Measure(
        name=name,
        work=f"{work} at 1,000/s" + ", beside busy processes" * bool(beside) + ", an ordinary client" * ordinary,
        command="latency",
        options={"record": 100, "rate": 1000, "consume": consume, "ordinary": ordinary},
        figures=(_cost("p50", "p50 ms"), p99, p999),
        lengths=LATENCY_LENGTHS,
        beside=beside,
        extra=ordinary,
    )


def _stream(way: str, command: str, **options: object) -> Measure:
    return Measure(
        name=f"{way}-{MANY_PARTITIONS}-partitions",
        work=f"{way}, {MANY_PARTITIONS:,} partitions in one stream",
        command=command,
        options={"record": KIB, "batch": 1, "partitions": MANY_PARTITIONS, **options},
        figures=(_speed("mb_per_second", "MB/s", 1), _cost("cpu_seconds_per_gb", "CPU-s/GB")),
    )


def _client(name: str) -> Measure:
    """A real client with its default settings: writes records of 1 KiB to a fresh topic, and then reads all of them."""
    return Measure(
        name=f"client-{name}",
        work=f"{name}, 1 KiB records, there and back",
        options={"client": name, "record": KIB, "records": CLIENT_RECORDS},
        figures=(
            _speed("produce_mb_per_second", "MB/s produced", 1),
            _speed("consume_mb_per_second", "MB/s consumed", 1),
            _cost("cpu_seconds_per_gb", "CPU-s/GB, both"),
        ),
    )


LOADS: tuple[Measure, ...] = (
    _produce(KIB, 16 * KIB, 2.5, 0.33),
    _produce(KIB, 64 * KIB, 2.0, 0.4),
    _produce(KIB, MIB, 1.4, 0.55),
    _produce(100, 16 * KIB),
    _produce(100, 64 * KIB),
    _produce(100, MIB),
    _produce(100, 16 * KIB, 2.2, 0.35, idempotent=True),
    _transactions(1),
    _transactions(16),
    _single(1, 50, 8),
    _single(1, 1, 1.5),
    _single(32, 1, 1.3),
    _single(1000, 1, 1.3),
    _fetch(64 * KIB, 1, 1.3),
    _fetch(MIB, 1, 1.4),
    _fetch(8 * MIB, 1, 1.3),
    _fetch(MIB, 4, 1.1),
    _latency("latency", "produce latency", False, _cost("p99", "p99 ms", 0.6), _cost("p99.9", "p99.9 ms", 0.6)),
    _latency("latency-beside", "produce latency", False, _cost("p99", "p99 ms", 0.2), _cost("p99.9", "p99.9 ms"), BUSY),
    _latency(
        "latency-ordinary", "produce latency", False, _cost("p99", "p99 ms"), _cost("p99.9", "p99.9 ms"), ordinary=True
    ),
    _latency("end-to-end", "end to end", True, _cost("p99", "p99 ms", 0.75, 10), _cost("p99.9", "p99.9 ms")),
    _stream("produce", "produce", spread=True, **{"in-flight": IN_FLIGHT}),
    _stream("fetch", "stream", topic=STREAM_TOPIC, size=STREAM_FETCH_BYTES),
)

CLIENTS: tuple[Measure, ...] = tuple(map(_client, ("franz-go", "librdkafka", "Java", "confluent-kafka")))

# Rows with three nodes, which `failover.py` measures.
REPLICATED = Measure(
    name="replicated",
    work="acks=all, 3 replicas on three nodes, 1,000/s",
    options={},
    figures=(_cost("p50", "p50 ms"), _cost("p99", "p99 ms", 0.7, 20), _cost("p99.9", "p99.9 ms")),
)


def _replicated(
    name: str, work: str, figures: tuple[Figure, ...], command: str = "produce", **options: object
) -> Measure:
    return Measure(
        name=f"replicated-{name}",
        work=f"acks=all on three nodes, {work}",
        command=command,
        options={"acks": ALL_REPLICAS, **{key.replace("_", "-"): value for key, value in options.items()}},
        figures=figures,
    )


def _replicated_batches(name: str, size: int, speed: float, cpu: float) -> Measure:
    figures = (_speed("mb_per_second", "MB/s", speed), _cost("cpu_seconds_per_gb", "CPU-s/GB of 3 nodes", cpu))
    return _replicated(name, f"{name} batches", figures, record=KIB, batch=size, in_flight=IN_FLIGHT)


def _replicated_singles(name: str, work: str, speed: float, cpu: float, **options: object) -> Measure:
    figures = (
        _speed("requests_per_second", "requests/s", speed),
        _cost("cpu_micros_per_request", "CPU-µs of 3 nodes/request", cpu),
    )
    return _replicated(name, work, figures, record=100, batch=1, **options)


# One leader, two followers, and the CPU of all three.
REPLICATED_LOADS: tuple[Measure, ...] = (
    _replicated_batches("16KB", 16 * KIB, 4.0, 0.25),
    _replicated_batches("64KB", 64 * KIB, 2.0, 0.5),
    _replicated_batches("1MB", MIB, 1.4, 0.65),
    _replicated_singles("single-1x50", "50 in flight", 5.0, 0.2, in_flight=50),
    _replicated_singles(
        "single-32x1",
        "32 connections",
        1.3,
        0.75,
        in_flight=1,
        connections=32,
        partitions=PARTITIONS_OF_MANY_CONNECTIONS,
    ),
    _replicated(
        "500",
        "500 records a second",
        (
            _cost("p50", "p50 ms", 0.9),
            _cost("p99", "p99 ms", 1.0),
            _cost("cpu_micros_per_request", "CPU-µs of 3 nodes/record", 0.8),
        ),
        command="replicate",
        record=100,
        rate=500,
        connections=12,
        idempotent=True,
    ),
)

START = Measure(
    name="start",
    work="one node",
    options={},
    figures=(
        _cost("ready_seconds", "s until ready", 0.15, 0.5),
        _cost("rss_mb", "MB RSS at rest", 0.2, 80),
        _cost("idle_cpu_percent", "% CPU at rest", None, 1),
        _cost("rss_many_mb", f"MB RSS, {MANY_PARTITIONS:,} partitions", 0.25),
    ),
)


EVERYTHING: tuple[Measure, ...] = (*LOADS, REPLICATED, *REPLICATED_LOADS, *CLIENTS, START)


def chosen(patterns: str) -> list[Measure]:
    """Rows by name; without a name, those that have a goal."""
    if not patterns:
        return [one for one in EVERYTHING if not one.extra]
    wanted = patterns.split(",")
    return [one for one in EVERYTHING if any(fnmatch.fnmatch(one.name, pattern) for pattern in wanted)]


def figures_of(outcome: Mapping[str, Any]) -> dict[str, float]:
    """The counts of the load generator as figures, by key."""
    if "micros" in outcome:
        figures = {name: micros / 1000 for name, micros in outcome["micros"].items()}
        if outcome.get("broker_cpu_seconds"):
            figures["cpu_micros_per_request"] = outcome["broker_cpu_seconds"] / outcome["records"] * 1e6
        return {**figures, "generator_late": lateness(outcome) / 1000}
    seconds, gigabytes, requests = outcome["seconds"], outcome["bytes"] / 1e9, outcome["requests"]
    if not seconds or not requests:
        return {}
    cpu = outcome["broker_cpu_seconds"]
    return {
        "mb_per_second": gigabytes * 1000 / seconds,
        "records_per_second": outcome["records"] / seconds,
        "requests_per_second": requests / seconds,
        "cpu_seconds_per_gb": cpu / gigabytes,
        "cpu_micros_per_request": cpu / requests * 1e6,
        "load_busy": outcome["load_cpu_seconds"] / seconds,
    }
