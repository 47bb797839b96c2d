"""Who of a group gets which partitions, decided by the broker.

    spec        members: what each subscribes to, what it has, its instance and its rack
    topics      how many partitions each topic has, and on which racks these can be read
    assign      → every partition of every topic somebody subscribes to, with exactly one member that does

An assignor remembers nothing: what shall stay where it is stands in the spec. It is handed members in an order, and the
same spec in the same order gives the same assignment.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol, TypeAlias

from trioka.protocol.lazy_dataclass import frozen

from ..topics import Topics

# Partitions by the id of their topic. No topic stands here without a partition.
Assignment: TypeAlias = Mapping[bytes, frozenset[int]]


@frozen
class MemberSpec:
    topics: frozenset[bytes]  # the ids of those it subscribes to, by name or by pattern, as far as they exist
    assignment: Assignment = field(default_factory=dict)  # its target until now
    instance_id: str | None = None
    rack: str | None = None


@frozen
class GroupSpec:
    members: Mapping[str, MemberSpec]  # by their ids

    @property
    def is_homogeneous(self) -> bool:
        """Whether all subscribe to the same topics."""
        subscriptions = iter(self.members.values())
        first = next(subscriptions, None)
        return first is None or all(member.topics == first.topics for member in subscriptions)


class Assignor(Protocol):
    @property
    def name(self) -> str:
        """What clients and `group.consumer.assignors` call it."""
        ...

    def assign(self, spec: GroupSpec, topics: Topics) -> dict[str, Assignment]:
        """For every member what it shall have; for some that may be nothing. A topic that `topics` does not know has no
        partitions."""
        ...
