"""ConsumerGroupHeartbeat: the one request with which a member of a consumer group joins, stays, moves and leaves.

A heartbeat does up to four things, and writes what they change, in this order:

    1. the member: who it is, what it subscribes to. A static member may take the place of one that has left
    2. the group epoch: it grows if the subscriptions, or the topics behind them, are not what they were
    3. the target: computed anew if it is older than the group, though not more often than the group's interval allows
    4. the member's own way to its target, one step

and tells the member its epoch, and what it has whenever that changed or it asked. Nothing here changes the group: an
error is raised before there is anything to write, and deadlines are set when nothing can fail any more.
"""

from dataclasses import replace
from typing import Final

from trioka.protocol.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from trioka.protocol.internal_records.consumer_groups import ConsumerGroupMemberMetadataValue
from trioka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from trioka.protocol.primitives import uuid_text

from . import consumer_expiry as expiry
from . import consumer_records as records
from .assignors import Assignment
from .client import Client
from .consumer_member import JOINING, LEFT, LEFT_FOR_A_WHILE, ConsumerMember, Owned
from .consumer_state import ConsumerState
from .decision import Answer, Decision, Kept, Moment, Ticket
from .reconciliation import Aim, reconciled
from .settings import Surroundings
from .subscription_pattern import check_pattern
from .target_assignment import may_compute, new_target

FIRST_WITH_CHOSEN_IDS: Final = 1  # from this version on the client makes up its member's id
PATTERNS_AT_MOST_EVERY_MS: Final = 10_000


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, client: Client, surroundings: Surroundings) -> None:
    """What can be said of a request before a group is looked for."""
    if client.version >= FIRST_WITH_CHOSEN_IDS or request.member_epoch > 0 or request.member_epoch == LEFT:
        _not_blank(request.member_id, "MemberId can't be empty.")
    _not_blank(request.group_id, "GroupId can't be empty.")
    _not_blank(request.instance_id, "InstanceId can't be empty.")
    _not_blank(request.rack_id, "RackId can't be empty.")
    if request.member_epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif request.member_epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        raise InvalidRequest("InstanceId can't be null.")
    elif request.member_epoch < LEFT_FOR_A_WHILE:
        raise InvalidRequest("MemberEpoch is invalid.")
    assignors = surroundings.consumer(request.group_id).assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )


def _not_blank(text: str | None, complaint: str) -> None:
    if text is not None and not text.strip():
        raise InvalidRequest(complaint)


def heartbeat(
    group: ConsumerState, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, client: Client, now: Moment
) -> Decision:
    if request.member_epoch in (LEFT, LEFT_FOR_A_WHILE):
        return _leave(group, ticket, request)
    return Heartbeat(group, request, client, now).decide(ticket)


def _leave(group: ConsumerState, ticket: Ticket, request: ConsumerGroupHeartbeatRequest) -> Decision:
    is_static = request.instance_id is not None
    member = static_member(group, request) if is_static else group.member(request.member_id)
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=0,
    )
    answers = (Answer(ticket, response),)
    if is_static and request.member_epoch == LEFT_FOR_A_WHILE:
        return Decision(records=(records.placed(group.id, member.away()),), answers=answers)
    return expiry.fence(group, (member,), answers)


