"""What replicas lack, in words; and how fast they may be copied. What real processes do stands in test_cluster.py."""

from types import ModuleType

import click
import pytest
from mutants.plant import Rule, assert_noticed

from trioka.cli.client.cluster_client import TopicPartition
from trioka.cli.cluster import throttling, under_replicated
from trioka.cli.cluster.throttling import OFF, ByteRate

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
THIRD = TopicPartition("bills", 7)


def holders_send_and_new_members_receive(module: ModuleType) -> None:
    placement = {PLACE: (1, 2), OTHER: (2, 3), THIRD: (1,), TopicPartition("still", 0): (9,)}
    found = module.throttle_of(placement, {PLACE: (2, 3), OTHER: (2, 3, 4), THIRD: (5,)})
    assert found.brokers == {1, 2, 3, 4, 5}
    assert found.topics == {"orders": ("0:1,0:2,1:2,1:3", "0:3,1:4"), "bills": ("7:1", "7:5")}


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50MB", 50_000_000), ("50 mb/s", 50_000_000), ("7", 7), ("3k", 3000), ("1GB", 10**9), ("off", OFF)],
)
def test_a_rate_is_read(text: str, rate: int) -> None:
    assert ByteRate().convert(text, None, None) == rate


@pytest.mark.parametrize("text", ["", "fast", "-5", "0", "5XB", "5.5MB", "9" * 30])
def test_what_is_no_rate_is_a_sentence(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no rate; 50MB, 50000000 or off is one"):
        ByteRate().convert(text, None, None)


def two_samples_give_the_rate_of_catching_up(module: ModuleType) -> None:
    before = {1: {PLACE: 1000}, 3: {PLACE: 200}}
    now = {1: {PLACE: 1200}, 3: {PLACE: 900}}
    found = module.shortfall_of(before, now, 2.0, 1, 3, PLACE, 4000)
    assert found == module.Shortfall(300, 4000, 250.0)
    assert module.explain_shortfall(3, found) == "broker 3 is up, and catches up at 250 B/s → in sync in ~1s"
    slower = module.shortfall_of(before, {1: {PLACE: 2000}, 3: {PLACE: 300}}, 2.0, 1, 3, PLACE, None)
    assert slower.gain < 0 and "does not catch up" in module.explain_shortfall(3, slower)


def one_sample_gives_no_rate_and_no_broker_no_size(module: ModuleType) -> None:
    sizes = {1: {PLACE: 1000}, 3: {PLACE: 1000}, 4: {}}
    assert module.shortfall_of(sizes, sizes, 0.0, 1, 3, PLACE, None) == module.Shortfall(0, 0, None)
    assert module.shortfall_of(sizes, sizes, 0.0, 1, 4, PLACE, 9) == module.Shortfall(1000, 9, None)
    for leader, node in ((2, 3), (1, 5)):  # who did not answer
        assert module.shortfall_of(sizes, sizes, 0.0, leader, node, PLACE, None) == module.Shortfall(None, None, None)
    assert (
        module.explain_shortfall(3, module.Shortfall(0, 0, 0.0)) == "broker 3 is up, and has all: it joins in a moment"
    )
    assert module.explain_shortfall(3, module.Shortfall(5, 1, None)) == "broker 3 is up, and catches up"
    assert module.explain_shortfall(3, None) == "broker 3 is down"


RULES: list[tuple[ModuleType, Rule]] = [
    (throttling, holders_send_and_new_members_receive),
    (under_replicated, two_samples_give_the_rate_of_catching_up),
    (under_replicated, one_sample_gives_no_rate_and_no_broker_no_size),
]
MISTAKES: list[tuple[ModuleType, str, str, Rule]] = [
    (
        throttling,
        '(f"{place.partition}:{each}" for each in after if each not in before)',
        '(f"{place.partition}:{each}" for each in after)',
        holders_send_and_new_members_receive,
    ),
    (
        throttling,
        '(f"{place.partition}:{each}" for each in before)',
        '(f"{place.partition}:{each}" for each in before[:1])',
        holders_send_and_new_members_receive,
    ),
    (throttling, "{*before, *after}", "{*after}", holders_send_and_new_members_receive),
    (
        under_replicated,
        "(then - last) / seconds",
        "(last - then) / seconds",
        two_samples_give_the_rate_of_catching_up,
    ),
    (
        under_replicated,
        "Shortfall(last, 0 if age_ms is None and last == 0 else age_ms, gain)",
        "Shortfall(then, 0 if age_ms is None and last == 0 else age_ms, gain)",
        two_samples_give_the_rate_of_catching_up,
    ),
    (
        under_replicated,
        "seconds <= 0 or then is None",
        "then is None",
        one_sample_gives_no_rate_and_no_broker_no_size,
    ),
    (
        under_replicated,
        "whole is None or node not in sizes",
        "whole is None",
        one_sample_gives_no_rate_and_no_broker_no_size,
    ),
]


@pytest.mark.parametrize(("module", "rule"), RULES)
def test_the_rule_holds(module: ModuleType, rule: Rule) -> None:
    rule(module)


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(module: ModuleType, right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(module, right, wrong, rule)
