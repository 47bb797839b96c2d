"""AlterPartition (56): a leader proposes a new ISR for its partitions, or reports that it has recovered (I6).

v2 topics by id, and the leader's recovery state · v3 replicas with their broker epochs
"""

from itertools import islice
from typing import TYPE_CHECKING

from trioka.cluster.controller.isr_changes import PartitionReply
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = AlterPartitionResponse.Topic


def error_response(request: AlterPartitionRequest, error: KafkaError) -> AlterPartitionResponse:
    return AlterPartitionResponse(throttle_time_ms=0, error_code=error.code, topics=[])


@handles(AlterPartitionRequest, error_response=error_response, cluster_only=True)
async def alter_partition(broker: "Broker", call: "Call", request: AlterPartitionRequest) -> AlterPartitionResponse:
    decision = await broker.quorum.change(lambda controller: controller.alter_partition(request))
    replies = iter(decision.replies)
    return AlterPartitionResponse(
        throttle_time_ms=0,
        error_code=0,
        topics=[
            TopicResult(
                topic_id=topic.topic_id, partitions=[_to_result(r) for r in islice(replies, len(topic.partitions))]
            )
            for topic in request.topics
        ],
    )


def _to_result(reply: PartitionReply) -> TopicResult.Partition:
    partition = reply.partition
    if partition is None:
        return TopicResult.Partition(
            partition_index=reply.index,
            error_code=reply.outcome.code,
            leader_id=0,
            leader_epoch=0,
            isr=[],
            partition_epoch=0,
        )
    return TopicResult.Partition(
        partition_index=reply.index,
        error_code=0,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=int(partition.leader_recovery_state),
        partition_epoch=partition.partition_epoch,
    )
