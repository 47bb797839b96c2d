"""Consumer groups are decided here as Apache Kafka decides them.

Both are told the same heartbeats, one by one: Kafka over the wire, ours without a broker. Every answer must be the
same, and in the end so must every record, in the same order. Only times and versions of metadata may differ, and the
order of things that have none (Kafka keeps them in hash maps).
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import count
from random import Random
from typing import Any, NamedTuple

import pytest
from oracle import ApacheKafka
from support.consumer_groups import ConsumerGroups, Partitions, as_reported, as_set
from support.group_requests import LONG_MS
from support.known_topics import KnownTopics
from support.serving import Client as Connection

from trioka.cli.client.connection import CLIENT_ID
from trioka.coordinator.client import Client
from trioka.coordinator.decision import StoredRecord
from trioka.coordinator.record_codec import GROUPS
from trioka.protocol import batch
from trioka.protocol.errors import InvalidRegularExpression, KafkaError
from trioka.protocol.internal_records.consumer_groups import (
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from trioka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest as Request
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse as Response
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_groups import DeleteGroupsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.schema import Struct

pytestmark = pytest.mark.usefixtures("apache_kafka")

RACK = "r-1"
PATIENCE_S = 60
POLL_S = 0.02
COORDINATOR_ERRORS = (14, 15, 16)  # while `__consumer_offsets` comes into being
VERSION = 1
TOO_SLOW_MS = 500
# Nobody is declared dead while the scenarios last, on a slow machine too: here, time passes only when it is told to.
SETTINGS = {
    "broker.rack": RACK,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.session.timeout.ms": LONG_MS,
    "group.consumer.max.session.timeout.ms": LONG_MS,
}


class Both:
    """Apache Kafka and our groups, for one scenario."""

    def __init__(self, connection: Connection, groups: ConsumerGroups, group_id: str) -> None:
        self.group_id = group_id
        self._connection = connection
        self._groups = groups
        self.differences: list[str] = []

    def heartbeat(self, member_id: str, epoch: int, *, version: int = VERSION, **said: Any) -> Response:
        """Kafka's answer, once it was compared with ours."""
        request = Request(group_id=self.group_id, member_id=member_id, member_epoch=epoch, **said)
        theirs: Response = self._connection.ask(request, version)
        self._compare(request, theirs, version)
        return theirs

    def _compare(self, request: Request, theirs: Any, version: int = VERSION) -> None:
        try:
            ours = self._groups.ask(request, Client(id=CLIENT_ID, host="/127.0.0.1", version=version))
        except KafkaError as error:
            ours = Response(
                throttle_time_ms=0,
                error_code=error.code,
                error_message=str(error),
                member_epoch=0,
                heartbeat_interval_ms=0,
            )
        self.pass_time(1)
        if plain(ours) != plain(theirs):
            self.differences.append(f"{request}\n   Kafka: {theirs}\n   ours:  {ours}")

    def join(self, member_id: str, *topics: str, **said: Any) -> Response:
        said = {"rebalance_timeout_ms": LONG_MS, "topic_partitions": [], **said}
        if "subscribed_topic_regex" not in said:
            said["subscribed_topic_names"] = list(topics)
        return self.heartbeat(member_id, 0, **said)

    def heartbeat_until_epoch(self, epoch: int, member_id: str, member_epoch: int, **said: Any) -> Response:
        """Heartbeats until Kafka's group has come that far; ours gets the last one. Those before changed nothing."""
        request = Request(group_id=self.group_id, member_id=member_id, member_epoch=member_epoch, **said)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            theirs = self._connection.ask(request, VERSION)
            if self.epoch() >= epoch:
                self._compare(request, theirs)
                assert isinstance(theirs, Response)
                return theirs
            time.sleep(POLL_S)
        raise AssertionError(f"Kafka's {self.group_id} does not reach epoch {epoch}")

    def wait_for_epoch(self, epoch: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.epoch() < epoch:
            assert time.monotonic() < deadline
            time.sleep(POLL_S)

    def epoch(self) -> int:
        requested = ConsumerGroupDescribeRequest(group_ids=[self.group_id], include_authorized_operations=False)
        epoch: int = self._connection.ask(requested, 1).groups[0].group_epoch
        return epoch

    def pass_time(self, ms: int) -> None:
        """Where time is not Kafka's."""
        self._groups.pass_time(ms)

    def describe(self) -> None:
        requested = ConsumerGroupDescribeRequest(group_ids=[self.group_id], include_authorized_operations=False)
        theirs = self._connection.ask(requested, 1).groups[0]
        ours = self._groups.find(self.group_id).describe()
        if plain(ours) != plain(theirs):
            self.differences.append(f"described\n   Kafka: {theirs}\n   ours:  {ours}")

    def delete(self) -> None:
        theirs = self._connection.ask(DeleteGroupsRequest(groups_names=[self.group_id]), 2).results[0].error_code
        assert theirs == 0
        self._groups.at_work.ask(lambda coordinator, ticket, now: coordinator.delete_group(ticket, self.group_id, now))

    def create_topic(self, name: str, partitions: int) -> bytes:
        topic = CreateTopicsRequest.Topic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        answered = self._connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False), 7)
        topic_id: bytes = answered.topics[0].topic_id
        self._wait_for_topic(name)
        self._groups.topics.add(name, partitions, [[RACK]] * partitions, topic_id)
        return topic_id

    def _wait_for_topic(self, name: str) -> None:
        """Until Kafka's coordinator has heard of it too: then a group of its own gets partitions."""
        deadline = time.monotonic() + PATIENCE_S
        for number in count():
            requested = Request(
                group_id=f"{name} {number}",
                member_id="A",
                member_epoch=0,
                rebalance_timeout_ms=LONG_MS,
                subscribed_topic_names=[name],
                topic_partitions=[],
            )
            if as_set(self._connection.ask(requested, VERSION)):
                return
            assert time.monotonic() < deadline
            time.sleep(POLL_S)

    def grow_topic(self, name: str, partitions: int) -> None:
        topic = CreatePartitionsRequest.Topic(name=name, count=partitions, assignments=None)
        requested = CreatePartitionsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)
        assert self._connection.ask(requested, 3).results[0].error_code == 0
        self._groups.topics.add(name, partitions, [[RACK]] * partitions)

    def delete_topic(self, name: str) -> None:
        requested = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
        assert self._connection.ask(requested, 5).responses[0].error_code == 0
        self._groups.topics.remove(name)


