"""Reassignment plans: drain a broker, or balance replicas over brokers. This module sends no requests;
`cluster/reassign.py` executes plans.

A plan lists the replicas of each partition that changes, the preferred leader first. It moves as few replicas as it
can, because every move is copied over the network, and never puts two replicas of a partition on one broker; where it
has a choice, it puts replicas into different racks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..client.cluster_client import TopicPartition

Replicas: TypeAlias = tuple[int, ...]
Placement: TypeAlias = dict[TopicPartition, Replicas]
Racks: TypeAlias = Mapping[int, str | None]  # rack of each broker that is up


def drained(placement: Mapping[TopicPartition, Sequence[int]], racks: Racks, broker: int) -> Placement:
    """The placement without a broker. If no other broker can take a replica, the replica stays, as the preferred leader
    only if it is the last replica.
    """
    load = Counter(replica for replicas in placement.values() for replica in replicas)
    plan: Placement = {}
    for partition in sorted(placement):
        replicas = tuple(placement[partition])
        if broker not in replicas:
            continue
        heir = _new_replica(replicas, broker, [each for each in racks if each != broker], racks, load)
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
    """Replicas, and preferred leaders, spread over the brokers so that counts differ by at most one."""
    now: Placement = {partition: tuple(replicas) for partition, replicas in sorted(placement.items())}
    load = Counter(replica for replicas in now.values() for replica in replicas)
    for _ in range(load.total()):
        if not _move_one(now, racks, load):
            break
    _spread_leaders(now, racks)
    return {partition: replicas for partition, replicas in now.items() if replicas != tuple(placement[partition])}


def _move_one(now: Placement, racks: Racks, load: Counter[int]) -> bool:
    """Move a replica from the fullest broker that can give one to the emptiest; False if there was nothing to move."""
    by_load = sorted(racks, key=lambda each: (load[each], each))
    for giver in reversed(by_load):
        takers = [each for each in by_load if load[each] < load[giver] - 1]
        for partition, replicas in now.items():
            if giver in replicas and takers:
                heir = _new_replica(replicas, giver, takers, racks, load)
                if heir is not None and _racks(replicas, racks) <= _racks(_replaced(replicas, giver, heir), racks):
                    now[partition] = _replaced(replicas, giver, heir)
                    load[giver] -= 1
                    load[heir] += 1
                    return True
    return False


def _spread_leaders(now: Placement, racks: Racks) -> None:
    """Reorder the replicas of partitions whose leader leads more partitions than another of their replicas does."""
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


def _new_replica(
    replicas: Replicas, leaver: int, candidates: Sequence[int], racks: Racks, load: Mapping[int, int]
) -> int | None:
    """The broker that takes a replica: in a rack without another replica if possible, with the fewest replicas."""
    taken = {racks.get(each) for each in replicas if each != leaver} - {None}
    free = [each for each in candidates if each not in replicas]
    return min(free, key=lambda each: (racks[each] in taken, load[each], each), default=None)


def _racks(replicas: Replicas, racks: Racks) -> int:
    """The number of distinct racks."""
    return len({racks.get(each) for each in replicas})


def _replaced(replicas: Replicas, before: int, after: int) -> Replicas:
    return tuple(after if each == before else each for each in replicas)
