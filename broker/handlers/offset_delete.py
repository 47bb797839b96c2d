"""OffsetDelete (47): deletes committed offsets of a group.

Offsets of a topic that a member is subscribed to are kept (GROUP_SUBSCRIBED_TO_TOPIC).
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError, TopicAuthorizationFailed
from trioka.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..security.guard import GROUP, pop_denied

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending

TopicResult = OffsetDeleteResponse.Topic


def error_response(request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=[])


@handles(OffsetDeleteRequest, error_response=error_response)
def offset_delete(broker: "Broker", call: "Call", request: OffsetDeleteRequest) -> "Response | Pending":
    broker.guard.must(call, AclOperation.DELETE, GROUP, request.group_id)
    denied = pop_denied(broker, call, AclOperation.READ, request.topics, lambda topic: topic.name)

    def with_denied(response: Response) -> Response:
        assert isinstance(response, OffsetDeleteResponse)
        if not response.error_code:
            response.topics.extend(map(_denied, denied))
        return response

    return broker.groups.submit(
        call,
        request,
        error_response,
        request.group_id,
        lambda groups, request_id, now: groups.delete_offsets(request_id, request, now),
        with_denied if denied else None,
    )


def _denied(topic: OffsetDeleteRequest.Topic) -> TopicResult:
    code = TopicAuthorizationFailed.code
    return TopicResult(
        name=topic.name,
        partitions=[
            TopicResult.Partition(partition_index=p.partition_index, error_code=code) for p in topic.partitions
        ],
    )
