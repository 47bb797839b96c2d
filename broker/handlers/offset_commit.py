"""OffsetCommit (8): a group's place in partitions is kept.

A commit without a member and with generation -1 comes from outside a group, and is taken if the group has no members;
the group need not exist.

v5 no retention time · v6 leader epochs · v7 static members · v8 flexible · v9 next-generation groups, and what they
say: STALE_MEMBER_EPOCH, GROUP_ID_NOT_FOUND · v10 topics by id
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..coordinators.groups import client_of
from ..security.guard import GROUP, take_denied

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

Told = OffsetCommitResponse.Topic


def refuse(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_refused(topic, error) for topic in request.topics])


def _refused(topic: OffsetCommitRequest.Topic, error: KafkaError) -> Told:
    return Told(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            Told.Partition(partition_index=asked.partition_index, error_code=error.code) for asked in topic.partitions
        ],
    )


@handles(OffsetCommitRequest, refuse=refuse)
def offset_commit(broker: "Broker", call: "Call", request: OffsetCommitRequest) -> "Response | Later":
    broker.guard.must(call, Operation.READ, GROUP, request.group_id)
    denied = take_denied(broker, call, Operation.READ, request.topics, _name_of(broker))
    if denied and not request.topics:
        return OffsetCommitResponse(topics=[_refused(topic, TopicAuthorizationFailed()) for topic in denied])

    def said(response: Response) -> Response:
        assert isinstance(response, OffsetCommitResponse)
        response.topics.extend(_refused(topic, TopicAuthorizationFailed()) for topic in denied)
        return response

    client = client_of(call)
    return broker.groups.ask(
        call,
        request,
        refuse,
        request.group_id,
        lambda groups, ticket, now: groups.commit_offsets(ticket, request, client, now),
        said if denied else None,
    )


def _name_of(broker: "Broker") -> Callable[[OffsetCommitRequest.Topic], str | None]:
    """How a topic is called that may be named by its id; None if nobody knows it."""
    return lambda topic: topic.name or broker.topic_name(topic.topic_id)
