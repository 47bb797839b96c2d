"""OffsetForLeaderEpoch (23): returns the end offset of a leader epoch.

Consumers use it to detect that records they have read were truncated (KIP-320). The response has the largest epoch in
the log that is not larger than the requested one, with its end offset; -1 for both if the log has no such epoch.

v2 the client's current leader epoch is checked · v3 the replica id
"""

from collections.abc import Container
from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

from ..api import handles
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

PartitionRequest = OffsetForLeaderEpochRequest.Topic.Partition
PartitionResult = OffsetForLeaderEpochResponse.Topic.Partition


def error_response(request: OffsetForLeaderEpochRequest, error: KafkaError) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic, partitions=[_error_result(partition, error) for partition in topic.partitions]
            )
            for topic in request.topics
        ],
    )


@handles(OffsetForLeaderEpochRequest, error_response=error_response)
def offset_for_leader_epoch(
    broker: "Broker", call: "Call", request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    names = [topic.topic for topic in request.topics]
    if broker.guard.may(call, AclOperation.CLUSTER_ACTION, is_attempt=False):
        allowed: Container[str] = names
    else:
        allowed = broker.guard.allowed(call, AclOperation.DESCRIBE, TOPIC, names)
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic,
                partitions=[
                    _to_result(broker, topic.topic, partition)
                    if topic.topic in allowed
                    else _error_result(partition, TopicAuthorizationFailed())
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _to_result(broker: "Broker", topic: str, partition: PartitionRequest) -> PartitionResult:
    try:
        replica = broker.partitions.get(topic, partition.partition)
        replica.require_leader(partition.current_leader_epoch)
    except KafkaError as error:
        return _error_result(partition, error)
    epoch, end_offset = replica.log.end_offset_for_epoch(partition.leader_epoch)
    return PartitionResult(error_code=0, partition=partition.partition, leader_epoch=epoch, end_offset=end_offset)


def _error_result(partition: PartitionRequest, error: KafkaError) -> PartitionResult:
    return PartitionResult(error_code=error.code, partition=partition.partition)
