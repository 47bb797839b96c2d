"""Members of a consumer group that use the classic protocol, as during a rolling upgrade of clients.

JoinGroup, SyncGroup, Heartbeat and LeaveGroup have another meaning here than in a classic group: no member waits for
another.

    JoinGroup    the member reports its subscription and its partitions, as a ConsumerGroupHeartbeat does. Its
                 generation is its epoch; it never becomes leader
    SyncGroup    returns its partitions, encoded as a leader's assignment
    Heartbeat    REBALANCE_IN_PROGRESS if the member should rejoin: there is or should be a newer target, it has
                 partitions to revoke, or partitions that it waits for are free
    LeaveGroup   removes the member

A member that has to rejoin has its rebalance timeout for JoinGroup, and again for SyncGroup; otherwise it is removed:
(group, "join", member) and (group, "sync", member).

For a cooperative member, which reports its partitions, a rebalance is as incremental as for members of the consumer
protocol. An eager member revokes all its partitions before it rejoins, and reports none.
"""

from typing import Final

from trioka.protocol.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    ProtocolError,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from trioka.protocol.internal_records.consumer_groups import ConsumerGroupMemberMetadataValue
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from trioka.protocol.messages.leave_group import LeaveGroupRequest
from trioka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

from .classic.joining import REQUIRES_MEMBER_ID
from .classic.member import rebalance_timeout_of
from .classic.responses import heartbeat_response, join_error, leave_result, leaving_members, left, sync_error
from .client import Client
from .consumer import expiry
from .consumer.heartbeat import Heartbeat, new_member_id, static_member
from .consumer.member import JOINING, ConsumerMember, Phase
from .consumer.state import ConsumerState
from .consumer_protocol import PROTOCOL_TYPE, by_id, read_subscription, version_of, write_assignment
from .decision import Decision, Now, Reply, RequestId, reply

ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
LEADERLESS: Final = ""


# -- JoinGroup ---------------------------------------------------------------------------------------------------------


def join(group: ConsumerState, request_id: RequestId, request: JoinGroupRequest, client: Client, now: Now) -> Decision:
    try:
        _check_join(group, request)
        if request.member_id == "" and request.group_instance_id is None and client.version >= REQUIRES_MEMBER_ID:
            return reply(request_id, join_error(MemberIdRequired, new_member_id(group.context)))
        subscription = _subscription(request)
        return _Join(group, request, subscription, client, now).decide(request_id)
    except KafkaError as error:
        return reply(request_id, join_error(error))


