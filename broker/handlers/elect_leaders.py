"""ElectLeaders (43): makes the preferred replica (preferred election) or any live replica (unclean election) leader.

A null list selects all partitions; the response then contains the partitions that needed an election.

v1 the type of the election, and an error for the whole response
"""

from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from trioka.cluster.controller.elections import ElectionReply
from trioka.cluster.decision import ItemResult
from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

from ..api import handles
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = ElectLeadersResponse.ReplicaElectionResult

FIRST_VERSION_WITH_ERROR: Final = 1


def error_response(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    """The error in each partition only: v0 has no error for the whole response."""
    return _error_result(request, error, 0)


def _error_result(request: ElectLeadersRequest, error: KafkaError, error_code: int) -> ElectLeadersResponse:
    outcome = ItemResult.of(error)
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=error_code,
        replica_election_results=[
            TopicResult(
                topic=topic.topic,
                partition_result=[
                    TopicResult.PartitionResult(
                        partition_id=index, error_code=outcome.code, error_message=outcome.message
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


@handles(ElectLeadersRequest, error_response=error_response, forwards=True)
async def elect_leaders(broker: "Broker", call: "Call", request: ElectLeadersRequest) -> ElectLeadersResponse:
    topics = request.topic_partitions
    try:
        broker.guard.must(call, AclOperation.ALTER)
        if topics is not None and not topics:
            return ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=[])
        check_timeout(request.timeout_ms)
        decision = await broker.quorum.change(
            lambda controller: controller.elect_leaders(request.election_type, topics)
        )
    except KafkaError as error:
        return _error_result(request, error, error.code if call.version >= FIRST_VERSION_WITH_ERROR else 0)
    results = _all_results(decision.replies) if topics is None else _requested_results(topics, decision.replies)
    return ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=results)


def _all_results(replies: Sequence[ElectionReply]) -> list[TopicResult]:
    return [_to_result(topic, topic_replies) for topic, topic_replies in groupby(replies, lambda reply: reply.topic)]


def _requested_results(
    topics: Sequence[ElectLeadersRequest.TopicPartition], replies: Sequence[ElectionReply]
) -> list[TopicResult]:
    """Results in the order of the request, including duplicates. A topic without partitions also has one reply."""
    remaining = iter(replies)
    return [_to_result(topic.topic, islice(remaining, max(1, len(topic.partitions)))) for topic in topics]


def _to_result(topic: str, replies: Iterable[ElectionReply]) -> TopicResult:
    return TopicResult(
        topic=topic,
        partition_result=[
            TopicResult.PartitionResult(
                partition_id=reply.index, error_code=reply.outcome.code, error_message=reply.outcome.message
            )
            for reply in replies
            if reply.index is not None
        ],
    )
