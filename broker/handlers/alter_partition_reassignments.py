"""AlterPartitionReassignments (45): moves partitions to other brokers; null replicas cancel a reassignment.

v1 the client can forbid changes of the replication factor
"""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from trioka.cluster.controller.reassignments import ReassignmentReply
from trioka.cluster.decision import ItemResult
from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

from ..api import handles
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = AlterPartitionReassignmentsResponse.Topic


def error_response(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    outcome = ItemResult.of(error)
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=outcome.code,
        error_message=outcome.message,
        responses=[
            TopicResult(
                name=topic.name,
                partitions=[
                    TopicResult.Partition(
                        partition_index=partition.partition_index,
                        error_code=outcome.code,
                        error_message=outcome.message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@handles(AlterPartitionReassignmentsRequest, error_response=error_response, forwards=True)
async def alter_partition_reassignments(
    broker: "Broker", call: "Call", request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    broker.guard.must(call, AclOperation.ALTER)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message="", responses=[])
    check_timeout(request.timeout_ms)
    decision = await broker.quorum.change(
        lambda controller: controller.alter_partition_reassignments(
            request.topics, allow_replication_factor_change=request.allow_replication_factor_change
        )
    )
    replies = iter(decision.replies)
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=0,
        error_message=None,
        # In the order of the request. A topic without partitions also has one reply.
        responses=[_to_result(topic.name, islice(replies, max(1, len(topic.partitions)))) for topic in request.topics],
    )


def _to_result(name: str, replies: Iterable[ReassignmentReply]) -> TopicResult:
    return TopicResult(
        name=name,
        partitions=[
            TopicResult.Partition(
                partition_index=reply.index, error_code=reply.outcome.code, error_message=reply.outcome.message
            )
            for reply in replies
            if reply.index is not None
        ],
    )
