"""ConsumerGroupDescribe (69): describes groups of the consumer protocol (KIP-848), with members and assignments.

v1 the type of a member
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import InvalidGroupId, KafkaError, TopicAuthorizationFailed, UnsupportedVersion
from trioka.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

from ..api import handles
from ..coordinators.groups import has_consumer_groups
from ..security.authorized_operations import GROUP_OPERATIONS
from ..security.guard import GROUP, TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Group = ConsumerGroupDescribeResponse.Group


def error_response(request: ConsumerGroupDescribeRequest, error: KafkaError) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0, groups=[_error_result(group_id, error) for group_id in request.group_ids]
    )


@handles(ConsumerGroupDescribeRequest, error_response=error_response)
async def consumer_group_describe(
    broker: "Broker", call: "Call", request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    if not has_consumer_groups(broker):
        raise UnsupportedVersion()
    groups = [await _describe(broker, call, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = broker.guard.operations(  # type: ignore[misc]
                    call, GROUP, group.group_id, GROUP_OPERATIONS
                )
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


async def _describe(broker: "Broker", call: "Call", group_id: str) -> Group:
    try:
        broker.guard.must(call, AclOperation.DESCRIBE, GROUP, group_id)
        if not group_id:
            raise InvalidGroupId()
        group = await broker.groups.read(group_id, lambda groups: groups.describe_consumer_group(group_id))
        _check_topic_access(broker, call, group)
        return group
    except KafkaError as error:
        return _error_result(group_id, error)


def _check_topic_access(broker: "Broker", call: "Call", group: Group) -> None:
    """Refuse the whole group if it has a topic that the client may not describe."""
    names = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    allowed = broker.guard.allowed(call, AclOperation.DESCRIBE, TOPIC, names)
    if not all(name in allowed for name in names):
        raise TopicAuthorizationFailed("the client may not describe all topics of the group")


def _error_result(group_id: str, error: KafkaError) -> Group:
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
