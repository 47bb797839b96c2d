"""The partitions that each member has while an assignor computes: single ones, which can be moved and exchanged."""

from collections.abc import Mapping
from typing import TypeAlias

from ..topics import Topics
from . import Assignment, GroupSpec

PartitionSlot: TypeAlias = tuple[bytes, int]  # a partition: topic id, number
MemberPartitions: TypeAlias = dict[str, list[PartitionSlot]]  # by member id, in the order of the members


def partition_counts(spec: GroupSpec, topics: Topics) -> dict[bytes, int]:
    """The number of partitions of each subscribed topic that exists, in the order of topic ids."""
    subscriptions = {member.topics for member in spec.members.values()}
    known = ((topic_id, topics.by_id(topic_id)) for topic_id in sorted(frozenset[bytes]().union(*subscriptions)))
    return {topic_id: topic.partitions for topic_id, topic in known if topic is not None}


def current_assignment(spec: GroupSpec, counts: Mapping[bytes, int]) -> MemberPartitions:
    """The partitions that members may keep: of topics that they still subscribe to, without those that an earlier
    member has too."""
    taken: set[PartitionSlot] = set()
    held: MemberPartitions = {}
    for member_id, member in spec.members.items():
        slots = [
            (topic_id, partition)
            for topic_id, partitions in member.assignment.items()
            if topic_id in member.topics
            for partition in sorted(partitions)
            if partition < counts.get(topic_id, 0) and (topic_id, partition) not in taken
        ]
        taken.update(slots)
        held[member_id] = slots
    return held


def unassigned(held: MemberPartitions, counts: Mapping[bytes, int]) -> list[PartitionSlot]:
    """Partitions that no member has, by topic and number."""
    taken = {slot for slots in held.values() for slot in slots}
    return [
        (topic_id, partition)
        for topic_id, count in counts.items()
        for partition in range(count)
        if (topic_id, partition) not in taken
    ]


def as_assignments(held: MemberPartitions) -> dict[str, Assignment]:
    assignments: dict[str, Assignment] = {}
    for member_id, slots in held.items():
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, partition in slots:
            by_topic.setdefault(topic_id, []).append(partition)
        assignments[member_id] = {topic_id: frozenset(partitions) for topic_id, partitions in by_topic.items()}
    return assignments
