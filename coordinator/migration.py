"""Converts a group between the classic and the consumer protocol while it runs, keeping members and assignments.

    upgrade      a consumer of the new protocol joins a classic group of consumers: all members become members of a
                 consumer group, with their present assignments. The generation becomes the epoch. Classic members
                 continue with the classic protocol (`coordinator/classic_bridge.py`) until they are replaced
    downgrade    the last member that uses the new protocol has left: the others become a classic group, with their
                 target assignments, and must rejoin, because one of them has to become leader

Both are one batch of records: tombstones of the old group, and all records of the new one. Offsets are not changed:
they belong to the group id. An empty group is not converted: it is deleted, and a group of the other kind is created.

`group.consumer.migration.policy` allows or forbids each direction.
"""

from collections.abc import Iterable
from typing import NamedTuple

from trioka.protocol.errors import GroupIdNotFound, ProtocolError
from trioka.protocol.internal_records.consumer_groups import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
)

from . import consumer_expiry as expiry
from . import consumer_records as records
from .assignors import Assignment
from .classic_group import ClassicGroup
from .classic_member import ClassicMember, ClassicProtocol
from .consumer_group import ConsumerGroup
from .consumer_member import ConsumerMember
from .consumer_protocol import PROTOCOL_TYPE, by_id, read_assignment, read_subscription, version_of, write_assignment
from .decision import Decision, Now, StoredRecord
from .settings import CoordinatorContext
from .topics import Topics

ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata


# -- upgrade -----------------------------------------------------------------------------------------------------------


class Upgrade(NamedTuple):
    group: ConsumerGroup  # after its records are replayed
    records: tuple[StoredRecord, ...]


def upgraded(group: ClassicGroup, context: CoordinatorContext) -> Upgrade:
    """Raises GroupIdNotFound if the group cannot be converted to the new protocol."""
    _check_upgrade(group, context)
    topics = context.topics
    try:
        members = [_upgraded_member(group, member, topics) for member in group.members]
    except ProtocolError:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed.") from None
    targets = {
        member.id: {topic: frozenset(numbers) for topic, numbers in member.assigned.items()} for member in members
    }
    made = ConsumerGroup(group.id, context)
    created = [
        *(records.member(group.id, member) for member in members),
        records.group_epoch(group.id, group.generation, made.subscriptions.hash_after(topics, (), members)),
        *(records.target(group.id, member.id, targets[member.id]) for member in members),
        records.target_epoch(group.id, group.generation, 0),
        *(records.placed(group.id, member) for member in members),
    ]
    for kept in created:
        made.replay(kept)
    return Upgrade(made, (*group.tombstones(), *created))


def _check_upgrade(group: ClassicGroup, context: CoordinatorContext) -> None:
    settings = context.consumer(group.id)
    if not settings.may_upgrade:
        raise _cannot_upgrade(group, "online upgrade is disabled.")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _cannot_upgrade(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > settings.max_size:
        raise _cannot_upgrade(group, "the group size exceeds the consumer group maximum size.")


def _cannot_upgrade(group: ClassicGroup, reason: str) -> GroupIdNotFound:
    return GroupIdNotFound(f"Cannot upgrade classic group {group.id} to consumer group because {reason}")


def _upgraded_member(group: ClassicGroup, member: ClassicMember, topics: Topics) -> ConsumerMember:
    """The partitions of a member's last assignment. If the group was about to rebalance, the member will have to
    rejoin."""
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        )
    # A group without a generation has not chosen a protocol; each protocol contains the subscription.
    name = group.protocol_name
    subscription = read_subscription(member.protocols[0].metadata if name is None else member.metadata(name))
    has = by_id({assigned.topic: assigned.partitions for assigned in assignment.assigned_partitions}, topics)
    return ConsumerMember(
        id=member.id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.instance_id,
        rack=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        assigned={topic: dict.fromkeys(numbers, group.generation) for topic, numbers in has.items()},
        classic=ClassicMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[
                ClassicMetadata.SupportedProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in member.protocols
            ],
        ),
    )


# -- downgrade ---------------------------------------------------------------------------------------------------------


class Downgrade(NamedTuple):
    group: ClassicGroup  # active: replaying the records uses this object and creates no other
    records: tuple[StoredRecord, ...]
    must_rebalance: bool


def downgraded(group: ConsumerGroup, decision: Decision, now: Now) -> Downgrade | None:
    """The downgrade, if the decision leaves only members of the classic protocol; otherwise None. Deadlines that only a
    consumer group has are cancelled; `begin` sets them again if the write fails."""
    members = dict(group.members)
    gone: list[ConsumerMember] = []
    has_new_member = False
    for key, value in decision.records:
        if isinstance(key, ConsumerGroupMemberMetadataKey):
            if isinstance(value, ConsumerGroupMemberMetadataValue):
                before = members.get(key.member_id) or ConsumerMember(id=key.member_id)
                has_new_member = has_new_member or key.member_id not in members
                members[key.member_id] = before.with_metadata(value)
            elif key.member_id in members:
                gone.append(members.pop(key.member_id))
    if not gone or not members or any(member.classic is None for member in members.values()):
        return None
    if has_new_member and all(member.classic is not None for member in gone):
        return None  # a classic member has replaced another one
    if not group.settings.may_downgrade or len(members) > group.context.classic().max_size:
        return None
    made = _downgraded_group(group, members.values(), now)
    deadlines = group.context.deadlines
    for member_id in (*members, *(member.id for member in gone)):
        for kind in (expiry.REBALANCE, expiry.JOIN, expiry.SYNC):
            deadlines.cancel((group.id, kind, member_id))
    deadlines.cancel((group.id, expiry.REGEX))
    group.context.pattern_askers.pop(group.id, None)
    is_settled = has_new_member and group.target_epoch == _epoch_after(group, decision) and _has_arrived(group)
    return Downgrade(made, (*group.tombstones(), made.record()), must_rebalance=not is_settled)


def _epoch_after(group: ConsumerGroup, decision: Decision) -> int:
    epochs = [value.epoch for _, value in decision.records if isinstance(value, ConsumerGroupMetadataValue)]
    return max(epochs, default=group.epoch)


def _has_arrived(group: ConsumerGroup) -> bool:
    """Whether every member has its target assignment. If not, it would not be notified of it, and other members could
    still own the partitions; Apache Kafka does not check this."""
    return all(
        not member.revoking
        and group.targets.get(member.id, {}) == {topic: frozenset(has) for topic, has in member.assigned.items()}
        for member in group.members.values()
    )


def _downgraded_group(group: ConsumerGroup, members: Iterable[ConsumerMember], now: Now) -> ClassicGroup:
    targets: dict[str, Assignment] = {}
    classic: list[ClassicMember] = []
    for member in members:
        targets[member.id] = group.target_of(member)
        classic.append(_downgraded_member(member))
    made = ClassicGroup.of_members(group.id, group.context, group.epoch, classic, now)
    assert made.protocol_name is not None
    for converted in classic:
        version = version_of(converted.metadata(made.protocol_name))
        converted.assignment = write_assignment(targets[converted.id], group.context.topics, version)
    return made


def _downgraded_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(
            ClassicProtocol(protocol.name, protocol.metadata) for protocol in member.classic.supported_protocols
        ),
    )
