"""Whole metadata quorums, simulated: whatever the weather, what is committed stays, and in fair weather it goes on."""

import os

import pytest
import zoo
from raft_world import RaftWorld

SEEDS = int(os.environ.get("TRIOKA_RAFT_SEEDS", "36"))


def run(seed: int) -> RaftWorld:
    return zoo.run_raft(seed)


@pytest.mark.parametrize("part", range(6))
def test_what_is_committed_stays_whatever_happens(part: int) -> None:
    for seed in range(part, SEEDS, 6):
        run(seed)


def test_the_same_seed_is_the_same_world() -> None:
    one, two = run(7), run(7)
    assert (one.events, one.truth, one.leaders) == (two.events, two.truth, two.leaders)
