"""A declaration as the graph that it stands for: topics, one table, and its dead letters."""

from ..graph.drawing import Drawing, Node
from .model import Declaration, Discard, TopicSink

TABLES = ("iceberg", "parquet")


def drawing_of(declared: Declaration) -> Drawing:
    source, sink, dead = declared.source, declared.sink, declared.dead_letters
    topics = source.topics or (str(source.pattern),)
    nodes = [Node(name=f"topic {topic}", kind="topic", reads=()) for topic in topics]
    read = tuple(node.name for node in nodes)
    notes = tuple(f"{rule.action}: {rule.name}" for rule in declared.rules)
    kind = "streaming table" if sink.kind in TABLES else "sink"
    # A topic may be read and written under one name, so the kind is a part of it.
    target = f"topic {sink.topic} (written)" if isinstance(sink, TopicSink) else sink.target
    nodes.append(Node(name=target, kind=kind, reads=read, notes=notes))
    columns = {**dict.fromkeys(read, 0), target: 1}
    if declared.may_refuse and not isinstance(dead, Discard):
        kind = "streaming table" if dead.kind in TABLES else "sink"
        name = f"dead letters: {dead.target}"
        nodes.append(Node(name=name, kind=kind, reads=read, notes=(f"dead letters of {target}",)))
        columns[name] = 1
    return Drawing(pipeline=declared.name, nodes=tuple(nodes), columns=columns)
