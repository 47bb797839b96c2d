"""Analyses the flows of a graph: calls each query function, and finds what it reads by Spark's own plan.

A function can be called only when everything that it reads exists. So the flows are tried round by round: one whose
table or view is missing waits until another flow has given it a schema. A view is registered as a temporary view. A
table that does not exist yet is created: in the catalog, or for a check in an empty one (`Scratch`).
"""

import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..changes.merge import table_schema
from ..errors import InvalidPipeline, first_sentence
from ..expectations.columns import REASON
from ..expectations.judge import check_rule
from .elements import Flow, Graph, Output
from .order import Cycle, levels
from .spec import GraphSpec

NOT_FOUND = ("TABLE_OR_VIEW_NOT_FOUND", "NoSuchTableException")


@dataclass(slots=True, kw_only=True)
class Analysis:
    """`frames` are the rows of each flow, `reads` the outputs that each flow reads, both by the flow's name."""

    graph: Graph
    frames: dict[str, DataFrame] = field(default_factory=dict)
    reads: dict[str, set[str]] = field(default_factory=dict)

    def output_reads(self) -> dict[str, set[str]]:
        """What each output reads; views are outputs, too."""
        found: dict[str, set[str]] = {one.name: set() for one in self.graph.outputs}
        for flow in self.graph.flows:
            found[flow.target] |= self.reads.get(flow.name, set())
            if flow.dead_letters is not None:
                found[flow.dead_letters] |= {flow.target}
        return found

    def topics(self) -> dict[str, set[str]]:
        """The topics, or the pattern of topics, that each flow reads."""
        keys = ("subscribe", "subscribepattern", "assign")
        found: dict[str, set[str]] = {}
        for name, rows in self.frames.items():
            found[name] = set()
            for options in kafka_sources(rows):
                named = [value for key, value in options.items() if key.lower() in keys]
                found[name] |= {topic.strip() for one in named for topic in one.split(",")}
        return found

    def levels(self) -> list[list[str]]:
        """The outputs, level by level; `InvalidPipeline` names outputs that read each other."""
        try:
            return levels(self.output_reads())
        except Cycle as cycle:
            raise InvalidPipeline(f"The outputs read each other: {cycle}.") from None


Prepare = Callable[[Output, StructType], None]
Supply = Callable[[str], bool]


def nothing(_: str) -> bool:
    """The supply of a run: a missing table is missing."""
    return False


def analyse(spark: SparkSession, graph: Graph, prepare: Prepare, supply: Supply = nothing) -> Analysis:
    """All flows analysed; `InvalidPipeline` has one sentence for each flow that cannot be."""
    for output in graph.outputs:
        if output.kind == "temporary view":  # of an earlier graph in this session
            spark.catalog.dropTempView(output.name)
    found = Analysis(graph=graph)
    waiting = {flow.name: flow for flow in graph.flows}
    problems: dict[str, str] = {}
    missing: dict[str, str] = {}
    while waiting:
        missing = {}
        done: list[str] = []
        is_supplied = False
        for flow in waiting.values():
            try:
                _analyse_flow(found, flow, prepare)
                done.append(flow.name)
            except InvalidPipeline as wrong:
                problems[flow.name] = "\n".join(wrong.problems)
            except AnalysisException as error:
                sentence = f"{flow.place}: the flow '{flow.name}': {first_sentence(error)}"
                is_missing = any(one in str(error) for one in NOT_FOUND)
                (missing if is_missing else problems)[flow.name] = sentence
                if is_missing and supply((error.getMessageParameters() or {}).get("relationName", "")):
                    is_supplied = True
            except (PySparkException, Py4JError) as error:
                problems[flow.name] = f"{flow.place}: the flow '{flow.name}': {first_sentence(error)}"
            except Exception as error:  # a query function is user code, which may raise anything
                problems[flow.name] = f"{flow.place}: the flow '{flow.name}': {type(error).__name__}: {error}"
        waiting = {name: flow for name, flow in waiting.items() if name not in done and name not in problems}
        if not done and not is_supplied:
            break
    # A flow that waits for one with a mistake is no mistake itself.
    if problems or missing:
        raise InvalidPipeline(list((problems or missing).values()))
    found.levels()
    return found


def _analyse_flow(found: Analysis, flow: Flow, prepare: Prepare) -> None:
    output = found.graph.output(flow.target)
    rows = flow.query()
    if not isinstance(rows, DataFrame):
        raise InvalidPipeline(
            f"{flow.place}: the function of the flow '{flow.name}' returns {type(rows).__name__}, not a DataFrame."
        )
    _check_kind(flow, output, rows)
    for rule in flow.rules:
        check_rule(rows, rule, f"{flow.place}: the expectation '{rule.name}'")
    schema = rows.schema
    if output.kind == "temporary view":
        rows.createOrReplaceTempView(f"`{output.name}`")
    elif flow.changes is not None:
        prepare(output, table_schema(rows, flow))
    elif output.is_table:
        kept = StructType([one for one in schema.fields if one.name != REASON])
        prepare(output, kept)
    found.frames[flow.name] = rows
    names = {one.name for one in found.graph.outputs}
    found.reads[flow.name] = {name for name in _names_read(rows) if name in names}


