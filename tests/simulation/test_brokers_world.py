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
from trioka.broker.replication import request_reads

SEEDS = int(os.environ.get("TRIOKA_BROKERS_SEEDS", "20"))
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