def plain(value: Any) -> Any:
    """A message as data, without the order that lists of topics, members and partitions have by chance. What exactly is
    wrong with a pattern, each library says in its own words."""
    if isinstance(value, Response) and value.error_code == InvalidRegularExpression.code:
        return value.error_code
    if isinstance(value, Struct):
        return {field.name: plain(getattr(value, field.name)) for field in value.__fields__}
    if isinstance(value, list):
        return sorted((plain(element) for element in value), key=repr)
    return value


# -- scenarios ---------------------------------------------------------------------------------------------------------


def joining_and_leaving(both: Both) -> None:
    topic = both.create_topic("foo", 6)
    a = both.join("A", "foo")
    both.heartbeat("A", 2)
    both.join("B", "foo")
    both.heartbeat("B", 3)
    result = both.heartbeat("A", 2, topic_partitions=as_reported(as_set(a)))
    both.describe()
    both.heartbeat("A", 2, topic_partitions=as_reported(as_set(result)))
    both.heartbeat("B", 3)
    both.heartbeat("B", 3)
    both.heartbeat("B", 3, topic_partitions=as_reported({(topic, 3), (topic, 4), (topic, 5)}))
    both.describe()
    both.heartbeat("A", -1)
    both.heartbeat("B", 3)
    both.heartbeat("B", -1)
    both.describe()
    both.delete()


def fencing(both: Both) -> None:
    both.create_topic("fenced", 4)
    a = both.join("A", "fenced")
    both.heartbeat("A", 3)
    both.heartbeat("A", 1)
    both.join("B", "fenced")
    result = both.heartbeat("A", 2, topic_partitions=as_reported(as_set(a)))
    both.heartbeat("A", 2, topic_partitions=as_reported(as_set(result)))
    both.heartbeat("A", 2, topic_partitions=as_reported(as_set(result)))  # the answer was lost
    both.heartbeat("A", 2)
    both.heartbeat("A", 2, topic_partitions=as_reported(as_set(a)))
    both.heartbeat("X", 5)
    both.heartbeat("X", -1)
    both.heartbeat("A", -2, instance_id="nobody")
    both.join("A", "fenced")


def bad_requests(both: Both) -> None:
    both.join("")
    both.join("A", rebalance_timeout_ms=-1)
    both.join("A", topic_partitions=None)
    both.heartbeat("A", 0, rebalance_timeout_ms=1, topic_partitions=[])
    both.join("A", "x", instance_id="")
    both.join("A", "x", rack_id=" ")
    both.join("A", "x", server_assignor="nope")
    both.heartbeat("A", -2)
    both.heartbeat("A", -3)
    both.heartbeat("A", 7)
    both.heartbeat("A", -1)
    both.heartbeat("", 7, version=0)
    both.join("A", subscribed_topic_regex="(")


def static_members(both: Both) -> None:
    both.create_topic("static", 3)
    both.join("S1", "static", instance_id="i", server_assignor="range", rack_id=RACK)
    both.join("S2", "static", instance_id="i")
    both.heartbeat("S1", -2, instance_id="i")
    both.describe()
    both.join("S2", "static", instance_id="i")
    both.heartbeat("S1", 2, instance_id="i")
    both.heartbeat("S1", -1, instance_id="i")
    both.heartbeat("S2", 2, instance_id="i")
    both.join("T1", "static", instance_id="j")
    both.heartbeat("S2", -2, instance_id="i")
    both.heartbeat("T1", 3, instance_id="j")
    both.join("S3", "static", "other", instance_id="i", rack_id="r-2")
    both.heartbeat("T1", 3, instance_id="j")
    both.heartbeat("S3", -1, instance_id="i")
    both.heartbeat("T1", -2, instance_id="j")
    both.join("T1", "static", instance_id="j")
    both.describe()


def other_subscriptions(both: Both) -> None:
    one, two = both.create_topic("one", 2), both.create_topic("two", 2)
    both.join("A", "one")
    both.join("B", "one", "two")
    both.heartbeat("A", 2, topic_partitions=as_reported({(one, 0), (one, 1)}))
    both.heartbeat("B", 3)
    both.heartbeat("A", 2, subscribed_topic_names=["two"])
    both.heartbeat("A", 2, topic_partitions=[])
    both.heartbeat("B", 4, topic_partitions=as_reported({(two, 0), (two, 1)}))
    both.heartbeat("B", 4, subscribed_topic_names=[])
    both.heartbeat("A", 4)
    both.heartbeat("B", 4, subscribed_topic_names=["unheard-of"], server_assignor="range")
    both.describe()


def changing_topics(both: Both) -> None:
    topic = both.create_topic("grows", 2)
    both.join("A", "grows", "comes", "goes")
    both.grow_topic("grows", 5)
    both.heartbeat_until_epoch(3, "A", 2)
    both.create_topic("comes", 1)
    both.heartbeat_until_epoch(4, "A", 3)
    both.create_topic("goes", 1)
    both.heartbeat_until_epoch(5, "A", 4)
    both.describe()
    both.delete_topic("goes")
    both.heartbeat_until_epoch(6, "A", 5)
    both.describe()
    both.heartbeat("A", 5, topic_partitions=as_reported({(topic, 0)}))


def patterns(both: Both) -> None:
    both.create_topic("pat-1", 2)
    both.join("A", subscribed_topic_regex="pat-.*")
    both.wait_for_epoch(2)
    both.heartbeat("A", 1)
    both.join("B", subscribed_topic_regex="pat-.*")
    both.heartbeat("A", 2, subscribed_topic_regex="(")
    both.heartbeat("B", 3, subscribed_topic_regex="")
    both.describe()
    both.heartbeat("A", -1)
    both.describe()


