"""Runs a graph: all flows beside each other until they are stopped, or with `once` level by level until all is read.

A flow that fails is named. By the policy `stop` the others are stopped, too; by `continue` those go on that do not read
what the failed one writes, and the run fails when it ends.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

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
from ..runner.group_progress import GroupProgress
from ..runner.run import explained
from ..runner.store_lock import LockLost
from ..sources.brokers import Brokers
from ..tables.topic_transactions import TopicTarget, is_exactly_once
from .events import EventLog
from .flow_delivery import FlowDelivery, FlowPlan
from .flow_query import FlowQuery, QueryPlan, Say, brokers_of, watch_of
from .materialized import MaterializedViews
from .metrics import Metrics
from .recovery import recover
from .runner import Runner
from .shared_reads import FLOWS, Read, SharedReads
from .targets import SparkSink, Tables, TableTarget, Target, database_created


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
        self._views = MaterializedViews(analysis, tables)
        self._failed: dict[str, str] = {}
        self._shared = SharedReads(spark, spec.checkpoint, self._has_rows)
        self._reads: list[Read] = []
        self._is_once = False
        self._runner = Runner(
            pipeline=spec.name,
            prefix=f"{spec.name}.",
            say=say,
            events=events,
            failed=self._query_failed,
            metrics=metrics,
        )

    def run(self, *, once: bool, stop: threading.Event, began: Callable[[], None]) -> None:
        self._is_once = once
        self._checkpoint.take()
        try:
            levels = self._analysis.levels()
            self._reads = self._shared.reads([self._streaming(level) for level in levels], self._analysis.frames)
            if once:
                for level in levels:
                    self._run_level(level, stop, began)
            else:
                for level in levels:
                    self._start(level)
                began()
                self._runner.watch(stop, self._has_work, self._refresh_when_due)
        finally:
            self._runner.close()
            with suppress(Py4JError, OSError):
                self._checkpoint.release()
        if self._failed and not stop.is_set():
            raise PipelineFailed(_summary(self._failed))

    def _run_level(self, level: list[str], stop: threading.Event, began: Callable[[], None]) -> None:
        """Everything that is there now, for the outputs of one level."""
        queries = self._start(level)
        began()
        self._runner.watch(stop, lambda: any(one.is_active for one in queries))
        if not stop.is_set():
            self._refresh([name for name in level if name not in self._skipped()], is_forced=True)

    def _skipped(self) -> set[str]:
        failed = {flow.target for flow in self._graph.flows if flow.name in self._failed}
        return failed | downstream(self._analysis.output_reads(), failed)

    # -- flows ---------------------------------------------------------------------------------------------------------

    def _streaming(self, level: list[str]) -> list[Flow]:
        """The flows of these outputs that are streaming queries."""
        outputs = {one.name for one in self._graph.outputs if one.kind in ("streaming table", "sink")} & set(level)
        return [flow for flow in self._graph.flows if flow.target in outputs]

    def _start(self, level: list[str]) -> list[FlowQuery]:
        started = []
        for read in self._reads:
            if read.flows[0].target not in level:
                continue
            deliveries = self._deliveries(read)
            if not deliveries:
                continue
            query = self._query(read.address, deliveries)
            self._runner.queries.append(query)
            try:
                for delivery in deliveries:
                    delivery.written = recover(delivery, query.plan.checkpoint, query.watch)
                query.watch.confirm_known()
                query.start(once=self._is_once, every=self._spec.every)
            except (PipelineFailed, PySparkException, Py4JError, Unavailable) as error:
                for delivery in deliveries:
                    self._fail(delivery.plan.flow, error)
                continue
            for delivery in deliveries:
                flow = delivery.plan.flow
                self._events.write({"event": "started", "flow": flow.name, "target": flow.target})
            started.append(query)
        return started

    def _deliveries(self, read: Read) -> list[FlowDelivery]:
        """The flows of a read whose targets are ready. Those that are not leave it."""
        found = []
        for flow in read.flows:
            if flow.target in self._skipped() and flow.name not in self._failed:
                self._say(f"{flow.name}: not started, because what it reads has failed")
                self._events.write({"event": "skipped", "flow": flow.name})
                self._leave(read.address, flow)
                continue
            try:
                found.append(FlowDelivery(self._plan(flow)))
            except (PipelineFailed, PySparkException, Py4JError, Unavailable) as error:
                self._fail(flow, error)
                self._leave(read.address, flow)
        return found

    def _leave(self, address: str, flow: Flow) -> None:
        if self._shared.is_shared(address):
            self._shared.leave(address, flow.name)

    def _plan(self, flow: Flow) -> FlowPlan:
        id = f"{self._graph.name}.{flow.name}"
        return FlowPlan(
            flow=flow,
            rows=self._analysis.frames[flow.name],
            id=id,
            group=id,
            target=self._target(flow),
            dead_letters=self._dead_letters(flow),
        )

    def _query(self, address: str, deliveries: list[FlowDelivery]) -> FlowQuery:
        first = deliveries[0].plan
        watch = watch_of(self._spark, first.rows, address)
        sources = kafka_sources(first.rows)
        brokers = brokers_of(sources)
        for problem in {Brokers.of(one).problem() for one in sources} - {None}:
            self._say(f"note: {first.flow.name}: topics that are created again go unnoticed: {problem}")
        groups = [one.plan.group for one in deliveries] if len(brokers) == 1 else []
        plan = QueryPlan(checkpoint=Checkpoint(self._spark, address), name=first.id, settings=first.flow.settings)
        progress = [GroupProgress(brokers[0], group, self._say) for group in groups]
        return FlowQuery(self._spark, deliveries, plan, watch, progress, self._checkpoint.confirm_taken)

    def _has_rows(self, flow: Flow) -> bool:
        """Whether the target of a flow says that it has rows of it."""
        output = self._graph.output(flow.target)
        if not output.is_table or flow.changes is not None or not self._tables.exists(output):
            return False
        id = f"{self._graph.name}.{flow.name}"
        return any(one.pipeline == id for one in TableTarget(self._spark, self._tables.sink(output)).commits())

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
        queries = self._runner.queries
        return any(one.is_active for one in queries) or (self._views.are_there and not queries)

    def _refresh_when_due(self) -> None:
        if not self._is_once and self._views.is_due(self._spec.every):
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

    def _query_failed(self, query: FlowQuery, error: Exception) -> None:
        """A flow that fails by itself is named, and the others of its read go on; an error of the read is of all."""
        if isinstance(error, LockLost):
            raise error
        failed = query.failed if query.failure is not None else None
        for delivery in [failed] if failed is not None else query.deliveries:
            self._fail(delivery.plan.flow, error)
        if failed is not None and len(query.deliveries) > 1:
            self._shared.leave(query.plan.checkpoint.address, failed.plan.flow.name)
            try:
                query.restart_without(failed, once=self._is_once, every=self._spec.every)
            except (PySparkException, Py4JError) as again:
                for delivery in query.deliveries:
                    self._fail(delivery.plan.flow, again)

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
        below = downstream(self._analysis.output_reads(), {flow.target})
        for query in self._runner.queries:
            names = [one.plan.flow.name for one in query.deliveries]
            if query.is_active and any(one.plan.flow.target in below for one in query.deliveries):
                query.stop()
                self._say(f"{', '.join(names)}: stopped, because what it reads has failed")


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
