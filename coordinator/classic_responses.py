"""Responses to members of classic groups, field by field as Apache Kafka builds them.

Where the error does not depend on the group's members, the protocol name is empty; where a member was looked up and not
found, it is null. Clients before v7 of JoinGroup get the empty name for both.
"""

from collections.abc import Iterable
from typing import Final

from trioka.protocol.errors import NONE, KafkaError, UnknownMemberId
from trioka.protocol.messages.heartbeat import HeartbeatResponse
from trioka.protocol.messages.join_group import JoinGroupResponse
from trioka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from trioka.protocol.messages.sync_group import SyncGroupResponse

from .client import Client

FIRST_WITH_MANY_MEMBERS: Final = 3  # from this version on LeaveGroup names several members
FIRST_WITH_NULL_PROTOCOL: Final = 7  # from this version on the protocol name of JoinGroup may be null


def join_error(error: KafkaError | type[KafkaError], member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, protocol_name="", leader="", member_id=member_id, members=[])


def member_error(error: KafkaError | type[KafkaError], member_id: str, version: int) -> JoinGroupResponse:
    """The error of a member that does not exist or was replaced."""
    name = None if version >= FIRST_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(error_code=error.code, protocol_name=name, leader="", member_id=member_id, members=[])


def sync_error(error: KafkaError | type[KafkaError]) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code, assignment=b"")


def heartbeat_response(error: KafkaError | type[KafkaError] | None = None) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=NONE if error is None else error.code)


def leaving_members(request: LeaveGroupRequest, client: Client) -> list[LeaveGroupRequest.Member]:
    if client.version >= FIRST_WITH_MANY_MEMBERS:
        return request.members
    return [LeaveGroupRequest.Member(member_id=request.member_id)]


def left(members: Iterable[LeaveGroupResponse.Member], client: Client) -> LeaveGroupResponse:
    answered = list(members)
    if client.version >= FIRST_WITH_MANY_MEMBERS:
        return LeaveGroupResponse(error_code=NONE, members=answered)
    return LeaveGroupResponse(error_code=answered[0].error_code)


def leave_result(
    member: LeaveGroupRequest.Member, error: KafkaError | type[KafkaError] | None
) -> LeaveGroupResponse.Member:
    return LeaveGroupResponse.Member(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        error_code=NONE if error is None else error.code,
    )


def leave_unknown_group(request: LeaveGroupRequest, client: Client) -> LeaveGroupResponse:
    """The error of all members of a group that does not exist."""
    return left((leave_result(member, UnknownMemberId) for member in leaving_members(request, client)), client)