class Member(NamedTuple):
    epoch: int
    has: Partitions
    shall_have: Partitions


def at_random(both: Both) -> None:
    """Members join, say what they have, let go or not, change their minds and leave. (The range assignor is the one
    whose every choice is determined.)"""
    random = Random(848)
    topics = ("ra", "rb", "rc")
    for name in topics:
        both.create_topic(name, random.randint(1, 5))
    members: dict[str, Member] = {}
    for _ in range(400):
        name = random.choice("ABCDEF")
        if name not in members:
            result = both.join(name, *random.sample(topics, random.randint(1, 3)), server_assignor="range")
            members[name] = Member(result.member_epoch, set(), as_set(result))
            continue
        if random.random() < 0.05:
            both.heartbeat(name, -1)
            del members[name]
            continue
        epoch, has, shall_have = members[name]
        text: dict[str, Any] = {}
        if random.random() < 0.7:
            has = set(shall_have)
        if random.random() < 0.8:
            text["topic_partitions"] = as_reported(has)
        if random.random() < 0.05:
            text["subscribed_topic_names"] = random.sample(topics, random.randint(0, 3))
        result = both.heartbeat(name, epoch, **text)
        if result.error_code:
            del members[name]
        else:
            members[name] = Member(result.member_epoch, has, as_set(result) if result.assignment else shall_have)
    both.describe()


def instances_at_random(both: Both) -> None:
    """Static members leave for a while, come back as others or as themselves, or not; and answers get lost."""
    random = Random(345)
    both.create_topic("sa", 4)
    both.create_topic("sb", 3)
    members: dict[str, tuple[str, Member]] = {}  # by their instances
    for number in range(300):
        instance = random.choice("ijk")
        if instance not in members:
            member_id = f"{instance}{number if random.random() < 0.7 else ''}"
            topics = random.choice((["sa"], ["sb"], ["sa", "sb"]))
            result = both.join(member_id, *topics, instance_id=instance, server_assignor="range")
            if not result.error_code:
                members[instance] = member_id, Member(result.member_epoch, set(), as_set(result))
            continue
        member_id, (epoch, has, shall_have) = members[instance]
        if random.random() < 0.15:
            both.heartbeat(member_id, random.choice((-1, -2, -2)), instance_id=instance)
            del members[instance]
            continue
        if random.random() < 0.05:
            both.join(f"{instance}x", "sa", instance_id=instance)
        if random.random() < 0.7:
            has = set(shall_have)
        result = both.heartbeat(member_id, epoch, instance_id=instance, topic_partitions=as_reported(has))
        if result.error_code:
            del members[instance]
        elif random.random() < 0.9:  # else it never hears of it
            shall_have = as_set(result) if result.assignment else shall_have
            members[instance] = member_id, Member(result.member_epoch, has, shall_have)
    both.describe()


def too_slow(both: Both) -> None:
    """A member that does not give up partitions in its own time is removed."""
    both.create_topic("slow", 2)
    has = as_set(both.join("A", "slow", rebalance_timeout_ms=TOO_SLOW_MS))
    both.join("B", "slow")
    both.heartbeat("A", 2, topic_partitions=as_reported(has))
    both.wait_for_epoch(4)
    both.pass_time(TOO_SLOW_MS)
    both.heartbeat("A", 2, topic_partitions=as_reported(has))
    both.heartbeat("B", 3)
    both.describe()


SCENARIOS: tuple[Callable[[Both], None], ...] = (
    joining_and_leaving,
    fencing,
    bad_requests,
    static_members,
    other_subscriptions,
    changing_topics,
    patterns,
    at_random,
    instances_at_random,
    too_slow,
)


# -- what came of them -------------------------------------------------------------------------------------------------


