"""Whole metadata quorums, simulated: whatever the weather, what is committed stays, and in fair weather it goes on."""

import os
from types import ModuleType

import pytest
from planted import planted
from raft_world import RaftWorld, Violation

from trioka.cluster import raft

SEEDS = int(os.environ.get("TRIOKA_RAFT_SEEDS", "36"))
NODES = (3, 1, 5, 4)
CHAOS_MS, HEAL_MS = 12_000, 12_000
ENOUGH_SEEDS = 300  # within so many a mistake must be found


def run(seed: int, module: ModuleType = raft) -> RaftWorld:
    world = RaftWorld(seed, nodes=NODES[seed % len(NODES)], raft=module)
    world.run(CHAOS_MS, HEAL_MS)
    return world


@pytest.mark.parametrize("part", range(6))
def test_what_is_committed_stays_whatever_happens(part: int) -> None:
    for seed in range(part, SEEDS, 6):
        run(seed)


def test_the_same_seed_is_the_same_world() -> None:
    one, two = run(7), run(7)
    assert (one.events, one.truth, one.leaders) == (two.events, two.truth, two.leaders)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if asked.end < self._log.end:", "if False:"),
        ("return self.standing.voted == asked.candidate and self.standing.leader_id is None", "return True"),
        ("(role.granted if told.is_granted else role.refused)", "role.granted"),
        (
            "high_watermark <= role.epoch_start or self.voters.latest_offset >= high_watermark",
            "False",
        ),
    ],
    ids=["votes for a log that knows less", "votes twice", "counts a refusal", "two changes of voters at a time"],
)
def test_a_quorum_with_a_mistake_is_found_out(right: str, wrong: str) -> None:
    mistaken = planted(raft, right, wrong)
    for seed in range(ENOUGH_SEEDS):
        try:
            run(seed, mistaken)
        except (Violation, AssertionError):
            return
    raise AssertionError("nobody noticed")
