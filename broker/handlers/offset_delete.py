"""OffsetDelete (47): forgets a group's place in partitions that it does not read any more.

A topic that a member subscribes to is refused (GROUP_SUBSCRIBED_TO_TOPIC).
"""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from trioka.protocol.schema import Response

from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call, Later


def refuse(request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=[])


@handles(OffsetDeleteRequest, refuse=refuse)
def offset_delete(broker: "Broker", call: "Call", request: OffsetDeleteRequest) -> "Response | Later":
    return broker.groups.ask(
        call,
        request,
        refuse,
        request.group_id,
        lambda groups, ticket, now: groups.delete_offsets(ticket, request, now),
    )
