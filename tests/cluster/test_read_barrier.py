"""When a leader may answer a linearizable read: each replica that may be elected has followed since the read began."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import planted, within
from support.small_cluster import SmallCluster

from trioka.cluster import leader_state, read_barrier
from trioka.cluster.partition import Partition

START = 10


class LeaderFixture:
    """Broker 1 leads a partition of brokers 1, 2 and 3, in epoch 5; its log ended at 10 when it began to lead."""

    def __init__(self, module: ModuleType, *, isr: tuple[int, ...] = (1, 2, 3), elr: tuple[int, ...] = ()) -> None:
        cluster = SmallCluster(brokers=3)
        cluster.create("t", assignments=[(1, 2, 3)])
        self.partition: Partition = replace(
            cluster.partition("t"), isr=isr, eligible_leader_replicas=elr, leader_epoch=5, partition_epoch=7
        )
        self.leadership: Any = module.LeaderState(
            1, self.partition, log_end_offset=START, now=0.0, registered=cluster.metadata.brokers.get
        )

    def follows(self, broker_id: int, *, after: int, epoch: int = 5) -> None:
        self.leadership.read_barrier.note_fetch(broker_id, leader_epoch=epoch, answered=after)

    def may_read(self, read: int, high_watermark: int = START) -> bool:
        return bool(self.leadership.may_read(read, high_watermark))

    def shrinks_to(self, *isr: int) -> None:
        """The controller accepts; its answer does not have the ELR."""
        proposal = self.leadership._propose(isr)
        epoch = self.leadership.partition_epoch + 1
        assert self.leadership.accepted(proposal, isr=isr, leader_epoch=5, partition_epoch=epoch)

    def learns(self, *, isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> None:
        """From the metadata, what the controller has answered before."""
        epoch = self.leadership.partition_epoch
        self.leadership.follow(replace(self.partition, isr=isr, eligible_leader_replicas=elr, partition_epoch=epoch))


def all_in_sync_must_have_followed(module: ModuleType) -> None:
    led = LeaderFixture(module)
    assert not led.may_read(1)
    led.follows(2, after=1)
    assert not led.may_read(1)
    led.follows(3, after=1)
    assert led.may_read(1)


def a_fetch_that_was_sent_before_the_read_does_not_count(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.follows(2, after=1)
    assert led.may_read(1) and not led.may_read(2)
    led.follows(2, after=3)  # and the reads in between share it
    assert led.may_read(2) and led.may_read(3)
    led.follows(2, after=1)  # it came late
    assert led.may_read(3)


def who_follows_in_another_epoch_does_not_count(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    for epoch in (4, 6, -1):
        led.follows(2, after=1, epoch=epoch)
    assert not led.may_read(1)


def the_eligible_leader_replicas_count(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1,), elr=(2,))
    assert not led.may_read(1)
    led.follows(2, after=1)
    assert led.may_read(1)


def who_has_left_the_isr_counts_until_the_metadata_says_whether_it_is_eligible(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.shrinks_to(1)
    assert not led.may_read(1)
    led.learns(isr=(1,), elr=(2,))
    assert not led.may_read(1)
    led = LeaderFixture(module, isr=(1, 2))
    led.shrinks_to(1)
    led.learns(isr=(1,))
    assert led.may_read(1)


def who_is_proposed_to_join_counts(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1,))
    assert led.may_read(1)
    led.leadership._propose((1, 3))
    assert not led.may_read(1)


def a_new_leader_waits_for_the_start_of_its_epoch(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1,))
    assert not led.may_read(1, START - 1)
    assert led.may_read(1, START)


def the_controller_may_confirm_instead(module: ModuleType) -> None:
    led = LeaderFixture(module)
    led.leadership.read_barrier.note_confirmed(leader_epoch=4, requested=9)
    assert not led.may_read(1)
    led.leadership.read_barrier.note_confirmed(leader_epoch=5, requested=2)
    assert led.may_read(2) and not led.may_read(3)


Rule = Callable[[ModuleType], None]
RULES = (
    all_in_sync_must_have_followed,
    a_fetch_that_was_sent_before_the_read_does_not_count,
    who_follows_in_another_epoch_does_not_count,
    the_eligible_leader_replicas_count,
    who_has_left_the_isr_counts_until_the_metadata_says_whether_it_is_eligible,
    who_is_proposed_to_join_counts,
    a_new_leader_waits_for_the_start_of_its_epoch,
    the_controller_may_confirm_instead,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_read_waits_for_all_possible_leaders(rule: Rule) -> None:
    rule(leader_state)


MISTAKES: tuple[tuple[ModuleType, str, str, Rule], ...] = (
    (
        read_barrier,
        within("ReadBarrier.note_fetch", "if leader_epoch == self._leader_epoch:"),
        "if True:",
        who_follows_in_another_epoch_does_not_count,
    ),
    (
        read_barrier,
        within("ReadBarrier.note_confirmed", "if leader_epoch == self._leader_epoch:"),
        "if True:",
        the_controller_may_confirm_instead,
    ),
    (
        read_barrier,
        "self._heard.get(each, NO_READ) < read",
        "each not in self._heard",
        a_fetch_that_was_sent_before_the_read_does_not_count,
    ),
    (
        leader_state,
        "return (self.maximal_isr | self._eligible) - {self._node_id}",
        "return self.maximal_isr - {self._node_id}",
        the_eligible_leader_replicas_count,
    ),
    (
        leader_state,
        "return (self.maximal_isr | self._eligible) - {self._node_id}",
        "return (set(self.isr) | self._eligible) - {self._node_id}",
        who_is_proposed_to_join_counts,
    ),
    (
        leader_state,
        "self._eligible |= set(self.isr) - set(isr)",
        "pass",
        who_has_left_the_isr_counts_until_the_metadata_says_whether_it_is_eligible,
    ),
    (
        leader_state,
        within("LeaderState.may_read", "high_watermark >= self.epoch_start"),
        "True",
        a_new_leader_waits_for_the_start_of_its_epoch,
    ),
)


@pytest.mark.parametrize(("module", "right", "wrong", "rule"), MISTAKES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_mistake_is_noticed(
    module: ModuleType, right: str, wrong: str, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken = planted(module, right, wrong)
    if module is read_barrier:
        monkeypatch.setattr(leader_state, "ReadBarrier", mistaken.ReadBarrier)
        mistaken = leader_state
    with pytest.raises(AssertionError):
        rule(mistaken)
