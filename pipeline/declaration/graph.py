"""The graph of a declaration: topics, one sink, and its dead letters.

    topics → records → sink
                ╰────→ dead letters

Where Spark keeps state, dead letters are a flow of their own, which reads the topics once more: a stateful plan has one
output.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..graph.drawing import Drawing, drawing_of
from ..graph.elements import Flow, Graph, Output
from .model import DeadLetters, Declaration, Discard, TopicSink

RECORDS, DEAD_LETTERS = "records", "dead-letters"
TABLES = ("iceberg", "parquet")
Query = Callable[[], Any]


def nothing() -> None:
    """The query of a graph that is only drawn."""


DRAWN: Mapping[str, Query] = MappingProxyType({RECORDS: nothing})


def graph_of(declared: Declaration, queries: Mapping[str, Query] = DRAWN, *, is_one: bool = True) -> Graph:
    """The graph with a flow for each query. `is_one`: the flow of the records divides them by the rules."""
    outputs = [_output(declared.sink, "")]
    letters = None
    if declared.may_refuse and not isinstance(declared.dead_letters, Discard):
        outputs.append(_output(declared.dead_letters, " (dead letters)"))
        letters = outputs[-1].name
    targets = {RECORDS: outputs[0].name, DEAD_LETTERS: outputs[-1].name}
    flows = tuple(
        Flow(
            name=name,
            target=targets[name],
            place=declared.name,
            query=query,
            rules=declared.rules if is_one else (),
            dead_letters=letters if is_one else None,
        )
        for name, query in queries.items()
    )
    return Graph(name=declared.name, outputs=tuple(outputs), flows=flows)


def declared_drawing(declared: Declaration) -> Drawing:
    source = declared.source
    return drawing_of(graph_of(declared), {}, {RECORDS: set(source.topics or (str(source.pattern),))})


def _output(sink: DeadLetters, role: str) -> Output:
    # A topic may be read and written under one name, and one table may have rows and dead letters.
    name = f"{sink.target}{role or (' (written)' if isinstance(sink, TopicSink) else '')}"
    return Output(name=name, kind="streaming table" if sink.kind in TABLES else "sink", place=sink.kind)
