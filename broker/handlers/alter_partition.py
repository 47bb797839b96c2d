"""AlterPartition (56): a leader proposes another ISR for its partitions, or says that it has recovered (I6).

v2 topics by id, and the leader's recovery state · v3 each replica with its broker epoch
"""

from itertools import islice
from typing import TYPE_CHECKING

from trioka.cluster.isr_changes import PartitionReply
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = AlterPartitionResponse.Topic


def refuse(request: AlterPartitionRequest, error: KafkaError) -> AlterPartitionResponse:
    return AlterPartitionResponse(throttle_time_ms=0, error_code=error.code, topics=[])


@handles(AlterPartitionRequest, refuse=refuse, for_nodes=True)
async def alter_partition(broker: "Broker", call: "Call", request: AlterPartitionRequest) -> AlterPartitionResponse:
    decision = await broker.quorum.change(lambda controller: controller.alter_partition(request))
    replies = iter(decision.replies)
    return AlterPartitionResponse(
        throttle_time_ms=0,
        error_code=0,
        topics=[
            Told(topic_id=asked.topic_id, partitions=[_told(r) for r in islice(replies, len(asked.partitions))])
            for asked in request.topics
        ],
    )


def _told(reply: PartitionReply) -> Told.Partition:
    after = reply.partition
    if after is None:
        return Told.Partition(
            partition_index=reply.index,
            error_code=reply.outcome.code,
            leader_id=0,
            leader_epoch=0,
            isr=[],
            partition_epoch=0,
        )
    return Told.Partition(
        partition_index=reply.index,
        error_code=0,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=int(after.leader_recovery_state),
        partition_epoch=after.partition_epoch,
    )
