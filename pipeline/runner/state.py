"""What Spark must remember from batch to batch, by its own plan of a query.

The file says it of windows and distinct keys, but the user's SQL may ask for it as well: `GROUP BY`, `DISTINCT`, a join
of the records with themselves. So the plan is asked, as Spark has optimised it: there, `WITH` is written out.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from trioka.protocol.lazy_dataclass import frozen

# Spark's names for the nodes of a plan that keep state if records flow through them.
STATEFUL = frozenset(
    [
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState",
        "GlobalLimit",
        "TransformWithState",
        "TransformWithStateInPySpark",
    ]
)
SOURCE = "StreamingRelation"


@frozen
class State:
    """`is_kept`: there is state. `sources`: how many times the records are read."""

    is_kept: bool
    sources: int

    @property
    def can_be_made_anew(self) -> bool:
        """Whether the offsets in a table are enough to go on from it. Records that are read more than once may have
        been read up to different offsets, which no table tells.
        """
        return not self.is_kept and self.sources == 1


def state_of(rows: DataFrame) -> State:
    """Of a stream."""
    frame: Any = rows._jdf
    # Asked for its optimised plan, a query says that a stream must be started first; the optimiser itself does not.
    optimiser = frame.sparkSession().sessionState().optimizer()
    nodes = list(_nodes(optimiser.execute(frame.queryExecution().analyzed())))
    return State(
        is_kept=any(_keeps_state(node) for node in nodes),
        sources=sum(str(node.nodeName()).startswith(SOURCE) for node in nodes),
    )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number))


def _keeps_state(node: Any) -> bool:
    if not node.isStreaming():
        return False
    if node.nodeName() == "Join":
        return bool(node.left().isStreaming() and node.right().isStreaming())
    return node.nodeName() in STATEFUL
