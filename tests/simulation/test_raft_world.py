"""Whole metadata quorums, simulated: under any faults, committed entries stay, and without faults progress goes on."""

import os

import pytest
from mutants import catalog
from simulation.raft_world import FaultProfile, RaftWorld

from trioka.cluster.quorum.voters import VoterSet

SEEDS = int(os.environ.get("TRIOKA_RAFT_SEEDS", "36"))


def run(seed: int) -> RaftWorld:
    return catalog.run_raft(seed)


@pytest.mark.parametrize("part", range(6))
def test_what_is_committed_stays_whatever_happens(part: int) -> None:
    for seed in range(part, SEEDS, 6):
        run(seed)


def test_voters_of_the_configuration_are_named_under_any_faults_and_may_change_from_then_on() -> None:
    named = 0
    for seed in range(8):
        # No node loses a disk: directories exist so that the other nodes notice that.
        profile = FaultProfile.of(seed, change_voters_every_ms=700, wipe_every_ms=0)
        world = RaftWorld(seed, nodes=4, profile=profile, static=True)
        world.run(catalog.RAFT_CHAOS_MS, catalog.RAFT_HEAL_MS)
        named += sum(isinstance(entry.value, VoterSet) for entry in world.truth)
    assert named > 8


def test_the_same_seed_is_the_same_world() -> None:
    one, two = run(7), run(7)
    assert (one.events, one.truth, one.leaders) == (two.events, two.truth, two.leaders)
