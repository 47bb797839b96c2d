"""AlterPartitionReassignments (45): partitions move to other brokers; null calls a move off.

v1 the client may insist that no partition gets more or fewer replicas by it
"""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.cluster.decision import Outcome
from trioka.cluster.reassignments import ReassignmentReply
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

Told = AlterPartitionReassignmentsResponse.Topic


def refuse(request: AlterPartitionReassignmentsRequest, error: KafkaError) -> AlterPartitionReassignmentsResponse:
    outcome = Outcome.of(error)
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=outcome.code,
        error_message=outcome.message,
        responses=[
            Told(
                name=topic.name,
                partitions=[
                    Told.Partition(
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


@handles(AlterPartitionReassignmentsRequest, refuse=refuse, forwards=True)
async def alter_partition_reassignments(
    broker: "Broker", call: "Call", request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    broker.guard.must(call, Operation.ALTER)
    if not request.topics:
        return AlterPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message="", responses=[])
    check_timeout(request.timeout_ms)
    decision = await broker.quorum.change(
        lambda controller: controller.alter_partition_reassignments(
            request.topics, allow_replication_factor_change=request.allow_replication_factor_change
        )
    )
    left = iter(decision.replies)
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=0,
        error_message=None,
        # As it was asked. A topic without partitions has one reply all the same.
        responses=[_told(topic.name, islice(left, max(1, len(topic.partitions)))) for topic in request.topics],
    )


def _told(name: str, replies: Iterable[ReassignmentReply]) -> Told:
    return Told(
        name=name,
        partitions=[
            Told.Partition(
                partition_index=reply.index, error_code=reply.outcome.code, error_message=reply.outcome.message
            )
            for reply in replies
            if reply.index is not None
        ],
    )
