"""Whole brokers with tiered topics, simulated: whatever happens to brokers, replicas and the object store, every record
is read back, no object of a finished segment goes, and nothing is left over."""

import os

import pytest
from mutants.plant import planted
from simulation.simulators import run
from simulation.tiered_brokers_world import TieredBrokersWorld

from trioka.broker.tier import jobs, partition_task

SEEDS = int(os.environ.get("TRIOKA_TIERED_BROKERS_SEEDS", "2"))
AT_MOST = 10  # seeds, until a mistake is found


def run_all(seeds: int) -> list[TieredBrokersWorld]:
    return [run("tiered-brokers", seed) for seed in range(seeds)]


def test_nothing_is_lost_or_left_over_whatever_happens_to_brokers_and_to_the_object_store() -> None:
    worlds = run_all(SEEDS)
    assert sum(world.copied for world in worlds) > 10
    assert sum(world.reassigned for world in worlds) > 2
    assert sum(world.recreator.rounds for world in worlds) > 2


@pytest.mark.nightly
def test_a_broker_that_deletes_the_objects_of_a_finished_segment_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    mistaken = planted(
        jobs,
        "return await self._tier.topic.write(self._about, command.record, command.epoch)",
        "return True",
    )
    monkeypatch.setattr(partition_task, "JobRunner", mistaken.JobRunner)
    monkeypatch.setattr(partition_task, "JobFailed", mistaken.JobFailed)
    with pytest.raises(AssertionError, match=r"TI3|TI5|TI8|liveness"):
        run_all(AT_MOST)
