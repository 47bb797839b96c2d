"""What members of classic groups are told, field by field as Apache Kafka tells it.

An error leaves the protocol's name empty where the group is not looked into further, and null where it was
looked for a member in vain; clients before v7 of JoinGroup are told the empty name for both.
"""

from collections.abc import Iterable
from typing import Final

from trioka.protocol.errors import NONE, KafkaError, UnknownMemberId
from trioka.protocol.messages.heartbeat import HeartbeatResponse
from trioka.protocol.messages.join_group import JoinGroupResponse
from trioka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from trioka.protocol.messages.sync_group import SyncGroupResponse

from .client import Client

LEAVES_IN_BATCHES: Final = 3  # the version of LeaveGroup from which on it names many members
MAY_BE_NAMELESS: Final = 7  # the version of JoinGroup from which on a protocol's name may be null


def join_refused(error: KafkaError | type[KafkaError], member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, protocol_name="", leader="", member_id=member_id, members=[])


def member_refused(error: KafkaError | type[KafkaError], member_id: str, version: int) -> JoinGroupResponse:
    """There is no such member, or another has taken its place."""
    name = None if version >= MAY_BE_NAMELESS else ""
    return JoinGroupResponse(error_code=error.code, protocol_name=name, leader="", member_id=member_id, members=[])


def sync_refused(error: KafkaError | type[KafkaError]) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code, assignment=b"")


def heartbeat_said(error: KafkaError | type[KafkaError] | None = None) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=NONE if error is None else error.code)


def leavers(request: LeaveGroupRequest, client: Client) -> list[LeaveGroupRequest.Member]:
    if client.version >= LEAVES_IN_BATCHES:
        return request.members
    return [LeaveGroupRequest.Member(member_id=request.member_id)]


def left(members: Iterable[LeaveGroupResponse.Member], client: Client) -> LeaveGroupResponse:
    answered = list(members)
    if client.version >= LEAVES_IN_BATCHES:
        return LeaveGroupResponse(error_code=NONE, members=answered)
    return LeaveGroupResponse(error_code=answered[0].error_code)


def leaver(member: LeaveGroupRequest.Member, error: KafkaError | type[KafkaError] | None) -> LeaveGroupResponse.Member:
    return LeaveGroupResponse.Member(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        error_code=NONE if error is None else error.code,
    )


def leave_unknown_group(request: LeaveGroupRequest, client: Client) -> LeaveGroupResponse:
    """There is no such group, and so none of these members."""
    return left((leaver(member, UnknownMemberId) for member in leavers(request, client)), client)
