"""What a test does with topics and records in one call, on one broker and on a cluster."""

import json
from collections.abc import Iterator

import pytest
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

import trioka.testing
from trioka.protocol.errors import UnknownTopicOrPartition
from trioka.protocol.partitioner import murmur2, partition_of
from trioka.testing import Broker, Cluster

WEEK_MS = 7 * 86_400_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as kafka:
        yield kafka


@pytest.fixture(scope="module")
def kafka_session(broker: Broker) -> Broker:
    """Ends with this module: a broker of the session would run beside simulations, which replace trio's threads."""
    return broker


def test_a_key_chooses_its_partition_as_in_kafkas_clients(broker: Broker) -> None:
    for size in range(40):
        data = bytes((7 * each + size) % 256 for each in range(size))
        assert murmur2(data) == murmur2_of_kafka_python(data) & 0xFFFFFFFF
    broker.create_topic("keyed", partitions=5)
    for key in ("a", "b", "c", "d"):
        broker.produce("keyed", key, key=key)
    for record in broker.records("keyed"):
        assert record.key == record.value
        assert record.key is not None
        assert record.partition == partition_of(record.key, 5)
    assert len({record.partition for record in broker.records("keyed")}) > 1
    broker.produce("keyed", "there", key="a", partition=4)
    assert broker.records("keyed", 4)[-1].value == b"there"


def test_json_goes_in_and_comes_out(broker: Broker) -> None:
    values = [{"id": 1, "name": "Zoë"}, [1, 2], None]
    assert broker.produce_json("json", *values) == [0, 1, 2]
    found = broker.consume("json", 3)
    assert [record.json() for record in found] == values
    assert found[2].value == b"null"
    broker.produce("json", None)
    assert broker.records("json")[-1].json() is None
    broker.produce("json", "no json")
    with pytest.raises(json.JSONDecodeError):
        broker.records("json")[-1].json()


def test_topics_are_listed_and_deleted(broker: Broker) -> None:
    broker.create_topic("short-lived")
    assert "short-lived" in broker.topics()
    broker.delete_topic("short-lived")
    assert "short-lived" not in broker.topics()
    assert not any(name.startswith("__") for name in broker.topics())
    with pytest.raises(UnknownTopicOrPartition, match="short-lived was not deleted"):
        broker.delete_topic("short-lived")


def test_the_committed_offsets_of_a_group_are_read(broker: Broker) -> None:
    from kafka import KafkaConsumer

    broker.produce("read", "1", "2", "3")
    assert broker.committed("readers") == {}
    consumer = KafkaConsumer(
        "read", bootstrap_servers=broker.bootstrap_servers, group_id="readers", auto_offset_reset="earliest"
    )
    next(consumer)
    consumer.commit()
    consumer.close(autocommit=False)
    assert broker.committed("readers") == {("read", 0): 1}


def test_only_records_that_are_written_in_the_block_are_expected(broker: Broker) -> None:
    broker.produce("expected", "before")
    with broker.expect("expected", 2) as found:
        broker.produce("expected", "1", "2", "3")
        assert found == []
    assert [record.value for record in found] == [b"1", b"2"]
    with broker.expect("not-there-yet") as found:
        broker.produce("not-there-yet", "first")
    assert [record.value for record in found] == [b"first"]
    with pytest.raises(TimeoutError, match="0 of 1 records"), broker.expect("expected", timeout="50ms"):
        pass
    with pytest.raises(ZeroDivisionError), broker.expect("expected", timeout="60s"):
        raise ZeroDivisionError


def test_a_cluster_is_written_and_read_as_a_broker_is() -> None:
    with Cluster(nodes=2) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.produce_json("orders", {"id": 1}, key="1")
        (record,) = cluster.consume("orders")
        assert record.json() == {"id": 1}
        assert record.partition == partition_of(b"1", 3)
        assert cluster.topics() == ["orders"]
        with cluster.expect("orders") as found:
            cluster.produce("orders", "2")
        assert found[0].value == b"2"


@pytest.mark.kafka_topic(partitions=3, retention_ms=WEEK_MS)
def test_a_topic_has_what_its_marker_says(kafka_topic: "trioka.testing.Topic") -> None:
    kafka_topic.kafka.produce(kafka_topic, "there", partition=2)
    assert [record.partition for record in kafka_topic.kafka.records(kafka_topic)] == [2]


def test_more_topics_are_made_on_the_same_broker(kafka_topic: "trioka.testing.Topic", new_kafka_topic) -> None:  # type: ignore[no-untyped-def]
    other = new_kafka_topic(partitions=2, cleanup_policy="compact")
    assert other != kafka_topic
    assert other.kafka is kafka_topic.kafka
    other.kafka.produce(other, "v", key="k", partition=1)
    assert {kafka_topic, other} <= set(other.kafka.topics())


def test_types_for_annotations_are_exported() -> None:
    assert trioka.testing.Topic.__module__ == "trioka.testing.plugin"
    assert trioka.testing.Clock.__module__ == "trioka.testing.clock_control"
