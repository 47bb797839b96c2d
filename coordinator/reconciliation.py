"""How a member gets from what it has to what it shall have, one heartbeat at a time.

    STABLE    in the newest epoch, with all that is meant for it
    REVOKING  it was told to give up partitions, and stays in its old epoch until it says that it no longer has them
    WAITING   in the newest epoch, but something meant for it is still in another's hands

Giving comes before taking: a member enters the next epoch only once it has let go of what is no longer meant for it,
and it gets a partition only once nobody has it. So at no moment do two members have the same one, whatever order their
heartbeats come in.

    STABLE ──new epoch──▶ something to give up? ──yes──▶ REVOKING ──given up──┐
                             │ no            ▲                               │
                             ▼               └───────────────────────────────┘
              all is free? ──yes──▶ STABLE
                             │ no
                             ▼
                          WAITING  (looks again with each heartbeat, and at the newest target)
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

from trioka.protocol.errors import FencedMemberEpoch
from trioka.protocol.lazy_dataclass import frozen

from .assignors import Assignment
from .consumer_member import ConsumerMember, Owned, Phase


@frozen
class Aim:
    """Where a member is to get to, and what is known on its way."""

    epoch: int  # of the target
    target: Assignment
    subscribed: Collection[bytes]  # the ids of the topics that the member wants now; the target may be older than that
    has_new_subscription: bool
    is_taken: Callable[[bytes, int], bool]  # whether some member has that partition
    reported: Assignment | None  # what the member says that it has; None: it does not say


def reconciled(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    """The member after its next step; itself, if there is none to take."""
    return STEPS[member.phase](member, aim)


def _from_stable(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    if member.epoch != aim.epoch:
        return _advanced(member, member.epoch, aim)
    return _without_unsubscribed(member, aim)


def _from_revoking(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    if _still_has(member.revoking, aim):
        return _without_unsubscribed(member, aim)
    return _advanced(member, member.epoch, aim)


def _from_waiting(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    return _advanced(member, member.epoch, aim)


def _from_unknown(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    """Only a member that has nothing can be brought back from a phase that this broker does not know."""
    if aim.reported is None or aim.reported:
        raise FencedMemberEpoch(
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
        )
    return _advanced(member, aim.epoch, aim)


STEPS: Final[Mapping[Phase, Callable[[ConsumerMember, Aim], ConsumerMember]]] = {
    Phase.STABLE: _from_stable,
    Phase.REVOKING: _from_revoking,
    Phase.WAITING: _from_waiting,
    Phase.UNKNOWN: _from_unknown,
}

_Changing: TypeAlias = dict[bytes, Mapping[int, int]]


def _advanced(member: ConsumerMember, epoch: int, aim: Aim) -> ConsumerMember:
    """Towards the target: give up what is not in it, or else take what is in it and free."""
    kept: _Changing = {}
    given: _Changing = {}
    gained: dict[bytes, set[int]] = {}
    waits = False
    for topic in {**aim.target, **member.assigned}:
        wanted = aim.target.get(topic, frozenset()) if topic in aim.subscribed else frozenset[int]()
        has = member.assigned.get(topic, {})
        lets_go = member.revoking.get(topic, {})  # nobody else can have taken these yet
        missing = wanted - has.keys()
        gained[topic] = {number for number in missing if number in lets_go or not aim.is_taken(topic, number)}
        waits = waits or len(gained[topic]) < len(missing)
        kept[topic] = {number: since for number, since in has.items() if number in wanted}
        if len(kept[topic]) < len(has):
            given[topic] = {number: since for number, since in has.items() if number not in wanted}
    if given and _still_has(given, aim):
        return member.moved(epoch, Phase.REVOKING, _not_empty(kept), given)
    taken = {topic: {**kept[topic], **dict.fromkeys(gained[topic], aim.epoch)} for topic in kept}
    return member.moved(aim.epoch, Phase.WAITING if waits else Phase.STABLE, _not_empty(taken), {})


def _without_unsubscribed(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    """A member that changes its mind while no new target is there yet keeps nothing of what it no longer wants: it
    would commit offsets of topics that it has left."""
    unwanted = member.assigned.keys() - aim.subscribed
    if not aim.has_new_subscription or not unwanted:
        return member
    kept = {topic: partitions for topic, partitions in member.assigned.items() if topic not in unwanted}
    given: _Changing = dict(member.revoking)
    for topic in unwanted:
        given[topic] = {**given.get(topic, {}), **member.assigned[topic]}
    if _still_has(given, aim):
        return member.moved(member.epoch, Phase.REVOKING, kept, given)
    return member.moved(member.epoch, member.phase, kept, member.revoking)


def _still_has(given: Owned, aim: Aim) -> bool:
    """Whether the member has, for all that it says, something of what it is to give up. One that says nothing has."""
    if aim.reported is None:
        return True
    return any(not given[topic].keys().isdisjoint(has) for topic, has in aim.reported.items() if topic in given)


def _not_empty(owned: Owned) -> Owned:
    return {topic: partitions for topic, partitions in owned.items() if partitions}
