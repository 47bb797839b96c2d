"""ListPartitionReassignments (46): the moves that are under way, of all partitions or of some."""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.cluster.reassignments import ongoing
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = ListPartitionReassignmentsResponse.Topic


def refuse(request: ListPartitionReassignmentsRequest, error: KafkaError) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=error.code, error_message=str(error), topics=[]
    )


@handles(ListPartitionReassignmentsRequest, refuse=refuse, forwards=True)
def list_partition_reassignments(
    broker: "Broker", call: "Call", request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    broker.guard.must(call, Operation.DESCRIBE)
    told: dict[str, list[Told.Partition]] = {}
    for move in ongoing(broker.metadata, request.topics):
        partition = move.partition
        told.setdefault(move.topic, []).append(
            Told.Partition(
                partition_index=partition.index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
        )
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        topics=[Told(name=name, partitions=partitions) for name, partitions in told.items()],
    )
