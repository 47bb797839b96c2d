"""The range assignor: divides each topic into ranges of adjacent partitions, one for each of its subscribers.

The order of members is: static members by instance id, then the others by member id, compared as Java compares strings.
If a topic does not divide evenly, the first members get one partition more. So members with the same subscriptions get
the same partition numbers of all topics that have the same number of partitions, which joins need, and a static member
keeps its range when it returns under another member id.

Topics with the same subscribers and number of partitions are divided alike. If members can exchange numbers so that
more partitions of all these topics are local to their racks, they do, and ranges get gaps; joins still work. Without
racks the result is the same as Apache Kafka's, whose assignor ignores racks.
"""

from ..topics import Topics
from . import Assignment, GroupSpec, MemberSpec
from .holdings import MemberPartitions, as_assignments, partition_counts
from .racks import improve_range_locality


class RangeAssignor:
    name = "range"

    def assign(self, spec: GroupSpec, topics: Topics) -> dict[str, Assignment]:
        counts = partition_counts(spec, topics)
        subscribers: dict[bytes, list[str]] = {topic_id: [] for topic_id in counts}
        for member_id in sorted(spec.members, key=lambda member_id: _rank(member_id, spec.members[member_id])):
            for topic_id in spec.members[member_id].topics & counts.keys():
                subscribers[topic_id].append(member_id)
        alike: dict[tuple[int, tuple[str, ...]], list[bytes]] = {}
        for topic_id, count in counts.items():
            alike.setdefault((count, tuple(subscribers[topic_id])), []).append(topic_id)
        held: MemberPartitions = {member_id: [] for member_id in spec.members}
        for (count, member_ids), topic_ids in alike.items():
            ranges = _ranges(count, member_ids)
            improve_range_locality(ranges, spec.members, _common_racks(topic_ids, topics))
            for member_id, numbers in ranges.items():
                held[member_id] += [(topic_id, number) for topic_id in topic_ids for _, number in numbers]
        return as_assignments(held)


def _rank(member_id: str, member: MemberSpec) -> tuple[bool, bytes]:
    name = member_id if member.instance_id is None else member.instance_id
    return member.instance_id is None, name.encode("utf-16-be", "surrogatepass")


def _ranges(count: int, member_ids: tuple[str, ...]) -> MemberPartitions:
    share, extras = divmod(count, len(member_ids))
    ranges: MemberPartitions = {}
    start = 0
    for place, member_id in enumerate(member_ids):
        end = start + share + (place < extras)
        ranges[member_id] = [(b"", number) for number in range(start, end)]
        start = end
    return ranges


def _common_racks(topic_ids: list[bytes], topics: Topics) -> list[frozenset[str]]:
    found = [topic.racks for topic_id in topic_ids if (topic := topics.by_id(topic_id)) is not None]
    return [frozenset.intersection(*racks) for racks in zip(*found, strict=True)]
