"""Faults, storms and time travel of a cluster: clients meet them on any node, and nodes never among themselves."""

from types import ModuleType

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from mutants.plant import Rule, assert_noticed

from trioka.cluster.raft import Follower, Leader, Progress
from trioka.protocol.errors import CorruptMessage, NotLeaderOrFollower
from trioka.testing import Chaos, Cluster, cluster_runtime, fault_injection
from trioka.testing.clock_control import Clock
from trioka.testing.plugin import Topic

PATIENCE_S = 60.0
DAY_MS = 86_400_000


def producer_at(where: str) -> Producer:
    settings = {"bootstrap.servers": where, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
    return Producer({**settings, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100})


def send(producer: Producer, topic: str, *values: bytes) -> None:
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [each.value for each in cluster.records(topic)]


def test_a_fault_strikes_clients_on_any_node_as_often_as_armed_and_no_node(
    kafka_cluster: Cluster, kafka_chaos: Chaos
) -> None:
    for name in ("orders", "other"):
        kafka_cluster.create_topic(name)
    # Followers fetch, too, all the while: a fault that met them would be used up at once.
    with kafka_cluster.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", count=None) as fetching:
        refused = kafka_cluster.fail("Produce", NotLeaderOrFollower, topic="orders", count=2)
        late = kafka_chaos.delay("Metadata", "1ms", count=1)
        producer = producer_at(kafka_cluster.bootstrap_servers)
        send(producer, "other", b"a")
        assert refused.strikes == 0
        send(producer, "orders", b"a")
        assert (refused.strikes, late.strikes, fetching.strikes) == (2, 1, 0)
        kafka_cluster.wait_healthy()
    kafka_cluster.drop("Produce", topic="orders", done=True)
    send(producer, "orders", b"b")
    assert values(kafka_cluster, "orders") == [b"a", b"b"]


def test_a_fault_outlives_its_nodes_and_is_healed_on_all(kafka_cluster: Cluster) -> None:
    topic = kafka_cluster.create_topic("orders")
    armed = kafka_cluster.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", count=None)
    leader = kafka_cluster.leader(topic)
    kafka_cluster.kill(leader)
    kafka_cluster.start(leader)
    refused = KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers)
    with pytest.raises(TopicAuthorizationFailedError):
        refused.send(topic, b"a").get(timeout=PATIENCE_S)
    refused.close()
    assert armed.strikes >= 1
    kafka_cluster.heal()
    send(producer_at(kafka_cluster.bootstrap_servers), topic, b"b")
    assert values(kafka_cluster, topic) == [b"b"]


def test_a_storm_over_a_cluster_is_survived_with_a_kill_in_it(
    kafka_cluster: Cluster, kafka_chaos: Chaos, kafka_topic: Topic
) -> None:
    assert kafka_topic.kafka is kafka_cluster
    producer = producer_at(kafka_cluster.bootstrap_servers)
    wanted = [b"%d" % number for number in range(40)]
    with kafka_chaos.storm(seed=7, rate=0.3) as storm:
        for value in wanted:
            producer.produce(kafka_topic, value)
            if value == b"20":
                killed = kafka_cluster.leader(kafka_topic)
                kafka_chaos.kill(killed)
        assert producer.flush(PATIENCE_S) == 0
        assert storm.faults
    kafka_cluster.start(killed)
    kafka_cluster.wait_healthy()
    assert values(kafka_cluster, kafka_topic) == wanted


@pytest.mark.kafka(controller_quorum_fetch_timeout_ms=60_000, broker_session_timeout_ms=60_000)
def test_eight_days_pass_for_a_cluster_and_no_session_expires(kafka_cluster: Cluster, kafka_clock: Clock) -> None:
    """Retention, a member's session and a transaction's time, on whichever node looks after each. Nodes are so patient
    that a busy machine causes no election: only the advanced time does."""
    kafka_cluster.create_topic("orders", retention_ms=7 * DAY_MS, message_timestamp_type="LogAppendTime")
    kafka_cluster.create_topic("kept", retention_ms=-1)
    producer = KafkaProducer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, transactional_id="t", transaction_timeout_ms=60_000
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("kept", b"of a transaction that nobody ends").get(timeout=PATIENCE_S)
    send(producer_at(kafka_cluster.bootstrap_servers), "orders", b"old")
    send(producer_at(kafka_cluster.bootstrap_servers), "kept", b"kept")
    consumer = Consumer(
        {"bootstrap.servers": kafka_cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(PATIENCE_S) is not None
    epochs = kafka_cluster._home.call(lambda: kafka_cluster._inside.running[1].broker.quorum.epoch)
    before_ms = kafka_clock.now_ms()
    kafka_clock.advance("8d")
    assert kafka_clock.now_ms() - before_ms >= 8 * DAY_MS
    assert values(kafka_cluster, "orders") == []
    assert [each.value for each in kafka_cluster.records("kept", committed=True)] == [b"kept"]
    assert kafka_cluster._home.call(lambda: kafka_cluster._inside.running[1].broker.quorum.epoch) == epochs
    consumer.close()
    producer.close()


def test_the_disk_of_one_node_may_fail_and_another_leads(kafka_cluster: Cluster, kafka_chaos: Chaos) -> None:
    topic = kafka_cluster.create_topic("orders")
    producer = producer_at(kafka_cluster.bootstrap_servers)
    send(producer, topic, b"a")
    full = kafka_cluster.leader(topic)
    kafka_chaos.disk_full(full)
    send(producer, topic, b"b")
    assert kafka_cluster.leader(topic) != full
    kafka_cluster.heal()
    kafka_cluster.kill(full)
    kafka_cluster.tear(topic, node=full)
    with pytest.raises(ValueError, match="is for a node that was killed"):
        kafka_cluster.tear(topic, node=kafka_cluster.leader(topic))
    kafka_cluster.start(full)
    kafka_cluster.wait_healthy()
    assert values(kafka_cluster, topic) == [b"a", b"b"]
    kafka_cluster.flip_bit(topic)
    with pytest.raises(CorruptMessage):
        kafka_cluster.records(topic)


# Planted mistakes.


def what_was_to_come_by_a_deadline_may_come_so_much_later(module: ModuleType) -> None:
    follower = Follower(leader_id=2, deadline_ms=1000)
    module._postpone(follower, 500)
    assert follower.deadline_ms == 1500
    leader = Leader(epoch_start=0, since_ms=100, announced_ms=200)
    leader.progress["x"] = Progress(offset=0, fetched_ms=300, caught_up_ms=400)  # type: ignore[index]
    module._postpone(leader, 500)
    (progress,) = leader.progress.values()
    assert (leader.since_ms, leader.announced_ms, progress.fetched_ms, progress.caught_up_ms) == (600, 700, 800, 900)


def nodes_are_fellows_and_clients_are_not(module: ModuleType) -> None:
    assert all(module.PEER_CLIENT_ID.fullmatch(name) for name in ("trioka-1", "trioka-12"))
    assert not any(module.PEER_CLIENT_ID.fullmatch(name) for name in ("trioka", "trioka-1x", "my-trioka-1", ""))


MISTAKES: list[tuple[ModuleType, str, str, Rule]] = [
    (cluster_runtime, "role.deadline_ms += ms", "pass", what_was_to_come_by_a_deadline_may_come_so_much_later),
    (cluster_runtime, "        progress.fetched_ms += ms\n", "", what_was_to_come_by_a_deadline_may_come_so_much_later),
    (fault_injection, r'r"trioka-\d+"', 'r"trioka-.*"', nodes_are_fellows_and_clients_are_not),
]


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(module, right, wrong, rule)
