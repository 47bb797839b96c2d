"""DescribeTopicPartitions (75): topics in portions, for clusters where all of them would be too much.

Topics are told in the order of their names, whatever the order of the question. An answer has so many partitions at
most; where it breaks off, a cursor says which is the next, and the next question brings it along. Without names all
topics are meant, and those that do not exist are nobody's mistake.
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.cluster.topics import INTERNAL_TOPICS, Topic
from trioka.protocol.errors import InvalidRequest, KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from trioka.protocol.primitives import NULL_UUID

from ..api import handles
from ..config.node_keys import MAX_REQUEST_PARTITION_SIZE_LIMIT
from ..metadata.topic_description import Described, TopicDescription, why_unknown
from ..security.authorized_operations import TOPIC_OPERATIONS
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = DescribeTopicPartitionsResponse.Topic
NextCursor = DescribeTopicPartitionsResponse.NextCursor


def refuse(request: DescribeTopicPartitionsRequest, error: KafkaError) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0,
        topics=[
            Told(error_code=error.code, name=topic.name, topic_id=NULL_UUID, partitions=[]) for topic in request.topics
        ],
    )


@handles(DescribeTopicPartitionsRequest, refuse=refuse)
def describe_topic_partitions(
    broker: "Broker", call: "Call", request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidRequest(f"the cursor names the partition {cursor.partition_index}")
    asked = {topic.name for topic in request.topics}
    if cursor is not None and asked and cursor.topic_name not in asked:
        raise InvalidRequest(f"the cursor names the topic {cursor.topic_name}, which is not asked for")
    first = "" if cursor is None else cursor.topic_name
    names = sorted(asked) if asked else [topic.name for topic in broker.metadata.topics]
    room = max(1, min(request.response_partition_limit, broker.config[MAX_REQUEST_PARTITION_SIZE_LIMIT]))
    describing = TopicDescription(broker.metadata, call.connection.listener)
    told: list[Told] = []
    denied: list[Told] = []
    next_cursor: NextCursor | None = None
    for name in names:
        if name < first:
            continue
        if not broker.guard.may(call, Operation.DESCRIBE, TOPIC, name, is_attempt=bool(asked)):
            if asked:
                denied.append(_denied(name))
            continue
        if room == 0:
            next_cursor = NextCursor(topic_name=name, partition_index=0)
            break
        may = broker.guard.operations(call, TOPIC, name, TOPIC_OPERATIONS)
        topic = broker.metadata.topics.by_name(name)
        if topic is None:
            told.append(_unknown(name, why_unknown(name).code, may))
            continue
        start = cursor.partition_index if cursor is not None and name == first else 0
        indexes = list(topic.partitions)[start : start + room]
        told.append(_told(topic, [describing.partition(topic.partitions[index]) for index in indexes], may))
        room -= len(indexes)
        if start + len(indexes) < len(topic.partitions):
            next_cursor = NextCursor(topic_name=name, partition_index=start + len(indexes))
            break
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=told + denied, next_cursor=next_cursor)


def _denied(name: str) -> Told:
    """Whether there is such a topic is not told, either."""
    code = TopicAuthorizationFailed.code
    return Told(error_code=code, name=name, topic_id=NULL_UUID, is_internal=False, partitions=[])


def _unknown(name: str, code: int, operations: int) -> Told:
    return Told(
        error_code=code,
        name=name,
        topic_id=NULL_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=operations,
    )


def _told(topic: Topic, partitions: list[Described], operations: int) -> Told:
    return Told(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            Told.Partition(
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
