"""Makes the lost checkpoint of a flow anew from the progress in its table."""

import uuid
from collections.abc import Sequence

from ..errors import InvalidPipeline
from ..runner.checkpoint import RECORDS, Checkpoint
from ..sources.offsets import Commit, Ends, farthest, is_another_topic, positions_of_log, to_json
from .flow_delivery import FlowDelivery
from .flow_query import TopicWatch


def recover(delivery: FlowDelivery, checkpoint: Checkpoint, watch: TopicWatch) -> Ends:
    """Continue after the last batch that the target has, if Spark's checkpoint is gone. Returns how far the dead
    letters of earlier checkpoints got.
    """
    plan = delivery.plan
    if not checkpoint.is_new(RECORDS):
        return {}
    there = [one for one in plan.target.commits() if one.pipeline == plan.id]
    dead = plan.dead_letters.commits() if plan.dead_letters is not None else []
    written = _of_same_topics([one for one in dead if one.pipeline == plan.id], watch)
    logged = [one for one in there if one.log]
    if not there:
        return written
    if delivery.is_stateful or not logged:
        raise InvalidPipeline(
            f"The target of the flow {plan.flow.name} holds its rows, but its checkpoint "
            f"{checkpoint.address} is gone, and with it the windows, keys and joins that were "
            "open: bring it back, or write to another table."
        )
    # The run that got farthest is the newest one: each begins where the one before it ended.
    last = max(logged, key=lambda one: (sum(end for _, end in one.ranges().values()), one.batch))
    now = watch.ids(last.end)
    again = {topic for topic in now if is_another_topic(last.topics, now, topic)}
    log = "\n".join(_without(line, again) for line in last.log.splitlines())
    checkpoint.restore(RECORDS, run=str(uuid.uuid4()), log=log)
    return written


def _of_same_topics(commits: Sequence[Commit], watch: TopicWatch) -> Ends:
    """How far commits got in topics that were not created again since."""
    now = watch.ids(farthest(one.end for one in commits))
    return farthest(
        {topic: ends for topic, ends in one.end.items() if not is_another_topic(one.topics, now, topic)}
        for one in commits
    )


def _without(line: str, topics: set[str]) -> str:
    """A line of Spark's log of offsets without these topics, which then begin at their first record."""
    positions = positions_of_log(f"\n\n{line}")
    if not positions.keys() & topics:
        return line
    return to_json({topic: ends for topic, ends in positions.items() if topic not in topics})
