"""Faults by API: they strike the requests that they are for, as often as they should, and nothing else.

Asked over a plain connection, so that each request and each answer can be seen; what real clients make of it stands in
test_clients.py.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from random import Random
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from mutants.plant import assert_noticed

from trioka.broker.network.connection import Connection as BrokersConnection
from trioka.cli.client.connection import Connection, ConnectionClosed
from trioka.protocol import batch
from trioka.protocol.errors import (
    CoordinatorNotAvailable,
    KafkaStorageError,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.find_coordinator import FindCoordinatorRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.protocol.schema import Request
from trioka.testing import Broker, Chaos, HasEnded, fault_injection, fault_schedule, faults, node

PATIENCE_S = 60.0
BY_NAME = {ProduceRequest: 9, FetchRequest: 12}  # the last versions that name topics


class ClientConnection:
    """A client that says exactly what a test wants."""

    def __init__(self, kafka: Broker) -> None:
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        self._connection = Connection(host, int(port), timeout_s=PATIENCE_S)

    def ask(self, request: Request) -> Any:
        return self._connection.ask(request, at_most=BY_NAME.get(type(request)))

    def say(self, request: Request) -> None:
        self._connection.send(request, BY_NAME[type(request)])

    def hear(self, request: Request, correlation_id: int) -> Any:
        return self._connection.receive(request, BY_NAME[type(request)], correlation_id=correlation_id)

    def produce(self, topic: str, value: bytes = b"x") -> tuple[int, int]:
        """Error and offset."""
        result = self.ask(produce(topic, value)).responses[0].partition_responses[0]
        return result.error_code, result.base_offset

    def close(self) -> None:
        self._connection.close()


def produce(*topics: str | bytes, acks: int = -1) -> ProduceRequest:
    """Of one record each; what is given as bytes is the value of all."""
    value = next((each for each in topics if isinstance(each, bytes)), b"x")
    Topic = ProduceRequest.Topic
    data = [Topic.Partition(index=0, records=bytes(batch.build([Record(0, 17, None, value)])))]
    named = [Topic(name=name, partition_data=data) for name in topics if isinstance(name, str)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=named)


def fetch(*topics: str, session_id: int = 0, epoch: int = -1, max_wait_ms: int = 0, offset: int = 0) -> FetchRequest:
    Topic = FetchRequest.Topic
    wanted = [Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[Topic(topic=name, partitions=wanted) for name in topics],
    )


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def client(kafka: Broker) -> Iterator[ClientConnection]:
    client = ClientConnection(kafka)
    yield client
    client.close()


@pytest.fixture
def orders(kafka: Broker) -> str:
    kafka.create_topic("other")
    return kafka.create_topic("orders")


def test_a_failure_strikes_as_often_as_armed(kafka: Broker, client: ClientConnection, orders: str) -> None:
    armed = kafka.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=2)
    assert [client.produce(orders)[0] for _ in range(3)] == [NotLeaderOrFollower.code] * 2 + [0]
    assert armed.strikes == 2
    assert len(kafka.records(orders)) == 1


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", 6, NotLeaderOrFollower, NotLeaderOrFollower("why")])
def test_an_error_may_be_written_in_several_ways(
    kafka: Broker, client: ClientConnection, orders: str, error: Any
) -> None:
    with kafka.fail("Produce", error, count=None) as armed:
        assert [client.produce(orders)[0] for _ in range(5)] == [NotLeaderOrFollower.code] * 5
        assert armed.strikes == 5
    assert client.produce(orders) == (0, 0)  # at the end of the block it is disarmed


def test_only_the_topic_of_a_fault_is_struck(kafka: Broker, client: ClientConnection, orders: str) -> None:
    armed = kafka.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic=orders)
    assert client.produce("other") == (0, 0)
    result = client.ask(produce("other", orders)).responses
    assert [topic.partition_responses[0].error_code for topic in result] == [0, NotLeaderOrFollower.code]
    assert armed.strikes == 1
    assert len(kafka.records("other")) == 2
    assert kafka.records(orders) == []


def test_a_fetch_fails_by_partition_and_its_session_goes_on(
    kafka: Broker, client: ClientConnection, orders: str
) -> None:
    kafka.produce(orders, "a")
    opened = client.ask(fetch(orders, "other", epoch=0))
    kafka.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic=orders)
    # The next request of the session names no topic, since nothing has moved, and is about it none the less.
    response = client.ask(fetch(session_id=opened.session_id, epoch=1))
    assert response.error_code == 0
    found = {topic.topic: topic.partitions[0].error_code for topic in response.responses}
    assert found == {orders: TopicAuthorizationFailed.code}
    again = client.ask(fetch(session_id=opened.session_id, epoch=2))
    assert [topic.partitions[0].error_code for topic in again.responses] == [0]


def test_a_fetch_that_waits_is_not_struck_when_its_records_come(
    kafka: Broker, client: ClientConnection, orders: str
) -> None:
    kafka.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic=orders)
    waiting = fetch("other", max_wait_ms=60_000)
    client.say(waiting)
    kafka.produce("other", "a")
    response = client.hear(waiting, 1)
    assert [(topic.topic, topic.partitions[0].error_code) for topic in response.responses] == [("other", 0)]


def test_list_offsets_fails_by_partition_and_a_coordinator_as_a_whole(
    kafka: Broker, client: ClientConnection, orders: str
) -> None:
    kafka.fail("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION", topic=orders)
    Topic = ListOffsetsRequest.Topic
    wanted = [Topic.Partition(partition_index=0, timestamp=-1)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[Topic(name=name, partitions=wanted) for name in ("other", orders)]
    )
    result = client.ask(request).topics
    assert [topic.partitions[0].error_code for topic in result] == [0, UnknownTopicOrPartition.code]
    kafka.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE")
    (found,) = client.ask(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators
    assert found.error_code == CoordinatorNotAvailable.code


def test_requests_about_a_topic_are_found_by_name_and_by_id(
    kafka: Broker, client: ClientConnection, orders: str
) -> None:
    def ask(**topic: Any) -> int:
        response = client.ask(MetadataRequest(topics=[MetadataRequest.Topic(**topic)], allow_auto_topic_creation=False))
        return int(response.topics[0].error_code)

    topic_id = client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=orders)])).topics[0].topic_id
    armed = kafka.fail("Metadata", "LEADER_NOT_AVAILABLE", topic=orders, count=None)
    assert [ask(name="other"), ask(name=orders) != 0, ask(name=None, topic_id=topic_id) != 0] == [0, True, True]
    assert armed.strikes == 2


def delayed_produce_is_not_overtaken(module: ModuleType) -> None:
    """Everything behind a delayed request waits, also a Produce, and the delay passes with the broker's time."""
    with (
        mock.patch.object(node, "FaultyRoute", module.FaultyRoute),
        Broker() as kafka,
        closing(ClientConnection(kafka)) as client,
    ):
        kafka.create_topic("orders")
        armed = kafka.delay("Produce", "1h", topic="orders")
        requests = [produce("orders", b"first"), produce("orders", b"second")]
        for request in requests:
            client.say(request)
        until(lambda: armed.strikes == 1)
        kafka.produce("other", "z" * 1000)  # through the buffer in which the delayed one has come
        assert kafka.records("orders") == []
        kafka.clock.advance("1h")
        result = [client.hear(request, number).responses[0] for number, request in enumerate(requests, 1)]
        assert [topic.partition_responses[0].base_offset for topic in result] == [0, 1]
        assert [each.value for each in kafka.records("orders")] == [b"first", b"second"]


