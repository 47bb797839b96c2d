"""Consumer groups hold their promises at every step of a random walk; and the walk notices when they do not."""

from types import ModuleType

import pytest
from mutants.consumer_groups import Install, beating, committing, keeping, moving
from mutants.plant import planted
from simulation.consumer_walk import Walk

from trioka.coordinator.consumer import (
    group as consumer_group,
)
from trioka.coordinator.consumer import (
    heartbeat as consumer_heartbeat,
)
from trioka.coordinator.consumer import (
    reconciliation,
)
from trioka.coordinator.consumer import (
    state as consumer_state,
)


@pytest.mark.slow
def test_fifty_members_hold_the_promises_over_ten_thousand_steps() -> None:
    walk = Walk(seed=1)
    walk.run(10_000)
    walk.settle()


@pytest.mark.parametrize("seed", range(2, 8))
def test_a_few_members_hold_the_promises(seed: int) -> None:
    a_short_walk(seed)


def a_short_walk(seed: int) -> None:
    walk = Walk(seed, consumers=5)
    walk.run(1000)
    walk.settle()


MISTAKES = [
    (reconciliation, "number in lets_go or not inputs.is_taken(topic, number)", "True", moving),
    (reconciliation, "    if given and _still_has(given, inputs):", "    if given and False:", moving),
    (reconciliation, "    if _still_has(member.revoking, inputs):", "    if False:", moving),
    (
        reconciliation,
        "    if inputs.reported is None:\n        return True",
        "    if inputs.reported is None:\n        return False",
        moving,
    ),
    (reconciliation, "Phase.WAITING if waits else Phase.STABLE", "Phase.STABLE", moving),
    (
        reconciliation,
        "member.moved(epoch, Phase.REVOKING, _not_empty(kept), given)",
        "member.moved(epoch, Phase.REVOKING, _not_empty(kept), {})",
        moving,
    ),
    (consumer_heartbeat, "*records.member_tombstones(group.id, existing.id),", "", beating),
    (consumer_heartbeat, "grows = metadata_hash != group.metadata_hash", "grows = False", beating),
    (consumer_state, "(before.assigned, before.revoking)", "(before.assigned,)", keeping),
    (consumer_state, "for owned in (after.assigned, after.revoking):", "for owned in (after.assigned,):", keeping),
    (
        consumer_group,
        "return lambda name, topic, partition: _check_partition(member, epoch, name, topic, partition)",
        "return None",
        committing,
    ),
]


@pytest.mark.parametrize(("module", "right", "wrong", "install"), MISTAKES, ids=[m[1][:40].strip() for m in MISTAKES])
def test_a_planted_mistake_is_noticed(
    module: ModuleType, right: str, wrong: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, planted(module, right, wrong))
    assert any(is_noticed(seed) for seed in range(2, 20))


def is_noticed(seed: int) -> bool:
    try:
        a_short_walk(seed)
    except Exception:  # by the walk, or by the group itself
        return True
    return False
