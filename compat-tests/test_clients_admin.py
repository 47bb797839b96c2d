"""Every client administers topics: makes, describes, changes and deletes them, and hears of its mistakes."""

import time

import pytest
from broker_under_test import Node
from clients.client import EARLIEST, LATEST, PATIENCE_SECONDS, Client, Partition, Read, Refused
from clients.samples import few

from trioka.protocol.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

pytest_plugins = ["broker_under_test"]

# A few of the keys that tools look for, with Kafka's defaults.
TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
}
BROKER_DEFAULTS = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "1",
    "log.retention.hours": "168",
    "message.max.bytes": "1048588",
    "num.partitions": "1",
}


def test_the_cluster_is_one_broker_that_is_its_controller(client: Client, node: Node) -> None:
    host, port = node.bootstrap.rsplit(":", 1)
    cluster = client.cluster()
    assert list(cluster.brokers.values()) == [(host, int(port))]
    assert cluster.controller in cluster.brokers


def test_a_new_topic_is_listed_and_described_at_once(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    assert topic in client.topics()
    (broker,) = client.cluster().brokers
    assert client.describe_topic(topic) == [Partition(index, broker, (broker,), (broker,)) for index in range(3)]


def test_a_topic_is_not_made_twice(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.must("hear of topics that exist")
    with pytest.raises(Refused) as refused:
        client.create_topic(topic)
    assert refused.value.code == TopicAlreadyExists.code


@pytest.mark.parametrize("name", [".", "..", "white space", "x" * 250])
def test_a_bad_name_is_refused(name: str, client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.create_topic(name)
    assert refused.value.code == InvalidTopic.code


def test_a_bad_partition_count_is_refused(client: Client, topic: str) -> None:
    with pytest.raises(Refused) as refused:
        client.create_topic(topic, partitions=0)
    assert refused.value.code == InvalidPartitions.code


@pytest.mark.parametrize("config", [{"no.such.key": "1"}, {"retention.ms": "soon"}, {"cleanup.policy": "burn"}])
def test_a_bad_configuration_is_refused(config: dict[str, str], client: Client, topic: str) -> None:
    with pytest.raises(Refused) as refused:
        client.create_topic(topic, config=config)
    assert refused.value.code == InvalidConfig.code
    assert topic not in client.topics()


def test_an_unknown_topic_is_called_unknown(client: Client, topic: str) -> None:
    for question in (client.delete_topic, lambda name: client.add_partitions(name, 2)):
        with pytest.raises(Refused) as refused:
            question(topic)
        assert refused.value.code == UnknownTopicOrPartition.code
    client.must("describe without creating")
    with pytest.raises(Refused) as refused:
        client.describe_topic(topic)
    assert refused.value.code == UnknownTopicOrPartition.code


def test_a_configuration_has_every_key_with_its_default(client: Client, topic: str) -> None:
    client.create_topic(topic, config={"retention.ms": "1000"})
    config = client.topic_config(topic)
    expected = TOPIC_DEFAULTS | {"retention.ms": "1000"}
    assert {key: config.get(key) for key in expected} == expected
    (broker,) = client.cluster().brokers
    config = client.broker_config(broker)
    assert {key: config.get(key) for key in BROKER_DEFAULTS} == BROKER_DEFAULTS


def test_a_configuration_is_changed_key_by_key_or_whole(client: Client, topic: str) -> None:
    client.create_topic(topic, config={"retention.ms": "1000"})
    client.alter_topic_config(topic, {"max.message.bytes": "20000", "cleanup.policy": "compact"})
    config = client.topic_config(topic)
    assert (config["max.message.bytes"], config["cleanup.policy"]) == ("20000", "compact")
    # Who replaces the whole configuration has dropped what was there before.
    kept = "1000" if client.alters_incrementally else TOPIC_DEFAULTS["retention.ms"]
    assert config["retention.ms"] == kept
    if client.alters_incrementally:
        client.alter_topic_config(topic, {"retention.ms": "2000"}, drop=["cleanup.policy"])
    else:
        client.alter_topic_config(topic, {"retention.ms": "2000", "max.message.bytes": "20000"})
    config = client.topic_config(topic)
    changed = {"retention.ms": "2000", "max.message.bytes": "20000", "cleanup.policy": "delete"}
    assert {key: config[key] for key in changed} == changed


def test_a_bad_change_of_a_configuration_is_refused_and_changes_nothing(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with pytest.raises(Refused) as refused:
        client.alter_topic_config(topic, {"retention.ms": "7", "segment.bytes": "many"})
    assert refused.value.code == InvalidConfig.code
    assert client.topic_config(topic)["retention.ms"] == TOPIC_DEFAULTS["retention.ms"]


def test_a_topic_gets_more_partitions_and_never_fewer(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, few(2))
    client.add_partitions(topic, 3)
    assert [partition.id for partition in client.describe_topic(topic)] == [0, 1, 2]
    assert client.produce(topic, [record._replace(partition=2) for record in few(2)]) == [0, 1]
    assert client.produce(topic, few(1)) == [2]
    for total in (3, 2):
        with pytest.raises(Refused) as refused:
            client.add_partitions(topic, total)
        assert refused.value.code == InvalidPartitions.code


def test_deleted_records_move_the_beginning(client: Client, topic: str) -> None:
    client.create_topic(topic)
    records = few(10)
    client.produce(topic, records)
    client.delete_records(topic, 0, before=4)
    assert (client.offset_at(topic, EARLIEST), client.offset_at(topic, LATEST)) == (4, 10)
    assert client.consume(topic, offset=EARLIEST, count=1) == [Read(4, records[4])]
    client.must("hear of offsets that are out of range")
    with pytest.raises(Refused) as refused:
        client.delete_records(topic, 0, before=11)
    assert refused.value.code == OffsetOutOfRange.code


def test_a_deleted_topic_is_gone_and_its_name_is_free(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, few(3))
    client.delete_topic(topic)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while topic in client.topics():
        assert time.monotonic() < deadline, "it is still listed"
    client.create_topic(topic)
    assert client.offset_at(topic, LATEST) == 0
    assert client.produce(topic, few(1)) == [0]
