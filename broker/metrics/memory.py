"""Memory topics: how much would be lost if all machines restarted now, per topic that this broker leads."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from trioka.cluster.placement.topic_overrides import is_memory_topic

from ..config.trioka_keys import METRICS_MAX_PARTITIONS
from ..replication.partitions import Replica
from . import series as s
from .samples import NO_LABELS, PAUSE, Sample, Steps

if TYPE_CHECKING:
    from ..broker import Broker

PARTITIONS_AT_ONCE = 500  # of which the sizes are added up before other work goes on


def memory_readings(broker: "Broker") -> Steps[None]:
    """For a broker without tiered storage; with it, tier_readings has both."""
    if broker.node.memory_log_dirs:
        by_topic = yield from untiered_bytes(broker, ())
        yield s.TIER_WOULD_BE_LOST, would_be_lost(by_topic, broker.config[METRICS_MAX_PARTITIONS])


def untiered_bytes(broker: "Broker", tiered: Collection[Replica]) -> Steps[dict[str, int]]:
    """All bytes of memory topics, except of the replicas that are copied to the object store."""
    by_topic: dict[str, int] = {}
    for number, replica in enumerate(list(broker.partitions), start=1):
        if replica.leads and is_memory_topic(broker.metadata, replica.topic):
            size = 0 if replica in tiered else sum(segment.size for segment in replica.log.segments)
            by_topic[replica.topic] = by_topic.get(replica.topic, 0) + size
        if number % PARTITIONS_AT_ONCE == 0:
            yield PAUSE
    return by_topic


def would_be_lost(by_topic: Mapping[str, int], most: int) -> Iterator[Sample]:
    yield Sample(NO_LABELS, sum(by_topic.values()))
    for topic in sorted(by_topic)[:most]:
        yield Sample({"topic": topic}, by_topic[topic])
