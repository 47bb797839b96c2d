"""The target of a group: who shall have which partitions, in the group's newest epoch.

It is computed from what members subscribe to and from the target before, which the assignor changes as little as it
can. Only what changed is written: the members whose part is another one now, and the epoch of the whole.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from . import consumer_records as records
from .assignors import Assignment, Assignor, GroupSpec, MemberSpec
from .assignors.range import RangeAssignor
from .assignors.uniform import UniformAssignor
from .consumer_member import ConsumerMember
from .decision import Kept
from .topics import Topics

ASSIGNORS: Final[Mapping[str, Assignor]] = {known.name: known for known in (UniformAssignor(), RangeAssignor())}
NOTHING: Final[Assignment] = {}


class NewTarget(NamedTuple):
    records: list[Kept]
    assignments: Mapping[str, Assignment]


def may_compute(computed_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Members that come together are assigned together: after one target the next one waits for the interval. The first
    target does not, and neither does one whose time is not known."""
    return computed_ms == 0 or interval_ms == 0 or now_ms >= computed_ms + interval_ms


def new_target(
    group_id: str,
    epoch: int,
    assignor: str,
    members: Iterable[ConsumerMember],
    *,
    until_now: Mapping[str, Assignment],
    inherited: Mapping[str, Assignment],
    subscribed: Callable[[ConsumerMember], frozenset[bytes]],
    topics: Topics,
    now_ms: int,
) -> NewTarget:
    """`until_now` is the target as it is written; `inherited` says what a member that takes another's place starts
    from, which is not written under its own name yet."""
    specs = {
        member.id: MemberSpec(
            topics=subscribed(member),
            assignment=inherited.get(member.id) or until_now.get(member.id, NOTHING),
            instance_id=member.instance_id,
            rack=member.rack,
        )
        for member in members
    }
    assignments = ASSIGNORS[assignor].assign(GroupSpec(members=specs), topics)
    changed = [
        records.target(group_id, member_id, assigned)
        for member_id in specs
        if (assigned := assignments.get(member_id, NOTHING)) != until_now.get(member_id)
    ]
    return NewTarget([*changed, records.target_epoch(group_id, epoch, now_ms)], assignments)
