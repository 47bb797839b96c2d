"""A partition and its replicas, simulated: under any faults, what was read once stays, and without faults all replicas
are in sync again."""

import os

import pytest
from mutants import catalog
from simulation.replication_world import ReplicationWorld
from simulation.simulators import run

SEEDS = int(os.environ.get("TRIOKA_REPLICATION_SEEDS", "144"))
READ_SEEDS = int(os.environ.get("TRIOKA_READ_SEEDS", "48"))
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_shown_stays_whatever_happens(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        catalog.run_replication(seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_linearizable_read_shows_all_that_was_acknowledged_before(part: int) -> None:
    from_elr = 0
    for seed in range(part, READ_SEEDS, PARTS):
        from_elr += run("reads", seed).elected_from_elr
    assert from_elr


def test_the_same_seed_is_the_same_world() -> None:
    def lived() -> ReplicationWorld:
        return catalog.run_replication(7)

    one, two = lived(), lived()
    assert (one.events, one.truth, one.acked) == (two.events, two.truth, two.acked)


@pytest.mark.parametrize("animal", catalog.MUTANTS, ids=lambda each: each.name)
def test_a_mistake_is_found_out(animal: catalog.Mutant) -> None:
    """At a seed where it was found before: after a change of the worlds, `make zoo` finds other seeds."""
    assert animal.is_found(animal.seed)
