"""A streaming query for one flow, or for several flows that share one read of their topics.

The batch of a shared read goes to its flows one after the other. Spark marks it as finished when all of them have it;
if the driver dies before, or one of them fails, the batch comes again, and those that have it recognise it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from trioka.protocol.lazy_dataclass import frozen

from ..errors import InvalidPipeline
from ..graph.analysis import kafka_sources
from ..installation.cache import Unavailable
from ..runner.checkpoint import RECORDS, Checkpoint
from ..runner.group_progress import GroupProgress
from ..sources.brokers import Brokers
from ..sources.offsets import Commit
from ..sources.topics import Topics
from .batch_plan import plain_stream
from .flow_delivery import FlowDelivery

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Say = Callable[[str], None]


@frozen
class QueryPlan:
    """How a query runs: its checkpoint, the folder of it that Spark has, its name, and Spark's settings for it."""

    checkpoint: Checkpoint
    name: str
    folder: str = RECORDS
    mode: str = "append"
    settings: Mapping[str, str] = field(default_factory=dict)


class TopicWatch:
    """The ids of the topics that a query reads, by the address of their brokers. `sources` are the options of the
    reads; None if all topics are of one broker.
    """

    def __init__(self, by_broker: Mapping[str, Topics], sources: Sequence[Mapping[str, str]] | None = None) -> None:
        self._by_broker = by_broker
        self._sources = sources

    def ids(self, positions: Mapping[str, Any]) -> dict[str, str]:
        """The ids of the topics with these positions, compared with those that were read before."""
        found: dict[str, str] = {}
        for broker, topics in self._by_broker.items():
            names = [topic for topic in positions if self._reads(broker, topic)]
            found |= topics.confirm(names) if names else {}
        return found

    def confirm_known(self) -> None:
        for topics in self._by_broker.values():
            topics.confirm_known()

    def close(self) -> None:
        for topics in self._by_broker.values():
            topics.__exit__()

    def _reads(self, broker: str, topic: str) -> bool:
        """Whether a topic of this name is read there: asking for another one may create it."""
        if self._sources is None:
            return True
        for options in self._sources:
            given = {key.lower(): value for key, value in options.items()}
            if given["kafka.bootstrap.servers"] != broker:
                continue
            if topic in [name.strip() for name in given.get("subscribe", "").split(",")]:
                return True
            if "subscribepattern" in given or topic in given.get("assign", ""):
                return True
        return False


def watch_of(spark: SparkSession, rows: DataFrame, address: str) -> TopicWatch:
    """The watch of a query whose checkpoint is at that address."""
    sources = kafka_sources(rows)
    topics = {
        brokers.bootstrap: Topics(brokers, Checkpoint(spark, f"{address}/brokers/{number}"), address)
        for number, brokers in enumerate(brokers_of(sources))
    }
    return TopicWatch(topics, sources)


def brokers_of(sources: Sequence[Mapping[str, str]]) -> list[Brokers]:
    """The brokers that trioka itself can ask, of those that these sources name."""
    found = {one["kafka.bootstrap.servers"]: Brokers.of(one) for one in sources}
    return [brokers for brokers in found.values() if brokers.problem() is None]


