"""A graph as text and as SVG."""

from xml.etree import ElementTree

from trioka.pipeline.expectations.rules import Expectation
from trioka.pipeline.graph.drawing import drawing_of
from trioka.pipeline.graph.elements import Flow, Graph, Output

RULE = Expectation(name="a < b & c", condition="true", action="drop")
GRAPH = Graph(
    name="shop",
    outputs=(
        Output(name="totals", kind="materialized view", place="p"),
        Output(name="large", kind="temporary view", place="p"),
        Output(name="orders", kind="streaming table", place="p"),
        Output(name="refused", kind="streaming table", place="p"),
    ),
    flows=(
        Flow(name="totals", target="totals", place="p", query=lambda: None),
        Flow(name="large", target="large", place="p", query=lambda: None),
        Flow(name="orders", target="orders", place="p", query=lambda: None, rules=(RULE,), dead_letters="refused"),
    ),
)
READS = {"totals": {"large", "orders"}, "large": {"orders"}, "orders": set[str]()}
TOPICS = {"orders": {"orders"}}


def test_the_text_has_each_output_after_what_it_reads_itself() -> None:
    lines = [" ".join(line.split()) for line in drawing_of(GRAPH, READS, TOPICS).text().splitlines()]
    assert lines == [
        "pipeline shop",
        "topic orders",
        "streaming table orders ← topic orders",
        "drop: a < b & c",
        "temporary view large ← orders",
        "streaming table refused ← orders",
        "dead letters of orders",
        "materialized view totals ← large",
    ]


def test_the_picture_is_well_formed_and_has_a_box_for_each_node_and_an_arrow_for_each_read() -> None:
    drawing = drawing_of(GRAPH, READS, TOPICS)
    tree = ElementTree.fromstring(drawing.svg())
    space = "{http://www.w3.org/2000/svg}"
    assert len(tree.findall(f"{space}g/{space}rect")) == len(drawing.nodes) == 5
    assert len(tree.findall(f"{space}path")) == sum(len(node.reads) for node in drawing.nodes) == 4
