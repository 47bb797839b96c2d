"""OffsetForLeaderEpoch (23): where the records of a leader's epoch end.

A consumer that has read up to some offset of an epoch learns from it whether what it has read is still there (KIP-320).

The answer is for the largest epoch up to the asked one that the log knows; -1 and -1 if the log cannot know.
v2 the client's idea of the current epoch is checked · v3 who asks
"""

from collections.abc import Container
from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

from ..api import handles
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Asked = OffsetForLeaderEpochRequest.Topic.Partition
Told = OffsetForLeaderEpochResponse.Topic.Partition


def refuse(request: OffsetForLeaderEpochRequest, error: KafkaError) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic, partitions=[_refused(asked, error) for asked in topic.partitions]
            )
            for topic in request.topics
        ],
    )


@handles(OffsetForLeaderEpochRequest, refuse=refuse)
def offset_for_leader_epoch(
    broker: "Broker", call: "Call", request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    names = [topic.topic for topic in request.topics]
    if broker.guard.may(call, Operation.CLUSTER_ACTION, is_attempt=False):
        allowed: Container[str] = names
    else:
        allowed = broker.guard.allowed(call, Operation.DESCRIBE, TOPIC, names)
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic,
                partitions=[
                    _told(broker, topic.topic, asked)
                    if topic.topic in allowed
                    else _refused(asked, TopicAuthorizationFailed())
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _told(broker: "Broker", topic: str, asked: Asked) -> Told:
    try:
        replica = broker.partitions.get(topic, asked.partition)
        replica.must_lead(asked.current_leader_epoch)
    except KafkaError as error:
        return _refused(asked, error)
    epoch, end_offset = replica.log.end_offset_for_epoch(asked.leader_epoch)
    return Told(error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def _refused(asked: Asked, error: KafkaError) -> Told:
    return Told(error_code=error.code, partition=asked.partition)