def _check_kind(flow: Flow, output: Output, rows: DataFrame) -> None:
    where = f"{flow.place}: the flow '{flow.name}'"
    if output.kind in ("streaming table", "sink") and not rows.isStreaming:
        raise InvalidPipeline(
            f"{where} reads no stream; read one with spark.readStream or STREAM(…), or define a materialized view."
        )
    if output.kind == "materialized view" and rows.isStreaming:
        raise InvalidPipeline(f"{where} reads a stream; define a streaming table, or read with spark.read.")
    plan: Any = rows._jdf.queryExecution().analyzed()
    is_hidden = REASON in str(plan) and REASON not in rows.columns and f"isnull({REASON}" not in str(plan)
    if is_hidden:
        raise InvalidPipeline(
            f"{where} leaves out the column {REASON}, and with it which records were refused; select it too, or add "
            f"where('{REASON} IS NULL')."
        )


def _names_read(rows: DataFrame) -> set[str]:
    """The views and tables of a plan, by their full name and by each of its ends."""
    frame: Any = rows._jdf
    found: set[str] = set()
    for node in plan_nodes(frame.queryExecution().analyzed()):
        name = str(node.nodeName())
        if name == "View":
            found.add(str(node.desc().identifier().table()))
        elif name.startswith(("StreamingRelationV2", "RelationV2", "DataSourceV2Relation")):
            identifier = node.identifier()
            if identifier.isDefined():
                parts = [*identifier.get().namespace(), identifier.get().name()]
                found |= {".".join(map(str, parts[begin:])) for begin in range(len(parts))}
    return found


def plan_nodes(plan: Any) -> Iterator[Any]:
    """Every node of a plan, those of its subqueries among them."""
    yield plan
    for nodes in (plan.children(), plan.subqueries()):
        for number in range(nodes.size()):
            yield from plan_nodes(nodes.apply(number))


def kafka_sources(rows: DataFrame) -> list[Mapping[str, str]]:
    """The options of each read of Kafka in a plan."""
    frame: Any = rows._jdf
    return [
        {str(key): str(value) for key, value in node.extraOptions().asCaseSensitiveMap().items()}
        for node in plan_nodes(frame.queryExecution().analyzed())
        if is_kafka_stream(node)
    ]


def is_kafka_stream(node: Any) -> bool:
    """Whether a node of a plan reads Kafka as a stream."""
    return str(node.nodeName()).startswith("StreamingRelationV2") and str(node.sourceName()) == "kafka"


class Scratch:
    """Tables for a check, which must not write: an empty catalog in a temporary folder, under the names of the real
    one. A table that the graph reads and does not define is copied without its rows. Use it in a `with`.
    """

    def __init__(self, spark: SparkSession, spec: GraphSpec) -> None:
        self._spark = spark
        self._spec = spec
        self._folder = tempfile.TemporaryDirectory(prefix="trioka-check-")
        self._catalog = f"check_{uuid.uuid4().hex}"
        self._before = spark.catalog.currentCatalog()

    def __enter__(self) -> "Scratch":
        key = f"spark.sql.catalog.{self._catalog}"
        self._spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")
        self._spark.conf.set(f"{key}.type", "hadoop")
        self._spark.conf.set(f"{key}.warehouse", self._folder.name)
        self._spark.sql(f"CREATE NAMESPACE {quoted(self._catalog, self._spec.database)}")
        self._spark.catalog.setCurrentCatalog(self._catalog)
        self._spark.catalog.setCurrentDatabase(self._spec.database)
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.catalog.setCurrentCatalog(self._before)
        self._folder.cleanup()

    def prepare(self, output: Output, schema: StructType) -> None:
        self._create(output.name.split("."), output.schema or schema, output.place)

    def supply(self, name: str) -> bool:
        """Copy a table of the real catalog, without its rows; False if it is not there."""
        parts = [part.strip("`") for part in name.split(".")]
        if len(parts) > 2:
            return False
        real = quoted(self._spec.catalog, *([self._spec.database] if len(parts) == 1 else []), *parts)
        try:
            schema = self._spark.table(real).schema
        except PySparkException:
            return False
        self._create(parts, schema, name)
        return True

    def _create(self, parts: list[str], schema: Any, place: str) -> None:
        if len(parts) > 2:
            raise InvalidPipeline(f"{place}: a check cannot analyse a table whose name has a catalog; leave it out.")
        names = [self._catalog, *([self._spec.database] if len(parts) == 1 else []), *parts]
        if self._spark.catalog.tableExists(quoted(*names)):
            return
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {quoted(*names[:-1])}")
        self._spark.createDataFrame([], schema).writeTo(quoted(*names)).using("iceberg").create()


def quoted(*parts: str) -> str:
    return ".".join(f"`{part}`" for part in parts)
