"""A declared pipeline, the short form, on Structured Streaming.

Each batch is planned, written to the checkpoint, run, delivered, and only then marked as finished in the checkpoint. If
a driver dies between the delivery and the mark, the next one runs the same batch again, and the table recognises it by
its commit. Before the delivery nothing is visible. So each row is in the table once, whenever a process is killed.

Without state, one query reads the source: each batch is decoded and judged once, and divided into rows and dead
letters. A stateful plan has one output, so rows and dead letters are two queries then; they are two, as well, for a
checkpoint that has two.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ..declaration.model import Declaration
from ..errors import InvalidPipeline
from ..expectations.judge import beyond, judged
from ..expectations.rules import Counts
from ..flows.events import BatchReport, EventLog, completed, report_of
from ..sources.offsets import Commit, Ends
from ..sources.start_offsets import StartOffsets
from ..sources.topics import Topics
from ..tables.delivery import Delivery, dead_letters_of, rows_of
from . import checkpoint as checkpoints
from .archive_history import NO_STATE, deliver_history
from .checkpoint import DEAD_LETTERS, RECORDS, Checkpoint
from .group_progress import GroupProgress
from .late import LateRows
from .run import Say, failures, look, silent, spark_for, stream_of
from .session import LOCAL_MASTER
from .stages import Stages, letters
from .state import State, state_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.5
Outcome = tuple[bool, Counts | None]
Process = Callable[[DataFrame, Commit, Callable[[], object]], Outcome]


def run(
    declared: Declaration,
    *,
    once: bool = False,
    master: str = LOCAL_MASTER,
    settings: Mapping[str, str] | None = None,
    say: Say = silent,
    stop: threading.Event | None = None,
    began: Callable[[], None] = lambda: None,
    events: Path | None = None,
) -> None:
    """Run until `stop` is set or an error occurs; with `once`, until the records that exist now have been read."""
    look(declared)
    checkpoints.probe(declared.checkpoint)
    with spark_for(declared, master, settings) as spark, failures(declared), EventLog(events) as log:
        Run(spark, declared, say, log).run(once=once, stop=stop or threading.Event(), began=began)


def analyse(declared: Declaration, master: str, settings: Mapping[str, str] | None) -> None:
    """Let Spark analyse everything that it would run."""
    with spark_for(declared, master, settings) as spark, failures(declared):
        rows = Stages(declared).accepted(stream_of(spark, declared.source, {}))
        rows_of(declared, is_stateful=state_of(rows).is_kept).analyse(rows)


class Run:
    """One run of a pipeline in a session."""

    def __init__(self, spark: SparkSession, declared: Declaration, say: Say, events: EventLog) -> None:
        self._spark = spark
        self._declared = declared
        self._say = say
        self._events = events
        self._checkpoint = Checkpoint(spark, declared.checkpoint)
        self._stages = Stages(declared)
        self._late = LateRows(self._checkpoint, say)
        self._failure: Exception | None = None
        self._queries: dict[str, StreamingQuery] = {}
        self._outcomes: dict[tuple[str, int], Outcome] = {}

    def run(self, *, once: bool, stop: threading.Event, began: Callable[[], None]) -> None:
        declared = self._declared
        placeholder = self._stages.accepted(stream_of(self._spark, declared.source, {}))  # enough to check the plan
        state = state_of(placeholder)
        rows = rows_of(declared, is_stateful=state.is_kept)
        rows.analyse(placeholder)
        self._checkpoint.take()
        try:
            with Topics(declared.source.bootstrap, self._checkpoint) as topics:
                found = StartOffsets(self._spark, declared, self._checkpoint, topics, state)
                starts = found.find()
                if declared.source.archive is not None and self._checkpoint.is_new(RECORDS) and not found.is_recovered:
                    if state.is_kept:
                        raise InvalidPipeline(NO_STATE)
                    ids = topics.confirm(starts[RECORDS])
                    deliver_history(self._spark, declared, starts[RECORDS], ids, self._say)
                with GroupProgress(declared.source.bootstrap, declared.group, self._say) as progress:
                    self._start_all(starts, state, rows, once, topics, progress, found.is_recovered)
                    began()
                    self._wait(stop)
        finally:
            with suppress(PySparkException, Py4JError, OSError):  # the JVM may have ended, which released everything
                for query in self._queries.values():
                    query.stop()
                self._report()
                self._late.end(self._queries.get(RECORDS))
                self._checkpoint.release()

    def _start_all(
        self,
        starts: Mapping[str, Ends],
        state: State,
        rows: Delivery,
        once: bool,
        topics: Topics,
        progress: GroupProgress,
        is_recovered: bool,
    ) -> None:
        declared = self._declared
        dead_letters = dead_letters_of(declared)
        records = stream_of(self._spark, declared.source, starts[RECORDS])
        if state.can_be_made_anew and self._checkpoint.is_new(DEAD_LETTERS):
            # Dead letters of a lost checkpoint may be farther than the rows, and are not written again.
            written = starts[DEAD_LETTERS] if is_recovered else {}
            process = partial(self._divide, rows, dead_letters, written)
            self._start(RECORDS, self._stages.decoded(records), process, "append", once, topics, progress)
            return
        mode = "update" if declared.aggregation and declared.aggregation.emits_updates else "append"
        accepted = self._stages.accepted(records)
        self._start(RECORDS, accepted, partial(_pass_on, rows), mode, once, topics, progress)
        if dead_letters is not None:
            refused = self._stages.refused(stream_of(self._spark, declared.source, starts[DEAD_LETTERS]))
            self._start(DEAD_LETTERS, refused, partial(_pass_on, dead_letters), "append", once, topics, None)

    def _divide(
        self,
        rows: Delivery,
        dead_letters: Delivery | None,
        written: Ends,
        batch: DataFrame,
        commit: Commit,
        confirm: Callable[[], object],
    ) -> Outcome:
        """Dead letters first: a batch whose rows are in the table is never asked for its dead letters again."""
        if rows.holds(batch.sparkSession, commit):
            return False, None
        with judged(batch, self._declared.rules, self._declared.name, may_refuse=self._declared.may_refuse) as found:
            if found.refused is not None and dead_letters is not None:
                dead_letters.deliver(letters(beyond(found.refused, written)), commit, confirm)
            return rows.deliver(self._stages.transformed(found.accepted), commit, confirm), found.counts

    def _start(
        self,
        name: str,
        rows: DataFrame,
        process: Process,
        mode: str,
        once: bool,
        topics: Topics,
        progress: GroupProgress | None,
    ) -> None:
        declared = self._declared

        def deliver(batch: DataFrame, number: int) -> None:
            try:
                start, end = self._checkpoint.batch(name, number)
                run_id = self._checkpoint.run_id(name)
                ids = topics.confirm(end)
                commit = Commit(pipeline=declared.name, run=run_id, batch=number, start=start, end=end, topics=ids)
                self._outcomes[name, number] = process(batch, commit, partial(topics.confirm, end))
            except Exception as failure:
                # Keep the Python exception: Java would return a long text, which Spark itself may fail to parse.
                self._failure = failure
                raise RuntimeError("the batch was not delivered") from None
            if progress is not None:
                progress.tell(end)

        writer = rows.writeStream.queryName(f"{declared.name} {name}").outputMode(mode).foreachBatch(deliver)
        writer = writer.option("checkpointLocation", self._checkpoint.of(name))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=declared.every)
        self._queries[name] = writer.start()

    def _wait(self, stop: threading.Event) -> None:
        """Wait until all queries have ended, one has failed, or a stop is requested."""
        while not stop.wait(POLL_S):
            self._report()
            for query in self._queries.values():
                if (failure := query.exception()) is not None:
                    raise self._failure or failure
            self._late.look(self._queries[RECORDS])
            if not any(query.isActive for query in self._queries.values()):
                return

    def _report(self) -> None:
        """Report the batches that Spark has finished since the last call."""
        for name, query in self._queries.items():
            for progress in query.recentProgress:
                values: dict[str, Any] = json.loads(progress.json)
                outcome = self._outcomes.pop((name, int(values["batchId"])), None)
                if outcome is None:  # no records, or reported before
                    continue
                report: BatchReport = completed(report_of(values, name), outcome[1], is_new=outcome[0])
                self._say(report.line())
                self._events.write({"pipeline": self._declared.name, **report.as_event()})


def _pass_on(delivery: Delivery, batch: DataFrame, commit: Commit, confirm: Callable[[], object]) -> Outcome:
    return delivery.deliver(batch, commit, confirm), None
