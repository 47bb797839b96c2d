"""Tiered storage: what was copied and read, and what is not in the object store yet.

Kafka's own names count per topic; what a partition lacks is computed from its log at each scrape.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from trioka.cluster.remote_log.plan import NotCopied, not_copied
from trioka.protocol.errors import KafkaError

from ..config.trioka_keys import METRICS_MAX_PARTITIONS
from ..tier.counts import TopicCounts
from ..tier.log_facts import facts_of
from . import series as s
from .memory import WouldBeLost, untiered, would_be_lost
from .samples import NO_LABELS, PAUSE, Sample, Steps, one

if TYPE_CHECKING:
    from ..tier.tiered_storage import TieredStorage

T = TypeVar("T")

PARTITIONS_AT_ONCE: Final = 100  # of which the logs are looked at before other work goes on

COUNTERS: Final[dict[s.Series, Callable[[TopicCounts], int]]] = {
    s.REMOTE_COPY_BYTES: lambda counts: counts.copied_bytes,
    s.REMOTE_COPY_REQUESTS: lambda counts: counts.copy_requests,
    s.REMOTE_COPY_ERRORS: lambda counts: counts.copy_errors,
    s.REMOTE_FETCH_BYTES: lambda counts: counts.fetched_bytes,
    s.REMOTE_FETCH_REQUESTS: lambda counts: counts.fetch_requests,
    s.REMOTE_FETCH_ERRORS: lambda counts: counts.fetch_errors,
    s.REMOTE_DELETE_REQUESTS: lambda counts: counts.delete_requests,
    s.REMOTE_DELETE_ERRORS: lambda counts: counts.delete_errors,
}


class TopicState:
    """Sums over the partitions of a topic that this broker leads."""

    def __init__(self) -> None:
        self.segments = self.size_bytes = 0
        self.lag_bytes = self.lag_segments = 0

    def add(self, segments: int, size_bytes: int, lacking: NotCopied) -> None:
        self.segments += segments
        self.size_bytes += size_bytes
        self.lag_bytes += lacking.closed_bytes
        self.lag_segments += lacking.closed_segments


GAUGES: Final[dict[s.Series, Callable[[TopicState], int]]] = {
    s.REMOTE_COPY_LAG_BYTES: lambda state: state.lag_bytes,
    s.REMOTE_COPY_LAG_SEGMENTS: lambda state: state.lag_segments,
    s.REMOTE_LOG_METADATA_COUNT: lambda state: state.segments,
    s.REMOTE_LOG_SIZE: lambda state: state.size_bytes,
}


def tier_readings(tier: "TieredStorage") -> Steps[None]:
    counts, total = tier.counts, tier.counts.total()
    most = tier.broker.config[METRICS_MAX_PARTITIONS]
    for series, value in COUNTERS.items():
        yield series, [Sample(NO_LABELS, value(total)), *_of_topics(counts.topics, value, most)]
    states: dict[str, TopicState] = {}
    only_local: dict[str, WouldBeLost] = {}
    everything, oldest_ms = TopicState(), None
    for number, task in enumerate(list(tier.tasks.values()), start=1):
        remote = tier.topic.partition(task.about)
        try:
            facts = facts_of(task.replica)
            lacking = not_copied(facts, remote)
            only_local.setdefault(task.about.topic, WouldBeLost()).add_log(task.replica.log, lacking)
        except (KafkaError, OSError):
            continue  # its disk has failed
        size_bytes = remote.size_bytes(facts.lineage)
        for state in (states.setdefault(task.about.topic, TopicState()), everything):
            state.add(len(remote.segments), size_bytes, lacking)
        if lacking.oldest_ms is not None:
            oldest_ms = lacking.oldest_ms if oldest_ms is None else min(oldest_ms, lacking.oldest_ms)
        if number % PARTITIONS_AT_ONCE == 0:
            yield PAUSE
    for gauge, reading in GAUGES.items():
        yield gauge, [Sample(NO_LABELS, reading(everything)), *_of_topics(states, reading, most)]
    in_memory = yield from untiered(tier.broker, {task.replica for task in tier.tasks.values()})
    for topic, lost in in_memory.items():
        only_local.setdefault(topic, WouldBeLost()).add(lost)
    yield from would_be_lost(only_local, most, tier.now_ms())
    reader = tier.reader
    yield one(s.REMOTE_READER_QUEUE, reader.pending)
    yield one(s.REMOTE_READER_IDLE, reader.idle_share)
    yield one(s.TIER_CACHE_BYTES, reader.ranges.bytes + reader.indexes.bytes)
    yield one(s.TIER_CACHE_HITS, reader.ranges.hits)
    yield one(s.TIER_CACHE_MISSES, reader.ranges.misses)
    yield one(s.TIER_REJECTED_READS, reader.rejected)
    yield one(s.TIER_OLDEST, 0 if oldest_ms is None else max(0, tier.now_ms() - oldest_ms) / 1000)
    yield one(s.TIER_REQUESTS, counts.requests)
    yield one(s.TIER_ERRORS, counts.errors)
    yield one(s.TIER_MISSING, counts.missing_segments)
    yield one(s.TIER_MEMORY_RESTORES, counts.memory_restores)
    yield one(s.TIER_SWEPT, counts.swept_objects)
    yield one(s.TIER_DELETING, len(tier.deletions))
    yield one(s.TIER_SUPERSEDED, tier.ownership.superseded_by is not None)


def _of_topics(states: dict[str, T], value: Callable[[T], int], most: int) -> Iterator[Sample]:
    for topic in sorted(states)[:most]:
        yield Sample({"topic": topic}, value(states[topic]))
