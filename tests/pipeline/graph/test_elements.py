"""Mistakes of a graph that need no analysis: each is one sentence with its place."""

import pytest

from trioka.pipeline.expectations.rules import Expectation
from trioka.pipeline.graph.elements import Changes, Flow, Graph, Kind, Output


def output(name: str, kind: Kind = "streaming table", format: str | None = None) -> Output:
    return Output(name=name, kind=kind, place=f"{name}.py:1", format=format)


def flow(name: str, target: str | None = None, **more: object) -> Flow:
    return Flow(name=name, target=target or name, place=f"{name}.py:2", query=lambda: None, **more)  # type: ignore[arg-type]


def problems(*elements: Output | Flow) -> list[str]:
    outputs = tuple(one for one in elements if isinstance(one, Output))
    return Graph(name="g", outputs=outputs, flows=tuple(one for one in elements if isinstance(one, Flow))).problems()


CHANGES = Changes(source="s", keys=("id",), sequence_by="seq")
RULE = Expectation(name="r", condition="true", action="drop")


def test_a_graph_without_mistakes_has_no_problems() -> None:
    dead = output("dead")
    assert problems(output("a"), flow("a", dead_letters="dead"), dead, output("b"), flow("b", changes=CHANGES)) == []


@pytest.mark.parametrize(
    ("elements", "sentence"),
    [
        ((), "No table, view or sink is defined"),
        ((output("a"), output("A"), flow("a")), "The output 'a' is defined 2 times: a.py:1, A.py:1."),
        ((output("a"), flow("a"), flow("a")), "The flow 'a' is defined 2 times"),
        ((output("a"), flow("a"), flow("b", "c")), "b.py:2: the flow 'b' writes to 'c', which is not defined."),
        ((output("a"),), "a.py:1: no flow writes to the streaming table 'a'."),
        ((output("a", "temporary view"), flow("a"), flow("b", "a")), "'a' has several flows (a, b), and may have one."),
        ((output("a", format="delta"), flow("a")), "the table 'a' has the format delta; tables are in Iceberg here."),
        ((output("a"), flow("a", dead_letters="x")), "the dead letters of 'a' go to 'x', which is not a streaming"),
        ((output("a"), flow("a", dead_letters="a")), "go where its good rows go"),
        ((output("a", "sink"), flow("a", changes=CHANGES)), "changes are applied to a streaming table"),
        ((output("a"), flow("a", changes=CHANGES), flow("b", "a")), "gets changes by a, so no other flow may write"),
        ((output("a"), flow("a", rules=(RULE, RULE))), "the flow 'a' has 2 expectations named 'r'."),
        ((output("a"), flow("x/y", "a")), "at most 200 characters, and no '/'"),
    ],
)
def test_each_mistake_is_one_sentence(elements: tuple[Output | Flow, ...], sentence: str) -> None:
    found = problems(*elements)
    assert any(sentence in one for one in found), found
