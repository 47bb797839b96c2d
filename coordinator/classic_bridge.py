"""Members of a consumer group that speak the classic protocol, as clients do until they have been rolled over.

JoinGroup, SyncGroup, Heartbeat and LeaveGroup mean other things here than in a classic group: nobody waits for anybody.

    JoinGroup    the member says what it subscribes to and what it has, as a heartbeat of the other protocol would. Its
                 generation is its epoch; it is never the leader
    SyncGroup    it is told what it has, in the words of a leader's assignment
    Heartbeat    REBALANCE_IN_PROGRESS when joining again would move it on: there is a newer target or should be, or it
                 has to give something up, or what it waits for is free
    LeaveGroup   it is removed

A member that was told to join again has its rebalance timeout for that, and again to ask for its assignment; or else
it is removed: (group, "join", member) and (group, "sync", member).

For a member that says what it has (cooperative) a rebalance is as gentle as for all others. An eager one drops all it
has before it joins again, and says that it has nothing.
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

from . import consumer_expiry as expiry
from .classic_joining import REQUIRES_MEMBER_ID
from .classic_member import rebalance_timeout_of
from .classic_responses import heartbeat_said, join_refused, leaver, leavers, left, sync_refused
from .client import Client
from .consumer_heartbeat import Heartbeat, new_member_id, static_member
from .consumer_member import JOINING, ConsumerMember, Phase
from .consumer_protocol import PROTOCOL_TYPE, by_id, read_subscription, version_of, write_assignment
from .consumer_state import ConsumerState
from .decision import Answer, Decision, Moment, Ticket, answer

ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
LEADERLESS: Final = ""


# -- JoinGroup ---------------------------------------------------------------------------------------------------------


def join(group: ConsumerState, ticket: Ticket, request: JoinGroupRequest, client: Client, now: Moment) -> Decision:
    try:
        _check_join(group, request)
        if request.member_id == "" and request.group_instance_id is None and client.version >= REQUIRES_MEMBER_ID:
            return answer(ticket, join_refused(MemberIdRequired, new_member_id(group.surroundings)))
        subscription = _subscription(request)
        return _Join(group, request, subscription, client, now).decide(ticket)
    except KafkaError as error:
        return answer(ticket, join_refused(error))


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
    """It is the same in all protocols that a consumer offers."""
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
        now: Moment,
    ) -> None:
        said = ConsumerGroupHeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id or new_member_id(group.surroundings),
            member_epoch=JOINING,
            instance_id=request.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=rebalance_timeout_of(request, client),
            subscribed_topic_names=subscription.topics,
            subscribed_topic_regex="",
        )
        super().__init__(group, said, client, now)
        self._is_unknown = request.member_id == ""
        self._owned = {owned.topic: owned.partitions for owned in subscription.owned_partitions}
        self._classic = ClassicMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicMetadata.SupportedProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in request.protocols
            ],
        )

    def decide(self, ticket: Ticket) -> Decision:
        _, told, after = self._step()
        deadlines, group_id = self._group.surroundings.deadlines, self._group.id
        deadlines.cancel((group_id, expiry.JOIN, after.id))
        deadlines.cancel((group_id, expiry.REBALANCE, after.id))
        deadlines.set((group_id, expiry.SYNC, after.id), self._now.steady_ms + after.rebalance_timeout_ms)
        assert told.classic is not None
        response = JoinGroupResponse(
            error_code=0,
            generation_id=after.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=told.classic.supported_protocols[0].name,
            leader=LEADERLESS,
            member_id=after.id,
            members=[],
        )
        return Decision(records=tuple(self._records), answers=(Answer(ticket, response),))

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


def sync(group: ConsumerState, ticket: Ticket, request: SyncGroupRequest, now: Moment) -> Decision:
    try:
        member, metadata = _member(group, request)
        name = metadata.supported_protocols[0].name
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
            raise InconsistentGroupProtocol()
        if group.target_epoch > member.epoch and member.phase is not Phase.REVOKING:
            _wait_for_join(group, member, now)
            raise RebalanceInProgress()
        assignment = write_assignment(
            member.assigned, group.surroundings.topics, version_of(metadata.supported_protocols[0].metadata)
        )
    except KafkaError as error:
        return answer(ticket, sync_refused(error))
    group.surroundings.deadlines.cancel((group.id, expiry.SYNC, member.id))
    expiry.set_session(group, member, now)
    return answer(
        ticket,
        SyncGroupResponse(
            error_code=0,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment,
        ),
    )


def heartbeat(group: ConsumerState, ticket: Ticket, request: HeartbeatRequest, now: Moment) -> Decision:
    try:
        member, _ = _member(group, request)
    except KafkaError as error:
        return answer(ticket, heartbeat_said(error))
    expiry.set_session(group, member, now)
    if not _should_join(group, member):
        return answer(ticket, heartbeat_said())
    _wait_for_join(group, member, now)
    return answer(ticket, heartbeat_said(RebalanceInProgress))


def leave(group: ConsumerState, ticket: Ticket, request: LeaveGroupRequest, client: Client) -> Decision:
    """Members of either protocol may be sent away, static ones by their instance alone."""
    gone: dict[str, ConsumerMember] = {}
    answers = []
    for leaving in leavers(request, client):
        try:
            member = _leaving(group, leaving)
        except KafkaError as error:
            answers.append(leaver(leaving, error))
        else:
            gone[member.id] = member
            answers.append(leaver(leaving, None))
    told = (Answer(ticket, left(answers, client)),)
    return expiry.fence(group, gone.values(), told) if gone else Decision(answers=told)


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
    """Who asks, and what it has said of itself, if it speaks this protocol and is where it believes to be."""
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
        return (
            True  # nobody else is here whose heartbeat would compute the target; Apache Kafka waits for one who joins
        )
    return member.phase is Phase.WAITING and not any(
        number not in member.assigned.get(topic, {}) and group.is_taken(topic, number)
        for topic, numbers in group.targets.get(member.id, {}).items()
        for number in numbers
    )


def _wait_for_join(group: ConsumerState, member: ConsumerMember, now: Moment) -> None:
    key = (group.id, expiry.JOIN, member.id)
    if group.surroundings.deadlines.get(key) is None:
        group.surroundings.deadlines.set(key, now.steady_ms + member.rebalance_timeout_ms)
