"""Writes the batches of a flow into a topic, each record once for readers with `isolation.level=read_committed`.

Rows are divided by their key, so the records of a key stay in their order; rows without a key by their value. Each part
is written by one task of Spark as one transaction (`topic_ledger.py`). A task first becomes the only writer of its
transactional id: it ends the transaction of a task before it, of this driver or of one that is thought dead. Then it
reads the ledger, so that what it reads stays true until it commits.

A worker in Python cannot tell the end of its rows from the end of its task: when Spark cancels a task, PySpark's stream
of rows ends as if there were no more. So the rows of each part are counted before, and a part that has fewer is not
committed.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from pyspark import StorageLevel, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..errors import InvalidPipeline
from ..graph.elements import Output
from ..installation.cache import Unreachable
from ..sources.bootstrap import DEFAULT_BOOTSTRAP
from ..sources.broker_view import REQUEST_TIMEOUT_MS, BrokerView
from ..sources.brokers import BOOTSTRAP, Brokers
from ..sources.offsets import Commit
from .folder import Folder
from .sinks import Confirm
from .topic_ledger import Entry, LedgerMismatch, Step, step, steps

PARTS_FILE = "sink.json"
# Each part is a connection and a transaction; more of them only help a topic with very many records.
MAX_PARTS = 32
# The largest that brokers allow by default (transaction.max.timeout.ms). A batch must be written within it.
TRANSACTION_TIMEOUT_MS = 900_000
DELIVERY, EXACTLY_ONCE, AT_LEAST_ONCE = "trioka.delivery", "exactly_once", "at_least_once"
LEDGER, CONTINUE, RESTART = "trioka.ledger", "continue", "restart"
OWN_OPTIONS = (DELIVERY, LEDGER)
COLUMNS = ("key", "value", "headers", "partition")


class TopicTarget:
    """`address` is the checkpoint of the flow, `flow_id` names it among all pipelines."""

    is_seen_later = False

    def __init__(self, spark: SparkSession, output: Output, flow_id: str, address: str) -> None:
        options = output.options
        self._output = output
        self._brokers = Brokers.of({BOOTSTRAP: DEFAULT_BOOTSTRAP, **options})
        self._topic = options.get("topic", "")
        self._id = flow_id
        self._folder = Folder(spark, address)
        self._is_restart = options.get(LEDGER, CONTINUE) == RESTART
        problem = _problem(output)
        if problem:
            raise InvalidPipeline(f"{output.place}: the sink '{output.name}' {problem}")

    def commits(self) -> list[Commit]:
        return []

    def holds(self, commit: Commit) -> bool:
        """Whether all parts are there; `InvalidPipeline` if ledger and checkpoint contradict each other."""
        found = self._steps(commit)
        return all(one is Step.SKIP for one in found.values())

    def deliver(self, rows: DataFrame, commit: Commit, confirm: Confirm) -> None:
        wrong = [name for name in rows.columns if name not in COLUMNS]
        if "value" not in rows.columns or wrong:
            raise InvalidPipeline(
                f"{self._output.place}: a topic takes the columns value, key, headers and partition, and not "
                f"{', '.join(wrong or rows.columns)}."
            )
        parts = self._parts()
        key = F.col("key").cast("binary") if "key" in rows.columns else F.lit(None).cast("binary")
        named = rows.withColumns({"key": key, "value": F.col("value").cast("binary")})
        ordered = named.withColumn("__order", F.monotonically_increasing_id())
        divided = ordered.repartition(parts, F.coalesce("key", "value")).sortWithinPartitions("__order")
        divided = divided.drop("__order").persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counted = divided.groupBy(F.spark_partition_id().alias("part")).count().collect()
            counts = {int(row["part"]): int(row["count"]) for row in counted}
            confirm()
            divided.foreachPartition(
                Part(
                    brokers=self._brokers,
                    topic=self._topic,
                    flow_id=self._id,
                    run=commit.run,
                    batch=commit.batch,
                    counts=counts,
                    is_restart=self._is_restart,
                )
            )
        finally:
            divided.unpersist()

    def _steps(self, commit: Commit) -> dict[int, Step]:
        try:
            entries = ledger(self._brokers, self._topic, self._id)
            return steps(entries, self._parts(), commit.run, commit.batch, is_restart=self._is_restart)
        except LedgerMismatch as mismatch:
            raise InvalidPipeline(
                f"The topic '{self._topic}' may hold records of this flow that would be written again: "
                f"{mismatch}. Bring the checkpoint {self._folder.address} back; or, if the records may be there twice, "
                f"set the option {LEDGER} = '{RESTART}' of the sink for one run."
            ) from None

    def _parts(self) -> int:
        """The number of parts, which stays what it was at the first start: a repeated batch is divided alike."""
        if self._folder.exists(PARTS_FILE):
            return int(json.loads(self._folder.text(PARTS_FILE))["parts"])
        with BrokerView(self._brokers) as view:
            there = view.partitions()
            if self._topic not in there:
                raise InvalidPipeline(f"{self._output.place}: {view.missing(self._topic, there)}")
        parts = min(len(there[self._topic]), MAX_PARTS)
        self._folder.make()
        self._folder.write(json.dumps({"parts": parts}), PARTS_FILE)
        return parts


def is_exactly_once(output: Output) -> bool:
    return output.format == "kafka" and output.options.get(DELIVERY, EXACTLY_ONCE) == EXACTLY_ONCE


def _problem(output: Output) -> str | None:
    options = output.options
    if not options.get("topic"):
        return "needs the option 'topic'."
    problem = Brokers.of({BOOTSTRAP: DEFAULT_BOOTSTRAP, **options}).problem()
    if problem is not None:
        return f"cannot be written by transactions: {problem} Or set the option {DELIVERY} = '{AT_LEAST_ONCE}'."
    if options.get(LEDGER, CONTINUE) not in (CONTINUE, RESTART):
        return f"has the option {LEDGER} = '{options[LEDGER]}'; there are {CONTINUE} and {RESTART}."
    return None


def group_of(flow_id: str) -> str:
    return f"{flow_id}.sink"


def ledger(brokers: Brokers, topic: str, flow_id: str) -> dict[int, Entry]:
    """The ledger of a flow, by part."""
    settings = brokers.client_settings()
    with _reachable(brokers.bootstrap):
        admin = KafkaAdminClient(**settings, client_id="trioka-pipeline", request_timeout_ms=REQUEST_TIMEOUT_MS)
        try:
            group = group_of(flow_id)
            answers = admin.list_group_offsets({group: None}).get(group, {})
        finally:
            admin.close()
    return {
        key.partition: Entry(run=answer.metadata, next_batch=answer.offset)
        for key, answer in answers.items()
        if key.topic == topic and answer.offset >= 0
    }


class Truncated(Exception):
    """The rows of a part ended before all of them had come."""


class Part:
    """Writes one part of a batch; Spark sends it to its workers. `counts` are the rows of each part."""

    def __init__(
        self,
        *,
        brokers: Brokers,
        topic: str,
        flow_id: str,
        run: str,
        batch: int,
        counts: Mapping[int, int],
        is_restart: bool = False,
    ) -> None:
        self._brokers = brokers
        self._topic = topic
        self._id = flow_id
        self._run = run
        self._batch = batch
        self._counts = dict(counts)
        self._is_restart = is_restart

    def __call__(self, rows: Iterable[Any]) -> None:
        context = TaskContext.get()
        assert context is not None, "a part is written by a task of Spark"
        self.write(rows, context.partitionId())

    def write(self, rows: Iterable[Any], part: int) -> None:
        settings = self._brokers.client_settings()
        with _reachable(self._brokers.bootstrap):
            producer = KafkaProducer(
                **settings,
                transactional_id=f"{self._id}-{part}",
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                linger_ms=20,
            )
            try:
                producer.init_transactions()
                entry = ledger(self._brokers, self._topic, self._id).get(part)
                if step(entry, self._run, self._batch, is_restart=self._is_restart) is Step.WRITE:
                    self._write(producer, rows, part)
            finally:
                producer.close()

    def _write(self, producer: Any, rows: Iterable[Any], part: int) -> None:
        failed: list[BaseException] = []
        keep: Callable[[BaseException], None] = failed.append
        count = 0
        producer.begin_transaction()
        for row in rows:
            count += 1
            values: Mapping[str, Any] = row.asDict()
            headers = [(one["key"], one["value"]) for one in values.get("headers") or ()]
            key, value = _bytes(values.get("key")), _bytes(values["value"])
            future = producer.send(
                self._topic,
                value=value,
                key=b"" if key is None and value is None else key,  # the client refuses a record with neither
                headers=headers,
                partition=values.get("partition"),
            )
            future.add_errback(keep)
            if failed:
                break
        place = TopicPartition(self._topic, part)
        producer.flush()
        if failed or count != self._counts.get(part, 0):
            producer.abort_transaction()
            raise (
                failed[0]
                if failed
                else Truncated(
                    f"part {part} of batch {self._batch} ended after {count} of {self._counts.get(part, 0)} rows"
                )
            )
        producer.send_offsets_to_transaction(
            {place: OffsetAndMetadata(self._batch + 1, self._run, -1)}, group_of(self._id)
        )
        producer.commit_transaction()


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


@contextmanager
def _reachable(bootstrap: str) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        text = str(error).strip().rstrip(".") or type(error).__name__
        raise Unreachable(f"The brokers at {bootstrap} did not take the records: {text}.") from error
