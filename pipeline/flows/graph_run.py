"""Runs a graph: all flows beside each other until they are stopped, or with `once` level by level until all is read.

A flow that fails is named. By the policy `stop` the others are stopped, too; by `continue` those go on that do not read
what the failed one writes, and the run fails when it ends.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ..changes.merge import ChangesTarget, table_schema
from ..errors import InvalidPipeline, PipelineFailed
from ..expectations.judge import DEAD_LETTER_SCHEMA
from ..graph.analysis import Analysis, Scratch, analyse, kafka_sources
from ..graph.definitions import read_definitions
from ..graph.elements import Flow, Graph, Output
from ..graph.order import downstream
from ..graph.spec import GraphSpec
from ..graph.topics_check import check_topics
from ..installation.cache import Unavailable
from ..runner.checkpoint import Checkpoint, local_path
from ..runner.run import explained
from ..tables.topic_transactions import TopicTarget, is_exactly_once
from .events import EventLog, completed, report_of
from .flow_query import FlowQuery, Say
from .materialized import MaterializedViews
from .metrics import Metrics
from .targets import SparkSink, Tables, TableTarget, Target, database_created

POLL_S = 0.5
FLOWS = "flows"
MAX_BATCHES_KEPT = 1000


def prepared(spark: SparkSession, spec: GraphSpec) -> tuple[Analysis, Tables]:
    """The graph, read and analysed, with its tables created. A mistake is found before the first of them is."""
    graph = read_definitions(spec, spark)
    tables = Tables(spark, spec)
    if not all(tables.exists(one) for one in graph.outputs if one.is_table):
        checked(spark, spec, graph, asked=True)
    database_created(spark, spec)
    for output in dead_letter_tables(graph):
        tables.prepare(output, output.schema)
    analysis = analyse(spark, graph, tables.prepare)
    check_topics(analysis)
    return analysis, tables


def checked(spark: SparkSession, spec: GraphSpec, graph: Graph, *, asked: bool) -> Analysis:
    """The graph, analysed in a scratch catalog; `asked`: the brokers were asked for its topics."""
    with Scratch(spark, spec) as scratch:
        for output in dead_letter_tables(graph):
            scratch.prepare(output, output.schema)
        analysis = analyse(spark, graph, scratch.prepare, scratch.supply)
        if asked:
            check_topics(analysis)
        return analysis


def dead_letter_tables(graph: Graph) -> list[Output]:
    """The tables that get dead letters, with the columns of these."""
    names = {flow.dead_letters for flow in graph.flows}
    return [
        replace(one, schema=one.schema or DEAD_LETTER_SCHEMA)
        for one in graph.outputs
        if one.name in names and one.is_table
    ]


class GraphRun:
    """One run of a graph in a session."""

    def __init__(
        self,
        spark: SparkSession,
        spec: GraphSpec,
        analysis: Analysis,
        tables: Tables,
        *,
        say: Say,
        metrics: Metrics,
        events: EventLog,
    ) -> None:
        self._spark = spark
        self._spec = spec
        self._analysis = analysis
        self._graph = analysis.graph
        self._tables = tables
        self._say = say
        self._metrics = metrics
        self._events = events
        self._checkpoint = Checkpoint(spark, spec.checkpoint)
        self._queries: dict[str, FlowQuery] = {}
        self._views = MaterializedViews(analysis, tables)
        self._reported: dict[str, int] = {}
        self._failed: dict[str, str] = {}

    def run(self, *, once: bool, stop: threading.Event, began: Callable[[], None]) -> None:
        self._checkpoint.take()
        try:
            levels = self._analysis.levels()
            if once:
                for level in levels:
                    self._run_level(level, stop, began)
            else:
                for level in levels:
                    self._start(level, once=False)
                began()
                self._watch(stop, lambda: self._has_work())
        finally:
            self._close()
        if self._failed and not stop.is_set():
            raise PipelineFailed(_summary(self._failed))

    def _run_level(self, level: list[str], stop: threading.Event, began: Callable[[], None]) -> None:
        """Everything that is there now, for the outputs of one level."""
        queries = self._start(level, once=True)
        began()
        self._watch(stop, lambda: any(one.is_active for one in queries))
        if not stop.is_set():
            self._refresh([name for name in level if name not in self._skipped()], is_forced=True)

    def _skipped(self) -> set[str]:
        failed = {flow.target for flow in self._graph.flows if flow.name in self._failed}
        return failed | downstream(self._analysis.output_reads(), failed)

    # -- flows ---------------------------------------------------------------------------------------------------------

    def _start(self, level: list[str], *, once: bool) -> list[FlowQuery]:
        started = []
        for flow in self._graph.flows:
            output = self._graph.output(flow.target)
            if flow.target not in level or output.kind not in ("streaming table", "sink"):
                continue
            if flow.target in self._skipped() and flow.name not in self._failed:
                self._say(f"{flow.name}: not started, because what it reads has failed")
                self._events.write({"event": "skipped", "flow": flow.name})
                continue
            query = FlowQuery(
                self._spark,
                self._graph.name,
                flow,
                self._analysis.frames[flow.name],
                address=self._address(flow),
                target=self._target(flow),
                dead_letters=self._dead_letters(flow),
                say=self._say,
            )
            self._queries[flow.name] = query
            try:
                query.start(once=once, every=self._spec.every)
            except (PipelineFailed, PySparkException, Py4JError, Unavailable) as error:
                self._fail(flow, error)
                continue
            self._events.write({"event": "started", "flow": flow.name, "target": flow.target})
            started.append(query)
        return started

    def _address(self, flow: Flow) -> str:
        """The checkpoint of a flow."""
        return f"{self._spec.checkpoint}/{FLOWS}/{flow.name}"

    def _target(self, flow: Flow) -> Target:
        output = self._graph.output(flow.target)
        if output.kind == "sink" and is_exactly_once(output):
            return TopicTarget(self._spark, output, f"{self._graph.name}.{flow.name}", self._address(flow))
        if output.kind == "sink":
            return SparkSink(output)
        if flow.changes is not None:
            changed = ChangesTarget(self._spark, self._tables.sink(output), flow.changes)
            changed.prepare(table_schema(self._analysis.frames[flow.name], flow))
            return changed
        table = TableTarget(self._spark, self._tables.sink(output))
        self._refuse_unknown_rows(table)
        return table

    def _dead_letters(self, flow: Flow) -> Target | None:
        if flow.dead_letters is None:
            return None
        output = self._graph.output(flow.dead_letters)
        return SparkSink(output) if output.kind == "sink" else TableTarget(self._spark, self._tables.sink(output))

    def _refuse_unknown_rows(self, table: TableTarget) -> None:
        """Rows of which nothing says who wrote them may be this pipeline's own, without their progress."""
        if self._spec.takes_unknown_rows or not table.has_rows():
            return
        if not any(one.pipeline.startswith(f"{self._graph.name}.") for one in table.commits()):
            raise InvalidPipeline(
                f"{table.sink.target} holds rows, and nothing says whether the pipeline {self._graph.name} wrote them: "
                "it might write them a second time. If they are not of this pipeline, say on_unknown_rows = 'append'."
            )

    # -- watching ------------------------------------------------------------------------------------------------------

    def _has_work(self) -> bool:
        return any(one.is_active for one in self._queries.values()) or (self._views.are_there and not self._queries)

    def _watch(self, stop: threading.Event, is_going: Callable[[], bool]) -> None:
        """Report batches and failures, and refresh views, until nothing goes on or a stop is requested."""
        while True:
            goes_on = is_going()
            for name, query in self._queries.items():
                self._report(query)
                if name not in self._failed and (error := query.error()) is not None:
                    self._fail(query.flow, error)
            if not goes_on or stop.wait(POLL_S):
                return
            if not stop.is_set() and self._views.is_due(self._spec.every):
                self._refresh([one.name for one in self._graph.outputs], is_forced=False)

    def _refresh(self, names: list[str], *, is_forced: bool) -> None:
        for flow in self._views.flows(names):
            if flow.target in self._skipped():
                continue
            try:
                seconds = self._views.refresh(flow, is_forced=is_forced)
            except (PipelineFailed, PySparkException, Py4JError) as error:
                self._fail(flow, error)
                continue
            if seconds is not None:
                self._say(f"{flow.name}: refreshed in {seconds:.1f} s")
                self._events.write({"event": "refreshed", "flow": flow.name, "seconds": round(seconds, 3)})

    def _report(self, query: FlowQuery) -> None:
        """Report the batches that Spark has finished since the last call."""
        if query.query is None:
            return
        name = query.flow.name
        for progress in query.query.recentProgress:
            values: dict[str, Any] = json.loads(progress.json)
            batch = query.batches.pop(int(values["batchId"]), None)
            if batch is None:  # no records, or reported before
                continue
            report = completed(report_of(values, name), batch.counts, is_new=batch.is_new)
            self._say(f"{self._graph.name}.{report.line()}")
            self._metrics.count(report)
            self._events.write(report.as_event())
        while len(query.batches) > MAX_BATCHES_KEPT:  # Spark keeps the progress of its last batches only
            query.batches.pop(min(query.batches))

    def _fail(self, flow: Flow, error: Exception) -> None:
        brokers = ", ".join(
            dict.fromkeys(one["kafka.bootstrap.servers"] for one in kafka_sources(self._analysis.frames[flow.name]))
        )
        known = isinstance(error, PipelineFailed | Unavailable)
        failure = error if known else explained(error, f"The flow {flow.name}", self._spec.checkpoint, brokers)
        self._metrics.failed(flow.name)
        self._events.write({"event": "failed", "flow": flow.name, "reason": str(failure)})
        if self._spec.on_failure == "stop":
            raise _named(failure, flow.name) from error
        self._failed[flow.name] = str(failure)
        self._say(f"{flow.name}: failed: {failure}")
        for name in downstream(self._analysis.output_reads(), {flow.target}):
            for query in self._queries.values():
                if query.flow.target == name and query.is_active:
                    query.stop()
                    self._say(f"{query.flow.name}: stopped, because what it reads has failed")

    def _close(self) -> None:
        with suppress(PySparkException, Py4JError, OSError):  # the JVM may have ended, which released everything
            for query in self._queries.values():
                query.stop()
            for query in self._queries.values():
                self._report(query)
        for query in self._queries.values():
            query.close()
        with suppress(Py4JError, OSError):
            self._checkpoint.release()


def _named(failure: Exception, flow: str) -> Exception:
    """The same failure, with the name of the flow in its sentence."""
    text = str(failure)
    if flow in text:
        return failure
    return type(failure)(f"The flow {flow}: {text}")


def _summary(failed: Mapping[str, str]) -> str:
    return "\n".join(f"The flow {name} failed: {reason}" for name, reason in failed.items())


def event_file(spec: GraphSpec, given: Path | None, name: str) -> Path | None:
    """Where the event log goes: the given file, or one in a checkpoint on this machine."""
    if given is not None:
        return given
    folder = local_path(spec.checkpoint)
    return None if folder is None else folder / name
