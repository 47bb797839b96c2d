"""The target assignment of a group in its newest epoch.

It is computed from the members' subscriptions and the previous target, which the assignor changes as little as
possible. Only changes are written: the members with another target, and the epoch.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from ..assignors import Assignment, Assignor, GroupSpec, MemberSpec
from ..assignors.range import RangeAssignor
from ..assignors.uniform import UniformAssignor
from ..decision import StoredRecord
from ..topics import Topics
from . import records
from .member import ConsumerMember

ASSIGNORS: Final[Mapping[str, Assignor]] = {known.name: known for known in (UniformAssignor(), RangeAssignor())}
NOTHING: Final[Assignment] = {}


class NewTarget(NamedTuple):
    records: list[StoredRecord]
    assignments: Mapping[str, Assignment]


def may_compute(computed_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether a new target may be computed now. The interval between two targets lets members that join together be
    assigned together. The first target does not wait, and neither does one after a target with an unknown time."""
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
    """`until_now` is the target as written; `inherited` has the targets of members that are replaced, for their
    replacements, which have none under their own ids yet."""
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
