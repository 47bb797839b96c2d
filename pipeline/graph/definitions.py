"""Reads the definition files of a graph: Python that is run once, SQL that Spark's own parser reads.

Statements of SQL files:

    CREATE STREAMING TABLE name [AS query]
    CREATE MATERIALIZED VIEW name AS query
    CREATE TEMPORARY VIEW name AS query
    CREATE FLOW name AS INSERT INTO target BY NAME query

A query reads a stream by `STREAM(name)`. Everything that is wrong with any file is reported at once.
"""

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.pipelines.source_code_location import SourceCodeLocation
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..errors import InvalidPipeline, first_sentence
from .elements import Flow, Graph, Kind, Output
from .registry import Registry, registration
from .spec import GraphSpec

MAX_SQL_BYTES = 1 << 20
KINDS: dict[str, Kind] = {
    "CreateStreamingTable": "streaming table",
    "CreateStreamingTableAsSelect": "streaming table",
    "CreateMaterializedViewAsSelect": "materialized view",
    "CreateViewCommand": "temporary view",
}


def read_definitions(spec: GraphSpec, spark: SparkSession) -> Graph:
    """The graph that the files define, checked as far as that needs no analysis."""
    registry = Registry(spec.folder, partial(_read_sql, spark))
    problems: list[str] = []
    with registration(registry), _importable(spec.folder):
        for file in spec.files:
            try:
                _read(registry, file, spark)
            except InvalidPipeline as wrong:
                problems += wrong.problems
    graph = registry.graph(spec.name)
    if not problems:
        problems = graph.problems()
    if problems:
        raise InvalidPipeline(problems)
    return graph


def _read(registry: Registry, file: Path, spark: SparkSession) -> None:
    where = registry.place(SourceCodeLocation(filename=str(file), line_number=None))
    try:
        if file.suffix == ".py":
            runpy.run_path(str(file), init_globals={"spark": spark})
            return
        if file.stat().st_size > MAX_SQL_BYTES:
            raise InvalidPipeline(f"{where}: the file has more than {MAX_SQL_BYTES} bytes.")
        registry.register_sql(file.read_text(), file)
    except InvalidPipeline:
        raise
    except SyntaxError as error:
        raise InvalidPipeline(f"{where}:{error.lineno}: {error.msg}.") from error
    except (PySparkException, Py4JError) as error:
        raise InvalidPipeline(f"{_line(where, file, error)}: {first_sentence(error)}") from error
    except Exception as error:  # user code may raise anything
        raise InvalidPipeline(f"{_line(where, file, error)}: {type(error).__name__}: {error}") from error


def _line(where: str, file: Path, error: BaseException) -> str:
    """The last line of the file that the error passed."""
    found, trace = where, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            found = f"{where}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Definition files may import modules that stand beside the specification."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


# -- SQL ---------------------------------------------------------------------------------------------------------------


def _read_sql(spark: SparkSession, registry: Registry, text: str, file: Path) -> None:
    jvm: Any = spark.sparkContext._jvm
    statements = jvm.org.apache.spark.sql.catalyst.util.StringUtils.splitSemiColonWithIndex(text, False)
    position = 0
    for number in range(statements.size()):
        statement = str(statements.apply(number))
        position = max(text.find(statement, position), position)
        if statement.strip():
            begin = position + len(statement) - len(statement.lstrip())
            location = SourceCodeLocation(filename=str(file), line_number=text.count("\n", 0, begin) + 1)
            _read_statement(spark, registry, statement, registry.place(location))
        position += len(statement)


def _read_statement(spark: SparkSession, registry: Registry, statement: str, place: str) -> None:
    session: Any = spark._jsparkSession
    try:
        plan = session.sessionState().sqlParser().parsePlan(statement)
    except PySparkException as error:
        raise InvalidPipeline(f"{place}: {first_sentence(error)}") from error
    node = str(plan.nodeName())
    if node == "CreateFlowCommand":
        insert = plan.flowOperation()
        target = str(insert.table().name()) if hasattr(insert.table(), "name") else str(insert.table())
        registry.add_flow(
            Flow(name=_name(plan.name()), target=target, place=place, query=partial(_frame, spark, insert.query()))
        )
        return
    if node not in KINDS or (node == "CreateViewCommand" and "LocalTempView" not in str(plan.viewType())):
        raise InvalidPipeline(
            f"{place}: the statement defines no element of a pipeline; there are CREATE STREAMING TABLE, "
            "CREATE MATERIALIZED VIEW, CREATE TEMPORARY VIEW and CREATE FLOW."
        )
    is_view = node == "CreateViewCommand"
    name = str(plan.name().table()) if is_view else _name(plan.name())
    registry.add_output(
        Output(name=name, kind=KINDS[node], place=place) if is_view else _table(plan, name, KINDS[node], place)
    )
    if node != "CreateStreamingTable":
        query = plan.plan() if is_view else plan.query()
        registry.add_flow(Flow(name=name, target=name, place=place, query=partial(_frame, spark, query)))


def _table(plan: Any, name: str, kind: Kind, place: str) -> Output:
    spec, columns, partitioning = plan.tableSpec(), plan.columns(), plan.partitioning()
    fields = [columns.apply(number).toV1Column() for number in range(columns.size())]
    schema = StructType.fromJson({"type": "struct", "fields": []})
    for field in fields:
        schema = schema.add(str(field.name()), str(field.dataType().sql()), bool(field.nullable()))
    properties = spec.properties()
    keys = properties.keys().toSeq()
    return Output(
        name=name,
        kind=kind,
        place=place,
        comment=str(spec.comment().get()) if spec.comment().isDefined() else None,
        partition_by=tuple(
            str(partitioning.apply(number).references()[0].describe()) for number in range(partitioning.size())
        ),
        properties={
            str(keys.apply(number)): str(properties.apply(keys.apply(number))) for number in range(keys.size())
        },
        schema=schema if fields else None,
        format=str(spec.provider().get()) if spec.provider().isDefined() else None,
    )


def _name(identifier: Any) -> str:
    parts = identifier.nameParts()
    return ".".join(str(parts.apply(number)) for number in range(parts.size()))


def _frame(spark: SparkSession, plan: Any) -> DataFrame:
    jvm: Any = spark.sparkContext._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
