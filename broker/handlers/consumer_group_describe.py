"""ConsumerGroupDescribe (69): groups of the next-generation protocol, with their members and what each is assigned.

v1 tells a member's type
"""

from typing import TYPE_CHECKING

from trioka.protocol.errors import InvalidGroupId, KafkaError, UnsupportedVersion
from trioka.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

from ..group_shards import has_consumer_groups
from ..operations import GROUP_OPERATIONS
from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call

Group = ConsumerGroupDescribeResponse.Group


def refuse(request: ConsumerGroupDescribeRequest, error: KafkaError) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0, groups=[_refused(group_id, error) for group_id in request.group_ids]
    )


@handles(ConsumerGroupDescribeRequest, refuse=refuse)
async def consumer_group_describe(
    broker: "Broker", call: "Call", request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    if not has_consumer_groups(broker):
        raise UnsupportedVersion()
    told = [await _describe(broker, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in told:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS  # type: ignore[misc]
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=told)


async def _describe(broker: "Broker", group_id: str) -> Group:
    try:
        if not group_id:
            raise InvalidGroupId()
        return await broker.groups.look(group_id, lambda groups: groups.describe_consumer_group(group_id))
    except KafkaError as error:
        return _refused(group_id, error)


def _refused(group_id: str, error: KafkaError) -> Group:
    return Group(
        error_code=error.code,
        error_message=str(error) if error.args else None,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )
