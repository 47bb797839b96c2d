"""OffsetCommit (8): stores the offsets of a group.

A commit without a member id and with generation -1 comes from outside the group. It is accepted if the group has no
members; the group need not exist.

v5 no retention time · v6 leader epochs · v7 static members · v8 flexible · v9 consumer groups (KIP-848), with
STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND · v10 topics by id
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of
from ..security.guard import GROUP, pop_denied

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending

TopicResult = OffsetCommitResponse.Topic


def error_response(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_error_result(topic, error) for topic in request.topics])


def _error_result(topic: OffsetCommitRequest.Topic, error: KafkaError) -> TopicResult:
    return TopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TopicResult.Partition(partition_index=partition.partition_index, error_code=error.code)
            for partition in topic.partitions
        ],
    )


@handles(OffsetCommitRequest, error_response=error_response)
def offset_commit(broker: "Broker", call: "Call", request: OffsetCommitRequest) -> "Response | Pending":
    broker.guard.must(call, AclOperation.READ, GROUP, request.group_id)
    denied = pop_denied(broker, call, AclOperation.READ, request.topics, _topic_names(broker))
    if denied and not request.topics:
        return OffsetCommitResponse(topics=[_error_result(topic, TopicAuthorizationFailed()) for topic in denied])

    def with_denied(response: Response) -> Response:
        assert isinstance(response, OffsetCommitResponse)
        response.topics.extend(_error_result(topic, TopicAuthorizationFailed()) for topic in denied)
        return response

    client = client_of(call)
    return broker.groups.submit(
        call,
        request,
        error_response,
        request.group_id,
        lambda groups, request_id, now: groups.commit_offsets(request_id, request, client, now),
        with_denied if denied else None,
    )


def _topic_names(broker: "Broker") -> Callable[[OffsetCommitRequest.Topic], str | None]:
    """A function that returns the name of a topic, which may be given by id; None if the id is unknown."""
    return lambda topic: topic.name or broker.topic_name(topic.topic_id)