class FlowQuery:
    """`deliveries` has several flows only if they read the same records. `confirm_taken` raises an error if another
    driver may have taken the pipeline.
    """

    def __init__(
        self,
        spark: SparkSession,
        deliveries: Sequence[FlowDelivery],
        plan: QueryPlan,
        watch: TopicWatch,
        progress: Sequence[GroupProgress] = (),
        confirm_taken: Callable[[], object] = lambda: None,
    ) -> None:
        self.deliveries = list(deliveries)
        self.failure: Exception | None = None
        self.failed: FlowDelivery | None = None
        self.query: StreamingQuery | None = None
        self.plan = plan
        self._spark = spark
        self.watch = watch
        self._progress = list(progress)
        self._confirm_taken = confirm_taken
        self._is_started = False

    # -- start ---------------------------------------------------------------------------------------------------------

    def start(self, *, once: bool, every: str) -> None:
        if not self._is_started:
            for progress in self._progress:
                progress.__enter__()
        self._is_started = True
        first = self.deliveries[0]
        rows = first.plan.rows
        if first.source is not None:
            for delivery in self.deliveries:
                check_streaming(delivery.plan.rows)
            rows = plain_stream(self._spark, first.source)
        with settings(self._spark, self.plan.settings):
            writer = rows.writeStream.queryName(self.plan.name).outputMode(self.plan.mode).foreachBatch(self._deliver)
            writer = writer.option("checkpointLocation", self.plan.checkpoint.of(self.plan.folder))
            self.query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start()

    def restart_without(self, delivery: FlowDelivery, *, once: bool, every: str) -> None:
        """Go on with the other flows of the read, after one has failed."""
        self.stop()
        place = self.deliveries.index(delivery)
        self.deliveries.pop(place)
        if self._progress:  # one for each flow
            self._progress.pop(place).__exit__()
        self.failure = self.failed = None
        self.start(once=once, every=every)

    # -- one batch -----------------------------------------------------------------------------------------------------

    def _deliver(self, batch: DataFrame, number: int) -> None:
        try:
            commit = self._commit(number)
            confirm = partial(self._confirm, commit)
            with read_once(batch, is_shared=self.is_shared) as records:
                for delivery in self.deliveries:
                    self.failed = delivery
                    delivery.deliver(records, commit, confirm)
            self.failed = None
            for progress in self._progress:
                progress.tell(commit.end)
        except Exception as failure:
            # Keep the Python exception: Java would return a long text, which Spark itself may fail to parse.
            self.failure = failure
            raise RuntimeError("the batch was not delivered") from None

    def _confirm(self, commit: Commit) -> None:
        """Called before anything of a batch is seen: the topics are those that it was read from, and this is the only
        driver.
        """
        self.watch.ids(commit.end)
        self._confirm_taken()

    def _commit(self, number: int) -> Commit:
        checkpoint, folder = self.plan.checkpoint, self.plan.folder
        start, end = checkpoint.batch(folder, number)
        return Commit(
            pipeline=self.plan.name,
            run=checkpoint.run_id(folder),
            batch=number,
            start=start,
            end=end,
            topics=self.watch.ids(end),
            log=checkpoint.log_entry(folder, number),
        )

    # -- end -----------------------------------------------------------------------------------------------------------

    @property
    def is_shared(self) -> bool:
        """Whether several flows read each batch, which is cached then."""
        return len(self.deliveries) > 1

    @property
    def is_active(self) -> bool:
        return self.query is not None and bool(self.query.isActive)

    def error(self) -> Exception | None:
        """Why the query failed; None if it did not."""
        failure = self.query.exception() if self.query is not None else None
        if failure is None or self.failure is not None:
            return self.failure if failure is not None else None
        try:
            # Spark reports a topic that was created again as lost records.
            self.watch.confirm_known()
        except InvalidPipeline as created_again:
            return created_again
        except Unavailable:
            pass  # what Spark says is about the same brokers
        return failure

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def close(self) -> None:
        for progress in self._progress:
            if self._is_started:
                progress.__exit__()
        self.watch.close()


@contextmanager
def read_once(batch: DataFrame, *, is_shared: bool) -> Iterator[DataFrame]:
    """The batch, cached if several flows read it."""
    kept = batch.persist(StorageLevel.MEMORY_AND_DISK) if is_shared else batch
    try:
        yield kept
    finally:
        if is_shared:
            kept.unpersist()


@contextmanager
def settings(spark: SparkSession, given: Mapping[str, str]) -> Iterator[None]:
    """Settings of Spark for a query, which copies those of its session when it starts."""
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in given}
    for key, value in given.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, known in before.items():
            if known is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, known)


def check_streaming(rows: DataFrame) -> None:
    """Spark's own check whether a stream of these rows can be computed batch by batch."""
    jvm: Any = rows.sparkSession.sparkContext._jvm
    frame: Any = rows._jdf
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame.queryExecution().analyzed(), jvm.org.apache.spark.sql.streaming.OutputMode.Append())
