"""Topics: list, describe, create, delete, and the offsets of their partitions."""

from typing import Final

import grpc

from trioka.protocol import errors
from trioka.protocol.errors import NONE, error_class
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest

from ..failures import Refused
from ..kafka.cluster import EARLIEST, LATEST, Cluster
from ..reading.positions import check_consistency, chosen_partitions, isolation_of
from ..v1 import admin_pb2

DEFAULT: Final = -1  # of the cluster
MAX_REPLICATION: Final = 0x7FFF
DYNAMIC_TOPIC_CONFIG: Final = 1  # the source of a value that was set for the topic
BY_NAME: Final = 5  # the last version of DeleteTopics that names topics by name only


async def list_topics(cluster: Cluster, request: admin_pb2.ListTopicsRequest) -> admin_pb2.ListTopicsResponse:
    response = await cluster.refresh(None)
    found = {
        each.name: admin_pb2.TopicSummary(name=each.name, partitions=len(each.partitions), internal=each.is_internal)
        for each in response.topics
        if each.error_code == NONE and (request.internal or not each.is_internal)
    }
    return admin_pb2.ListTopicsResponse(topics=[found[name] for name in sorted(found)])


async def describe_topic(cluster: Cluster, request: admin_pb2.DescribeTopicRequest) -> admin_pb2.DescribeTopicResponse:
    metadata = await cluster.topic(request.topic, fresh=True)
    response = await cluster.refresh([request.topic])
    (topic,) = response.topics
    if topic.error_code != NONE:
        raise error_class(topic.error_code)(f"topic {request.topic!r}")
    partitions = [
        admin_pb2.PartitionDescription(
            partition=each.partition_index,
            leader=each.leader_id,
            leader_epoch=each.leader_epoch,
            replicas=each.replica_nodes,
            in_sync_replicas=each.isr_nodes,
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]
    configs = {
        each.name: each.value or ""
        for each in await cluster.topic_configs(request.topic, None)
        if each.config_source == DYNAMIC_TOPIC_CONFIG and not each.is_sensitive
    }
    return admin_pb2.DescribeTopicResponse(
        topic=request.topic, topic_id=metadata.topic_id, partitions=partitions, configs=configs
    )


async def create_topic(cluster: Cluster, request: admin_pb2.CreateTopicRequest) -> admin_pb2.CreateTopicResponse:
    if request.partitions < 0 or not 0 <= request.replication_factor <= MAX_REPLICATION:
        raise Refused(
            grpc.StatusCode.INVALID_ARGUMENT,
            "partitions and replication_factor are positive, or 0 for the cluster's default",
        )
    kind = CreateTopicsRequest.Topic
    topic = kind(
        name=request.topic,
        num_partitions=request.partitions or DEFAULT,
        replication_factor=request.replication_factor or DEFAULT,
        assignments=[],
        configs=[kind.Config(name=name, value=value) for name, value in request.configs.items()],
    )

    async def attempt(fresh: bool) -> bytes:
        response = await cluster.ask(CreateTopicsRequest(topics=[topic], timeout_ms=int(1000 * cluster.timeout_s)))
        (answer,) = response.topics
        if answer.error_code != NONE:
            kind_of_error = error_class(answer.error_code)
            raise kind_of_error(f"topic {request.topic!r}: {answer.error_message or str(kind_of_error())}")
        return bytes(answer.topic_id)

    return admin_pb2.CreateTopicResponse(topic_id=await cluster.retrying(attempt))


async def delete_topic(cluster: Cluster, request: admin_pb2.DeleteTopicRequest) -> admin_pb2.DeleteTopicResponse:
    async def attempt(fresh: bool) -> None:
        response = await cluster.ask(
            DeleteTopicsRequest(topic_names=[request.topic], timeout_ms=int(1000 * cluster.timeout_s)), at_most=BY_NAME
        )
        (answer,) = response.responses
        if answer.error_code != NONE:
            kind_of_error = error_class(answer.error_code)
            raise kind_of_error(f"topic {request.topic!r}: {answer.error_message or str(kind_of_error())}")

    await cluster.retrying(attempt)
    cluster.forget(request.topic)
    return admin_pb2.DeleteTopicResponse()


async def list_offsets(cluster: Cluster, request: admin_pb2.ListOffsetsRequest) -> admin_pb2.ListOffsetsResponse:
    await check_consistency(cluster, request.topic, request.consistency)
    if request.HasField("timestamp_ms") and request.timestamp_ms < 0:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "timestamp_ms is below 0")
    isolation = isolation_of(request.consistency)
    partitions = chosen_partitions(await cluster.topic(request.topic, fresh=True), request.partitions)
    if not partitions:
        raise errors.UnknownTopicOrPartition(f"topic {request.topic!r} has no partitions")
    ends = await cluster.list_offsets(request.topic, partitions, LATEST, isolation=isolation)
    earliest = await cluster.list_offsets(request.topic, partitions, EARLIEST)
    found = [admin_pb2.PartitionOffsets(partition=each, earliest=earliest[each], end=ends[each]) for each in partitions]
    if request.HasField("timestamp_ms"):
        at = await cluster.list_offsets(request.topic, partitions, request.timestamp_ms, isolation=isolation)
        for each in found:
            if at[each.partition] >= 0:
                each.at_timestamp = at[each.partition]
    return admin_pb2.ListOffsetsResponse(partitions=found)
