"""Runs the short form: its declaration becomes a graph of one or two flows, whose queries run as those of any graph.

Each batch is planned, written to the checkpoint, run, delivered, and only then marked as finished in the checkpoint. If
a driver dies between the delivery and the mark, the next one runs the same batch again, and the table recognises it by
its commit. Before the delivery nothing is visible. So each row is in the table once, whenever a process is killed.

Without state, one query reads the source: each batch is decoded and judged once, and divided into rows and dead
letters. A stateful plan has one output, so rows and dead letters are two queries then; they are two, as well, for a
checkpoint that has two.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ..declaration.graph import graph_of
from ..declaration.model import Declaration
from ..errors import InvalidPipeline
from ..flows.events import EventLog
from ..flows.flow_delivery import FlowDelivery, FlowPlan
from ..flows.flow_query import FlowQuery, QueryPlan, TopicWatch
from ..flows.metrics import Metrics
from ..flows.runner import Runner
from ..sources.offsets import Ends
from ..sources.start_offsets import StartOffsets
from ..sources.topics import Topics
from ..tables.delivery import dead_letters_of, rows_of
from . import checkpoint as checkpoints
from .archive_history import NO_STATE, deliver_history
from .checkpoint import DEAD_LETTERS, RECORDS, Checkpoint
from .group_progress import GroupProgress
from .late import LateRows
from .run import Say, failures, look, silent, spark_for, stream_of
from .session import LOCAL_MASTER
from .stages import Stages, letters
from .state import state_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


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
    metrics_port: int = 0,
) -> None:
    """Run until `stop` is set or an error occurs; with `once`, until the records that exist now have been read."""
    look(declared)
    checkpoints.probe(declared.checkpoint)
    with (
        spark_for(declared, master, settings) as spark,
        failures(declared),
        EventLog(events) as log,
        Metrics(declared.name, metrics_port) as metrics,
    ):
        Run(spark, declared, say=say, events=log, metrics=metrics).run(
            once=once, stop=stop or threading.Event(), began=began
        )


def analyse(declared: Declaration, master: str, settings: Mapping[str, str] | None) -> None:
    """Let Spark analyse everything that it would run."""
    with spark_for(declared, master, settings) as spark, failures(declared):
        rows_of(spark, declared).analyse(Stages(declared).accepted(stream_of(spark, declared.source, {})))


class Run:
    """One run of a pipeline in a session."""

    def __init__(
        self, spark: SparkSession, declared: Declaration, say: Say, events: EventLog, metrics: Metrics
    ) -> None:
        self._spark = spark
        self._declared = declared
        self._checkpoint = Checkpoint(spark, declared.checkpoint)
        self._stages = Stages(declared)
        self._late = LateRows(self._checkpoint, say)
        self._say = say
        self._runner = Runner(pipeline=declared.name, prefix="", say=say, events=events, failed=_raise, metrics=metrics)

    def run(self, *, once: bool, stop: threading.Event, began: Callable[[], None]) -> None:
        declared, runner = self._declared, self._runner
        placeholder = self._stages.accepted(stream_of(self._spark, declared.source, {}))  # enough to check the plan
        state = state_of(placeholder)
        rows_of(self._spark, declared).analyse(placeholder)
        self._checkpoint.take()
        topics = Topics(declared.source.brokers, self._checkpoint)
        try:
            found = StartOffsets(self._spark, declared, self._checkpoint, topics, state)
            starts = found.find()
            if declared.source.archive is not None and self._checkpoint.is_new(RECORDS) and not found.is_recovered:
                if state.is_kept:
                    raise InvalidPipeline(NO_STATE)
                ids = topics.confirm(starts[RECORDS])
                deliver_history(self._spark, declared, starts[RECORDS], ids, self._say)
            is_one = state.can_be_made_anew and self._checkpoint.is_new(DEAD_LETTERS)
            # Dead letters of a lost checkpoint may be farther than the rows, and are not written again.
            plans = self._plans(starts, starts[DEAD_LETTERS] if found.is_recovered else {}, is_one=is_one)
            for plan in plans:
                runner.queries.append(self._query(plan, topics))
                runner.queries[-1].start(once=once, every=declared.every)
            began()
            runner.watch(stop, self._is_going)
        finally:
            runner.close()
            topics.__exit__()
            with suppress(PySparkException, Py4JError, OSError):  # the JVM may have ended, which released everything
                self._late.end(self._records())
            with suppress(Py4JError, OSError):
                self._checkpoint.release()

    def _plans(self, starts: Mapping[str, Ends], written: Ends, *, is_one: bool) -> Sequence[FlowPlan]:
        """The flows of the declaration's graph."""
        declared, stages = self._declared, self._stages
        target, dead_letters = rows_of(self._spark, declared), dead_letters_of(self._spark, declared)
        records = {name: stream_of(self._spark, declared.source, start) for name, start in starts.items()}
        if is_one:
            graph = graph_of(declared, {RECORDS: lambda: stages.decoded(records[RECORDS])})
            flow = graph.flows[0]
            return [
                FlowPlan(
                    flow=flow,
                    rows=flow.query(),
                    id=declared.name,
                    group=declared.group,
                    target=target,
                    dead_letters=dead_letters,
                    then=stages.transformed,
                    letters=letters,
                    may_refuse=declared.may_refuse,
                    is_lean=True,
                    written=written,
                )
            ]
        queries = {RECORDS: lambda: stages.accepted(records[RECORDS])}
        targets = {RECORDS: target}
        if dead_letters is not None:
            queries[DEAD_LETTERS] = lambda: stages.refused(records[DEAD_LETTERS])
            targets[DEAD_LETTERS] = dead_letters
        return [
            FlowPlan(
                flow=flow,
                rows=flow.query(),
                id=declared.name,
                group=declared.group,
                target=targets[flow.name],
                may_refuse=False,
            )
            for flow in graph_of(declared, queries, is_one=False).flows
        ]

    def _query(self, plan: FlowPlan, topics: Topics) -> FlowQuery:
        declared, name = self._declared, plan.flow.name
        updates = name == RECORDS and declared.aggregation is not None and declared.aggregation.emits_updates
        brokers = declared.source.brokers
        progress = [GroupProgress(brokers, plan.group, self._say)] if name == RECORDS else []
        query = QueryPlan(
            checkpoint=self._checkpoint,
            name=f"{declared.name} {name}",
            folder=name,
            mode="update" if updates else "append",
        )
        return FlowQuery(
            self._spark,
            [FlowDelivery(plan)],
            query,
            TopicWatch({brokers.bootstrap: topics}),
            progress,
            self._checkpoint.confirm_taken,
        )

    def _records(self) -> "StreamingQuery | None":
        return self._runner.queries[0].query if self._runner.queries else None

    def _is_going(self) -> bool:
        records = self._records()
        if records is not None:
            self._late.look(records)
        return any(query.is_active for query in self._runner.queries)


def _raise(_: FlowQuery, error: Exception) -> None:
    raise error
