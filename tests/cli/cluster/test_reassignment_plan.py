"""Plans of where replicas shall be, for clusters of many shapes."""

from collections import Counter
from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.cli.client.cluster_client import TopicPartition
from trioka.cli.cluster import reassignment_plan


@pytest.fixture
def module() -> ModuleType:
    return reassignment_plan


def placement(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("orders", index): each for index, each in enumerate(replicas)}


def racks(*brokers: int, **named: str) -> dict[int, str | None]:
    return {broker: named.get(f"b{broker}") for broker in brokers}


def test_a_drained_broker_has_nothing_left(module: ModuleType) -> None:
    before = placement((1, 2), (2, 3), (3, 1), (4, 2))
    plan = module.drained(before, racks(1, 2, 3, 4), 1)
    assert set(plan) == {TopicPartition("orders", 0), TopicPartition("orders", 2)}  # no other replica has to move
    assert all(1 not in replicas for replicas in plan.values())
    assert sorted(heir for replicas in plan.values() for heir in replicas if heir == 4) == [4, 4]  # it had the least


def test_the_others_share_what_a_broker_leaves(module: ModuleType) -> None:
    plan = module.drained(placement(*[(1,)] * 6), racks(1, 2, 3), 1)
    assert Counter(replicas[0] for replicas in plan.values()) == {2: 3, 3: 3}


def test_a_replica_without_a_target_stays_and_does_not_lead(module: ModuleType) -> None:
    plan = module.drained(placement((1, 2, 3), (2, 1, 3)), racks(1, 2, 3), 1)
    assert list(plan.values()) == [(2, 3, 1), (2, 3, 1)]


def test_a_replica_goes_to_a_rack_that_has_none(module: ModuleType) -> None:
    places = racks(1, 2, 3, 4, b1="a", b2="b", b3="b", b4="a")
    plan = module.drained(placement((1, 2), (4, 3)), places, 1)
    assert list(plan.values()) == [(4, 2)]  # and not to broker 3, though both have one


def test_a_new_broker_takes_its_share_and_no_more_moves_than_that(module: ModuleType) -> None:
    before = placement(*[(1, 2), (2, 1)] * 6)
    plan = module.balanced(before, racks(1, 2, 3))
    after = {**before, **plan}
    assert sorted(Counter(each for replicas in after.values() for each in replicas).values()) == [8, 8, 8]
    assert sorted(Counter(replicas[0] for replicas in after.values()).values()) == [4, 4, 4]
    assert sum(3 in replicas for replicas in plan.values()) == 8


def test_what_is_even_stays(module: ModuleType) -> None:
    assert module.balanced(placement((1, 2), (2, 3), (3, 1)), racks(1, 2, 3)) == {}


@pytest.mark.parametrize("seed", range(100))
def test_a_plan_keeps_what_must_be_kept(seed: int) -> None:
    random = Random(seed)
    count = random.randrange(1, 7)
    places: dict[int, str | None] = {each: random.choice(("a", "b", None)) for each in range(1, count + 1)}
    before = placement(
        *(tuple(random.sample(list(places), random.randrange(1, count + 1))) for _ in range(random.randrange(1, 30)))
    )
    for plan in (
        reassignment_plan.balanced(before, places),
        reassignment_plan.drained(before, places, random.choice(list(places))),
    ):
        for partition, replicas in plan.items():
            assert len(replicas) == len(set(replicas)) == len(before[partition])
            assert set(replicas) <= set(places) and replicas != before[partition]
    after = {**before, **reassignment_plan.balanced(before, places)}
    spread_before = Counter(each for replicas in before.values() for each in replicas)
    spread_after = Counter(each for replicas in after.values() for each in replicas)
    assert max(spread_after.values()) <= max(spread_before.values())


MISTAKES = [
    ("if broker not in replicas:", "if False:", test_a_drained_broker_has_nothing_left),
    ("load[heir] += 1\n            load[broker] -= 1", "pass", test_the_others_share_what_a_broker_leaves),
    (
        "(*(each for each in replicas if each != broker), broker)",
        "replicas",
        test_a_replica_without_a_target_stays_and_does_not_lead,
    ),
    ("(racks[each] in taken, load[each], each)", "(load[each], each)", test_a_replica_goes_to_a_rack_that_has_none),
    (
        "_spread_leaders(now, racks)",
        "",
        test_a_new_broker_takes_its_share_and_no_more_moves_than_that,
    ),
    (
        "load[giver] - 1",
        "load[giver] - 9",
        test_a_new_broker_takes_its_share_and_no_more_moves_than_that,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(reassignment_plan, right, wrong, rule)
