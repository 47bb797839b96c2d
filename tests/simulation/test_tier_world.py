"""Tiered partitions, simulated: nothing is lost or deleted early, and nothing is left over in fair weather."""

import os

import pytest
from simulation.simulators import fingerprint, run

SEEDS = int(os.environ.get("TRIOKA_TIER_SEEDS", "160"))
PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
def test_no_offset_is_lost_and_no_object_left_whatever_happens(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        run("tier", seed)


def test_the_same_seed_is_the_same_world() -> None:
    for seed in range(3):
        assert fingerprint("tier", run("tier", seed)) == fingerprint("tier", run("tier", seed))


def test_something_happens() -> None:
    worlds = [run("tier", seed) for seed in range(15)]
    assert sum(world.copies for world in worlds) > 40
    assert sum(world.deletions for world in worlds) > 40
    assert sum(world.cancelled for world in worlds) > 10
    assert sum(world.elections for world in worlds) > 40
    assert sum(world.reassigned for world in worlds) > 0
    assert sum(world.early_parts for world in worlds) > 20
