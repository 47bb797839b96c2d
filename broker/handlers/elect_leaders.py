"""ElectLeaders (43): the first replica shall lead again (preferred), or any that is there (unclean).

Without a list all partitions are meant, and the answer tells of those that needed an election.

v1 the type of the election, and an error for the whole
"""

from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.cluster.decision import Outcome
from trioka.cluster.elections import ElectionReply
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

from ..api import handles
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = ElectLeadersResponse.ReplicaElectionResult

FIRST_VERSION_WITH_ERROR: Final = 1


def refuse(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    """In words that every version has: v0 has no error for the whole."""
    return _refused(request, error, 0)


def _refused(request: ElectLeadersRequest, error: KafkaError, code_of_all: int) -> ElectLeadersResponse:
    outcome = Outcome.of(error)
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=code_of_all,
        replica_election_results=[
            Told(
                topic=topic.topic,
                partition_result=[
                    Told.PartitionResult(partition_id=index, error_code=outcome.code, error_message=outcome.message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


@handles(ElectLeadersRequest, refuse=refuse, forwards=True)
async def elect_leaders(broker: "Broker", call: "Call", request: ElectLeadersRequest) -> ElectLeadersResponse:
    asked = request.topic_partitions
    try:
        broker.guard.must(call, Operation.ALTER)
        if asked is not None and not asked:
            return ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=[])
        check_timeout(request.timeout_ms)
        decision = await broker.quorum.change(lambda controller: controller.elect_leaders(request.election_type, asked))
    except KafkaError as error:
        return _refused(request, error, error.code if call.version >= FIRST_VERSION_WITH_ERROR else 0)
    told = _of_everything(decision.replies) if asked is None else _of_asked(asked, decision.replies)
    return ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=told)


def _of_everything(replies: Sequence[ElectionReply]) -> list[Told]:
    return [_told(topic, of_topic) for topic, of_topic in groupby(replies, lambda reply: reply.topic)]


def _of_asked(asked: Sequence[ElectLeadersRequest.TopicPartition], replies: Sequence[ElectionReply]) -> list[Told]:
    """As it was asked: a topic that was named twice is told twice. One without partitions has one reply, too."""
    left = iter(replies)
    return [_told(topic.topic, islice(left, max(1, len(topic.partitions)))) for topic in asked]


def _told(topic: str, replies: Iterable[ElectionReply]) -> Told:
    return Told(
        topic=topic,
        partition_result=[
            Told.PartitionResult(
                partition_id=reply.index, error_code=reply.outcome.code, error_message=reply.outcome.message
            )
            for reply in replies
            if reply.index is not None
        ],
    )