def test_a_delayed_produce_is_carried_out_later_and_not_overtaken() -> None:
    delayed_produce_is_not_overtaken(fault_injection)


def test_a_request_like_the_last_ones_throws_the_dice_too() -> None:
    equal_requests_throw_the_dice(fault_injection)


def equal_requests_throw_the_dice(module: ModuleType) -> None:
    """No fast path leads past a storm, which strikes the seventeenth request here."""
    with (
        mock.patch.object(node, "FaultyRoute", module.FaultyRoute),
        Broker() as kafka,
        closing(ClientConnection(kafka)) as client,
    ):
        kafka.create_topic("orders")
        kafka.produce("orders", "x")
        storm = Chaos(kafka).storm(seed=4, rate=0.05, faults=1, apis=["Fetch"]).start()
        for _ in range(16):
            assert client.ask(fetch("orders")).responses[0].partitions[0].high_watermark == 1
        assert storm.faults == []
        with suppress(ConnectionClosed):
            client.ask(fetch("orders"))
        assert len(storm.faults) == 1


def test_a_dropped_request_is_not_carried_out_and_a_dropped_answer_is(
    kafka: Broker, client: ClientConnection, orders: str
) -> None:
    kafka.drop("Produce")
    with pytest.raises(ConnectionClosed):
        client.produce(orders)
    assert kafka.records(orders) == []
    kafka.drop("Produce", done=True)
    with pytest.raises(ConnectionClosed):
        client.produce(orders, b"y")
    assert [each.value for each in kafka.records(orders)] == [b"y"]
    assert client.produce(orders) == (0, 1)


