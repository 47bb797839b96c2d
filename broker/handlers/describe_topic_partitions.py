"""DescribeTopicPartitions (75): describes topics page by page, for clusters with many partitions.

Topics are returned in the order of their names, regardless of their order in the request. A response has a limited
number of partitions; its cursor names the next partition, and the client sends it with the next request. A request
without names is for all topics.
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.image.topics import INTERNAL_TOPICS, Topic
from trioka.protocol.errors import InvalidRequest, KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from trioka.protocol.primitives import NULL_UUID

from ..api import handles
from ..config.node_keys import MAX_REQUEST_PARTITION_SIZE_LIMIT
from ..metadata.topic_description import PartitionDescription, TopicDescription, unknown_topic_error
from ..security.authorized_operations import TOPIC_OPERATIONS
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = DescribeTopicPartitionsResponse.Topic
NextCursor = DescribeTopicPartitionsResponse.NextCursor


def error_response(request: DescribeTopicPartitionsRequest, error: KafkaError) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0,
        topics=[
            TopicResult(error_code=error.code, name=topic.name, topic_id=NULL_UUID, partitions=[])
            for topic in request.topics
        ],
    )


@handles(DescribeTopicPartitionsRequest, error_response=error_response)
def describe_topic_partitions(
    broker: "Broker", call: "Call", request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidRequest(f"partition {cursor.partition_index} of the cursor is negative")
    requested = {topic.name for topic in request.topics}
    if cursor is not None and requested and cursor.topic_name not in requested:
        raise InvalidRequest(f"topic {cursor.topic_name} of the cursor is not among the requested topics")
    first = "" if cursor is None else cursor.topic_name
    names = sorted(requested) if requested else [topic.name for topic in broker.metadata.topics]
    limit = max(1, min(request.response_partition_limit, broker.config[MAX_REQUEST_PARTITION_SIZE_LIMIT]))
    description = TopicDescription(broker.metadata, call.connection.listener)
    results: list[TopicResult] = []
    denied: list[TopicResult] = []
    next_cursor: NextCursor | None = None
    for name in names:
        if name < first:
            continue
        if not broker.guard.may(call, AclOperation.DESCRIBE, TOPIC, name, is_attempt=bool(requested)):
            if requested:
                denied.append(_denied(name))
            continue
        if limit == 0:
            next_cursor = NextCursor(topic_name=name, partition_index=0)
            break
        operations = broker.guard.operations(call, TOPIC, name, TOPIC_OPERATIONS)
        topic = broker.metadata.topics.by_name(name)
        if topic is None:
            results.append(_unknown(name, unknown_topic_error(name).code, operations))
            continue
        start = cursor.partition_index if cursor is not None and name == first else 0
        indexes = list(topic.partitions)[start : start + limit]
        partitions = [description.partition(topic.partitions[index]) for index in indexes]
        results.append(_to_result(topic, partitions, operations))
        limit -= len(indexes)
        if start + len(indexes) < len(topic.partitions):
            next_cursor = NextCursor(topic_name=name, partition_index=start + len(indexes))
            break
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=results + denied, next_cursor=next_cursor)


def _denied(name: str) -> TopicResult:
    """The result does not reveal whether the topic exists."""
    code = TopicAuthorizationFailed.code
    return TopicResult(error_code=code, name=name, topic_id=NULL_UUID, is_internal=False, partitions=[])


def _unknown(name: str, code: int, operations: int) -> TopicResult:
    return TopicResult(
        error_code=code,
        name=name,
        topic_id=NULL_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=operations,
    )


def _to_result(topic: Topic, partitions: list[PartitionDescription], operations: int) -> TopicResult:
    return TopicResult(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            TopicResult.Partition(
                error_code=described.error_code,
                partition_index=described.partition.index,
                leader_id=described.leader_id,
                leader_epoch=described.partition.leader_epoch,
                replica_nodes=list(described.partition.replicas),
                isr_nodes=list(described.partition.isr),
                eligible_leader_replicas=list(described.partition.eligible_leader_replicas),
                last_known_elr=list(described.partition.last_known_elr),
                offline_replicas=described.offline,
            )
            for described in partitions
        ],
        topic_authorized_operations=operations,
    )
