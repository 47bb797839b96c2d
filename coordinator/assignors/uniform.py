"""The uniform assignor: all members get the same number of partitions and keep their current ones where possible.

Balance takes precedence over rack locality, and rack locality over stickiness.

With equal subscriptions, no member has more than one partition more than another, and no partition moves without need.
In their order, members keep their partitions up to their share; each remaining extra partition goes to a member that
has it already, otherwise to the last members in the order.

With different subscriptions, each partition without an owner goes to the subscriber of its topic with the fewest
partitions, starting with the topics that have the most partitions per subscriber. Then, topic by topic, the subscriber
with the most partitions hands one to the subscriber with the fewest until they differ by one, in several rounds,
because one topic's moves may unbalance another. Where subscriptions overlap without being equal this comes close to the
optimum, and `ROUNDS` bounds it. Both ways choose as Apache Kafka's assignor does, which ignores racks.
"""

from collections.abc import Iterator
from typing import Final

from ..topics import Topics
from . import Assignment, GroupSpec
from .holdings import MemberPartitions, PartitionSlot, as_assignments, current_assignment, partition_counts, unassigned
from .racks import improve_rack_locality

ROUNDS: Final = 16


class UniformAssignor:
    name = "uniform"

    def assign(self, spec: GroupSpec, topics: Topics) -> dict[str, Assignment]:
        counts = partition_counts(spec, topics)
        held = current_assignment(spec, counts)
        is_homogeneous = spec.is_homogeneous
        if held:
            if is_homogeneous:
                _share(held, counts)
            else:
                _Balance(spec, held, counts).find()
        improve_rack_locality(held, spec.members, topics, is_homogeneous=is_homogeneous)
        return as_assignments(held)


def _share(held: MemberPartitions, counts: dict[bytes, int]) -> None:
    """Assigns partitions to members with equal subscriptions."""
    free = unassigned(held, counts)
    share, extras = divmod(sum(counts.values()), len(held))
    wanting: list[tuple[list[PartitionSlot], int]] = []
    for before, slots in enumerate(held.values()):
        quota = share + (extras > 0)
        free += slots[quota:]
        del slots[quota:]
        if extras > 0 and (len(slots) == quota or len(held) - before <= extras):
            extras -= 1
        else:
            quota = share
        wanting.append((slots, quota - len(slots)))
    given = iter(free)
    for slots, capacity in wanting:
        slots.extend(slot for _, slot in zip(range(capacity), given, strict=False))
    assert next(given, None) is None, "a partition was left without an owner"


class _Balance:
    """Assigns partitions to members with different subscriptions. Members are known by their index in the group's
    order."""

    def __init__(self, spec: GroupSpec, held: MemberPartitions, counts: dict[bytes, int]) -> None:
        self._held = held
        self._counts = counts
        self._sizes = [len(slots) for slots in held.values()]
        self._owners: dict[bytes, list[int]] = {topic_id: [-1] * count for topic_id, count in counts.items()}
        for place, slots in enumerate(held.values()):
            for topic_id, partition in slots:
                self._owners[topic_id][partition] = place
        self._subscribers: dict[bytes, list[int]] = {topic_id: [] for topic_id in counts}
        for place, member in enumerate(spec.members.values()):
            for topic_id in member.topics & counts.keys():
                self._subscribers[topic_id].append(place)

    def find(self) -> None:
        by_need = sorted(self._counts, key=self._need)
        for topic_id in by_need:
            self._assign_unowned(topic_id)
        self._balance([topic_id for topic_id in by_need if len(self._subscribers[topic_id]) > 1])
        places = list(self._held.values())
        for slots in places:
            slots.clear()
        for topic_id, owners in self._owners.items():
            for partition, place in enumerate(owners):
                places[place].append((topic_id, partition))

    def _need(self, topic_id: bytes) -> tuple[float, int, bytes]:
        subscribers = len(self._subscribers[topic_id])
        return (-self._counts[topic_id] / subscribers, subscribers, topic_id)

    def _by_size(self, topic_id: bytes) -> list[int]:
        return sorted(self._subscribers[topic_id], key=self._sizes.__getitem__)

    def _assign_unowned(self, topic_id: bytes) -> None:
        owners = self._owners[topic_id]
        takers = _emptiest_first(self._by_size(topic_id), self._sizes)
        for partition, owner in enumerate(owners):
            if owner < 0:
                taker, _ = next(takers)
                owners[partition] = taker
                self._sizes[taker] += 1

    def _balance(self, topic_ids: list[bytes]) -> None:
        """Rounds over the topics, until no topic has had a move since its last check."""
        left = len(topic_ids)
        for topic_id in topic_ids * ROUNDS:
            if left == 0:
                return
            left = len(topic_ids) - 1 if self._balance_topic(topic_id) else left - 1

    def _balance_topic(self, topic_id: bytes) -> bool:
        by_size = self._by_size(topic_id)
        if self._sizes[by_size[-1]] - self._sizes[by_size[0]] <= 1:
            return False
        owners = self._owners[topic_id]
        movable: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            movable.setdefault(owner, []).append(partition)
        takers = _emptiest_first(by_size, self._sizes)
        has_moved = False
        for giver, most in _fullest_first(by_size, self._sizes, movable):
            taker, least = next(takers)
            if most - least <= 1:
                break
            owners[movable[giver].pop()] = taker
            self._sizes[giver] -= 1
            self._sizes[taker] += 1
            has_moved = True
        return has_moved


def _emptiest_first(by_size: list[int], sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Members with their sizes, in the order in which each should get one more partition: all of the lowest level, then
    all of the next level including those that have reached it, without end."""
    level, end = sizes[by_size[0]], 0
    while True:
        while end < len(by_size) and sizes[by_size[end]] == level:
            end += 1
        for place in range(end):
            yield by_size[place], level
        level += 1


def _fullest_first(by_size: list[int], sizes: list[int], movable: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
    """Members with their sizes, in the order in which one partition should be taken from each: all of the highest
    level, the last first, then all of the next level including those that have reached it. Members without partitions
    come last."""
    level, start, end = sizes[by_size[-1]] + 1, len(by_size), len(by_size)
    while end > 0:
        level = sizes[by_size[start - 1]] if end <= start and start > 0 else level - 1
        while start > 0 and sizes[by_size[start - 1]] == level:
            start -= 1
        for place in range(end - 1, start - 1, -1):
            member = by_size[place]
            if movable.get(member):
                yield member, level
            else:
                end -= 1
                by_size[place], by_size[end] = by_size[end], by_size[place]
