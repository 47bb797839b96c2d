"""A partition and its replicas, simulated: under any faults, what was read once stays, and without faults all replicas
are in sync again."""

import os

import pytest
from mutants import catalog
from simulation.replication_world import ReplicationWorld

SEEDS = int(os.environ.get("TRIOKA_REPLICATION_SEEDS", "144"))
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_shown_stays_whatever_happens(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        catalog.run_replication(seed)


def test_the_same_seed_is_the_same_world() -> None:
    def run() -> ReplicationWorld:
        return catalog.run_replication(7)

    one, two = run(), run()
    assert (one.events, one.truth, one.acked) == (two.events, two.truth, two.acked)


@pytest.mark.parametrize("animal", catalog.MUTANTS, ids=lambda each: each.name)
def test_a_mistake_is_found_out(animal: catalog.Mutant) -> None:
    """At a seed where it was found before: after a change of the worlds, `make zoo` finds other seeds."""
    assert animal.is_found(animal.seed)