def static_member(group: ConsumerState, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """The member of an instance, if it is the one that asks."""
    instance_id = request.instance_id or ""
    member_id = group.instances.get(instance_id)
    if member_id is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if member_id != request.member_id:
        raise FencedInstanceId(
            f"Static member {request.member_id} with instance id {instance_id} was fenced by member {member_id}."
        )
    return group.members[member_id]


class Heartbeat:
    """One of them, while it is decided. (`coordinator/classic_bridge.py` has another kind of the same: a member that
    speaks the classic protocol joins.)"""

    def __init__(
        self, group: ConsumerState, request: ConsumerGroupHeartbeatRequest, client: Client, now: Moment
    ) -> None:
        self._group = group
        self._topics = group.surroundings.topics
        self._request = request
        self._client = client
        self._now = now
        self._records: list[Kept] = []
        self._replaced: ConsumerMember | None = None  # the static member whose place the asking one takes
        self._classic: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None

    def decide(self, ticket: Ticket) -> Decision:
        before, told, after = self._step()
        if after != told:
            expiry.set_rebalance(self._group, after, self._now)
        return Decision(records=tuple(self._records), answers=(Answer(ticket, self._response(before, after)),))

    def _step(self) -> tuple[ConsumerMember, ConsumerMember, ConsumerMember]:
        """The member as it was, as it tells of itself now, and where it stands then."""
        group, now = self._group, self._now
        before = self._member()
        told = self._told(before)
        has_new_subscription = told.topics != before.topics or told.pattern != before.pattern
        epoch = self._group_epoch(before, told)
        target_epoch, target = self._target(before, told, epoch)
        after = self._reconciled(told, target_epoch, target, has_new_subscription)
        resolves = self._wants_patterns_resolved(before, told)

        expiry.set_session(group, after, now)
        if resolves:
            group.surroundings.pattern_askers[group.id] = self._client
            group.surroundings.deadlines.set((group.id, expiry.REGEX), now.steady_ms)
        return before, told, after

    # -- 1. the member -------------------------------------------------------------------------------------------------

    def _member(self) -> ConsumerMember:
        """As it was until now; or as a new one begins."""
        group, request = self._group, self._request
        max_size = group.settings.max_size
        if len(group.members) >= max_size and request.member_id not in group.members:
            raise GroupMaxSizeReached(f"The consumer group has reached its maximum capacity of {max_size} members.")
        is_joining = request.member_epoch == JOINING
        if request.instance_id is not None:
            if is_joining and request.instance_id in group.instances:
                return self._in_place_of(group.members[group.instances[request.instance_id]])
            if not is_joining:
                member = static_member(group, request)
                self._check_epoch(member)
                return member
        member_id = request.member_id or new_member_id(group.surroundings)
        if is_joining:
            return group.members.get(member_id) or ConsumerMember(id=member_id)
        member = group.member(member_id)
        self._check_epoch(member)
        return member

    def _check_epoch(self, member: ConsumerMember) -> None:
        said = self._request.member_epoch
        if said > member.epoch:
            comparison = "greater"
        elif said < member.epoch and not (said == member.previous_epoch and self._has_only(member.assigned)):
            comparison = "smaller"
        else:
            return  # it is behind, but with nothing that is not its own: it may have missed the last answer
        raise FencedMemberEpoch(
            f"The consumer group member has a {comparison} member epoch ({said}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )

    def _has_only(self, assigned: Owned) -> bool:
        reported = self._reported()
        if reported is None:
            return False
        return all(topic in assigned and has <= assigned[topic].keys() for topic, has in reported.items())

    def _reported(self) -> Assignment | None:
        """What the member says that it has."""
        if self._request.topic_partitions is None:
            return None
        said: dict[bytes, frozenset[int]] = {}
        for topic in self._request.topic_partitions:
            said[topic.topic_id] = said.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
        return said

    def _in_place_of(self, existing: ConsumerMember) -> ConsumerMember:
        """A static member is back, under another id or its own: it takes up what its instance had."""
        group, request = self._group, self._request
        member_id = request.member_id or new_member_id(group.surroundings)
        if existing.epoch != LEFT_FOR_A_WHILE and existing.classic is None and self._classic is None:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
                f"instance id is owned by {existing.id} member."
            )
        member = replace(existing, id=member_id, epoch=0, previous_epoch=0)
        self._replaced = existing
        self._records += [
            *records.member_gone(group.id, existing.id),
            records.member(group.id, member),
            records.target(group.id, member.id, group.targets.get(existing.id, {})),
            records.placed(group.id, member),
        ]
        return member

    def _told(self, member: ConsumerMember) -> ConsumerMember:
        """The member with what it says of itself now. What it does not say stays as it was."""
        request = self._request
        names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
        if self._says_nothing_new(member):
            return member
        told = replace(
            member,
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack=member.rack if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            assignor=member.assignor if request.server_assignor is None else request.server_assignor,
            topics=member.topics if names is None else frozenset(names),
            pattern=member.pattern if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
            client_id=self._client.id,
            client_host=self._client.host,
            classic=self._classic,
        )
        if told != member:
            self._records.append(records.member(self._group.id, told))
        return told

    def _says_nothing_new(self, member: ConsumerMember) -> bool:
        """Nearly every heartbeat: it says that the member lives. To compare two members would cost half of all."""
        request, client = self._request, self._client
        return (
            request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.instance_id is None
            and request.rack_id is None
            and request.server_assignor is None
            and request.rebalance_timeout_ms == -1
            and member.classic is self._classic is None
            and client.id == member.client_id
            and client.host == member.client_host
        )

    # -- 2. the group epoch --------------------------------------------------------------------------------------------

    def _group_epoch(self, before: ConsumerMember, told: ConsumerMember) -> int:
        group, subscriptions = self._group, self._group.subscriptions
        self._records += [
            records.expression_gone(group.id, pattern) for pattern in subscriptions.dropped_patterns((before,), (told,))
        ]
        is_known = self._changes_to_known_topics(before, told)
        if told.topics != before.topics or is_known:
            grows, metadata_hash = True, subscriptions.hash_after(self._topics, (before,), (told,))
        elif subscriptions.patterns.keys() - subscriptions.resolved.keys() or told.pattern != before.pattern:
            grows, metadata_hash = False, group.metadata_hash  # once they are resolved there will be a new epoch anyway
        else:
            metadata_hash = subscriptions.hash(self._topics)
            grows = metadata_hash != group.metadata_hash
        if grows:
            self._records.append(records.group_epoch(group.id, group.epoch + 1, metadata_hash))
        if group.has_partition_metadata:
            self._records.append(records.partition_metadata_gone(group.id))
        return group.epoch + 1 if grows else group.epoch

    def _changes_to_known_topics(self, before: ConsumerMember, told: ConsumerMember) -> bool:
        """Whether the member has another pattern now, or none, and it is known which topics that means."""
        subscriptions = self._group.subscriptions
        if told.pattern == before.pattern:
            return False
        if not told.pattern:
            return bool(before.pattern)
        if told.pattern not in subscriptions.patterns:
            check_pattern(told.pattern)
            return False
        return told.pattern in subscriptions.resolved

    def _wants_patterns_resolved(self, before: ConsumerMember, told: ConsumerMember) -> bool:
        """When there is a pattern that is not resolved; when topics may have come or gone; and once in a while."""
        group, subscriptions, now_ms = self._group, self._group.subscriptions, self._now.wall_ms
        patterns = set(subscriptions.patterns).difference(subscriptions.dropped_patterns((before,), (told,)))
        if told.pattern:
            patterns.add(told.pattern)
        if not patterns:
            return False
        resolved = subscriptions.resolved.values()
        seen, looked_ms = group.patterns_seen
        written_ms = max((found.at_ms for found in resolved), default=0)
        if now_ms <= max(looked_ms, written_ms) + PATTERNS_AT_MOST_EVERY_MS:
            return False
        return (
            patterns != subscriptions.resolved.keys()
            or self._topics.version > max([seen, *(found.version for found in resolved)])
            or now_ms > written_ms + group.settings.regex_refresh_interval_ms
        )

    # -- 3. the target -------------------------------------------------------------------------------------------------

    def _target(self, before: ConsumerMember, told: ConsumerMember, epoch: int) -> tuple[int, Assignment]:
        group, settings = self._group, self._group.settings
        inherited = group.target_of(told)
        is_newest = group.target_epoch >= epoch
        if is_newest or not may_compute(group.target_ms, settings.assignment_interval_ms, self._now.wall_ms):
            return group.target_epoch, inherited
        members = {member.id: member for member in group.members.values() if member is not self._replaced}
        members[told.id] = told
        known: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}  # many subscribe to the same

        def subscribed(member: ConsumerMember) -> frozenset[bytes]:
            subscription = (member.topics, member.pattern)
            if subscription not in known:
                known[subscription] = group.subscriptions.topic_ids(member, self._topics)
            return known[subscription]

        target = new_target(
            group.id,
            epoch,
            group.assignor((before,), (told,)),
            members.values(),
            until_now=group.targets,
            inherited={told.id: inherited} if self._replaced is not None else {},
            subscribed=subscribed,
            topics=self._topics,
            now_ms=self._now.wall_ms,
        )
        self._records += target.records
        return epoch, target.assignments.get(told.id, {})

    # -- 4. the member's way -------------------------------------------------------------------------------------------

    def _reconciled(
        self, member: ConsumerMember, target_epoch: int, target: Assignment, has_new_subscription: bool
    ) -> ConsumerMember:
        if not has_new_subscription and member.is_reconciled_to(target_epoch):
            return member
        aim = Aim(
            epoch=target_epoch,
            target=target,
            subscribed=self._group.subscriptions.topic_ids(member, self._topics),
            has_new_subscription=has_new_subscription,
            is_taken=self._group.is_taken,
            reported=self._reported(),
        )
        moved = reconciled(member, aim)
        if moved != member:
            self._records.append(records.placed(self._group.id, moved))
        return moved

    def _response(self, before: ConsumerMember, after: ConsumerMember) -> ConsumerGroupHeartbeatResponse:
        request = self._request
        has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        is_whole = request.rebalance_timeout_ms != -1 and has_subscription and request.topic_partitions is not None
        assignment = None
        if request.member_epoch == JOINING or is_whole or before.assigned != after.assigned:
            assignment = ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=_listed(after.assigned))
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=after.id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._group.settings.heartbeat_interval_ms,
            assignment=assignment,
        )


def _listed(owned: Owned) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic, partitions=sorted(owned[topic])) for topic in sorted(owned)]


def new_member_id(surroundings: Surroundings) -> str:
    """As Kafka makes them: a random (version 4) uuid in base64, none that begins with a dash."""
    while True:
        uuid = bytearray(surroundings.random.randbytes(16))
        uuid[6] = uuid[6] & 0x0F | 0x40
        uuid[8] = uuid[8] & 0x3F | 0x80
        text = uuid_text(bytes(uuid))
        if not text.startswith("-"):
            return text
