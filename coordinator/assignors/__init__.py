"""Server-side assignors: they decide which member of a group gets which partitions.

    spec        the members: subscriptions, current assignments, instance ids, racks
    topics      the number of partitions of each topic, and the racks of their replicas
    assign      → every partition of every subscribed topic, each assigned to exactly one subscriber

An assignor has no state: the current assignment is in the spec. The members have an order, and the same spec in the
same order yields the same assignment.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol, TypeAlias

from trioka.protocol.lazy_dataclass import frozen

from ..topics import Topics

# Partitions by topic id. Topics without partitions are omitted.
Assignment: TypeAlias = Mapping[bytes, frozenset[int]]


@frozen
class MemberSpec:
    topics: frozenset[bytes]  # ids of the existing topics that it subscribes to, by name or by pattern
    assignment: Assignment = field(default_factory=dict)  # its current target
    instance_id: str | None = None
    rack: str | None = None


@frozen
class GroupSpec:
    members: Mapping[str, MemberSpec]  # by member id

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        subscriptions = iter(self.members.values())
        first = next(subscriptions, None)
        return first is None or all(member.topics == first.topics for member in subscriptions)


class Assignor(Protocol):
    @property
    def name(self) -> str:
        """The name in requests and in `group.consumer.assignors`."""
        ...

    def assign(self, spec: GroupSpec, topics: Topics) -> dict[str, Assignment]:
        """The target of every member, which may be empty. A topic that is unknown to `topics` has no partitions."""
        ...