def test_an_answer_that_comes_later_is_dropped_too(kafka: Broker, client: ClientConnection, orders: str) -> None:
    kafka.drop("Fetch", done=True)  # it waits for records
    waiting = fetch(orders, max_wait_ms=60_000)
    client.say(waiting)
    kafka.produce(orders, "a")
    with pytest.raises(ConnectionClosed):
        client.hear(waiting, 1)
    kafka.drop("Metadata", done=True)  # its handler is a task: it makes the topic
    with pytest.raises(ConnectionClosed):
        client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="new")], allow_auto_topic_creation=True))
    assert kafka.records("new") == []


def a_fast_path_is_left(kafka: Broker, client: ClientConnection) -> None:
    for _ in range(3):
        assert client.produce("orders")[0] == 0  # from the third on it is in a fast path
    with kafka.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=None):
        assert [client.produce("orders")[0] for _ in range(3)] == [NotLeaderOrFollower.code] * 3
    for _ in range(3):
        assert client.produce("orders")[0] == 0


def test_the_produce_fast_path_is_left_while_a_fault_is_armed(
    kafka: Broker, client: ClientConnection, orders: str
) -> None:
    a_fast_path_is_left(kafka, client)


def test_that_a_fast_path_is_kept_would_be_noticed(kafka: Broker, client: ClientConnection, orders: str) -> None:
    def forget_route(connection: BrokersConnection) -> None:
        connection._route_key = (-1, -1)

    with mock.patch.object(BrokersConnection, "forget_route", forget_route), pytest.raises(AssertionError):
        a_fast_path_is_left(kafka, client)


def test_the_fetch_fast_path_is_left_while_a_fault_is_armed(
    kafka: Broker, client: ClientConnection, orders: str
) -> None:
    kafka.produce(orders, "a", "b", "c")

    def error() -> int:
        return int(client.ask(fetch(orders)).responses[0].partitions[0].error_code)

    assert [error() for _ in range(3)] == [0] * 3
    with kafka.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", count=None):
        assert [error() for _ in range(3)] == [NotLeaderOrFollower.code] * 3
    assert [error() for _ in range(3)] == [0] * 3


def test_a_wrong_name_is_refused_with_a_suggestion(kafka: Broker) -> None:
    for wrong, right in (("Produse", "Produce"), ("list_offsets", "ListOffsets"), ("FETCH", "Fetch")):
        with pytest.raises(ValueError, match=f"did you mean: .*{right}"):
            kafka.drop(wrong)
    with pytest.raises(ValueError, match=r"did you mean: .*NOT_LEADER_OR_FOLLOWER"):
        kafka.fail("Produce", "NOT_LEADER_FOR_PARTITION")
    with pytest.raises(ValueError, match="no error 4711"):
        kafka.fail("Produce", 4711)
    for wrong in ("soon", "-1s"):
        with pytest.raises(ValueError, match=r"length of time|negative"):
            kafka.delay("Produce", wrong)
    with pytest.raises(ValueError, match="at least once"):
        kafka.drop("Produce", count=0)


# Network and disk.


def test_a_cut_network_carries_nothing_until_it_is_healed(kafka: Broker, client: ClientConnection, orders: str) -> None:
    assert client.produce(orders) == (0, 0)
    kafka.cut()
    for _ in range(2):  # the connection that was there, and a new one
        with pytest.raises(ConnectionClosed):
            client.produce(orders)
    assert "cut" in kafka.describe()
    kafka.heal()
    assert client.produce(orders) == (0, 1)


def test_a_full_disk_takes_its_directory_offline_until_a_restart(
    kafka: Broker, client: ClientConnection, orders: str
) -> None:
    kafka.produce(orders, "kept")
    kafka.disk_full()
    assert client.produce(orders)[0] == KafkaStorageError.code
    until(lambda: not kafka.is_running)  # as Kafka, which has no other log directory
    kafka.heal()
    with pytest.raises(HasEnded, match="is offline"):
        kafka.slow_disk()
    assert "is offline" in kafka.describe()
    kafka.restart()
    with closing(ClientConnection(kafka)) as another:
        assert another.produce(orders) == (0, 1)


