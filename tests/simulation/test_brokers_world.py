"""Whole brokers, simulated: under any faults, nothing that was acknowledged is lost, written twice or out of order,
and without faults everything comes to rest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.simulators import run

SEEDS = int(os.environ.get("TRIOKA_BROKERS_SEEDS", "20"))
PARTS = 5


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_whatever_happens_to_brokers(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        run("brokers", seed)


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
