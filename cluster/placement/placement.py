"""Where the replicas of new partitions go.

The brokers form a ring in which adjacent ones are of different racks, as far as that is possible: one of each rack in
turn. A topic begins at a random place of the ring; its partitions are led by one broker after the other, so that each
leads as many as the others. The followers of a partition are found further on in the ring, from a place that moves on
with every round, so that the partitions of one leader are followed by different brokers and a broker that stops leaves
its work to many.

Rules that always hold: no two replicas on one broker; the first is on a broker that may lead. Goals, in this order:
replicas in as many racks as there are; on brokers that are not fenced; evenly over brokers.

Only new replicas are placed. Existing replicas stay where they are when brokers join or leave, until a user requests a
reassignment.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from random import Random
from typing import TypeVar

from trioka.protocol.errors import InvalidReplicationFactor
from trioka.protocol.lazy_dataclass import frozen

from ..image.brokers import Broker

T = TypeVar("T")


@frozen
class BrokerSlot:
    """A broker that can hold a new replica."""

    broker_id: int
    rack: str | None
    fenced: bool


def usable_brokers(brokers: Iterable[Broker]) -> list[BrokerSlot]:
    """Includes fenced brokers, but none that shuts down or has only cordoned directories."""
    return [
        BrokerSlot(broker_id=broker.broker_id, rack=broker.rack, fenced=broker.fenced)
        for broker in brokers
        if not broker.in_controlled_shutdown
        and (not broker.directories or not set(broker.directories) <= set(broker.cordoned_directories))
    ]


def place(
    places: Sequence[BrokerSlot], partitions: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the leader first."""
    unfenced = [candidate for candidate in places if not candidate.fenced]
    if replication_factor <= 0:
        raise InvalidReplicationFactor(f"the replication factor must be larger than 0, and is {replication_factor}")
    if not unfenced:
        raise InvalidReplicationFactor("all brokers are fenced at the moment")
    if replication_factor > len(places):
        raise InvalidReplicationFactor(
            f"Replication factor: {replication_factor} larger than available brokers: {len(places)}. "
            f"The target replication factor of {replication_factor} cannot be reached: each needs its own broker"
        )
    ring = _ring(unfenced, random)
    reserve = _ring([candidate for candidate in places if candidate.fenced], random)
    shift = random.randrange(len(ring))
    return [
        _replicas(ring, reserve, index, shift + index // len(ring), replication_factor) for index in range(partitions)
    ]


def _replicas(ring: list[BrokerSlot], reserve: list[BrokerSlot], start: int, shift: int, count: int) -> tuple[int, ...]:
    size = len(ring)
    chosen = [ring[start % size]]
    # The others of the ring, beginning at a distance of 1 to size - 1 from the leader, then the fenced brokers.
    turn = 1 + shift % (size - 1) if size > 1 else 1
    others = [ring[(start + 1 + (turn - 1 + step) % (size - 1)) % size] for step in range(size - 1)]
    left = [*others, *(reserve[(start + shift + step) % len(reserve)] for step in range(len(reserve)))]
    racks = Counter({chosen[0].rack: 1})
    while len(chosen) < count:
        found = min(left, key=lambda candidate: racks[candidate.rack])  # of equals, the first
        left.remove(found)
        chosen.append(found)
        racks[found.rack] += 1
    return tuple(candidate.broker_id for candidate in chosen)


def _ring(places: list[BrokerSlot], random: Random) -> list[BrokerSlot]:
    """The brokers, one of each rack in turn; racks and the brokers in them in the order of names and ids, turned."""
    racks: dict[str, list[BrokerSlot]] = {}
    for candidate in sorted(places, key=lambda each: (each.rack or "", each.broker_id)):
        racks.setdefault(candidate.rack or "", []).append(candidate)
    rows = [_turned(row, random) for row in _turned(list(racks.values()), random)]
    return [candidate for candidate in chain.from_iterable(zip_longest(*rows)) if candidate is not None]


def _turned(items: list[T], random: Random) -> list[T]:
    by = random.randrange(len(items)) if items else 0
    return items[by:] + items[:by]
