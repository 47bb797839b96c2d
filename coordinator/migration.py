"""A group changes its protocol while it works, in either direction, without losing a place or a partition.

    upgrade      a consumer of the new protocol joins a classic group of consumers: all become members of a consumer
                 group, with the assignment that they have. The generation becomes the epoch. Those who speak the
                 classic protocol go on speaking it (`coordinator/classic_bridge.py`) until they are replaced
    downgrade    the last member that speaks the new protocol is gone: the others become a classic group, with the
                 assignment that was meant for them, and are asked to join again, as one of them has to lead now

Both are one batch of records: tombstones of the one group, and all of the other. Offsets are not touched: they are the
group's, whatever it is. A group that is empty needs none of this: it is deleted, and the other kind begins.

`group.consumer.migration.policy` says what of it may happen.
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
from .decision import Decision, Kept, Moment
from .settings import Surroundings
from .topics import Topics

ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata


# -- upgrade -----------------------------------------------------------------------------------------------------------


class Upgrade(NamedTuple):
    group: ConsumerGroup  # as it will be when the records are replayed
    records: tuple[Kept, ...]


def upgraded(group: ClassicGroup, surroundings: Surroundings) -> Upgrade:
    """GroupIdNotFound, if the group cannot be one of the new protocol."""
    _check_upgrade(group, surroundings)
    topics = surroundings.topics
    try:
        members = [_upgraded_member(group, member, topics) for member in group.members]
    except ProtocolError:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed.") from None
    targets = {
        member.id: {topic: frozenset(numbers) for topic, numbers in member.assigned.items()} for member in members
    }
    made = ConsumerGroup(group.id, surroundings)
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


def _check_upgrade(group: ClassicGroup, surroundings: Surroundings) -> None:
    settings = surroundings.consumer(group.id)
    if not settings.may_upgrade:
        raise _cannot_upgrade(group, "online upgrade is disabled.")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _cannot_upgrade(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > settings.max_size:
        raise _cannot_upgrade(group, "the group size exceeds the consumer group maximum size.")


def _cannot_upgrade(group: ClassicGroup, reason: str) -> GroupIdNotFound:
    return GroupIdNotFound(f"Cannot upgrade classic group {group.id} to consumer group because {reason}")


def _upgraded_member(group: ClassicGroup, member: ClassicMember, topics: Topics) -> ConsumerMember:
    """What a member's last assignment says is its own. If the group was about to share out anew, it will be asked to
    join again."""
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade.",
        )
    # A group that has never had a generation has not chosen a protocol; the subscription stands in each.
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
    group: ClassicGroup  # alive: whoever replays the records takes this one, and none that it makes itself
    records: tuple[Kept, ...]
    must_rebalance: bool


def downgraded(group: ConsumerGroup, decision: Decision, now: Moment) -> Downgrade | None:
    """What is to happen instead, if what was decided leaves only members of the classic protocol behind. Deadlines that
    only a consumer group knows are cancelled; `begin` sets them again if nothing comes of it."""
    members = dict(group.members)
    gone: list[ConsumerMember] = []
    has_newcomer = False
    for key, value in decision.records:
        if isinstance(key, ConsumerGroupMemberMetadataKey):
            if isinstance(value, ConsumerGroupMemberMetadataValue):
                before = members.get(key.member_id) or ConsumerMember(id=key.member_id)
                has_newcomer = has_newcomer or key.member_id not in members
                members[key.member_id] = before.told(value)
            elif key.member_id in members:
                gone.append(members.pop(key.member_id))
    if not gone or not members or any(member.classic is None for member in members.values()):
        return None
    if has_newcomer and all(member.classic is not None for member in gone):
        return None  # one has taken the place of another of its own kind
    if not group.settings.may_downgrade or len(members) > group.surroundings.classic().max_size:
        return None
    made = _downgraded_group(group, members.values(), now)
    deadlines = group.surroundings.deadlines
    for member_id in (*members, *(member.id for member in gone)):
        for kind in (expiry.REBALANCE, expiry.JOIN, expiry.SYNC):
            deadlines.cancel((group.id, kind, member_id))
    deadlines.cancel((group.id, expiry.REGEX))
    group.surroundings.pattern_askers.pop(group.id, None)
    is_settled = has_newcomer and group.target_epoch == _epoch_after(group, decision) and _has_arrived(group)
    return Downgrade(made, (*group.tombstones(), made.record()), must_rebalance=not is_settled)


def _epoch_after(group: ConsumerGroup, decision: Decision) -> int:
    epochs = [value.epoch for _, value in decision.records if isinstance(value, ConsumerGroupMetadataValue)]
    return max(epochs, default=group.epoch)


def _has_arrived(group: ConsumerGroup) -> bool:
    """Whether every member has what is meant for it. If not it would be told so by nobody, and others could still have
    it; Apache Kafka does not look."""
    return all(
        not member.revoking
        and group.targets.get(member.id, {}) == {topic: frozenset(has) for topic, has in member.assigned.items()}
        for member in group.members.values()
    )


def _downgraded_group(group: ConsumerGroup, members: Iterable[ConsumerMember], now: Moment) -> ClassicGroup:
    targets: dict[str, Assignment] = {}
    classic: list[ClassicMember] = []
    for member in members:
        targets[member.id] = group.target_of(member)
        classic.append(_downgraded_member(member))
    made = ClassicGroup.of_members(group.id, group.surroundings, group.epoch, classic, now)
    assert made.protocol_name is not None
    for converted in classic:
        version = version_of(converted.metadata(made.protocol_name))
        converted.assignment = write_assignment(targets[converted.id], group.surroundings.topics, version)
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
        protocols=tuple(ClassicProtocol(said.name, said.metadata) for said in member.classic.supported_protocols),
    )
