"""How a member moves from its current assignment to its target, one heartbeat at a time.

    STABLE    in the newest epoch, with all partitions of its target
    REVOKING  it has to revoke partitions, and stays in its old epoch until it reports that it no longer owns them
    WAITING   in the newest epoch, but another member still owns a partition of its target

A member revokes before it is assigned: it enters the next epoch only after it has revoked the partitions that are not
in its target, and it gets a partition only when no other member owns it. So no two members ever own the same partition,
whatever the order of their heartbeats.

    STABLE ──new epoch──▶ something to give up? ──yes──▶ REVOKING ──given up──┐
                             │ no            ▲                               │
                             ▼               └───────────────────────────────┘
              all is free? ──yes──▶ STABLE
                             │ no
                             ▼
                          WAITING  (tries again with each heartbeat, and with the newest target)
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

from trioka.protocol.errors import FencedMemberEpoch
from trioka.protocol.lazy_dataclass import frozen

from ..assignors import Assignment
from .member import ConsumerMember, Owned, Phase


@frozen
class ReconcileInput:
    """A member's target assignment, and what decides its next step towards it."""

    epoch: int  # of the target
    target: Assignment
    subscribed: Collection[bytes]  # topic ids of the member's present subscription, which may be newer than the target
    has_new_subscription: bool
    is_taken: Callable[[bytes, int], bool]  # whether any member owns that partition
    reported: Assignment | None  # the partitions that the member reports as owned; None: not in this heartbeat


def reconciled(member: ConsumerMember, inputs: ReconcileInput) -> ConsumerMember:
    """The member after its next step; the member itself if there is no step to take."""
    return STEPS[member.phase](member, inputs)


def _from_stable(member: ConsumerMember, inputs: ReconcileInput) -> ConsumerMember:
    if member.epoch != inputs.epoch:
        return _advanced(member, member.epoch, inputs)
    return _without_unsubscribed(member, inputs)


def _from_revoking(member: ConsumerMember, inputs: ReconcileInput) -> ConsumerMember:
    if _still_has(member.revoking, inputs):
        return _without_unsubscribed(member, inputs)
    return _advanced(member, member.epoch, inputs)


def _from_waiting(member: ConsumerMember, inputs: ReconcileInput) -> ConsumerMember:
    return _advanced(member, member.epoch, inputs)


def _from_unknown(member: ConsumerMember, inputs: ReconcileInput) -> ConsumerMember:
    """A phase from a newer version: only a member that owns no partitions can go on from it."""
    if inputs.reported is None or inputs.reported:
        raise FencedMemberEpoch(
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
        )
    return _advanced(member, inputs.epoch, inputs)


STEPS: Final[Mapping[Phase, Callable[[ConsumerMember, ReconcileInput], ConsumerMember]]] = {
    Phase.STABLE: _from_stable,
    Phase.REVOKING: _from_revoking,
    Phase.WAITING: _from_waiting,
    Phase.UNKNOWN: _from_unknown,
}

_Changing: TypeAlias = dict[bytes, Mapping[int, int]]


def _advanced(member: ConsumerMember, epoch: int, inputs: ReconcileInput) -> ConsumerMember:
    """Towards the target: revoke what is not in it, otherwise assign what is in it and free."""
    kept: _Changing = {}
    given: _Changing = {}
    gained: dict[bytes, set[int]] = {}
    waits = False
    for topic in {**inputs.target, **member.assigned}:
        wanted = inputs.target.get(topic, frozenset()) if topic in inputs.subscribed else frozenset[int]()
        has = member.assigned.get(topic, {})
        lets_go = member.revoking.get(topic, {})  # no other member can have these yet
        missing = wanted - has.keys()
        gained[topic] = {number for number in missing if number in lets_go or not inputs.is_taken(topic, number)}
        waits = waits or len(gained[topic]) < len(missing)
        kept[topic] = {number: since for number, since in has.items() if number in wanted}
        if len(kept[topic]) < len(has):
            given[topic] = {number: since for number, since in has.items() if number not in wanted}
    if given and _still_has(given, inputs):
        return member.moved(epoch, Phase.REVOKING, _not_empty(kept), given)
    taken = {topic: {**kept[topic], **dict.fromkeys(gained[topic], inputs.epoch)} for topic in kept}
    return member.moved(inputs.epoch, Phase.WAITING if waits else Phase.STABLE, _not_empty(taken), {})


def _without_unsubscribed(member: ConsumerMember, inputs: ReconcileInput) -> ConsumerMember:
    """A member that has changed its subscription before there is a new target loses the partitions of topics that it
    left: otherwise it would commit offsets of these topics."""
    unwanted = member.assigned.keys() - inputs.subscribed
    if not inputs.has_new_subscription or not unwanted:
        return member
    kept = {topic: partitions for topic, partitions in member.assigned.items() if topic not in unwanted}
    given: _Changing = dict(member.revoking)
    for topic in unwanted:
        given[topic] = {**given.get(topic, {}), **member.assigned[topic]}
    if _still_has(given, inputs):
        return member.moved(member.epoch, Phase.REVOKING, kept, given)
    return member.moved(member.epoch, member.phase, kept, member.revoking)


def _still_has(given: Owned, inputs: ReconcileInput) -> bool:
    """Whether the member still reports partitions that it has to revoke. Without a report it is assumed to have
    them."""
    if inputs.reported is None:
        return True
    return any(not given[topic].keys().isdisjoint(has) for topic, has in inputs.reported.items() if topic in given)


def _not_empty(owned: Owned) -> Owned:
    return {topic: partitions for topic, partitions in owned.items() if partitions}
