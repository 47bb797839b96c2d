"""What each member holds while an assignor thinks: single partitions, which can be given, taken and exchanged."""

from collections.abc import Mapping
from typing import TypeAlias

from ..topics import Topics
from . import Assignment, GroupSpec

Slot: TypeAlias = tuple[bytes, int]  # a partition: the id of its topic, its number
Holdings: TypeAlias = dict[str, list[Slot]]  # by the ids of members, in their order


def partition_counts(spec: GroupSpec, topics: Topics) -> dict[bytes, int]:
    """Of every topic that a member subscribes to, in the order of their ids; those that exist."""
    subscriptions = {member.topics for member in spec.members.values()}
    known = ((topic_id, topics.by_id(topic_id)) for topic_id in sorted(frozenset[bytes]().union(*subscriptions)))
    return {topic_id: topic.partitions for topic_id, topic in known if topic is not None}


def held_until_now(spec: GroupSpec, counts: Mapping[bytes, int]) -> Holdings:
    """What members have and may keep: of topics that they still subscribe to, and nothing that a member before them has
    too."""
    taken: set[Slot] = set()
    held: Holdings = {}
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


def nobodys(held: Holdings, counts: Mapping[bytes, int]) -> list[Slot]:
    """Partitions that no member holds, by topic and number."""
    taken = {slot for slots in held.values() for slot in slots}
    return [
        (topic_id, partition)
        for topic_id, count in counts.items()
        for partition in range(count)
        if (topic_id, partition) not in taken
    ]


def as_assignments(held: Holdings) -> dict[str, Assignment]:
    assignments: dict[str, Assignment] = {}
    for member_id, slots in held.items():
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, partition in slots:
            by_topic.setdefault(topic_id, []).append(partition)
        assignments[member_id] = {topic_id: frozenset(partitions) for topic_id, partitions in by_topic.items()}
    return assignments
