"""Where replicas go: never two on one broker, over racks first, evenly."""

from collections import Counter
from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.small_cluster import SmallCluster, directory

from trioka.cluster.placement import placement
from trioka.cluster.placement.placement import BrokerSlot, usable_brokers
from trioka.protocol.errors import InvalidReplicationFactor

Placed = list[tuple[int, ...]]


@pytest.fixture
def module() -> ModuleType:
    return placement


def places(count: int, *, racks: int = 0, fenced: frozenset[int] = frozenset()) -> list[BrokerSlot]:
    return [
        BrokerSlot(broker_id=number, rack=f"rack-{number % racks}" if racks else None, fenced=number in fenced)
        for number in range(count)
    ]


def placed(module: ModuleType, brokers: list[BrokerSlot], partitions: int, factor: int, seed: int = 0) -> Placed:
    return list(module.place(brokers, partitions, factor, Random(seed)))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 12])
def test_no_broker_holds_two_replicas_of_a_partition(count: int, module: ModuleType) -> None:
    for factor in range(1, count + 1):
        for replicas in placed(module, places(count, racks=min(3, count)), 20, factor, seed=factor):
            assert len(replicas) == len(set(replicas)) == factor


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_each_broker_leads_as_many_as_the_others(count: int, module: ModuleType) -> None:
    leaders = Counter(replicas[0] for replicas in placed(module, places(count), 40 * count, min(3, count)))
    assert set(leaders.values()) == {40}


def test_each_broker_holds_about_as_many_as_the_others(module: ModuleType) -> None:
    held = Counter(broker for replicas in placed(module, places(6), 300, 3) for broker in replicas)
    assert max(held.values()) - min(held.values()) <= 6, held


def test_the_partitions_of_one_leader_are_followed_by_many(module: ModuleType) -> None:
    followers = {replicas[1] for replicas in placed(module, places(6), 60, 3) if replicas[0] == 2}
    assert followers == {0, 1, 3, 4, 5}


@pytest.mark.parametrize("racks", [2, 3, 4])
def test_replicas_stand_in_as_many_racks_as_there_are(racks: int, module: ModuleType) -> None:
    for seed in range(10):
        for replicas in placed(module, places(8, racks=racks), 30, 3, seed):
            assert len({broker % racks for broker in replicas}) == min(3, racks)


def test_a_rack_gets_a_second_replica_only_when_every_rack_has_one(module: ModuleType) -> None:
    for replicas in placed(module, places(6, racks=2), 30, 4):
        assert Counter(broker % 2 for broker in replicas) == {0: 2, 1: 2}


def test_fenced_brokers_are_the_last_choice_and_never_lead(module: ModuleType) -> None:
    fenced = frozenset({1, 3})
    for replicas in placed(module, places(5, fenced=fenced), 40, 3):
        assert not fenced & set(replicas)
    for replicas in placed(module, places(5, fenced=fenced), 40, 5):
        assert replicas[0] not in fenced and set(replicas) == set(range(5))


def test_the_same_seed_places_the_same_and_another_starts_elsewhere(module: ModuleType) -> None:
    first = [placed(module, places(5), 4, 2, seed) for seed in range(20)]
    assert first == [placed(module, places(5), 4, 2, seed) for seed in range(20)]
    assert len({replicas[0][0] for replicas in first}) == 5


@pytest.mark.parametrize("factor", [0, -1, 4])
def test_what_cannot_be_placed_is_refused(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor):
        placement.place(places(3), 1, factor, Random(0))
    with pytest.raises(InvalidReplicationFactor, match="fenced"):
        placement.place(places(3, fenced=frozenset(range(3))), 1, 1, Random(0))
    with pytest.raises(InvalidReplicationFactor, match="fenced"):
        placement.place([], 1, 1, Random(0))


def test_brokers_that_shut_down_or_take_nothing_new_are_left_out() -> None:
    cluster = SmallCluster(brokers=3)
    cluster.create("orders", partitions=3)
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2, cordoned_log_dirs=[directory(2)])
    assert [each.broker_id for each in usable_brokers(cluster.metadata.brokers)] == [3]


MISTAKES: list[tuple[str, str, Rule]] = [
    ("        left.remove(found)\n", "", lambda m: test_no_broker_holds_two_replicas_of_a_partition(5, m)),
    (
        "_replicas(ring, reserve, index, shift + index // len(ring), replication_factor)",
        "_replicas(ring, reserve, 0, shift + index // len(ring), replication_factor)",
        lambda m: test_each_broker_leads_as_many_as_the_others(3, m),
    ),
    (
        "key=lambda candidate: racks[candidate.rack]",
        "key=lambda candidate: 0",
        lambda m: test_replicas_stand_in_as_many_racks_as_there_are(4, m),
    ),
    (
        "ring = _ring(unfenced, random)",
        "ring = _ring(list(places), random)",
        test_fenced_brokers_are_the_last_choice_and_never_lead,
    ),
    ("shift + index // len(ring)", "0", test_the_partitions_of_one_leader_are_followed_by_many),
    (
        "by = random.randrange(len(items)) if items else 0",
        "by = 0",
        test_the_same_seed_places_the_same_and_another_starts_elsewhere,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(placement, right, wrong, rule)
