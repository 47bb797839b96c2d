"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays, reconciles and leaves by this request.

A heartbeat has up to four steps, whose records are written in this order:

    1. the member: its identity and subscription. A static member may replace one that has left
    2. the group epoch: it grows if the subscriptions, or the topics behind them, have changed
    3. the target: computed again if it is older than the group epoch, at most once in the group's interval
    4. the member: one step towards its target

The response has the member's epoch, and its assignment if that has changed or the member requests it. Nothing here
changes the group: errors are raised before there are records, and deadlines are set when no error is possible any more.
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

from ..assignors import Assignment
from ..client import Client
from ..decision import Decision, Now, Reply, RequestId, StoredRecord
from ..settings import CoordinatorContext
from . import expiry, records
from .member import JOINING, LEFT, LEFT_FOR_A_WHILE, ConsumerMember, Owned
from .reconciliation import ReconcileInput, reconciled
from .state import ConsumerState
from .subscription_pattern import check_pattern
from .target_assignment import may_compute, new_target

FIRST_WITH_CHOSEN_IDS: Final = 1  # from this version on the client chooses its member id
PATTERNS_AT_MOST_EVERY_MS: Final = 10_000


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, client: Client, context: CoordinatorContext) -> None:
    """The checks of a request that do not depend on its group."""
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
    assignors = context.consumer(request.group_id).assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        )


def _not_blank(text: str | None, complaint: str) -> None:
    if text is not None and not text.strip():
        raise InvalidRequest(complaint)


def heartbeat(
    group: ConsumerState, request_id: RequestId, request: ConsumerGroupHeartbeatRequest, client: Client, now: Now
) -> Decision:
    if request.member_epoch in (LEFT, LEFT_FOR_A_WHILE):
        return _leave(group, request_id, request)
    return Heartbeat(group, request, client, now).decide(request_id)


def _leave(group: ConsumerState, request_id: RequestId, request: ConsumerGroupHeartbeatRequest) -> Decision:
    is_static = request.instance_id is not None
    member = static_member(group, request) if is_static else group.member(request.member_id)
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=0,
    )
    replies = (Reply(request_id, response),)
    if is_static and request.member_epoch == LEFT_FOR_A_WHILE:
        return Decision(records=(records.placed(group.id, member.away()),), replies=replies)
    return expiry.fence(group, (member,), replies)


