"""The elements of a graph, as data: outputs (tables, views, sinks) and the flows that fill them.

`registry.py` collects them from definition files. `problems` finds what is wrong with them without Spark: duplicates,
unknown targets, flows that do not fit their target.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from trioka.protocol.lazy_dataclass import frozen

from ..expectations.rules import Expectation

Kind = Literal["streaming table", "materialized view", "temporary view", "sink"]
MAX_ELEMENTS = 1000
# How often a flow's name may be part of paths and of table properties decides how long it may be.
MAX_NAME_CHARS = 200


@frozen
class Output:
    """`place` is the file and line of its definition; `schema` is a DDL text or a StructType."""

    name: str
    kind: Kind
    place: str
    comment: str | None = None
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    schema: Any = None
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_table(self) -> bool:
        return self.kind in ("streaming table", "materialized view")


@frozen
class Changes:
    """What `create_auto_cdc_flow` was given. `sequence_by` and `apply_as_deletes` are SQL or columns of Spark."""

    source: str
    keys: tuple[str, ...]
    sequence_by: Any
    apply_as_deletes: Any = None
    columns: tuple[str, ...] | None = None
    except_columns: tuple[str, ...] = ()
    scd_type: Literal[1, 2] = 1


@frozen
class Flow:
    """`query` returns the flow's rows as a DataFrame. `dead_letters` is the output that gets refused rows."""

    name: str
    target: str
    place: str
    query: Callable[[], Any]
    settings: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Expectation, ...] = ()
    dead_letters: str | None = None
    changes: Changes | None = None


@frozen
class Graph:
    name: str
    outputs: tuple[Output, ...]
    flows: tuple[Flow, ...]

    def output(self, name: str) -> Output:
        return next(one for one in self.outputs if one.name == name)

    def flows_into(self, name: str) -> list[Flow]:
        return [one for one in self.flows if one.target == name]

    def problems(self) -> list[str]:
        """One sentence for each mistake; nothing if the graph can be analysed."""
        return list(_problems(self))


def _problems(graph: Graph) -> Iterator[str]:
    if not graph.outputs:
        yield "No table, view or sink is defined; define one with @dp.table."
    if len(graph.outputs) + len(graph.flows) > MAX_ELEMENTS:
        yield f"There are more than {MAX_ELEMENTS} outputs and flows; divide the pipeline."
    yield from _duplicates("output", [(one.name, one.place) for one in graph.outputs])
    yield from _duplicates("flow", [(one.name, one.place) for one in graph.flows])
    kinds = {one.name: one.kind for one in graph.outputs}
    for flow in graph.flows:
        yield from _flow_problems(flow, kinds)
    for output in graph.outputs:
        if len(output.name) > MAX_NAME_CHARS:
            yield f"{output.place}: the name {output.name[:40]}… has more than {MAX_NAME_CHARS} characters."
        yield from _output_problems(output, graph)


def _duplicates(kind: str, named: list[tuple[str, str]]) -> Iterator[str]:
    for name, count in Counter(name.lower() for name, _ in named).items():
        if count > 1:
            places = ", ".join(place for other, place in named if other.lower() == name)
            yield f"The {kind} '{name}' is defined {count} times: {places}."


def _flow_problems(flow: Flow, kinds: Mapping[str, Kind]) -> Iterator[str]:
    if len(flow.name) > MAX_NAME_CHARS or "/" in flow.name:
        yield f"{flow.place}: the flow's name must have at most {MAX_NAME_CHARS} characters, and no '/'."
    kind = kinds.get(flow.target)
    if kind is None:
        yield f"{flow.place}: the flow '{flow.name}' writes to '{flow.target}', which is not defined."
    elif flow.changes is not None and kind != "streaming table":
        yield f"{flow.place}: changes are applied to a streaming table, and '{flow.target}' is a {kind}."
    if flow.dead_letters is not None:
        yield from _dead_letter_problems(flow, kinds)
    yield from _duplicates_of_rules(flow)


def _dead_letter_problems(flow: Flow, kinds: Mapping[str, Kind]) -> Iterator[str]:
    assert flow.dead_letters is not None
    if kinds.get(flow.dead_letters) not in ("streaming table", "sink"):
        yield (
            f"{flow.place}: the dead letters of '{flow.name}' go to '{flow.dead_letters}', which is not a streaming "
            "table or sink of this pipeline; define it with create_streaming_table."
        )
    elif flow.dead_letters == flow.target:
        yield f"{flow.place}: the dead letters of '{flow.name}' go where its good rows go; name another table."
    if kinds.get(flow.target) == "temporary view":
        yield f"{flow.place}: the view '{flow.target}' writes nothing; put dead_letters on a table that reads it."


def _duplicates_of_rules(flow: Flow) -> Iterator[str]:
    for name, count in Counter(rule.name for rule in flow.rules).items():
        if count > 1:
            yield f"{flow.place}: the flow '{flow.name}' has {count} expectations named '{name}'."


def _output_problems(output: Output, graph: Graph) -> Iterator[str]:
    flows = graph.flows_into(output.name)
    is_filled = bool(flows) or any(one.dead_letters == output.name for one in graph.flows)
    if not is_filled:
        yield f"{output.place}: no flow writes to the {output.kind} '{output.name}'."
    if output.kind in ("materialized view", "temporary view") and len(flows) > 1:
        names = ", ".join(one.name for one in flows)
        yield f"{output.place}: the {output.kind} '{output.name}' has several flows ({names}), and may have one."
    if output.is_table and (output.format or "iceberg").lower() != "iceberg":
        yield f"{output.place}: the table '{output.name}' has the format {output.format}; tables are in Iceberg here."
    changing = [one.name for one in flows if one.changes is not None]
    if changing and len(flows) > 1:
        yield f"{output.place}: '{output.name}' gets changes by {changing[0]}, so no other flow may write to it."
