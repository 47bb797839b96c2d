"""Two brokers with the same topics, one of them without fast paths, which get the same bytes; and those bytes.

Their configurations: an authorizer, quotas, topics with a follower whose progress the test decides.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from support.fast_paths import FastAndGeneralPath, both_ways, said
from support.http_scrapes import Labels, scraped
from support.multi_replica import with_others
from support.quotas import ANONYMOUS, SteppedClock, change_quota
from support.serving import LISTENER

from trioka.broker.broker import Broker
from trioka.broker.replication.partitions import Replica
from trioka.cluster.image.acls import AclOperation, AclResourceType
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.primitives import NULL_UUID

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPICS = {"t": 2}
FOLLOWER = 2
CONFIGURATIONS = (
    "plain",
    "authorizer",
    "replicated",
    "replicated, authorizer",
    "quotas",
    "throttled",
    "replicated, throttled",
    "replicated, authorizer, quotas",
)
COUNTED = (
    "brokertopicmetrics_",
    "requestmetrics_requests_total",
    "requestmetrics_errors",
    "duration_seconds_count",
    "quota_byte_rate",
)
ENOUGH_BYTES_PER_S = 1e9
FEW_BYTES_PER_S = 1000.0  # ten times as much at once
WINDOWS_S = 11.0  # after which no use counts any more


class Pair(FastAndGeneralPath):
    """The two brokers, and what is different in a configuration."""

    is_replicated = False
    throttled = 0  # how often the client was

    def replicas(self, index: int) -> tuple[Replica, Replica]:
        one, other = (broker.partitions.get("t", index) for broker in self.brokers)
        return one, other

    def exchange(self, data: bytes) -> bytes:
        """What both say to the same bytes, as far as they say it at once; their ports (of leader hints) aside."""
        one, other = (
            said(connection, data).replace(broker.addresses[LISTENER][1].to_bytes(4), b"port")
            for broker, connection in zip(self.brokers, self.connections, strict=True)
        )
        assert one == other
        closing = [connection.is_closing for connection in self.connections]
        assert closing[0] == closing[1]
        if closing[0]:
            self.connect()
        return one + self.unmute()

    def unmute(self) -> bytes:
        """If both clients are throttled, their time passes. Returns the responses then."""
        muted = [connection.muted is not None for connection in self.connections]
        assert muted[0] == muted[1]
        if not muted[0]:
            return b""
        self.throttled += 1
        for broker, connection in zip(self.brokers, self.connections, strict=True):
            broker.client_quotas._clock.seconds += WINDOWS_S  # type: ignore[attr-defined]
            assert connection.muted is not None
            connection.muted.cancel()
            connection.unmute(broker.clock.now())
        return self.exchange(b"")

    def follow(self, index: int) -> bytes:
        """The follower has all of a partition. Returns the responses to requests that waited for it."""
        for broker, replica in zip(self.brokers, self.replicas(index), strict=True):
            advance(broker, replica)
        return self.exchange(b"")

    def compare(self) -> None:
        for index in range(TOPICS["t"]):
            logs = [replica.log for replica in self.replicas(index)]
            assert logs[0].log_end_offset == logs[1].log_end_offset
            assert logs[0].high_watermark == logs[1].high_watermark
            files = [log.segments.active.range(0, log.segments.active.size).read() for log in logs]
            assert files[0] == files[1]
        one, other = (counted(broker) for broker in self.brokers)
        assert one == other, {name: (one[name], other.get(name)) for name in one if one[name] != other.get(name)}
        assert one["kafka_network_requestmetrics_requests_total"]


def counted(broker: Broker) -> dict[str, list[tuple[Labels, float]]]:
    """The metrics that count what was served. A series may be 0 or missing: a fast path makes all counters of a client
    at once, the general path makes each with its first use."""
    samples = scraped(broker).samples
    return {
        name: [
            (labels, value)
            for labels, value in found
            if value and ({"Produce", "Fetch"} & set(labels.values()) or "topic" in name)
        ]
        for name, found in samples.items()
        if any(word in name for word in COUNTED)
    }


def advance(broker: Broker, replica: Replica) -> None:
    if replica.leadership is not None:
        end = replica.log.log_end_offset
        if broker.replication.note(replica, FOLLOWER, -1, fetch_offset=end, log_start_offset=0):
            broker.purgatory.notify(replica)


@asynccontextmanager
async def pair(path: Path, configuration: str) -> AsyncIterator[Pair]:
    settings = {"authorizer_class_name": STANDARD} if "authorizer" in configuration else {}
    async with both_ways(path, TOPICS, **settings) as both:
        made = Pair(*both.brokers)
        if settings:
            for broker in made.brokers:
                await allow_everything(broker)
        if "quotas" in configuration or "throttled" in configuration:
            rate = FEW_BYTES_PER_S if "throttled" in configuration else ENOUGH_BYTES_PER_S
            for broker in made.brokers:
                broker.client_quotas._clock = SteppedClock()
                await change_quota(broker, ANONYMOUS, producer_byte_rate=rate, consumer_byte_rate=rate)
        if "replicated" in configuration:
            made.is_replicated = True
            for broker in made.brokers:
                for index in range(TOPICS["t"]):
                    advance(broker, with_others(broker, "t", index, others=(FOLLOWER,), in_sync=2))
        yield made


async def allow_everything(broker: Broker) -> None:
    creation = CreateAclsRequest.Creation(
        resource_type=AclResourceType.TOPIC,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:ANONYMOUS",
        host="*",
        operation=AclOperation.ALL,
        permission_type=3,
    )
    await broker.quorum.change(lambda controller: controller.create_acls([creation]))


def fetch(broker: Broker, version: int, index: int, offset: int) -> FetchRequest:
    topic = broker.metadata.topics.by_name("t")
    assert topic is not None
    by_id = version >= 13
    wanted = FetchRequest.Topic.Partition(partition=index, fetch_offset=offset, partition_max_bytes=20_000)
    name, topic_id = ("", topic.topic_id) if by_id else ("t", NULL_UUID)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchRequest.Topic(topic=name, topic_id=topic_id, partitions=[wanted])],
    )


def damaged(random: Random, frame: bytes) -> bytes:
    """With one bit flipped, but not in its size: that would be another stream."""
    position = random.randrange(4, len(frame))
    return frame[:position] + bytes([frame[position] ^ 1 << random.randrange(8)]) + frame[position + 1 :]