def static_member(group: ConsumerState, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """The member of an instance, if it is the requesting one."""
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
    """The decision about one heartbeat. (`coordinator/classic_bridge.py` has a subclass for a JoinGroup of a member
    that uses the classic protocol.)"""

    def __init__(self, group: ConsumerState, request: ConsumerGroupHeartbeatRequest, client: Client, now: Now) -> None:
        self._group = group
        self._topics = group.context.topics
        self._request = request
        self._client = client
        self._now = now
        self._records: list[StoredRecord] = []
        self._replaced: ConsumerMember | None = None  # the static member that the requesting one replaces
        self._classic: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None

    def decide(self, request_id: RequestId) -> Decision:
        before, updated, after = self._step()
        if after != updated:
            expiry.set_rebalance(self._group, after, self._now)
        return Decision(records=tuple(self._records), replies=(Reply(request_id, self._response(before, after)),))

    def _step(self) -> tuple[ConsumerMember, ConsumerMember, ConsumerMember]:
        """The member before, with its reported changes, and after its step."""
        group, now = self._group, self._now
        before = self._member()
        updated = self._updated(before)
        has_new_subscription = updated.topics != before.topics or updated.pattern != before.pattern
        epoch = self._group_epoch(before, updated)
        target_epoch, target = self._target(before, updated, epoch)
        after = self._reconciled(updated, target_epoch, target, has_new_subscription)
        resolves = self._needs_pattern_resolution(before, updated)

        expiry.set_session(group, after, now)
        if resolves:
            group.context.pattern_askers[group.id] = self._client
            group.context.deadlines.set((group.id, expiry.REGEX), now.steady_ms)
        return before, updated, after

    # -- 1. the member -------------------------------------------------------------------------------------------------

    def _member(self) -> ConsumerMember:
        """The present member, or a new one."""
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
        member_id = request.member_id or new_member_id(group.context)
        if is_joining:
            return group.members.get(member_id) or ConsumerMember(id=member_id)
        member = group.member(member_id)
        self._check_epoch(member)
        return member

    def _check_epoch(self, member: ConsumerMember) -> None:
        received = self._request.member_epoch
        if received > member.epoch:
            comparison = "greater"
        elif received < member.epoch and not (received == member.previous_epoch and self._has_only(member.assigned)):
            comparison = "smaller"
        else:
            return  # it is behind but has no foreign partitions: it may have missed the last response
        raise FencedMemberEpoch(
            f"The consumer group member has a {comparison} member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )

    def _has_only(self, assigned: Owned) -> bool:
        reported = self._reported()
        if reported is None:
            return False
        return all(topic in assigned and has <= assigned[topic].keys() for topic, has in reported.items())

    def _reported(self) -> Assignment | None:
        """The partitions that the member reports as owned."""
        if self._request.topic_partitions is None:
            return None
        received: dict[bytes, frozenset[int]] = {}
        for topic in self._request.topic_partitions:
            received[topic.topic_id] = received.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
        return received

    def _in_place_of(self, existing: ConsumerMember) -> ConsumerMember:
        """A static member returns, under another id or its own: it gets the partitions of its instance."""
        group, request = self._group, self._request
        member_id = request.member_id or new_member_id(group.context)
        if existing.epoch != LEFT_FOR_A_WHILE and existing.classic is None and self._classic is None:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
                f"instance id is owned by {existing.id} member."
            )
        member = replace(existing, id=member_id, epoch=0, previous_epoch=0)
        self._replaced = existing
        self._records += [
            *records.member_tombstones(group.id, existing.id),
            records.member(group.id, member),
            records.target(group.id, member.id, group.targets.get(existing.id, {})),
            records.placed(group.id, member),
        ]
        return member

    def _updated(self, member: ConsumerMember) -> ConsumerMember:
        """The member with its reported changes. Fields that the request omits stay as they are."""
        request = self._request
        names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
        if self._is_unchanged(member):
            return member
        updated = replace(
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
        if updated != member:
            self._records.append(records.member(self._group.id, updated))
        return updated

    def _is_unchanged(self, member: ConsumerMember) -> bool:
        """Whether the request only keeps the session alive, as nearly all do. Comparing two members would take half of
        the time."""
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

    def _group_epoch(self, before: ConsumerMember, updated: ConsumerMember) -> int:
        group, subscriptions = self._group, self._group.subscriptions
        self._records += [
            records.expression_tombstone(group.id, pattern)
            for pattern in subscriptions.dropped_patterns((before,), (updated,))
        ]
        is_known = self._changes_to_known_topics(before, updated)
        if updated.topics != before.topics or is_known:
            grows, metadata_hash = True, subscriptions.hash_after(self._topics, (before,), (updated,))
        elif subscriptions.patterns.keys() - subscriptions.resolved.keys() or updated.pattern != before.pattern:
            grows, metadata_hash = False, group.metadata_hash  # the resolution of patterns will increment the epoch
        else:
            metadata_hash = subscriptions.hash(self._topics)
            grows = metadata_hash != group.metadata_hash
        if grows:
            self._records.append(records.group_epoch(group.id, group.epoch + 1, metadata_hash))
        if group.has_partition_metadata:
            self._records.append(records.partition_metadata_tombstone(group.id))
        return group.epoch + 1 if grows else group.epoch

    def _changes_to_known_topics(self, before: ConsumerMember, updated: ConsumerMember) -> bool:
        """Whether the member's pattern has changed, and the topics of the new pattern are known."""
        subscriptions = self._group.subscriptions
        if updated.pattern == before.pattern:
            return False
        if not updated.pattern:
            return bool(before.pattern)
        if updated.pattern not in subscriptions.patterns:
            check_pattern(updated.pattern)
            return False
        return updated.pattern in subscriptions.resolved

    def _needs_pattern_resolution(self, before: ConsumerMember, updated: ConsumerMember) -> bool:
        """Whether a pattern is unresolved, topics may have been created or deleted, or the last resolution is old."""
        group, subscriptions, now_ms = self._group, self._group.subscriptions, self._now.wall_ms
        patterns = set(subscriptions.patterns).difference(subscriptions.dropped_patterns((before,), (updated,)))
        if updated.pattern:
            patterns.add(updated.pattern)
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

    def _target(self, before: ConsumerMember, updated: ConsumerMember, epoch: int) -> tuple[int, Assignment]:
        group, settings = self._group, self._group.settings
        inherited = group.target_of(updated)
        is_newest = group.target_epoch >= epoch
        if is_newest or not may_compute(group.target_ms, settings.assignment_interval_ms, self._now.wall_ms):
            return group.target_epoch, inherited
        members = {member.id: member for member in group.members.values() if member is not self._replaced}
        members[updated.id] = updated
        known: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}  # many members have the same subscription

        def subscribed(member: ConsumerMember) -> frozenset[bytes]:
            subscription = (member.topics, member.pattern)
            if subscription not in known:
                known[subscription] = group.subscriptions.topic_ids(member, self._topics)
            return known[subscription]

        target = new_target(
            group.id,
            epoch,
            group.assignor((before,), (updated,)),
            members.values(),
            until_now=group.targets,
            inherited={updated.id: inherited} if self._replaced is not None else {},
            subscribed=subscribed,
            topics=self._topics,
            now_ms=self._now.wall_ms,
        )
        self._records += target.records
        return epoch, target.assignments.get(updated.id, {})

    # -- 4. the member's step ------------------------------------------------------------------------------------------

    def _reconciled(
        self, member: ConsumerMember, target_epoch: int, target: Assignment, has_new_subscription: bool
    ) -> ConsumerMember:
        if not has_new_subscription and member.is_reconciled_to(target_epoch):
            return member
        inputs = ReconcileInput(
            epoch=target_epoch,
            target=target,
            subscribed=self._group.subscriptions.topic_ids(member, self._topics),
            has_new_subscription=has_new_subscription,
            is_taken=self._group.is_taken,
            reported=self._reported(),
        )
        moved = reconciled(member, inputs)
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


def new_member_id(context: CoordinatorContext) -> str:
    """A member id as Kafka makes them: a random (version 4) uuid in base64 that does not start with a dash."""
    while True:
        uuid = bytearray(context.random.randbytes(16))
        uuid[6] = uuid[6] & 0x0F | 0x40
        uuid[8] = uuid[8] & 0x3F | 0x80
        text = uuid_text(bytes(uuid))
        if not text.startswith("-"):
            return text
