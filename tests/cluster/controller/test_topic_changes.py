"""Topics come, grow and go. What is refused, and as what, is what Apache Kafka 4.3.1 was seen to answer."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.small_cluster import SmallCluster, directory, errors, new_topic, registration

from trioka.cluster.image.configs import topic_resource
from trioka.cluster.image.partition import UNASSIGNED_DIRECTORY
from trioka.cluster.placement.topic_names import check_topic_name
from trioka.cluster.settings import NoRules
from trioka.protocol.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.internal_records.metadata import ClearElrRecord, ConfigRecord, PartitionRecord, TopicRecord
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.primitives import NULL_UUID

Error = type[KafkaError]


class KnownKeys(NoRules):
    def validate(self, resource: Any, configs: Any, before: Any) -> None:
        for key in configs:
            if key not in ("retention.ms", "min.insync.replicas"):
                raise InvalidConfig(f"unknown: {key}")


def create(
    cluster: SmallCluster, *topics: CreateTopicsRequest.Topic, validate_only: bool = False
) -> list[Error | None]:
    return errors(cluster.do(cluster.controller.create_topics(topics, validate_only=validate_only)))


# --- CreateTopics


def test_a_new_topic_is_a_topic_record_its_configuration_and_its_partitions() -> None:
    cluster = SmallCluster(brokers=3)
    decision = cluster.controller.create_topics([new_topic("orders", 2, 3, configs={"retention.ms": "5"})])
    assert [type(record) for record in decision.records] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    (reply,) = cluster.do(decision)
    topic = cluster.topic("orders")
    assert (reply.topic_id, reply.num_partitions, reply.replication_factor) == (topic.topic_id, 2, 3)
    for index, partition in topic.partitions.items():
        assert partition.index == index and sorted(partition.replicas) == [1, 2, 3]
        assert partition.isr == partition.replicas and partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == tuple(map(directory, partition.replicas))
    assert cluster.metadata.configs.get(topic_resource("orders")) == {"retention.ms": "5"}


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "bad name", "käse", "a/b", "a\0b", "a\n", "a:b", "Ⅷ"])
def test_a_bad_name_is_refused(name: str) -> None:
    assert create(SmallCluster(), new_topic(name)) == [InvalidTopic]
    with pytest.raises(InvalidTopic):
        check_topic_name(name)


@pytest.mark.parametrize("name", ["a", "a" * 249, "A-z_0.9", "...", "-", "__consumer_offsets"])
def test_a_good_name_is_taken(name: str) -> None:
    assert create(SmallCluster(), new_topic(name)) == [None]


def test_the_log_of_the_metadata_cannot_be_created() -> None:
    assert create(SmallCluster(), new_topic("__cluster_metadata")) == [InvalidRequest]


def test_names_that_metrics_cannot_tell_apart_collide_with_topics_that_exist() -> None:
    cluster = SmallCluster()
    cluster.create("a.b")
    assert create(cluster, new_topic("a_b"), new_topic("a-b"), new_topic("a.b")) == [
        InvalidTopic,
        None,
        TopicAlreadyExists,
    ]
    delete(cluster, named("a.b"))
    assert create(cluster, new_topic("a_b")) == [None]


def test_a_topic_that_is_named_twice_is_not_created_and_the_others_are() -> None:
    cluster = SmallCluster()
    decision = cluster.controller.create_topics([new_topic("twice"), new_topic("once"), new_topic("twice")])
    replies = {reply.name: reply.outcome.error for reply in cluster.do(decision)}
    assert replies == {"twice": InvalidRequest, "once": None}
    assert [topic.name for topic in cluster.metadata.topics] == ["once"]


def test_validate_only_answers_the_same_and_writes_nothing() -> None:
    cluster = SmallCluster()
    decision = cluster.controller.create_topics([new_topic("orders", 3), new_topic("")], validate_only=True)
    assert decision.records == () and errors(decision.replies) == [None, InvalidTopic]
    assert decision.replies[0].num_partitions == 3


def test_minus_one_asks_for_the_defaults() -> None:
    cluster = SmallCluster(brokers=3, num_partitions=4, default_replication_factor=2)
    topic = cluster.create("orders", -1, -1)
    assert len(topic.partitions) == 4 and topic.replication_factor == 2


@pytest.mark.parametrize(
    ("partitions", "replicas", "error"),
    [
        (0, 1, InvalidPartitions),
        (-2, 1, InvalidPartitions),
        (1, 0, InvalidReplicationFactor),
        (1, -2, InvalidReplicationFactor),
        (0, 0, InvalidReplicationFactor),
        (1, 2, InvalidReplicationFactor),
        (10_001, 1, PolicyViolation),
        (1_000_000, 1, PolicyViolation),
        (10_000, 1, PolicyViolation),  # with the topic's own record it is one too many for a batch
        (9_999, 1, None),
    ],
)
def test_numbers_that_make_no_sense_are_refused(partitions: int, replicas: int, error: Error | None) -> None:
    assert create(SmallCluster(), new_topic("orders", partitions, replicas), validate_only=True) == [error]


def test_too_many_partitions_in_one_request_refuse_all_of_it() -> None:
    cluster = SmallCluster()
    topics = [new_topic("a", 6000), new_topic("b", 6000), new_topic("c")]
    assert create(cluster, *topics) == [PolicyViolation] * 3
    assert len(cluster.metadata.topics) == 0


def test_a_topic_is_not_created_while_all_brokers_are_fenced() -> None:
    cluster = SmallCluster(brokers=2)
    for broker_id in (1, 2):
        cluster.fence(broker_id)
    assert create(cluster, new_topic("orders")) == [InvalidReplicationFactor]
    assert create(cluster, new_topic("orders", assignments=[[1]])) == [InvalidReplicaAssignment]


@pytest.mark.parametrize(
    ("assignments", "error"),
    [
        ([(0, [1]), (1, [2])], None),
        ([(1, [1]), (0, [2])], None),
        ([(0, [1]), (0, [1])], InvalidReplicaAssignment),
        ([(0, [1]), (2, [1])], InvalidReplicaAssignment),
        ([(1, [1])], InvalidReplicaAssignment),
        ([(-1, [1])], InvalidReplicaAssignment),
        ([(0, [9])], InvalidReplicaAssignment),
        ([(0, [1, 1])], InvalidReplicaAssignment),
        ([(0, [])], InvalidReplicaAssignment),
        ([(0, [1]), (1, [1, 2])], InvalidReplicaAssignment),
    ],
)
def test_an_assignment_by_hand_is_checked(assignments: Sequence[tuple[int, list[int]]], error: Error | None) -> None:
    cluster = SmallCluster(brokers=2)
    topic = new_topic("orders", assignments=[[1]])
    topic.assignments[:] = [
        CreateTopicsRequest.Topic.Assignment(partition_index=index, broker_ids=ids) for index, ids in assignments
    ]
    assert create(cluster, topic) == [error]


@pytest.mark.parametrize(("partitions", "replicas"), [(1, -1), (-1, 1), (1, 1)])
def test_an_assignment_goes_with_no_numbers(partitions: int, replicas: int) -> None:
    topic = CreateTopicsRequest.Topic(
        name="orders",
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=new_topic("orders", assignments=[[1]]).assignments,
        configs=[],
    )
    assert create(SmallCluster(), topic) == [InvalidRequest]


def test_a_fenced_broker_of_an_assignment_is_not_in_sync() -> None:
    cluster = SmallCluster(brokers=2)
    cluster.fence(1)
    cluster.create("orders", assignments=[[1, 2]])
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (2,), 2)


def test_on_a_broker_with_several_directories_the_broker_chooses_one() -> None:
    cluster = SmallCluster(brokers=0)
    cluster.register(1)
    cluster.heartbeat(1)
    request = registration(2, directories=[directory(2, 0), directory(2, 1)])
    cluster.do(cluster.controller.register_broker(request, next_offset=cluster.next_offset, has_session=False))
    cluster.heartbeat(2)
    cluster.create("orders", assignments=[[1, 2]])
    assert cluster.partition("orders").directories == (directory(1), UNASSIGNED_DIRECTORY)


def test_configurations_are_checked_before_numbers_and_after_names() -> None:
    cluster = SmallCluster(rules=KnownKeys())
    cluster.create("exists")
    wrong: dict[str, str | None] = {"nope": "1"}
    assert create(cluster, new_topic("orders", configs={"retention.ms": None})) == [InvalidConfig]
    assert create(cluster, new_topic("orders", 0, 0, configs=wrong)) == [InvalidConfig]
    assert create(cluster, new_topic("bad name", 0, 0, configs=wrong)) == [InvalidTopic]
    assert create(cluster, new_topic("exists", configs=wrong)) == [TopicAlreadyExists]


def test_the_last_value_of_a_key_that_is_given_twice_counts() -> None:
    cluster = SmallCluster()
    topic = new_topic("orders")
    topic.configs[:] = [CreateTopicsRequest.Topic.Config(name="retention.ms", value=value) for value in ("1", "2")]
    assert create(cluster, topic) == [None]
    assert cluster.metadata.configs.get(topic_resource("orders")) == {"retention.ms": "2"}


def test_a_topic_with_a_min_isr_of_its_own_forgets_eligible_leaders_as_kafka_does() -> None:
    decision = SmallCluster().controller.create_topics([new_topic("orders", configs={"min.insync.replicas": "2"})])
    assert [type(record) for record in decision.records] == [TopicRecord, ConfigRecord, ClearElrRecord, PartitionRecord]


def test_topic_ids_are_random_uuids_that_mean_nothing_special() -> None:
    cluster = SmallCluster()
    ids = {cluster.create(f"t{number}").topic_id for number in range(200)}
    assert len(ids) == 200
    assert all(topic_id[6] >> 4 == 4 and topic_id[8] >> 6 == 2 for topic_id in ids)
    assert not any(topic_id[0] >> 2 == 62 for topic_id in ids)  # in text it would begin with a dash


# --- CreatePartitions


def more(name: str, count: int, assignments: Sequence[list[int]] | None = None) -> CreatePartitionsRequest.Topic:
    wanted = CreatePartitionsRequest.Topic
    return wanted(
        name=name,
        count=count,
        assignments=None if assignments is None else [wanted.Assignment(broker_ids=ids) for ids in assignments],
    )


def test_partitions_are_added_behind_those_that_are_there() -> None:
    cluster = SmallCluster(brokers=3)
    before = dict(cluster.create("orders", 2, 2).partitions)
    assert errors(cluster.do(cluster.controller.create_partitions([more("orders", 5)]))) == [None]
    after = cluster.topic("orders").partitions
    assert list(after) == [0, 1, 2, 3, 4] and before.items() <= after.items()
    assert all(len(partition.replicas) == 2 for partition in after.values())


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (more("nope", 3), UnknownTopicOrPartition),
        (more("orders", 2), InvalidPartitions),
        (more("orders", 1), InvalidPartitions),
        (more("orders", 0), InvalidPartitions),
        (more("orders", -1), InvalidPartitions),
        (more("orders", 3, []), InvalidReplicaAssignment),
        (more("orders", 3, [[1], [1]]), InvalidReplicaAssignment),
        (more("orders", 3, [[9]]), InvalidReplicaAssignment),
        (more("orders", 3, [[1, 1]]), InvalidReplicaAssignment),
        (more("orders", 3, [[]]), InvalidReplicaAssignment),
        (more("orders", 3, [[1, 2]]), InvalidReplicaAssignment),
        (more("orders", 3, [[2]]), None),
        (more("orders", 10_002), None),
        (more("orders", 10_003), PolicyViolation),
    ],
)
def test_more_partitions_are_refused_as_kafka_does(wanted: CreatePartitionsRequest.Topic, error: Error | None) -> None:
    cluster = SmallCluster(brokers=2)
    cluster.create("orders", 2)
    decision = cluster.controller.create_partitions([wanted], validate_only=True)
    assert errors(decision.replies) == [error] and decision.records == ()


def test_each_topic_has_one_result_even_if_it_is_named_twice() -> None:
    cluster = SmallCluster()
    cluster.create("a")
    cluster.create("b")
    decision = cluster.controller.create_partitions([more("a", 2), more("b", 2), more("a", 3)])
    assert {reply.name: reply.outcome.error for reply in cluster.do(decision)} == {"a": InvalidRequest, "b": None}
    assert len(cluster.topic("a").partitions) == 1 and len(cluster.topic("b").partitions) == 2


def test_an_item_that_does_not_fit_leaves_the_others_alone() -> None:
    cluster = SmallCluster()
    cluster.create("a")
    cluster.create("b")
    decision = cluster.controller.create_partitions([more("a", 9000), more("b", 9000)], validate_only=False)
    assert errors(decision.replies) == [None, PolicyViolation] and len(decision.records) == 8999


# --- DeleteTopics


def named(name: str | None, topic_id: bytes = NULL_UUID) -> DeleteTopicsRequest.Topic:
    return DeleteTopicsRequest.Topic(name=name, topic_id=topic_id)


def delete(cluster: SmallCluster, *topics: DeleteTopicsRequest.Topic) -> list[tuple[str | None, Error | None]]:
    replies = cluster.do(cluster.controller.delete_topics(topics))
    return [(reply.name, reply.outcome.error) for reply in replies]


def test_a_topic_is_deleted_by_its_name_or_by_its_id() -> None:
    cluster = SmallCluster()
    cluster.create("a")
    topic_id = cluster.create("b").topic_id
    assert delete(cluster, named("a"), named(None, topic_id)) == [("a", None), ("b", None)]
    assert len(cluster.metadata.topics) == 0


def test_what_is_not_there_cannot_be_deleted() -> None:
    assert delete(SmallCluster(), named("nope"), named(None, b"x" * 16)) == [
        ("nope", UnknownTopicOrPartition),
        (None, UnknownTopicId),
    ]


def test_a_topic_that_is_named_in_two_ways_stays() -> None:
    cluster = SmallCluster()
    topic_id = cluster.create("a").topic_id
    assert delete(cluster, named("a", topic_id)) == [("a", InvalidRequest)]
    assert delete(cluster, named("a"), named("a")) == [("a", InvalidRequest)]
    assert delete(cluster, named(None, topic_id), named(None, topic_id)) == [(None, InvalidRequest)]
    assert delete(cluster, named("a"), named(None, topic_id)) == [("a", InvalidRequest), (None, InvalidRequest)]
    assert delete(cluster, named(None)) == [(None, InvalidRequest)]
    assert [topic.name for topic in cluster.metadata.topics] == ["a"]
