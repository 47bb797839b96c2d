"""Memory topics: what would be lost if all machines restarted now, per topic that this broker leads."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from trioka.cluster.placement.topic_overrides import is_memory_topic
from trioka.cluster.remote_log.plan import NotCopied
from trioka.protocol.errors import KafkaError
from trioka.storage.log import Log
from trioka.storage.segments.segment import Segment

from ..config.trioka_keys import METRICS_MAX_PARTITIONS
from ..replication.partitions import Replica
from . import series as s
from .samples import NO_LABELS, PAUSE, Sample, Steps

if TYPE_CHECKING:
    from ..broker import Broker

PARTITIONS_AT_ONCE: Final = 500  # of which the sizes are added up before other work goes on


class WouldBeLost:
    """Of the partitions of a topic: what is in memory, or on the brokers' disks, and not in the object store."""

    def __init__(self) -> None:
        self.bytes = self.records = 0
        self.oldest_ms: int | None = None  # of the records

    def add(self, other: "WouldBeLost") -> None:
        self.bytes += other.bytes
        self.records += other.records
        if self.oldest_ms is None or (other.oldest_ms is not None and other.oldest_ms < self.oldest_ms):
            self.oldest_ms = other.oldest_ms

    def add_log(self, log: Log, lacking: NotCopied | None = None) -> None:
        """All of a log, or what the object store lacks of it. Raises KafkaError, OSError if its disk fails."""
        segments, found = log.segments, WouldBeLost()
        if lacking is None:
            found.bytes = sum(segment.size for segment in segments)
            found.records = log.log_end_offset - log.log_start_offset
            first = segments[0]
        else:
            found.bytes = lacking.bytes
            found.records = lacking.closed_records + log.log_end_offset - segments.active.base_offset
            known = lacking.first_offset
            first = segments.active if known is None else segments[segments.number_for(known)]
        if found.records > 0:
            found.oldest_ms = log.query(first, _begun_ms)
        self.add(found)


def _begun_ms(segment: Segment) -> int:
    """The time of the first records of a segment: the producer's, or when it was created."""
    timestamp = segment.first_timestamp()
    return timestamp if timestamp >= 0 else segment.created_ms


def memory_readings(broker: "Broker") -> Steps[None]:
    """For a broker without tiered storage; with it, tier_readings has both."""
    if broker.node.memory_log_dirs:
        by_topic = yield from untiered(broker, ())
        yield from would_be_lost(by_topic, broker.config[METRICS_MAX_PARTITIONS], broker.clock.now_ms())


def untiered(broker: "Broker", tiered: Collection[Replica]) -> Steps[dict[str, WouldBeLost]]:
    """Of memory topics, except the replicas that are copied to the object store."""
    by_topic: dict[str, WouldBeLost] = {}
    for number, replica in enumerate(list(broker.partitions), start=1):
        if replica.leads and is_memory_topic(broker.metadata, replica.topic):
            found = by_topic.setdefault(replica.topic, WouldBeLost())
            if replica not in tiered:
                try:
                    found.add_log(replica.log)
                except (KafkaError, OSError):
                    continue  # its directory has failed
        if number % PARTITIONS_AT_ONCE == 0:
            yield PAUSE
    return by_topic


def would_be_lost(by_topic: Mapping[str, WouldBeLost], most: int, now_ms: int) -> Steps[None]:
    total = WouldBeLost()
    for each in by_topic.values():
        total.add(each)
    shown = {"": total, **{topic: by_topic[topic] for topic in sorted(by_topic)[:most]}}
    yield s.TIER_WOULD_BE_LOST, _samples({topic: each.bytes for topic, each in shown.items()})
    yield s.TIER_WOULD_BE_LOST_RECORDS, _samples({topic: each.records for topic, each in shown.items()})
    ages = {topic: 0 if each.oldest_ms is None else now_ms - each.oldest_ms for topic, each in shown.items()}
    yield s.TIER_WOULD_BE_LOST_SECONDS, _samples({topic: max(age, 0) / 1000 for topic, age in ages.items()})


def _samples(by_topic: Mapping[str, float]) -> Iterator[Sample]:
    """The sum is under the name that no topic has."""
    for topic, value in by_topic.items():
        yield Sample({"topic": topic} if topic else NO_LABELS, value)
