"""Plans of where replicas shall be: all of a broker's elsewhere, or as many on each broker. Nothing is asked or changed
here; `cluster/reassign.py` carries plans out.

A plan names for each partition that changes its replicas, the preferred leader first. It moves as little as it can,
because every move is copied over the network, and never puts two replicas of a partition on one broker; where it can
choose, replicas are in different racks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..client.cluster_client import TopicPartition

Replicas: TypeAlias = tuple[int, ...]
Placement: TypeAlias = dict[TopicPartition, Replicas]
Racks: TypeAlias = Mapping[int, str | None]  # of each broker that is there


def drained(placement: Mapping[TopicPartition, Sequence[int]], racks: Racks, broker: int) -> Placement:
    """Without a broker. Where no other broker is left to take its replica it stays, and leads only if nobody else is
    there."""
    load = Counter(replica for replicas in placement.values() for replica in replicas)
    plan: Placement = {}
    for partition in sorted(placement):
        replicas = tuple(placement[partition])
        if broker not in replicas:
            continue
        heir = _heir(replicas, broker, [each for each in racks if each != broker], racks, load)
        if heir is None:
            moved = (*(each for each in replicas if each != broker), broker)
        else:
            moved = tuple(heir if each == broker else each for each in replicas)
            load[heir] += 1
            load[broker] -= 1
        if moved != replicas:
            plan[partition] = moved
    return plan


def balanced(placement: Mapping[TopicPartition, Sequence[int]], racks: Racks) -> Placement:
    """As many replicas on each broker as on the others, or one more; and as many of them the preferred leaders."""
    now: Placement = {partition: tuple(replicas) for partition, replicas in sorted(placement.items())}
    load = Counter(replica for replicas in now.values() for replica in replicas)
    for _ in range(load.total()):
        if not _move_one(now, racks, load):
            break
    _spread_leaders(now, racks)
    return {partition: replicas for partition, replicas in now.items() if replicas != tuple(placement[partition])}


def _move_one(now: Placement, racks: Racks, load: Counter[int]) -> bool:
    """From the fullest broker that can give to the emptiest; whether there was something to move."""
    by_load = sorted(racks, key=lambda each: (load[each], each))
    for giver in reversed(by_load):
        takers = [each for each in by_load if load[each] < load[giver] - 1]
        for partition, replicas in now.items():
            if giver in replicas and takers:
                heir = _heir(replicas, giver, takers, racks, load)
                if heir is not None and _racks(replicas, racks) <= _racks(_replaced(replicas, giver, heir), racks):
                    now[partition] = _replaced(replicas, giver, heir)
                    load[giver] -= 1
                    load[heir] += 1
                    return True
    return False


def _spread_leaders(now: Placement, racks: Racks) -> None:
    """By turning the replicas of partitions whose leader leads more than another of them does."""
    leads = Counter(replicas[0] for replicas in now.values() if replicas)
    for _ in range(len(now)):
        is_even = True
        for partition, replicas in now.items():
            others = [each for each in replicas[1:] if each in racks]
            if not others:
                continue
            least = min(others, key=lambda each: (leads[each], each))
            if leads[least] < leads[replicas[0]] - 1:
                leads[least] += 1
                leads[replicas[0]] -= 1
                now[partition] = (least, *(each for each in replicas if each != least))
                is_even = False
        if is_even:
            break


def _heir(
    replicas: Replicas, leaver: int, candidates: Sequence[int], racks: Racks, load: Mapping[int, int]
) -> int | None:
    """Who takes a replica: of a rack that has none of the others, with the least to carry."""
    taken = {racks.get(each) for each in replicas if each != leaver} - {None}
    free = [each for each in candidates if each not in replicas]
    return min(free, key=lambda each: (racks[each] in taken, load[each], each), default=None)


def _racks(replicas: Replicas, racks: Racks) -> int:
    """In how many they are."""
    return len({racks.get(each) for each in replicas})


def _replaced(replicas: Replicas, before: int, after: int) -> Replicas:
    return tuple(after if each == before else each for each in replicas)
