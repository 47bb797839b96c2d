"""Spark's Kafka connector with trioka and with Apache Kafka, in one run: a table of ratios, a JSON file.

    python bench/connector.py                              two million records of 100 bytes, three rounds
    python bench/connector.py --records 20000 --rounds 1   a look
    python bench/connector.py --measures 'read'            some rows

Both brokers run at the same time and take turns; one Spark session (`local[*]`) serves both, so Spark's cost is equal
on both sides, and the ratios are closer to 1 than those of the brokers alone. Every round writes its own topic and
reads it again. A first round, of a tenth of the records, only warms up the JVMs and does not count.

Latency is end to end through a stream: a producer sends 1,000 records a second by the clock, Spark copies them to a
second topic at the speed of its micro-batches, and a consumer there records their age. The records of the first second,
during the start of the stream, are not counted.
"""

import argparse
import datetime
import fnmatch
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from measures import Figure, Measure
from nodes import CannotStart, KafkaNode, Node, TriokaNode, end_in_order
from pyspark.sql import SparkSession
from ratios import as_data, lines_of, number, table

from trioka.pipeline.installation.cache import Unavailable
from trioka.pipeline.runner.session import session, sink_options, source_options

ROOT = Path(__file__).resolve().parent.parent
RECORD_BYTES = 100
PARTITIONS = 4
RATE_PER_SECOND = 1000
WARM_UP_SHARE = 10
ANSWER_SECONDS = 60
GOAL = 1.0  # not slower than Kafka


class WrongCount(Exception):
    """The records read differ from the records written: then there is no figure."""


def _rate(name: str, work: str) -> Measure:
    figure = Figure(key="rows_per_second", unit="rows/s", more_is_better=True, goal=GOAL)
    return Measure(name=name, work=work, figures=(figure,), options={})


WRITE = _rate("write", "Spark writes records of 100 B")
READ = _rate("read", "Spark reads records of 100 B")
LATENCY = Measure(
    name="latency",
    work="topic → Spark stream → topic at 1,000/s",
    figures=(
        Figure(key="p50", unit="p50 ms", more_is_better=False, goal=GOAL),
        Figure(key="p99", unit="p99 ms", more_is_better=False, goal=GOAL),
    ),
    options={},
)
MEASURES = (WRITE, READ, LATENCY)


