"""A cluster for a test: nodes are killed, started and cut from one another while other people's clients use it."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from mutants.plant import Rule, assert_noticed

from trioka.broker.config.layers import ConfigError
from trioka.protocol.errors import UnknownTopicOrPartition
from trioka.storage.layout import CLEAN_SHUTDOWN
from trioka.testing import Cluster, Unresponsive, cluster, cluster_runtime, network_partitions
from trioka.testing.temp_dirs import FAST_FOLDER, PREFIX

PATIENCE_S = 60.0
NEVER_MS = "600000"  # longer than any test: no node notices by itself that another is gone


def traces() -> tuple[set[str], set[threading.Thread], list[str]]:
    """Folders, threads, and open files. (A socket that is not closed is an error of its own, for pytest.)"""
    own = f"{PREFIX}{os.getpid()}-"
    folders = {str(path) for path in Path(FAST_FOLDER).glob(f"{own}*")}
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("trioka")}
    opened = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # it was that of the list
            opened.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return folders, threads, sorted(path for path in opened if own in path)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = traces()
    yield
    assert traces() == before


def producer_at(where: str) -> Producer:
    settings = {"bootstrap.servers": where, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
    return Producer({**settings, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100})


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [each.value for each in cluster.records(topic)]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def next_value(consumer: Consumer) -> bytes | None:
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is None:
            return message.value()


def in_sync(where: str, topic: str) -> list[int]:
    """As a client sees it."""
    result = AdminClient({"bootstrap.servers": where}).list_topics(topic, timeout=PATIENCE_S)
    return sorted(result.topics[topic].partitions[0].isrs)


def refuses(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_cluster_serves_while_its_block_lasts_and_leaves_nothing(nothing_left: None) -> None:
    with Cluster(nodes=3, num_partitions=2) as cluster:
        where = cluster.bootstrap_servers.split(",")
        assert where == [cluster.address(number) for number in (1, 2, 3)]
        assert len(set(where)) == 3
        assert cluster.create_topic("orders", partitions=3, replication_factor=2, cleanup_policy="compact") == "orders"
        assert {cluster.leader("orders", index) for index in range(3)} <= {1, 2, 3}
        assert cluster.records("orders") == []
        cluster.kill(2)
        assert refuses(where[1])
        assert not refuses(where[0])
    assert all(refuses(each) for each in where)
    assert not cluster.is_running


def test_what_was_acknowledged_survives_the_kill_of_a_leader_and_its_return(kafka_cluster: Cluster) -> None:
    topic = kafka_cluster.create_topic("orders")
    where = kafka_cluster.bootstrap_servers
    acknowledged: list[object] = []
    producer = producer_at(where)
    for value in numbered(200):
        producer.produce(topic, value, on_delivery=lambda error, _: acknowledged.append(error))
        if value == b"100":
            while not acknowledged:
                producer.poll(PATIENCE_S)
            killed = kafka_cluster.leader(topic)
            kafka_cluster.kill(killed)
    assert producer.flush(PATIENCE_S) == 0
    assert acknowledged == [None] * 200
    assert kafka_cluster.leader(topic) != killed
    assert values(kafka_cluster, topic) == numbered(200)
    kafka_cluster.wait_healthy()  # without it
    assert in_sync(where, topic) == kafka_cluster.running
    kafka_cluster.start(killed)
    kafka_cluster.wait_healthy()
    assert in_sync(where, topic) == [1, 2, 3] == kafka_cluster.running
    kafka_cluster.stop(kafka_cluster.leader(topic))
    assert values(kafka_cluster, topic) == numbered(200)


def test_an_isolated_leader_is_replaced_and_follows_when_the_network_is_mended(kafka_cluster: Cluster) -> None:
    topic = kafka_cluster.create_topic("orders")
    alone = kafka_cluster.leader(topic)
    kafka_cluster.isolate(alone)
    leader = kafka_cluster.leader(topic)
    assert leader != alone
    producer = producer_at(kafka_cluster.address(leader))
    for value in numbered(20):
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0
    assert values(kafka_cluster, topic) == numbered(20)
    assert f"between {min(alone, leader)} and {max(alone, leader)}" in kafka_cluster.describe()
    kafka_cluster.heal()
    kafka_cluster.wait_healthy()
    assert in_sync(kafka_cluster.address(alone), topic) == [1, 2, 3]
    kafka_cluster.stop(leader)
    assert values(kafka_cluster, topic) == numbered(20)


def test_a_group_goes_on_without_the_node_that_coordinated_it(kafka_cluster: Cluster) -> None:
    topic = kafka_cluster.create_topic("orders")
    producer = producer_at(kafka_cluster.bootstrap_servers)
    producer.produce(topic, b"a")
    assert producer.flush(PATIENCE_S) == 0
    settings = {"bootstrap.servers": kafka_cluster.bootstrap_servers, "reconnect.backoff.max.ms": 100}
    consumer = Consumer({**settings, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert next_value(consumer) == b"a"
    consumer.commit(asynchronous=False)
    kafka_cluster.wait_group("billing")
    kafka_cluster.stop(kafka_cluster.leader("__consumer_offsets"))
    producer.produce(topic, b"b")
    assert producer.flush(PATIENCE_S) == 0
    assert next_value(consumer) == b"b"
    consumer.close()  # and commits
    kafka_cluster.wait_group("billing", topic=topic)


def test_without_a_majority_there_is_no_leader_and_all_can_come_back(kafka_cluster: Cluster) -> None:
    topic = kafka_cluster.create_topic("orders")
    producer = producer_at(kafka_cluster.bootstrap_servers)
    producer.produce(topic, b"a")
    assert producer.flush(PATIENCE_S) == 0
    kafka_cluster.kill(1)
    kafka_cluster.kill(2)
    with pytest.raises(TimeoutError, match="no broker leads orders-0 within 0 s: there is no active controller"):
        kafka_cluster.leader(topic, timeout=0)
    kafka_cluster.kill(3)
    assert kafka_cluster.running == []
    kafka_cluster.kill(3)  # it is dead already
    kafka_cluster.start()
    kafka_cluster.start(1)  # it runs already
    kafka_cluster.wait_healthy()
    assert values(kafka_cluster, topic) == [b"a"]


def test_a_cluster_that_does_not_become_healthy_says_why(kafka_cluster: Cluster) -> None:
    kafka_cluster.cut(2, 1)
    with pytest.raises(TimeoutError, match="not healthy within 0 s: the network is cut between 1 and 2"):
        kafka_cluster.wait_healthy(0)
    kafka_cluster.heal()
    kafka_cluster.wait_healthy()
    with pytest.raises(ValueError, match="there is no node 4; there are 1, 2, 3"):
        kafka_cluster.kill(4)
    with pytest.raises(ValueError, match="cannot be cut from itself"):
        kafka_cluster.cut(1, 1)
    with pytest.raises(UnknownTopicOrPartition):
        kafka_cluster.leader("nothing")


def test_a_cluster_that_does_not_start_is_explained_and_leaves_nothing(nothing_left: None) -> None:
    with pytest.raises(ValueError, match="1 to 9"):
        Cluster(nodes=0)
    for wrong in ({"node_id": 7}, {"listeners": "PLAINTEXT://:1"}, {"num_partition": 3}):
        with pytest.raises(ConfigError, match=next(iter(wrong)).replace("_", ".")):
            Cluster(**wrong).start()
    cluster = Cluster()
    with pytest.raises(Unresponsive, match="not running"):
        cluster.kill(1)
    assert cluster.describe() == "the cluster is not running"
    cluster.close()


# Planted mistakes.


@contextmanager
def cluster_of(module: ModuleType, count: int, **configs: object) -> Iterator[tuple[Cluster, cluster_runtime.Nodes]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "Nodes", module.Nodes)
        with Cluster(nodes=count, **configs) as made:
            assert made._nodes is not None
            yield made, made._nodes


def a_kill_is_no_clean_stop(module: ModuleType) -> None:
    with cluster_of(module, 1) as (made, inside):
        made.kill(1)
        assert not Path(inside._folder, "1", CLEAN_SHUTDOWN).exists()
        made.start()
        made.stop(1)
        assert Path(inside._folder, "1", CLEAN_SHUTDOWN).exists()


def nodes_that_are_cut_do_not_reach_each_other(module: ModuleType) -> None:
    with cluster_of(module, 2) as (made, inside):
        made.cut(1, 2)
        dial, address = inside.running[1].broker.peers.dial, inside.addresses[2]
        try:
            link = made._home.wait(dial, *address, PATIENCE_S)
        except ConnectionRefusedError:
            return
        made._home.call(link.close)
        pytest.fail("they do")


def who_is_gone_neither_leads_nor_counts(module: ModuleType) -> None:
    never = {"broker_session_timeout_ms": NEVER_MS, "controller_quorum_fetch_timeout_ms": NEVER_MS}
    with cluster_of(module, 3, **never) as (made, inside):
        topic = made.create_topic("orders", partitions=3)
        active = inside.active()
        assert active is not None
        gone = next(number for number in made.numbers if number != active)
        led = next(index for index in range(3) if made.leader(topic, index) == gone)
        made.kill(gone)
        assert made._home.call(lambda: (inside.active(), inside.leader(topic, led))) == (active, None)
        made.kill(next(number for number in made.running if number != active))
        assert made._home.call(inside.active) is None


def a_cut_breaks_connections_and_lasts_until_it_is_healed(module: ModuleType) -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.receive_some()

    async def test() -> None:
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, hang_up, 0, host="127.0.0.1"))
            port = listener.socket.getsockname()[1]
            between = module.NetworkPartitions(lambda port: 2)
            dial = between.dial_from(1)
            link = await dial("127.0.0.1", port, PATIENCE_S)
            between.cut(2, 1)
            try:
                with pytest.raises(OSError, match="Bad file descriptor"):
                    await link.exchange(b"x")
            finally:
                link.close()
            with pytest.raises(ConnectionRefusedError):
                await dial("127.0.0.1", port, PATIENCE_S)
            between.heal()
            (await dial("127.0.0.1", port, PATIENCE_S)).close()
            nursery.cancel_scope.cancel()

    trio.run(test)


MISTAKES: list[tuple[ModuleType, str, str, Rule]] = [
    (cluster_runtime, "Broker.die", "Broker.stop", a_kill_is_no_clean_stop),
    (cluster_runtime, "Broker.stop", "Broker.die", a_kill_is_no_clean_stop),
    (
        cluster_runtime,
        "        node.broker.peers.dial = self.cuts.dial_from(number)\n",
        "",
        nodes_that_are_cut_do_not_reach_each_other,
    ),
    (cluster_runtime, " or told.leader not in nodes", "", who_is_gone_neither_leads_nor_counts),
    (
        cluster_runtime,
        "2 * len(self.reached_from(number)) > len(self._ports)",
        "len(self._ports)",
        who_is_gone_neither_leads_nor_counts,
    ),
    (
        network_partitions,
        "if ends == pair:\n    link.close()",
        "if ends == pair:\n    pass",
        a_cut_breaks_connections_and_lasts_until_it_is_healed,
    ),
    (network_partitions, "self.pairs.clear()", "pass", a_cut_breaks_connections_and_lasts_until_it_is_healed),
    (
        network_partitions,
        "frozenset((node, self._owner(port)))",
        "frozenset((node, port))",
        a_cut_breaks_connections_and_lasts_until_it_is_healed,
    ),
]


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(module, right, wrong, rule)
