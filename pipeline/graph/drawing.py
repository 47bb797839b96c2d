"""A graph as text and as SVG: topics and tables on the left, what reads them to the right.

streaming table  orders            ← topic orders
                 2 expectations, dead letters → refused
materialized view  revenue         ← orders, customers
"""

from collections.abc import Mapping, Set
from dataclasses import field
from html import escape

from trioka.protocol.lazy_dataclass import frozen

from .elements import Graph
from .order import levels

BOX_WIDTH, BOX_HEIGHT = 210, 52
GAP_X, GAP_Y = 90, 24
MARGIN = 20
MAX_LABEL_CHARS = 28
COLOURS = {
    "topic": "#fde7c8",
    "streaming table": "#cfe3f7",
    "materialized view": "#d6efd8",
    "temporary view": "#eeeeee",
    "sink": "#f3d5e4",
}


@frozen
class Node:
    """`notes` are further lines: expectations, keys."""

    name: str
    kind: str
    reads: tuple[str, ...]
    notes: tuple[str, ...] = ()


@frozen
class Drawing:
    """`nodes` in the order in which they are filled, `column` of each by name."""

    pipeline: str
    nodes: tuple[Node, ...]
    columns: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        lines = [f"pipeline {self.pipeline}"]
        kind_width = max((len(node.kind) for node in self.nodes), default=0)
        name_width = max((len(node.name) for node in self.nodes), default=0)
        for node in self.nodes:
            reads = f"  ← {', '.join(node.reads)}" if node.reads else ""
            label = node.name.removeprefix("topic ")
            lines.append(f"  {node.kind:<{kind_width}}  {label:<{name_width}}{reads}".rstrip())
            lines += [f"  {'':<{kind_width}}    {note}" for note in node.notes]
        return "\n".join(lines)

    def svg(self) -> str:
        places = self._places()
        width = max((x for x, _ in places.values()), default=0) + BOX_WIDTH + MARGIN
        height = max((y for _, y in places.values()), default=0) + BOX_HEIGHT + MARGIN
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
            f"<title>{escape(self.pipeline)}</title>",
            '<defs><marker id="end" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
        ]
        parts += [_arrow(places[read], places[node.name]) for node in self.nodes for read in node.reads]
        parts += [_box(node, places[node.name]) for node in self.nodes]
        return "\n".join([*parts, "</svg>"])

    def _places(self) -> dict[str, tuple[int, int]]:
        rows: dict[int, int] = {}
        found = {}
        for node in self.nodes:
            column = self.columns[node.name]
            row = rows.get(column, 0)
            rows[column] = row + 1
            found[node.name] = (MARGIN + column * (BOX_WIDTH + GAP_X), MARGIN + row * (BOX_HEIGHT + GAP_Y))
        return found


def drawing_of(graph: Graph, reads: Mapping[str, Set[str]], topics: Mapping[str, Set[str]]) -> Drawing:
    """The drawing of an analysed graph. `reads` and `topics` are by flow: the outputs and the topics that it reads."""
    nodes = {
        f"topic {topic}": Node(name=f"topic {topic}", kind="topic", reads=())
        for one in topics.values()
        for topic in sorted(one)
    }
    through_views = {
        flow.name: {
            topic
            for other in graph.flows
            if other.target in reads.get(flow.name, set()) and graph.output(other.target).kind == "temporary view"
            for topic in topics.get(other.name, set())
        }
        for flow in graph.flows
    }
    for output in graph.outputs:
        flows = graph.flows_into(output.name)
        read: dict[str, None] = {}
        notes: list[str] = []
        for flow in flows:
            own = topics.get(flow.name, set()) - through_views[flow.name]
            read |= dict.fromkeys(f"topic {topic}" for topic in sorted(own))
            read |= dict.fromkeys(sorted(_direct(graph, reads, flow.name)))
            if len(flows) > 1:
                notes.append(f"flow {flow.name}")
            if flow.changes is not None:
                notes.append(f"changes by {', '.join(flow.changes.keys)}, type {flow.changes.scd_type}")
            notes += [f"{rule.action}: {rule.name}" for rule in flow.rules]
        for flow in graph.flows:
            if flow.dead_letters == output.name:
                read[flow.target] = None
                notes.append(f"dead letters of {flow.name}")
        nodes[output.name] = Node(name=output.name, kind=output.kind, reads=tuple(read), notes=tuple(notes))
    by_level = levels({name: set(node.reads) for name, node in nodes.items()})
    columns = {name: column for column, level in enumerate(by_level) for name in level}
    return Drawing(
        pipeline=graph.name, nodes=tuple(nodes[name] for level in by_level for name in level), columns=columns
    )


def _direct(graph: Graph, reads: Mapping[str, Set[str]], flow: str) -> set[str]:
    """What a flow reads itself: Spark's plan shows what its views read, too."""
    found = set(reads.get(flow, set()))
    for view in list(found):
        if graph.output(view).kind == "temporary view":
            for other in graph.flows_into(view):
                found -= reads.get(other.name, set())
    return found


def _arrow(begin: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = begin[0] + BOX_WIDTH, begin[1] + BOX_HEIGHT // 2
    x2, y2 = end[0], end[1] + BOX_HEIGHT // 2
    bend = (x2 - x1) // 2
    return (
        f'<path d="M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}" fill="none" stroke="#555" '
        'marker-end="url(#end)"/>'
    )


def _box(node: Node, place: tuple[int, int]) -> str:
    x, y = place
    label = node.name.removeprefix("topic ")
    if len(label) > MAX_LABEL_CHARS:
        label = f"{label[: MAX_LABEL_CHARS - 1]}…"
    notes = "".join(f"\n{note}" for note in node.notes)
    return (
        f"<g><title>{escape(node.kind)} {escape(label)}{escape(notes)}</title>"
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="{COLOURS[node.kind]}" '
        'stroke="#888"/>'
        f'<text x="{x + 10}" y="{y + 22}" font-size="14">{escape(label)}</text>'
        f'<text x="{x + 10}" y="{y + 40}" font-size="11" fill="#555">{escape(node.kind)}</text></g>'
    )
