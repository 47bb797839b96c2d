"""Collects the elements that definition files register with `pyspark.pipelines`, on a session without Spark Connect.

PySpark calls the active registry for each decorator; `registration` makes this one active. The functions are kept and
not called: they are analysed later, in the order of what they read (`analysis.py`).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from pyspark.pipelines import flow as spark_flow
from pyspark.pipelines import output as spark_output
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.source_code_location import SourceCodeLocation

from ..expectations.rules import declared
from .elements import Changes, Flow, Graph, Kind, Output

_active: ContextVar["Registry | None"] = ContextVar("trioka_pipeline_registry", default=None)
SqlReader = Callable[["Registry", str, Path], None]


class Registry(GraphElementRegistry):
    """`read_sql` adds the elements of a SQL file, for which Spark's own parser is needed."""

    def __init__(self, folder: Path, read_sql: SqlReader) -> None:
        self._folder = folder
        self._read_sql = read_sql
        self._outputs: list[Output] = []
        self._flows: list[Flow] = []

    def register_output(self, output: spark_output.Output) -> None:
        place = self.place(output.source_code_location)
        if isinstance(output, spark_output.Sink):
            self.add_output(
                Output(name=output.name, kind="sink", place=place, format=output.format, options=dict(output.options))
            )
            return
        kind: Kind = "temporary view"
        if isinstance(output, spark_output.Table):
            kind = "materialized view" if isinstance(output, spark_output.MaterializedView) else "streaming table"
            self.add_output(
                Output(
                    name=output.name,
                    kind=kind,
                    place=place,
                    comment=output.comment,
                    partition_by=(*(output.partition_cols or ()), *(output.cluster_by or ())),
                    properties={key: str(value) for key, value in output.table_properties.items()},
                    schema=output.schema,
                    format=output.format,
                )
            )
            return
        self.add_output(Output(name=output.name, kind=kind, place=place, comment=output.comment))

    def register_flow(self, flow: spark_flow.Flow) -> None:
        known = declared(flow.func)
        self.add_flow(
            Flow(
                name=flow.name,
                target=flow.target,
                place=self.place(flow.source_code_location),
                query=known.function,
                settings={key: str(value) for key, value in flow.spark_conf.items()},
                rules=known.rules,
                dead_letters=known.dead_letters,
            )
        )

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        self._read_sql(self, sql_text, file_path)

    def register_changes(self, name: str, target: str, place: SourceCodeLocation, query: Any, changes: Changes) -> None:
        known = declared(query)
        self.add_flow(Flow(name=name, target=target, place=self.place(place), query=known.function, changes=changes))

    def add_output(self, output: Output) -> None:
        self._outputs.append(output)

    def add_flow(self, flow: Flow) -> None:
        self._flows.append(flow)

    def place(self, location: SourceCodeLocation) -> str:
        file = location.filename
        if os.path.isabs(file) and Path(file).is_relative_to(self._folder):
            file = str(Path(file).relative_to(self._folder))
        return f"{file}:{location.line_number}" if location.line_number else file

    def graph(self, name: str) -> Graph:
        return Graph(name=name, outputs=tuple(self._outputs), flows=tuple(self._flows))


@contextmanager
def registration(registry: Registry) -> Iterator[None]:
    """Definitions inside of it are registered here."""
    token = _active.set(registry)
    try:
        with graph_element_registration_context(registry):
            yield
    finally:
        _active.reset(token)


def active_registry() -> Registry | None:
    return _active.get()
