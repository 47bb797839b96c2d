"""Groups in which both protocols meet hold their promises at every step; and the walk notices when they do not."""

from collections.abc import Callable
from types import ModuleType

import pytest
from mutants.plant import planted
from simulation.migration_walk import MigrationWalk
from support.migration_steps import STEPS, MigrationWorld
from support.scenarios import check, files

from trioka.coordinator import classic_bridge, groups, migration


@pytest.mark.parametrize("seed", range(5))
def test_consumers_of_both_protocols_share_a_group_that_follows_them(seed: int) -> None:
    a_walk(seed)


def a_walk(seed: int) -> None:
    walk = MigrationWalk(seed)
    walk.run(400)
    walk.settle()
    walk.roll(is_classic=False)
    walk.roll(is_classic=True)
    walk.roll(is_classic=False)
    assert walk.kinds >= {"ClassicGroup", "ConsumerGroup"}


@pytest.mark.parametrize("seed", range(3))
def test_cooperative_consumers_share_a_group_with_those_of_the_new_protocol(seed: int) -> None:
    a_cooperative_walk(seed)


def a_cooperative_walk(seed: int) -> None:
    walk = MigrationWalk(seed, is_cooperative=True)
    walk.run(400)
    walk.settle()


def several_walks() -> None:
    for seed in range(6):
        a_walk(seed)
        a_cooperative_walk(seed)


def scenarios() -> None:
    for name in files("migration"):
        check(name, STEPS, MigrationWorld())


MISTAKES: list[tuple[ModuleType, str, str, Callable[[], None]]] = [
    (
        migration,
        "assigned={topic: dict.fromkeys(numbers, group.generation) for topic, numbers in has.items()},",
        "",
        several_walks,
    ),
    (
        migration,
        "not gone or not members or any(member.classic is None for member in members.values())",
        "not gone or not members or True or any(member.classic is None for member in members.values())",
        several_walks,
    ),
    (
        migration,
        "if has_new_member and all(member.classic is not None for member in gone):\n"
        "    return None  # one has taken the place of another of its own kind",
        "if has_new_member and all(member.classic is not None for member in gone):\n    pass",
        scenarios,
    ),
    (migration, "must_rebalance=not is_settled", "must_rebalance=False", scenarios),
    (migration, " and _has_arrived(group)", "", scenarios),
    (classic_bridge, "member.phase is Phase.WAITING", "False", several_walks),
    (
        classic_bridge,
        "member.epoch < group.target_epoch or member.phase is Phase.REVOKING",
        "member.phase is Phase.REVOKING",
        several_walks,
    ),
    (classic_bridge, "return dict(by_id(self._owned, self._topics))", "return {}", several_walks),
    (classic_bridge, "deadlines.cancel((group_id, expiry.JOIN, after.id))", "", scenarios),
    (classic_bridge, "group.context.deadlines.cancel((group.id, expiry.SYNC, member.id))", "pass", scenarios),
]


@pytest.mark.parametrize(
    ("module", "right", "wrong", "notices"), MISTAKES, ids=[right[:40].strip() for _, right, _, _ in MISTAKES]
)
def test_a_planted_mistake_is_noticed(
    module: ModuleType, right: str, wrong: str, notices: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIOKA_ACCEPT", raising=False)
    monkeypatch.setattr(groups, module.__name__.rpartition(".")[2], planted(module, right, wrong))
    with pytest.raises(Exception):  # noqa: B017, PT011
        notices()
