"""Whole brokers, simulated: under any faults, nothing that was acknowledged is lost, written twice or out of order,
and without faults everything comes to rest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutants.plant import planted
from simulation.simulators import run

from trioka.broker.handlers import fetch, list_offsets
from trioka.broker.replication import applier, request_reads
from trioka.cluster.controller import broker_changes
from trioka.cluster.placement import memory_topics

SEEDS = int(os.environ.get("TRIOKA_BROKERS_SEEDS", "20"))
MEMORY_SEEDS = int(os.environ.get("TRIOKA_MEMORY_SEEDS", "1"))
LINEARIZABLE_SEEDS = int(os.environ.get("TRIOKA_LINEARIZABLE_SEEDS", "2"))
PARTS = 5
AT_MOST = 10  # seeds, until a mistake is found


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_whatever_happens_to_brokers(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        run("brokers", seed)


def test_no_broker_shows_an_old_end_of_a_linearizable_topic() -> None:
    read_linearizably(LINEARIZABLE_SEEDS)


def read_linearizably(seeds: int) -> None:
    for seed in range(seeds):
        run("linearizable-brokers", seed)


def test_a_broker_that_does_not_wait_for_a_read_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    mistaken = planted(
        request_reads, "return any(self._reads[replica] != NO_READ for replica in self._at_end)", "return False"
    )
    monkeypatch.setattr(fetch, "RequestReads", mistaken.RequestReads)
    monkeypatch.setattr(list_offsets, "RequestReads", mistaken.RequestReads)
    with pytest.raises(AssertionError, match="I18"):
        read_linearizably(AT_MOST)


def test_no_record_of_a_memory_topic_is_lost_while_machines_lose_power_one_at_a_time() -> None:
    lose_power(MEMORY_SEEDS)


def lose_power(seeds: int) -> None:
    for seed in range(seeds):
        assert run("memory-brokers", seed).losses


def test_a_memory_topic_on_a_disk_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "each.failure is None and each.in_memory == in_memory"
    mistaken = planted(applier, right, "each.failure is None and not each.in_memory")
    monkeypatch.setattr(applier.MetadataApplier, "_least_loaded", mistaken.MetadataApplier._least_loaded)
    with pytest.raises(AssertionError, match="on a disk"):
        lose_power(1)


@pytest.mark.nightly
def test_a_loss_of_memory_that_the_controller_does_not_see_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "is_lost = is_any_missing if is_reserved_directory(directory) else directory not in now"
    mistaken = planted(memory_topics, right, "is_lost = False")
    monkeypatch.setattr(broker_changes, "on_directories_lost", mistaken.on_directories_lost)
    with pytest.raises(AssertionError):
        lose_power(AT_MOST)


def test_the_same_seed_is_the_same_world_in_any_process() -> None:
    """For any hash of a string there."""

    def trace(hash_seed: str) -> str:
        command = [sys.executable, "simulation/simulate.py", "--world", "brokers", "--seed", "5"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        folder = Path(__file__).parent.parent
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout

    one, two = trace("1"), trace("2")
    assert "trace" in one
    assert one == two
