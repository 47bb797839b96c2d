"""The state that Spark keeps from batch to batch, by its own plan of a query.

The file declares windows and distinct keys, but the user's SQL may need state as well: `GROUP BY`, `DISTINCT`, a
self-join of the records. So this module inspects the plan as Spark has optimised it, in which `WITH` is expanded.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from trioka.protocol.lazy_dataclass import frozen

# Spark's names of the plan nodes that keep state if records flow through them.
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
    """`is_kept`: the query has state. `sources`: the number of times that it reads the records."""

    is_kept: bool
    sources: int

    @property
    def can_be_made_anew(self) -> bool:
        """Whether the offsets in a table are enough to continue from. Records that are read more than once may have
        been read up to different offsets, which no table records.
        """
        return not self.is_kept and self.sources == 1


def state_of(rows: DataFrame) -> State:
    """The state of a stream."""
    frame: Any = rows._jdf
    # The optimised plan of a streaming query is not available before its start; the optimiser itself has no such check.
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
