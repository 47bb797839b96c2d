"""AdminService: topics, groups and offsets, and what is refused."""

from typing import Any

import grpc
import pytest
from support.gateway_calls import TIMEOUT_S, failing

from trioka.gateway.v1 import admin_pb2 as pb
from trioka.gateway.v1 import types_pb2
from trioka.gateway.v1.admin_pb2_grpc import AdminServiceStub
from trioka.testing.broker import Broker


def test_a_topic_is_created_described_listed_and_deleted(admin: AdminServiceStub) -> None:
    created = admin.CreateTopic(
        pb.CreateTopicRequest(topic="orders", partitions=3, configs={"retention.ms": "5000"}), timeout=TIMEOUT_S
    )
    described = admin.DescribeTopic(pb.DescribeTopicRequest(topic="orders"), timeout=TIMEOUT_S)
    assert described.topic_id == created.topic_id
    assert [(each.partition, each.leader, list(each.replicas)) for each in described.partitions] == [
        (number, 1, [1]) for number in range(3)
    ]
    assert dict(described.configs) == {"retention.ms": "5000"}
    listed = admin.ListTopics(pb.ListTopicsRequest(), timeout=TIMEOUT_S).topics
    assert ("orders", 3, False) in [(each.name, each.partitions, each.internal) for each in listed]
    with failing() as failed:
        admin.CreateTopic(pb.CreateTopicRequest(topic="orders"), timeout=TIMEOUT_S)
    assert (failed.code, failed.failure.kafka_code) == (grpc.StatusCode.ALREADY_EXISTS, 36)
    admin.DeleteTopic(pb.DeleteTopicRequest(topic="orders"), timeout=TIMEOUT_S)
    with failing() as failed:
        admin.DescribeTopic(pb.DescribeTopicRequest(topic="orders"), timeout=TIMEOUT_S)
    assert failed.code is grpc.StatusCode.NOT_FOUND


def test_offsets_of_a_topic_are_its_first_its_end_and_those_of_a_time(
    broker: Broker, admin: AdminServiceStub, topic: str
) -> None:
    for stamp in (1000, 2000, 3000):
        broker.produce(topic, b"x", timestamp_ms=stamp)
    found = admin.ListOffsets(pb.ListOffsetsRequest(topic=topic, timestamp_ms=1500), timeout=TIMEOUT_S).partitions
    assert list(found) == [
        pb.PartitionOffsets(partition=0, earliest=0, end=3, at_timestamp=1),
        pb.PartitionOffsets(partition=1, earliest=0, end=0),
    ]


def test_offsets_of_a_group_are_set_listed_and_deleted(admin: AdminServiceStub, topic: str) -> None:
    offsets = [pb.GroupOffset(topic=topic, partition=each, offset=5 + each, metadata="m") for each in (0, 1)]
    admin.CommitGroupOffsets(pb.CommitGroupOffsetsRequest(group="reset", offsets=offsets), timeout=TIMEOUT_S)
    listed = pb.ListGroupOffsetsRequest(group="reset")
    assert list(admin.ListGroupOffsets(listed, timeout=TIMEOUT_S).offsets) == offsets
    places = [types_pb2.TopicPartition(topic=topic, partition=0)]
    admin.DeleteGroupOffsets(pb.DeleteGroupOffsetsRequest(group="reset", partitions=places), timeout=TIMEOUT_S)
    assert list(admin.ListGroupOffsets(listed, timeout=TIMEOUT_S).offsets) == offsets[1:]
    assert "reset" in [each.group for each in admin.ListGroups(pb.ListGroupsRequest(), timeout=TIMEOUT_S).groups]
    described = admin.DescribeGroup(pb.DescribeGroupRequest(group="reset"), timeout=TIMEOUT_S)
    assert (described.state, list(described.members)) == ("Empty", [])
    admin.DeleteGroup(pb.DeleteGroupRequest(group="reset"), timeout=TIMEOUT_S)
    assert "reset" not in [each.group for each in admin.ListGroups(pb.ListGroupsRequest(), timeout=TIMEOUT_S).groups]


INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("method", "request_of_it", "code", "sentence"),
    [
        ("CreateTopic", pb.CreateTopicRequest(), INVALID, "topic is empty"),
        ("CreateTopic", pb.CreateTopicRequest(topic="a b"), INVALID, "topic name is invalid"),
        ("CreateTopic", pb.CreateTopicRequest(topic="x", partitions=-2), INVALID, "positive, or 0"),
        ("CreateTopic", pb.CreateTopicRequest(topic="x", replication_factor=99999), INVALID, "positive, or 0"),
        ("CreateTopic", pb.CreateTopicRequest(topic="x", replication_factor=3), INVALID, "eplication factor"),
        ("CreateTopic", pb.CreateTopicRequest(topic="x", configs={"no.such.key": "1"}), INVALID, "no.such.key"),
        ("DeleteTopic", pb.DeleteTopicRequest(), INVALID, "topic is empty"),
        ("DeleteTopic", pb.DeleteTopicRequest(topic="nowhere"), NOT_FOUND, "nowhere"),
        ("DescribeTopic", pb.DescribeTopicRequest(), INVALID, "topic is empty"),
        ("DescribeTopic", pb.DescribeTopicRequest(topic="nowhere"), NOT_FOUND, "nowhere"),
        ("ListOffsets", pb.ListOffsetsRequest(), INVALID, "topic is empty"),
        ("ListOffsets", pb.ListOffsetsRequest(topic="nowhere"), NOT_FOUND, "nowhere"),
        ("ListOffsets", pb.ListOffsetsRequest(topic="TOPIC", partitions=[9]), NOT_FOUND, "has no partition 9"),
        ("ListOffsets", pb.ListOffsetsRequest(topic="TOPIC", timestamp_ms=-2), INVALID, "timestamp_ms is below 0"),
        ("DescribeGroup", pb.DescribeGroupRequest(), INVALID, "group is empty"),
        ("DescribeGroup", pb.DescribeGroupRequest(group="nobody"), NOT_FOUND, "nobody"),
        ("DeleteGroup", pb.DeleteGroupRequest(), INVALID, "group is empty"),
        ("DeleteGroup", pb.DeleteGroupRequest(group="nobody"), NOT_FOUND, "nobody"),
        ("ListGroupOffsets", pb.ListGroupOffsetsRequest(), INVALID, "group is empty"),
        ("CommitGroupOffsets", pb.CommitGroupOffsetsRequest(group="g"), INVALID, "offsets is empty"),
        (
            "CommitGroupOffsets",
            pb.CommitGroupOffsetsRequest(group="g", offsets=[pb.GroupOffset(topic="TOPIC", offset=-1)]),
            INVALID,
            "an offset names a topic",
        ),
        (
            "CommitGroupOffsets",
            pb.CommitGroupOffsetsRequest(group="g", offsets=[pb.GroupOffset(topic="nowhere")]),
            NOT_FOUND,
            "nowhere",
        ),
        ("DeleteGroupOffsets", pb.DeleteGroupOffsetsRequest(group="g"), INVALID, "partitions is empty"),
        (
            "DeleteGroupOffsets",
            pb.DeleteGroupOffsetsRequest(group="nobody", partitions=[types_pb2.TopicPartition(topic="t")]),
            NOT_FOUND,
            "nobody",
        ),
    ],
)
def test_a_wrong_request_gets_its_code_and_a_sentence(
    admin: AdminServiceStub, topic: str, method: str, request_of_it: Any, code: grpc.StatusCode, sentence: str
) -> None:
    if getattr(request_of_it, "topic", "") == "TOPIC":
        request_of_it.topic = topic
    with failing() as failed:
        getattr(admin, method)(request_of_it, timeout=TIMEOUT_S)
    assert failed.code is code
    assert sentence in failed.failure.message
