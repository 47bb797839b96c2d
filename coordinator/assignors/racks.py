"""Improves rack locality: exchanges partitions between members until more of them have a replica in a member's rack.

An assignor first computes an assignment without regard to racks. Then two members exchange one partition each where
that makes one of the two local and makes no local one remote. If all subscriptions are equal, a member with one
partition more than another may also hand it over; if they differ, only partitions of one topic are exchanged, because
the balance there depends on how many partitions of each topic a member has. So the balance does not change, every step
makes at least one more partition local, and an assignment that cannot be improved in this way stays as it is.

Many members and partitions are equivalent (same rack; same topic and racks), so classes of them are compared: a few
comparisons show that nothing can be improved, instead of one for each pair of partitions. `MAX_COMPARISONS` bounds the
rare case of hundreds of racks.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from ..topics import Topics
from . import MemberSpec
from .holdings import MemberPartitions, PartitionSlot

MAX_COMPARISONS: Final = 1_000_000  # about half a second


Rack: TypeAlias = str | None


class _Load(NamedTuple):
    """A class of equivalent partitions: those that can be exchanged for one another, and their racks."""

    topic_id: bytes  # empty if partitions of different topics may be exchanged
    racks: frozenset[str]


class _Assigned(NamedTuple):
    member_id: str
    slot: PartitionSlot


def improve_rack_locality(
    held: MemberPartitions, members: Mapping[str, MemberSpec], topics: Topics, *, is_homogeneous: bool
) -> None:
    racks = {member.rack for member in members.values() if member.rack is not None}
    if not racks:
        return
    loads: dict[PartitionSlot, _Load] = {}
    for topic_id in dict.fromkeys(topic_id for slots in held.values() for topic_id, _ in slots):
        topic = topics.by_id(topic_id)
        assert topic is not None
        for partition, found in enumerate(topic.racks):
            loads[topic_id, partition] = _Load(b"" if is_homogeneous else topic_id, found & racks)
    _improve_locality(held, members, loads, is_homogeneous)


def improve_range_locality(
    held: MemberPartitions, members: Mapping[str, MemberSpec], racks: Iterable[frozenset[str]]
) -> None:
    """The same for partition numbers that stand for several topics: `racks` are the racks that all topics have in
    common, and slots have no topic."""
    known = {members[member_id].rack for member_id in held}
    loads = {(b"", number): _Load(b"", common & known) for number, common in enumerate(racks)}
    _improve_locality(held, members, loads, is_homogeneous=False)


def _improve_locality(
    held: MemberPartitions,
    members: Mapping[str, MemberSpec],
    loads: Mapping[PartitionSlot, _Load],
    is_homogeneous: bool,
) -> None:
    far = [
        _Assigned(member_id, slot)
        for member_id, slots in held.items()
        for slot in slots
        if loads[slot].racks and members[member_id].rack not in loads[slot].racks
    ]
    if far:
        exchange = _Exchange(held, members, loads, is_homogeneous)
        exchange.improve(far)
        exchange.write_back(held)


class _Exchange:
    def __init__(
        self,
        held: MemberPartitions,
        members: Mapping[str, MemberSpec],
        loads: Mapping[PartitionSlot, _Load],
        is_homogeneous: bool,
    ) -> None:
        self._racks = {member_id: members[member_id].rack for member_id in held}
        self._loads = loads
        self._sizes = {member_id: len(slots) for member_id, slots in held.items()}
        # By rack of the member and by topic. Dictionaries without values are sets that keep their order, so the same
        # group gets the same assignment.
        self._shelves: dict[tuple[Rack, bytes], dict[_Load, dict[_Assigned, None]]] = {}
        for member_id, slots in held.items():
            for slot in slots:
                self._put(_Assigned(member_id, slot))
        self._least = min(self._sizes.values())
        self._small: dict[Rack, dict[str, None]] = {}  # members that may take one more
        for member_id, size in self._sizes.items():
            if is_homogeneous and size == self._least:
                self._small.setdefault(self._racks[member_id], {})[member_id] = None
        self._comparisons = 0

    def improve(self, far: Iterable[_Assigned]) -> None:
        waiting = deque(far)
        hopeless: set[tuple[Rack, _Load, bool]] = set()  # classes without a match since the last move
        without_exchange = 0
        while without_exchange < len(waiting) and self._comparisons < MAX_COMPARISONS:
            place = waiting.popleft()
            rack, load = self._racks[place.member_id], self._loads[place.slot]
            if place not in self._shelves[rack, load.topic_id][load]:
                continue  # it has been exchanged already
            kind = (rack, load, self._sizes[place.member_id] > self._least)
            if kind in hopeless or not (self._exchange(place, waiting) or self._give_to_smaller(place)):
                hopeless.add(kind)
                waiting.append(place)
                without_exchange += 1
            else:
                hopeless.clear()
                without_exchange = 0

    def write_back(self, held: MemberPartitions) -> None:
        for slots in held.values():
            slots.clear()
        for shelf in self._shelves.values():
            for places in shelf.values():
                for member_id, slot in places:
                    held[member_id].append(slot)

    def _exchange(self, place: _Assigned, waiting: deque[_Assigned]) -> bool:
        other = self._partner(self._racks[place.member_id], self._loads[place.slot])
        if other is None:
            return False
        self._move(place, other.member_id)
        self._move(other, place.member_id)
        racks = self._loads[other.slot].racks
        if racks and self._racks[place.member_id] not in racks:
            waiting.append(_Assigned(place.member_id, other.slot))
        return True

    def _partner(self, rack: Rack, load: _Load) -> _Assigned | None:
        """A partition of a member in one of the load's racks that is remote there, or also local in this rack. One that
        becomes local by the exchange is preferred."""
        found = None
        for other in sorted(load.racks):
            for back, places in self._shelves.get((other, load.topic_id), {}).items():
                self._comparisons += 1
                is_far, is_near_here = other not in back.racks, rack in back.racks
                if not places or not (is_far or is_near_here):
                    continue
                if is_far and is_near_here:
                    return next(iter(places))
                if found is None:
                    found = next(iter(places))
        return found

    def _give_to_smaller(self, place: _Assigned) -> bool:
        """Hand the partition over to a member that has one less."""
        if self._sizes[place.member_id] == self._least:
            return False
        racks = self._loads[place.slot].racks
        taker = next((next(iter(few)) for rack, few in self._small.items() if few and rack in racks), None)
        if taker is None:
            return False
        self._move(place, taker)
        del self._small[self._racks[taker]][taker]
        self._small.setdefault(self._racks[place.member_id], {})[place.member_id] = None
        return True

    def _move(self, place: _Assigned, member_id: str) -> None:
        load = self._loads[place.slot]
        del self._shelves[self._racks[place.member_id], load.topic_id][load][place]
        self._put(_Assigned(member_id, place.slot))
        self._sizes[place.member_id] -= 1
        self._sizes[member_id] += 1

    def _put(self, place: _Assigned) -> None:
        load = self._loads[place.slot]
        shelf = self._shelves.setdefault((self._racks[place.member_id], load.topic_id), {})
        shelf.setdefault(load, {})[place] = None
