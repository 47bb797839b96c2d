"""ListPartitionReassignments (46): lists ongoing reassignments of all or of the requested partitions."""

from typing import TYPE_CHECKING

from trioka.cluster.controller.reassignments import ongoing
from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = ListPartitionReassignmentsResponse.Topic


def error_response(request: ListPartitionReassignmentsRequest, error: KafkaError) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=error.code, error_message=str(error), topics=[]
    )


@handles(ListPartitionReassignmentsRequest, error_response=error_response, forwards=True)
def list_partition_reassignments(
    broker: "Broker", call: "Call", request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    broker.guard.must(call, AclOperation.DESCRIBE)
    topics: dict[str, list[TopicResult.Partition]] = {}
    for reassignment in ongoing(broker.metadata, request.topics):
        partition = reassignment.partition
        topics.setdefault(reassignment.topic, []).append(
            TopicResult.Partition(
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
        topics=[TopicResult(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
