"""Partitions are brought near their readers: exchanged between members until more can be read on a member's own rack.

An assignor first makes an assignment as if there were no racks; then two members exchange one partition each where
that brings one of them near, and takes none away from where it was near. Where all subscribe to the same, a member
that has one more than another may also hand it on; where subscriptions differ, only partitions of one topic are
exchanged, as the balance there hangs on who has how many of which topic. So the balance stays as it is, every step
brings at least one more partition near, and an assignment that cannot be improved in this way stays as it is.

Many members and many partitions are alike (same rack; same topic and racks), so whole kinds are compared: that nothing
can be improved is known after a few looks, not after one for each pair of partitions. `LOOKS` bounds the odd case of
hundreds of racks.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from ..topics import Topics
from . import MemberSpec
from .holdings import Holdings, Slot

LOOKS: Final = 1_000_000  # about half a second


Rack: TypeAlias = str | None


class _Load(NamedTuple):
    """A kind of partitions: what can be exchanged for one another, and where it is near."""

    topic_id: bytes  # of no topic in particular, if all topics will do
    racks: frozenset[str]


class _Place(NamedTuple):
    member_id: str
    slot: Slot


def bring_near(held: Holdings, members: Mapping[str, MemberSpec], topics: Topics, *, is_homogeneous: bool) -> None:
    racks = {member.rack for member in members.values() if member.rack is not None}
    if not racks:
        return
    loads: dict[Slot, _Load] = {}
    for topic_id in dict.fromkeys(topic_id for slots in held.values() for topic_id, _ in slots):
        topic = topics.by_id(topic_id)
        assert topic is not None
        for partition, found in enumerate(topic.racks):
            loads[topic_id, partition] = _Load(b"" if is_homogeneous else topic_id, found & racks)
    _bring_loads_near(held, members, loads, is_homogeneous)


def bring_ranges_near(held: Holdings, members: Mapping[str, MemberSpec], racks: Iterable[frozenset[str]]) -> None:
    """The same for partition numbers that stand for several topics at once: `racks` are those that all have in common,
    and slots have no topic."""
    known = {members[member_id].rack for member_id in held}
    loads = {(b"", number): _Load(b"", common & known) for number, common in enumerate(racks)}
    _bring_loads_near(held, members, loads, is_homogeneous=False)


def _bring_loads_near(
    held: Holdings, members: Mapping[str, MemberSpec], loads: Mapping[Slot, _Load], is_homogeneous: bool
) -> None:
    far = [
        _Place(member_id, slot)
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
        self, held: Holdings, members: Mapping[str, MemberSpec], loads: Mapping[Slot, _Load], is_homogeneous: bool
    ) -> None:
        self._racks = {member_id: members[member_id].rack for member_id in held}
        self._loads = loads
        self._sizes = {member_id: len(slots) for member_id, slots in held.items()}
        # By the rack of who has it and by topic. Dictionaries without values are sets that keep their order: the same
        # group gets the same assignment.
        self._shelves: dict[tuple[Rack, bytes], dict[_Load, dict[_Place, None]]] = {}
        for member_id, slots in held.items():
            for slot in slots:
                self._put(_Place(member_id, slot))
        self._least = min(self._sizes.values())
        self._small: dict[Rack, dict[str, None]] = {}  # who may take one more
        for member_id, size in self._sizes.items():
            if is_homogeneous and size == self._least:
                self._small.setdefault(self._racks[member_id], {})[member_id] = None
        self._looks = 0

    def improve(self, far: Iterable[_Place]) -> None:
        waiting = deque(far)
        hopeless: set[tuple[Rack, _Load, bool]] = set()  # kinds that found nobody since something was moved last
        in_vain = 0
        while in_vain < len(waiting) and self._looks < LOOKS:
            place = waiting.popleft()
            rack, load = self._racks[place.member_id], self._loads[place.slot]
            if place not in self._shelves[rack, load.topic_id][load]:
                continue  # it went away in exchange for another
            kind = (rack, load, self._sizes[place.member_id] > self._least)
            if kind in hopeless or not (self._exchange(place, waiting) or self._hand_on(place)):
                hopeless.add(kind)
                waiting.append(place)
                in_vain += 1
            else:
                hopeless.clear()
                in_vain = 0

    def write_back(self, held: Holdings) -> None:
        for slots in held.values():
            slots.clear()
        for shelf in self._shelves.values():
            for places in shelf.values():
                for member_id, slot in places:
                    held[member_id].append(slot)

    def _exchange(self, place: _Place, waiting: deque[_Place]) -> bool:
        other = self._partner(self._racks[place.member_id], self._loads[place.slot])
        if other is None:
            return False
        self._move(place, other.member_id)
        self._move(other, place.member_id)
        racks = self._loads[other.slot].racks
        if racks and self._racks[place.member_id] not in racks:
            waiting.append(_Place(place.member_id, other.slot))
        return True

    def _partner(self, rack: Rack, load: _Load) -> _Place | None:
        """A partition of a member near the load, which is far from there itself, or near this rack too. One that comes
        near by it goes first."""
        found = None
        for other in sorted(load.racks):
            for back, places in self._shelves.get((other, load.topic_id), {}).items():
                self._looks += 1
                is_far, is_near_here = other not in back.racks, rack in back.racks
                if not places or not (is_far or is_near_here):
                    continue
                if is_far and is_near_here:
                    return next(iter(places))
                if found is None:
                    found = next(iter(places))
        return found

    def _hand_on(self, place: _Place) -> bool:
        """To a member that has one less."""
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

    def _move(self, place: _Place, member_id: str) -> None:
        load = self._loads[place.slot]
        del self._shelves[self._racks[place.member_id], load.topic_id][load][place]
        self._put(_Place(member_id, place.slot))
        self._sizes[place.member_id] -= 1
        self._sizes[member_id] += 1

    def _put(self, place: _Place) -> None:
        load = self._loads[place.slot]
        shelf = self._shelves.setdefault((self._racks[place.member_id], load.topic_id), {})
        shelf.setdefault(load, {})[place] = None
