"""OffsetDelete (47): forgets a group's place in partitions that it does not read any more.

A topic that a member subscribes to is refused (GROUP_SUBSCRIBED_TO_TOPIC).
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..security.guard import GROUP, take_denied

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

Told = OffsetDeleteResponse.Topic


def refuse(request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=[])


@handles(OffsetDeleteRequest, refuse=refuse)
def offset_delete(broker: "Broker", call: "Call", request: OffsetDeleteRequest) -> "Response | Later":
    broker.guard.must(call, Operation.DELETE, GROUP, request.group_id)
    denied = take_denied(broker, call, Operation.READ, request.topics, lambda topic: topic.name)

    def said(response: Response) -> Response:
        assert isinstance(response, OffsetDeleteResponse)
        if not response.error_code:
            response.topics.extend(map(_denied, denied))
        return response

    return broker.groups.ask(
        call,
        request,
        refuse,
        request.group_id,
        lambda groups, ticket, now: groups.delete_offsets(ticket, request, now),
        said if denied else None,
    )


def _denied(topic: OffsetDeleteRequest.Topic) -> Told:
    code = TopicAuthorizationFailed.code
    return Told(
        name=topic.name,
        partitions=[
            Told.Partition(partition_index=asked.partition_index, error_code=code) for asked in topic.partitions
        ],
    )