def _check_join(group: ConsumerState, request: JoinGroupRequest) -> None:
    settings = group.settings
    if not settings.may_upgrade and not settings.may_downgrade:
        raise InconsistentGroupProtocol(
            f"Cannot join the consumer group {group.id} with the classic protocol because the group migration is "
            "disabled."
        )
    if len(group.members) >= settings.max_size and request.member_id not in group.members:
        raise GroupMaxSizeReached(
            f"The consumer group has reached its maximum capacity of {settings.max_size} members."
        )
    supported = [
        {protocol.name for protocol in member.classic.supported_protocols}
        for member in group.members.values()
        if member.classic is not None
    ]
    names = {protocol.name for protocol in request.protocols}
    if request.protocol_type != PROTOCOL_TYPE or not names.intersection(*supported):
        raise InconsistentGroupProtocol(f"Member {request.member_id}'s protocols are not supported.")


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The subscription of a member; it is the same in all protocols that a consumer offers."""
    try:
        return read_subscription(request.protocols[0].metadata)
    except ProtocolError:
        raise UnknownServerError("Malformed embedded consumer protocol in subscription deserialization.") from None


class _Join(Heartbeat):
    def __init__(
        self,
        group: ConsumerState,
        request: JoinGroupRequest,
        subscription: ConsumerProtocolSubscription,
        client: Client,
        now: Now,
    ) -> None:
        heartbeat = ConsumerGroupHeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id or new_member_id(group.context),
            member_epoch=JOINING,
            instance_id=request.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=rebalance_timeout_of(request, client),
            subscribed_topic_names=subscription.topics,
            subscribed_topic_regex="",
        )
        super().__init__(group, heartbeat, client, now)
        self._is_unknown = request.member_id == ""
        self._owned = {owned.topic: owned.partitions for owned in subscription.owned_partitions}
        self._classic = ClassicMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicMetadata.SupportedProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in request.protocols
            ],
        )

    def decide(self, request_id: RequestId) -> Decision:
        _, sent, after = self._step()
        deadlines, group_id = self._group.context.deadlines, self._group.id
        deadlines.cancel((group_id, expiry.JOIN, after.id))
        deadlines.cancel((group_id, expiry.REBALANCE, after.id))
        deadlines.set((group_id, expiry.SYNC, after.id), self._now.steady_ms + after.rebalance_timeout_ms)
        assert sent.classic is not None
        response = JoinGroupResponse(
            error_code=0,
            generation_id=after.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=sent.classic.supported_protocols[0].name,
            leader=LEADERLESS,
            member_id=after.id,
            members=[],
        )
        return Decision(records=tuple(self._records), replies=(Reply(request_id, response),))

    def _member(self) -> ConsumerMember:
        group, request = self._group, self._request
        if request.instance_id is None:
            return group.members.get(request.member_id) or ConsumerMember(id=request.member_id)
        if not self._is_unknown:
            return static_member(group, request)
        if request.instance_id in group.instances:
            return self._in_place_of(group.members[group.instances[request.instance_id]])
        return ConsumerMember(id=request.member_id)

    def _reported(self) -> dict[bytes, frozenset[int]]:
        return dict(by_id(self._owned, self._topics))


# -- SyncGroup, Heartbeat, LeaveGroup ----------------------------------------------------------------------------------


def sync(group: ConsumerState, request_id: RequestId, request: SyncGroupRequest, now: Now) -> Decision:
    try:
        member, metadata = _member(group, request)
        name = metadata.supported_protocols[0].name
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
            raise InconsistentGroupProtocol()
        if group.target_epoch > member.epoch and member.phase is not Phase.REVOKING:
            _wait_for_join(group, member, now)
            raise RebalanceInProgress()
        assignment = write_assignment(
            member.assigned, group.context.topics, version_of(metadata.supported_protocols[0].metadata)
        )
    except KafkaError as error:
        return reply(request_id, sync_error(error))
    group.context.deadlines.cancel((group.id, expiry.SYNC, member.id))
    expiry.set_session(group, member, now)
    return reply(
        request_id,
        SyncGroupResponse(
            error_code=0,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment,
        ),
    )


def heartbeat(group: ConsumerState, request_id: RequestId, request: HeartbeatRequest, now: Now) -> Decision:
    try:
        member, _ = _member(group, request)
    except KafkaError as error:
        return reply(request_id, heartbeat_response(error))
    expiry.set_session(group, member, now)
    if not _should_join(group, member):
        return reply(request_id, heartbeat_response())
    _wait_for_join(group, member, now)
    return reply(request_id, heartbeat_response(RebalanceInProgress))


def leave(group: ConsumerState, request_id: RequestId, request: LeaveGroupRequest, client: Client) -> Decision:
    """Remove members of either protocol; static ones may be given by their instance id alone."""
    gone: dict[str, ConsumerMember] = {}
    replies = []
    for leaving in leaving_members(request, client):
        try:
            member = _leaving(group, leaving)
        except KafkaError as error:
            replies.append(leave_result(leaving, error))
        else:
            gone[member.id] = member
            replies.append(leave_result(leaving, None))
    sent = (Reply(request_id, left(replies, client)),)
    return expiry.fence(group, gone.values(), sent) if gone else Decision(replies=sent)


def _leaving(group: ConsumerState, leaving: LeaveGroupRequest.Member) -> ConsumerMember:
    if leaving.group_instance_id is None:
        return group.member(leaving.member_id)
    member_id = group.instances.get(leaving.group_instance_id)
    if member_id is None:
        raise UnknownMemberId()
    if leaving.member_id not in ("", member_id):
        raise FencedInstanceId()
    return group.members[member_id]


def _member(
    group: ConsumerState, request: SyncGroupRequest | HeartbeatRequest
) -> tuple[ConsumerMember, ClassicMetadata]:
    """The member and its metadata, if it uses the classic protocol and its epoch is current."""
    asker = LeaveGroupRequest.Member(member_id=request.member_id, group_instance_id=request.group_instance_id)
    member = _leaving(group, asker)
    if member.id != request.member_id:
        raise FencedInstanceId()
    if member.classic is None:
        raise UnknownMemberId(f"Member {member.id} does not use the classic protocol.")
    if member.epoch != request.generation_id:
        raise IllegalGeneration()
    return member, member.classic


def _should_join(group: ConsumerState, member: ConsumerMember) -> bool:
    if member.epoch < group.target_epoch or member.phase is Phase.REVOKING:
        return True
    if group.epoch > group.target_epoch and all(other.classic is not None for other in group.members.values()):
        return True  # no other member's heartbeat would compute the target; Apache Kafka waits for the next join
    return member.phase is Phase.WAITING and not any(
        number not in member.assigned.get(topic, {}) and group.is_taken(topic, number)
        for topic, numbers in group.targets.get(member.id, {}).items()
        for number in numbers
    )


def _wait_for_join(group: ConsumerState, member: ConsumerMember, now: Now) -> None:
    key = (group.id, expiry.JOIN, member.id)
    if group.context.deadlines.get(key) is None:
        group.context.deadlines.set(key, now.steady_ms + member.rebalance_timeout_ms)
