"""One flow as a streaming query: its batches are judged, delivered with their progress, and reported.

    read → judge → dead letters → rows and progress → Spark marks the batch as finished

If the driver dies before that mark, the batch comes again with the same offsets, and each target recognises what it
has. Dead letters go first: a batch whose rows are in the table is never asked for its dead letters again.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from trioka.protocol.lazy_dataclass import frozen

from ..errors import InvalidPipeline
from ..expectations.judge import beyond, judged, letters_of
from ..expectations.rules import Counts
from ..graph.analysis import kafka_sources
from ..graph.elements import Flow
from ..installation.cache import Unavailable
from ..runner.checkpoint import RECORDS, Checkpoint
from ..runner.group_progress import GroupProgress
from ..runner.state import state_of
from ..sources.offsets import Commit, Ends, farthest, is_another_topic, positions_of_log, to_json
from ..sources.topics import Topics
from .targets import Target

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

PLAIN = "PLAINTEXT"
Say = Callable[[str], None]


@frozen
class Batch:
    """What is known of a delivered batch before Spark reports its progress."""

    number: int
    is_new: bool
    seconds: float
    counts: Counts | None = field(default=None)


class FlowQuery:
    """`rows` are the analysed rows of the flow."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: str,
        flow: Flow,
        rows: DataFrame,
        *,
        address: str,
        target: Target,
        dead_letters: Target | None,
        say: Say,
    ) -> None:
        self.flow = flow
        self.batches: dict[int, Batch] = {}
        self.failure: Exception | None = None
        self.query: StreamingQuery | None = None
        self._id = f"{pipeline}.{flow.name}"
        self._spark = spark
        self._rows = rows
        self._target = target
        self._dead_letters = dead_letters
        self._checkpoint = Checkpoint(spark, address)
        self._is_stateful = state_of(rows).is_kept
        self._sources = kafka_sources(rows)
        plain = [one for one in self._sources if one.get("kafka.security.protocol", PLAIN) == PLAIN]
        brokers = list(dict.fromkeys(one["kafka.bootstrap.servers"] for one in plain))
        self._topics = {
            broker: Topics(broker, Checkpoint(spark, f"{address}/brokers/{number}"), address)
            for number, broker in enumerate(brokers)
        }
        self._progress = [GroupProgress(brokers[0], self._id, say)] if len(brokers) == 1 else []
        if len(plain) < len(self._sources):
            say(f"note: {flow.name}: the brokers ask for TLS or a login, so topics that are created again go unnoticed")
        self._written_before: Ends = {}
        self._is_started = False

    # -- start ---------------------------------------------------------------------------------------------------------

    def start(self, *, once: bool, every: str) -> None:
        self._recover()
        for topics in self._topics.values():
            topics.confirm_known()
        for progress in self._progress:
            progress.__enter__()
        self._is_started = True
        before: dict[str, str | None] = {key: self._spark.conf.get(key, None) for key in self.flow.settings}
        for key, value in self.flow.settings.items():
            self._spark.conf.set(key, value)
        try:
            writer = self._rows.writeStream.queryName(self._id).outputMode("append").foreachBatch(self._deliver)
            writer = writer.option("checkpointLocation", self._checkpoint.of(RECORDS))
            self.query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)).start()
        finally:
            for key, known in before.items():
                if known is None:
                    self._spark.conf.unset(key)
                else:
                    self._spark.conf.set(key, known)

    def _recover(self) -> None:
        """Continue after the last batch that the target has, if Spark's checkpoint is gone."""
        if not self._checkpoint.is_new(RECORDS):
            return
        there = [one for one in self._target.commits() if one.pipeline == self._id]
        dead = self._dead_letters.commits() if self._dead_letters is not None else []
        self._written_before = self._of_same_topics([one for one in dead if one.pipeline == self._id])
        logged = [one for one in there if one.log]
        if not there:
            return
        if self._is_stateful or not logged:
            raise InvalidPipeline(
                f"The target of the flow {self.flow.name} holds its rows, but its checkpoint "
                f"{self._checkpoint.address} is gone, and with it the windows, keys and joins that were "
                "open: bring it back, or write to another table."
            )
        # The run that got farthest is the newest one: each begins where the one before it ended.
        last = max(logged, key=lambda one: (sum(end for _, end in one.ranges().values()), one.batch))
        again = {
            topic for topic, id in self._ids(last.end).items() if is_another_topic(last.topics, {topic: id}, topic)
        }
        log = "\n".join(_without(line, again) for line in last.log.splitlines())
        self._checkpoint.restore(RECORDS, run=str(uuid.uuid4()), log=log)

    def _of_same_topics(self, commits: Sequence[Commit]) -> Ends:
        """How far commits got in topics that were not created again since."""
        now = self._ids(farthest(one.end for one in commits))
        return farthest(
            {topic: ends for topic, ends in one.end.items() if not is_another_topic(one.topics, now, topic)}
            for one in commits
        )

    def _ids(self, positions: Mapping[str, Any]) -> dict[str, str]:
        """The ids of the topics that the flow reads, compared with those that it has read before."""
        found: dict[str, str] = {}
        for broker, topics in self._topics.items():
            names = [topic for topic in positions if self._reads(broker, topic)]
            found |= topics.confirm(names) if names else {}
        return found

    def _reads(self, broker: str, topic: str) -> bool:
        """Whether the flow reads a topic of this name there: asking for another one may create it."""
        for options in self._sources:
            given = {key.lower(): value for key, value in options.items()}
            if given["kafka.bootstrap.servers"] != broker:
                continue
            if topic in [name.strip() for name in given.get("subscribe", "").split(",")]:
                return True
            if "subscribepattern" in given or topic in given.get("assign", ""):
                return True
        return False

    # -- one batch -----------------------------------------------------------------------------------------------------

    def _deliver(self, batch: DataFrame, number: int) -> None:
        try:
            begun = time.monotonic()
            commit = self._commit(number)
            is_new, counts = self._process(batch, commit)
            self.batches[number] = Batch(number=number, is_new=is_new, seconds=time.monotonic() - begun, counts=counts)
            for progress in self._progress:
                progress.tell(commit.end)
        except Exception as failure:
            # Keep the Python exception: Java would return a long text, which Spark itself may fail to parse.
            self.failure = failure
            raise RuntimeError("the batch was not delivered") from None

    def _commit(self, number: int) -> Commit:
        log = self._checkpoint.log_entry(RECORDS, number)
        end = positions_of_log(log)
        return Commit(
            pipeline=self._id,
            run=self._checkpoint.run_id(RECORDS),
            batch=number,
            start=positions_of_log(self._checkpoint.log_entry(RECORDS, number - 1)),
            end=end,
            topics=self._ids(end),
            log=log,
        )

    def _process(self, batch: DataFrame, commit: Commit) -> tuple[bool, Counts | None]:
        if self._target.holds(commit):
            if self._is_stateful:  # computing the rows advances Spark's state to the next version
                batch.write.format("noop").mode("overwrite").save()
            return False, None
        confirm = partial(self._ids, commit.end)
        with judged(batch, self.flow.rules, self.flow.name) as found:
            if found.refused is not None and self._dead_letters is not None and not self._dead_letters.holds(commit):
                letters = letters_of(beyond(found.refused, self._written_before), self.flow.name)
                self._dead_letters.deliver(letters, commit, confirm)
            self._target.deliver(found.accepted, commit, confirm)
            return True, found.counts

    # -- end -----------------------------------------------------------------------------------------------------------

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
            for topics in self._topics.values():
                topics.confirm_known()
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
        for topics in self._topics.values():
            topics.__exit__()


def _without(line: str, topics: set[str]) -> str:
    """A line of Spark's log of offsets without these topics, which then begin at their first record."""
    positions = positions_of_log(f"\n\n{line}")
    if not positions.keys() & topics:
        return line
    return to_json({topic: ends for topic, ends in positions.items() if topic not in topics})
