"""Consumer groups without a broker, and consumers that behave as real clients do.

    groups = ConsumerGroups(KnownTopics(orders=6))
    a = Consumer(groups, "a", topics=["orders"])
    a.beat()                                  # it joins, and has all six
    groups.pass_time(5000)

A consumer receives its assignment and reaches it at its own pace: it revokes partitions when the test calls `obey`,
and sends its partitions with its next heartbeat.
"""

from collections.abc import Callable, Collection
from random import Random
from typing import Any

from support.coordinator_runtime import CoordinatorDriver
from support.known_topics import KnownTopics

from trioka.coordinator.client import Client
from trioka.coordinator.consumer.group import ConsumerGroup
from trioka.coordinator.deadlines import Deadlines
from trioka.coordinator.decision import StoredRecord
from trioka.coordinator.groups import GroupCoordinator
from trioka.coordinator.record_codec import GROUPS
from trioka.coordinator.settings import ClassicSettings, ConsumerSettings, CoordinatorContext, OffsetSettings
from trioka.protocol.errors import FencedMemberEpoch, KafkaError, UnknownMemberId, UnreleasedInstanceId
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest as Request
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse as Response

GROUP = "g"
REBALANCE_TIMEOUT_MS = 30_000
NEWEST = 1

Partitions = set[tuple[bytes, int]]


class ConsumerGroups:
    """A coordinator with consumer groups in it, and the topics that these read."""

    def __init__(self, topics: KnownTopics | None = None, seed: int = 1, **settings: Any) -> None:
        self.topics = topics or KnownTopics(orders=6)
        self.settings = ConsumerSettings(**{"assignment_interval_ms": 0, **settings})
        self.hidden: set[tuple[str, str]] = set()  # from the client with that id, the topic with that name
        self._random = Random(seed)
        self.at_work = CoordinatorDriver(self._new, GROUPS)

    def _new(self) -> GroupCoordinator:
        deadlines: Deadlines[tuple[str, ...]] = Deadlines()
        return GroupCoordinator(
            CoordinatorContext(
                classic=ClassicSettings,
                consumer=lambda group_id: self.settings,
                offsets=OffsetSettings,
                topics=self.topics,
                deadlines=deadlines,
                random=self._random,
                may_describe=lambda client, topic: (client.id, topic) not in self.hidden,
            )
        )

    @property
    def group(self) -> ConsumerGroup:
        return self.find(GROUP)

    def find(self, group_id: str) -> ConsumerGroup:
        found = self.at_work.coordinator.groups[group_id]
        assert isinstance(found, ConsumerGroup)
        return found

    def heartbeat(
        self, member_id: str, epoch: int, *, group_id: str = GROUP, version: int = NEWEST, **said: Any
    ) -> Response:
        request = Request(group_id=group_id, member_id=member_id, member_epoch=epoch, **said)
        return self.ask(request, Client(id=f"client-{member_id}", host="/127.0.0.1", version=version))

    def ask(self, request: Request, client: Client) -> Response:
        """The answer; an error is raised."""
        requested = self.at_work.ask(
            lambda coordinator, request_id, now: coordinator.consumer_group_heartbeat(request_id, request, client, now)
        )
        result = next(result for result in self.at_work.delivered if result.request_id == requested)
        self.at_work.delivered.remove(result)
        response = result.response
        if isinstance(response, KafkaError):
            raise response
        assert isinstance(response, Response)
        return response

    def join(self, member_id: str, *topics: str, **said: Any) -> Response:
        said = {"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "topic_partitions": [], **said}
        if "subscribed_topic_regex" not in said:
            said["subscribed_topic_names"] = list(topics)
        return self.heartbeat(member_id, 0, **said)

    def pass_time(self, ms: int) -> None:
        self.at_work.pass_time(ms)

    def written(self, do: Callable[[], object]) -> list[StoredRecord]:
        """The records that something leaves."""
        start = len(self.at_work.log)
        do()
        return [kept for key, value, _ in self.at_work.log[start:] if (kept := GROUPS.decode(key, value)) is not None]


class Consumer:
    """A client with the consumer protocol."""

    def __init__(
        self,
        groups: ConsumerGroups,
        member_id: str,
        *,
        topics: Collection[str] = ("orders",),
        instance_id: str | None = None,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
    ) -> None:
        self.groups = groups
        self.id = member_id
        self.topics = set(topics)
        self.instance_id = instance_id
        self.epoch = 0
        self.has: Partitions = set()
        self.shall_have: Partitions = set()
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._said: dict[str, Any] = {}  # values that need not be sent again

    def beat(self, *, whole: bool = False) -> Response:
        """One heartbeat. After a fencing error it drops everything, and joins again with its next heartbeat."""
        if self.epoch == 0 or whole:
            self._said = {}
        tells = {
            "rebalance_timeout_ms": self._rebalance_timeout_ms,
            "subscribed_topic_names": sorted(self.topics),
            "topic_partitions": as_reported(self.has),
        }
        news: dict[str, Any] = {name: value for name, value in tells.items() if self._said.get(name) != value}
        try:
            response = self.groups.heartbeat(self.id, self.epoch, instance_id=self.instance_id, **news)
        except (FencedMemberEpoch, UnknownMemberId, UnreleasedInstanceId):
            self.drop()
            raise
        self._said |= news
        self.hear(response)
        return response

    def hear(self, response: Response) -> None:
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.shall_have = as_set(response)

    def obey(self) -> None:
        """Revokes the partitions outside of its assignment, and takes those in it."""
        self.has = set(self.shall_have)

    def let_go(self) -> None:
        self.has &= self.shall_have

    def drop(self) -> None:
        self.epoch, self.has, self.shall_have, self._said = 0, set(), set(), {}

    def leave(self, epoch: int = -1) -> None:
        self.groups.heartbeat(self.id, epoch, instance_id=self.instance_id)
        self.drop()


def settle(*consumers: Consumer, rounds: int = 10) -> None:
    """Heartbeats until nothing moves any more."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()
            consumer.obey()
    assert all(consumer.groups.group.state == "Stable" for consumer in consumers)


def as_set(response: Response) -> Partitions:
    assert response.assignment is not None
    return {
        (topic.topic_id, partition) for topic in response.assignment.topic_partitions for partition in topic.partitions
    }


def as_reported(partitions: Partitions) -> list[Request.TopicPartition]:
    return [
        Request.TopicPartition(topic_id=topic, partitions=sorted(p for t, p in partitions if t == topic))
        for topic in sorted({topic for topic, _ in partitions})
    ]