class Played(NamedTuple):
    differences: dict[str, list[str]]
    theirs: dict[str, list[Any]]  # the records of each group
    ours: dict[str, list[Any]]
    log: list[StoredRecord]


@pytest.fixture(scope="module")
def played(apache_kafka: None) -> Played:
    groups = ConsumerGroups(KnownTopics())
    with ApacheKafka(SETTINGS) as kafka:
        with closing(Connection("127.0.0.1", kafka.port)) as connection:
            wait_for_coordinator(connection)
            differences = {}
            for scenario in SCENARIOS:
                both = Both(connection, groups, scenario.__name__)
                scenario(both)
                differences[scenario.__name__] = both.differences
        kafka.stop()
        log = read_log(kafka)
    written = [kept for key, value, _ in groups.at_work.log if (kept := GROUPS.decode(key, value)) is not None]
    return Played(differences, by_group(log), by_group(written), log)


def wait_for_coordinator(connection: Connection) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = connection.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6).coordinators[0]
        requested = Request(group_id="g", member_id="A", member_epoch=7)
        if not found.error_code and connection.ask(requested, VERSION).error_code not in COORDINATOR_ERRORS:
            return
        assert time.monotonic() < deadline, found
        time.sleep(POLL_S)


def read_log(kafka: ApacheKafka) -> list[StoredRecord]:
    data = b"".join(path.read_bytes() for path in kafka.segments("__consumer_offsets-0"))
    records = [record for header in batch.headers(data) for record in batch.records(data, header)]
    return [kept for record in records if (kept := GROUPS.decode(record.key or b"", record.value)) is not None]


def by_group(log: Iterable[StoredRecord]) -> dict[str, list[Any]]:
    """What must be the same: everything but times and versions of metadata."""
    records = defaultdict(list)
    for kept in log:
        value = plain(kept.value)
        if isinstance(kept.value, ConsumerGroupTargetAssignmentMetadataValue):
            value["assignment_timestamp"] = kept.value.assignment_timestamp > 0
        if isinstance(kept.value, ConsumerGroupRegularExpressionValue):
            value["version"], value["timestamp"] = kept.value.version > 0, kept.value.timestamp > 0
        records[getattr(kept.key, "group_id", "")].append((type(kept.key).__name__, plain(kept.key), value))
    return {group_id: in_their_order(found) for group_id, found in records.items()}


def in_their_order(records: list[Any]) -> list[Any]:
    """Members' targets come in any order: that of a hash map."""
    ordered: list[Any] = []
    for record in records:
        ordered.append(record)
        start = len(ordered) - 1
        while start and record[0] == "ConsumerGroupTargetAssignmentMemberKey" == ordered[start - 1][0]:
            start -= 1
        ordered[start:] = sorted(ordered[start:], key=repr)
    return ordered


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_members_are_told_what_apache_kafka_tells_them(played: Played, scenario: Callable[[Both], None]) -> None:
    found = played.differences[scenario.__name__]
    assert not found, f"{len(found)} differ; the first:\n{found[0]}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_records_are_those_of_apache_kafka(played: Played, scenario: Callable[[Both], None]) -> None:
    assert played.ours.get(scenario.__name__) == played.theirs.get(scenario.__name__)


def test_a_log_of_apache_kafka_is_the_same_group_here(played: Played) -> None:
    """Replayed, it says of each group what ours became while the same happened to it."""
    groups = ConsumerGroups()
    for offset, kept in enumerate(played.log):
        groups.at_work.coordinator.replay(kept, offset, None)
    alive = groups.at_work.coordinator.groups
    assert {"static_members", "at_random"} <= alive.keys()
    last = {
        group_id: [value for name, _, value in records if name == ConsumerGroupMetadataKey.__name__][-1]
        for group_id, records in played.theirs.items()
        if any(name == ConsumerGroupMetadataKey.__name__ for name, _, _ in records)
    }
    for group_id in alive:
        assert groups.find(group_id).epoch == last[group_id]["epoch"]
    assert ConsumerGroupRegularExpressionKey.__name__ in {name for name, _, _ in played.theirs["patterns"]}