class Bench:
    """The rounds of both brokers."""

    def __init__(
        self, spark: SparkSession, nodes: Mapping[str, Node], folder: Path, options: argparse.Namespace
    ) -> None:
        self.rounds: dict[str, dict[str, list[dict[str, float] | None]]] = {name: {} for name in nodes}
        self.reasons: dict[str, dict[str, str]] = {name: {} for name in nodes}
        self._spark, self._nodes, self._folder, self._options = spark, nodes, folder, options
        self._chosen = [one for one in MEASURES if fnmatch.fnmatch(one.name, options.measures)]
        self._topics = 0

    def run(self) -> None:
        for name, node in self._nodes.items():
            print(f"warm-up  {name}", file=sys.stderr, flush=True)
            self._round(node, max(1, self._options.records // WARM_UP_SHARE), lambda _, take: take())
        for turn in range(self._options.rounds):
            names = list(self._nodes)
            for name in names if turn % 2 == 0 else names[::-1]:
                self._round(self._nodes[name], self._options.records, self._noting(turn, name))

    def _noting(self, turn: int, name: str) -> Callable[[Measure, Callable[[], dict[str, float]]], object]:
        def note(measure: Measure, take: Callable[[], dict[str, float]]) -> None:
            figures: dict[str, float] | None = None
            try:
                figures = take()
                text = ", ".join(f"{number(figures[one.key])} {one.unit}" for one in measure.figures)
            except WrongCount as wrong:
                text = self.reasons[name][measure.name] = str(wrong)
            self.rounds[name].setdefault(measure.name, []).append(figures)
            print(f"round {turn + 1}  {name:<13} {measure.work}: {text}", file=sys.stderr, flush=True)

        return note

    def _round(
        self, node: Node, records: int, note: Callable[[Measure, Callable[[], dict[str, float]]], object]
    ) -> None:
        if WRITE in self._chosen or READ in self._chosen:
            with self._topic(node) as topic:
                # A read needs records; a run that measures only reads writes them outside of the measurement.
                note(WRITE, lambda: self._write(node, topic, records))
                if READ in self._chosen:
                    note(READ, lambda: self._read(node, topic, records))
        if LATENCY in self._chosen:
            with self._topic(node) as source, self._topic(node) as sink:
                note(LATENCY, lambda: self._latency(node, source, sink))

    @contextmanager
    def _topic(self, node: Node) -> Iterator[str]:
        """A topic for the length of a `with`; its files are truncated afterwards."""
        self._topics += 1
        name = f"bench-{self._topics}"
        admin = AdminClient({"bootstrap.servers": node.address})
        for created in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            created.result(ANSWER_SECONDS)
        try:
            yield name
        finally:
            for deleted in admin.delete_topics([name]).values():
                deleted.result(ANSWER_SECONDS)
            node.reclaim(name)

    def _write(self, node: Node, topic: str, records: int) -> dict[str, float]:
        rows = self._spark.range(records).selectExpr(f"cast(lpad(id, {RECORD_BYTES}, '0') as binary) value")
        began = time.perf_counter()
        rows.write.format("kafka").options(**sink_options(node.address, topic=topic)).save()
        return {"rows_per_second": records / (time.perf_counter() - began)}

    def _read(self, node: Node, topic: str, records: int) -> dict[str, float]:
        rows = self._spark.read.format("kafka").options(**source_options(node.address, subscribe=topic)).load()
        began = time.perf_counter()
        (found,) = rows.selectExpr("count(*) records", "sum(length(value)) bytes").collect()
        seconds = time.perf_counter() - began
        if found.records < records or found.bytes != found.records * RECORD_BYTES:
            raise WrongCount(f"{records:,} records were written, and {found.records:,} read")
        return {"rows_per_second": records / seconds}

    def _latency(self, node: Node, source: str, sink: str) -> dict[str, float]:
        options = source_options(node.address, subscribe=source, startingOffsets="earliest")
        rows = self._spark.readStream.format("kafka").options(**options).load().selectExpr("value")
        writer = rows.writeStream.format("kafka").options(**sink_options(node.address, topic=sink))
        checkpoint = tempfile.mkdtemp(dir=self._folder, prefix="checkpoint-")
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            first, seconds = RATE_PER_SECOND, self._options.seconds
            ages = _ages(node.address, source, sink, first, int(RATE_PER_SECOND * seconds))
        finally:
            query.stop()
        return {"p50": ages[len(ages) // 2] * 1000, "p99": ages[len(ages) * 99 // 100] * 1000}


def _ages(address: str, source: str, sink: str, uncounted: int, counted: int) -> list[float]:
    """The age of records in seconds when they leave the sink, sorted. The first ones warm up the stream."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(sink, partition, 0) for partition in range(PARTITIONS)])
    try:
        _send(address, source, uncounted)
        _receive(consumer, uncounted)
        sending = threading.Thread(target=_send, args=(address, source, counted))
        sending.start()
        try:
            return sorted(_receive(consumer, counted))
        finally:
            sending.join()
    finally:
        consumer.close()


def _send(address: str, topic: str, count: int) -> None:
    """Send at a fixed rate: a due record is sent whether or not earlier ones were acknowledged."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    began = time.perf_counter()
    for sent in range(count):
        ahead = began + sent / RATE_PER_SECOND - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        producer.produce(topic, repr(time.perf_counter()).ljust(RECORD_BYTES), partition=sent % PARTITIONS)
        producer.poll(0)
    producer.flush(ANSWER_SECONDS)


def _receive(consumer: Consumer, count: int) -> list[float]:
    ages: list[float] = []
    deadline = time.monotonic() + ANSWER_SECONDS + count / RATE_PER_SECOND
    while len(ages) < count:
        for message in consumer.consume(count, timeout=0.01):
            if message.error() is None:
                ages.append(time.perf_counter() - float(message.value() or b"nan"))
        if time.monotonic() > deadline:
            raise WrongCount(f"{count:,} records went into the stream, and {len(ages):,} came out")
    return ages[:count]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000, help="written and read in each round (2,000,000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the latency is measured (20)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each measure is taken (3)")
    parser.add_argument("--measures", default="*", metavar="PATTERN", help="only these rows: write, read, latency")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where data may lie meanwhile (the system's choice)")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "build" / "bench", metavar="DIR", help="for the JSON file"
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.records < 1 or options.seconds <= 0:
        parser.error("there must be a round, and something to do in it")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    end_in_order()
    with ExitStack() as stack:
        parent = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="trioka-bench-", dir=options.folder, ignore_cleanup_errors=True)
            )
        )
        try:
            nodes = {node.name: stack.enter_context(node) for node in (TriokaNode(parent), KafkaNode(parent))}
            spark = session("bench", settings={"spark.log.level": "ERROR", "spark.local.dir": str(parent)})
        except (CannotStart, Unavailable) as missing:
            print(f"error: {missing}", file=sys.stderr)
            return 1
        stack.callback(spark.stop)
        bench = Bench(spark, nodes, parent, options)
        bench.run()
    lines = list(lines_of(MEASURES, bench.rounds, bench.reasons))
    print(table([line for line in lines if line.ours or line.theirs or line.reasons]))
    data: dict[str, Any] = {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": {"records": options.records, "seconds": options.seconds, "rounds": options.rounds},
        "rows": as_data(lines),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "connector.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    print(f"\nwritten: {options.output / 'connector.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