def test_a_slow_disk_is_slow_until_it_is_healed(kafka: Broker, client: ClientConnection, orders: str) -> None:
    slept: list[float] = []
    with mock.patch("time.sleep", slept.append):
        kafka.slow_disk("70ms")
        assert client.produce(orders) == (0, 0)
        kafka.heal()
        count = len(slept)
        assert client.produce(orders) == (0, 1)
    assert slept[:count] == [0.07] * count and count >= 1
    assert len(slept) == count


def test_healing_disarms_every_fault_and_ends_a_storm(kafka: Broker, client: ClientConnection, orders: str) -> None:
    kafka.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=None)
    Chaos(kafka).storm(seed=1, rate=1.0, apis=["Produce"]).start()
    kafka.heal()
    assert client.produce(orders) == (0, 0)


# Storms.


def storm_of(kafka: Broker, seed: int) -> list[str]:
    client = ClientConnection(kafka)
    with Chaos(kafka).storm(seed, rate=0.5, faults=8, apis=["FindCoordinator"]) as storm:
        for _ in range(40):
            with suppress(ConnectionClosed):
                client.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
        found = storm.faults
    client.close()
    return found


def test_a_storm_is_the_same_for_the_same_seed_and_ends_by_itself(kafka: Broker) -> None:
    first, again, other = storm_of(kafka, 7), storm_of(kafka, 7), storm_of(kafka, 8)
    assert first == again != other
    assert len(first) == 8
    assert {line.split()[0] for line in first} == {"FindCoordinator"}


def test_a_storm_that_is_wrongly_ordered_is_refused(kafka: Broker) -> None:
    chaos = Chaos(kafka)
    for wrong in ({"rate": 0.0}, {"rate": 1.5}, {"faults": 0}, {"apis": ["Nonsense"]}, {"apis": ["CreateTopics"]}):
        with pytest.raises(ValueError, match=r"storm|no API"):
            chaos.storm(**wrong)
    assert chaos.storm().seed != chaos.storm().seed


# Planted mistakes.


def count_is_kept(module: ModuleType) -> None:
    armed = module.Faults()
    fault = {"api": "Produce", "effect": "DROP", "count": 2}
    number = armed.arm(module.Fault.read(fault))
    assert [armed.strike(number) for _ in range(3)] == [True, True, False]
    assert armed.strikes(number) == 2
    assert armed.meet(0, lambda topic: True) is None


def api_and_topic_are_looked_at(module: ModuleType) -> None:
    armed = module.Faults()
    armed.arm(module.Fault.read({"api": "Fetch", "effect": "DROP", "topic": "orders"}))
    assert armed.meet(0, lambda topic: True) is None
    assert armed.meet(1, lambda topic: topic == "other") is None
    assert armed.meet(1, lambda topic: topic == "orders") is not None


def dice_are_thrown_by_the_seed(module: ModuleType) -> None:
    def storm(seed: int) -> list[str]:
        sky = module.FaultSchedule(Random(seed), rate=0.3, most=10, keys={0}, topic=None)
        for _ in range(100):
            sky.meet(0)
        return list(sky.log)

    assert storm(1) == storm(1) != storm(2)
    assert len(storm(1)) == 10
    kinds = {" ".join(line.split()[1:3]) for seed in range(20) for line in storm(seed)}
    assert {"waits for", "is dropped", "is carried", "fails with"} <= kinds


Rule = Callable[[ModuleType], None]

MISTAKES: list[tuple[ModuleType, str, str, Rule]] = [
    (faults, "self._strikes[number] >= fault.count", "self._strikes[number] > fault.count", count_is_kept),
    (faults, "        self._strikes[number] += 1\n", "", count_is_kept),
    (faults, "APIS[fault.api] == key and ", "", api_and_topic_are_looked_at),
    (faults, "is_about(fault.topic)", "True", api_and_topic_are_looked_at),
    (
        fault_schedule,
        "dice.random() < self._rate",
        "Random().random() < self._rate",
        dice_are_thrown_by_the_seed,
    ),
    (fault_schedule, "self._faults >= self._most", "self._faults > self._most", dice_are_thrown_by_the_seed),
    (fault_schedule, "int(which * len(choices))", "0", dice_are_thrown_by_the_seed),
    (fault_injection, "        self.fast_path_key = NO_FAST_PATH\n", "", equal_requests_throw_the_dice),
    (fault_injection, "memoryview(bytearray(frame))", "frame", delayed_produce_is_not_overtaken),
]


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(module, right, wrong, rule)
