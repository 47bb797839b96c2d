"""Classic groups hold together, whatever their members do: a random walk, and mistakes that it notices."""

from types import ModuleType

import pytest
from mutants.classic_groups import coordinator_with
from mutants.plant import within
from simulation.classic_walk import Walk

from trioka.coordinator import classic_group, classic_joining, classic_membership, classic_rebalance
from trioka.coordinator.groups import GroupCoordinator


@pytest.mark.slow
def test_fifty_members_agree_over_ten_thousand_steps() -> None:
    walk = Walk(seed=845)
    walk.run(10_000)
    assert len(walk.generations) > 50 and len(walk.accepted) > 500, "too little happened to prove anything"


@pytest.mark.parametrize("seed", range(6))
def test_a_few_members_agree_in_any_order_of_things(seed: int) -> None:
    Walk(seed, clients=6).run(2000)


# What is changed, and what the walk then complains of.
MISTAKES = [
    (
        "G1: a commit of generation",
        classic_group,
        "if generation != self._rebalance.generation:",
        "if generation > self._rebalance.generation:",
    ),
    (
        "G2: partition",
        classic_rebalance,
        "self.generation + 1 if self.generation < MAX_GENERATION else 0",
        "max(self.generation, 1)",
    ),
    (  # the leader may change its mind while it is written
        "G2: partition",
        classic_rebalance,
        "if member.id == self.roster.leader and self._assigning is None:",
        "if member.id == self.roster.leader:",
    ),
    (
        "has two leaders",
        classic_rebalance,
        "for other in (self.roster if member.id == self.roster.leader else ())",
        "for other in self.roster",
    ),
    (
        "no leader",
        classic_membership,
        "            self.leader = next(iter(self._members), None)",
        "            pass",
    ),
    (
        "no response",
        classic_rebalance,
        "        self.answer_join(member, join_error(error))\n",
        "",
    ),
    (
        "no response",
        classic_joining,
        "        if given_up is not None:",
        "        if False:",
    ),
    (
        "waits for an assignment",
        classic_rebalance,
        "            self._abandon_assignment(RebalanceInProgress, now)\n",
        "            pass\n",
    ),
    (
        "no deadline",
        classic_rebalance,
        "if self.answer_sync(member, self._share_of(member)):",
        "if not self.answer_sync(member, self._share_of(member)):",
    ),
    (
        "no deadline",
        classic_joining,
        "            rebalance.watch(member_id, request.session_timeout_ms, now)\n",
        "",
    ),
    (
        "whenever they like",
        classic_rebalance,
        '        self._set("sync", self.roster.rebalance_timeout_ms, now)\n',
        "",
    ),
    (
        "without end",
        classic_rebalance,
        within("Rebalance.prepare", 'self._set("join", self.roster.rebalance_timeout_ms, now)'),
        "pass",
    ),
]


@pytest.mark.parametrize(("complaint", "module", "right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(complaint: str, module: ModuleType, right: str, wrong: str) -> None:
    coordinator = coordinator_with(module, right, wrong)
    with pytest.raises(AssertionError, match=complaint):
        walk_with_seeds(coordinator)


def walk_with_seeds(coordinator: type[GroupCoordinator]) -> None:
    for seed in range(20):
        Walk(seed, clients=8, coordinator=coordinator).run(2000)


def test_a_coordinator_without_a_mistake_is_left_in_peace() -> None:
    same = "class ClassicGroup:"
    Walk(0, clients=8, coordinator=coordinator_with(classic_group, same, same)).run(2000)
