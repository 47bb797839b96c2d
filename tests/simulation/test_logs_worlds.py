"""Logs, simulated: on disks that lose power, fail and rot, compacted, with producers that repeat themselves, and in
transactions.

`test_raft_world.py` and `test_replication_world.py` have the other pure machines; together that is 300 seeds.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.simulators import fingerprint, run

SEEDS = int(os.environ.get("TRIOKA_LOGS_SEEDS", "40"))
PARTS = 2
LOGS = ("storage", "compaction", "producers", "transactions", "rot")
MACHINES = ("raft", "replication", *LOGS)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("world", LOGS)
def test_what_was_promised_holds_whatever_happens(world: str, part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        run(world, seed)


@pytest.mark.parametrize("world", LOGS)
def test_the_same_seed_is_the_same_world(world: str) -> None:
    for seed in range(3):
        assert fingerprint(world, run(world, seed)) == fingerprint(world, run(world, seed))


def test_a_seed_is_the_same_world_in_another_process() -> None:
    """For any hash of a string there."""
    script = (
        "from simulation.simulators import fingerprint, run;"
        " print([fingerprint(w, run(w, s)) for w in {} for s in (7, 15)])"
    )

    def traces(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", script.format(MACHINES)],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    one, two = traces("1"), traces("2")
    assert one.count("'") == 2 * 2 * len(MACHINES)
    assert one == two


def test_something_happens_in_every_world() -> None:
    """A world without faults shows nothing."""
    storage = [run("storage", seed) for seed in range(8)]
    assert sum(world.crashes for world in storage) > 10
    assert sum(len(world.rows) for world in storage) > 100
    compaction = [run("compaction", seed) for seed in range(8)]
    assert sum(world.rounds for world in compaction) > 20
    assert sum(world.abandoned for world in compaction) > 3
    assert sum(world.life for world in compaction) > 20
    producers = [run("producers", seed) for seed in range(8)]
    assert sum(world.repeated for world in producers) > 20
    assert sum(world.acked for world in producers) > 200
    rotten = [run("rot", seed) for seed in range(8)]
    assert sum(world.flips for world in rotten) > 50
    assert sum(world.healed for world in rotten) > 40
    assert sum(world.crashes for world in rotten) > 10
    transactions = [run("transactions", seed) for seed in range(8)]
    assert sum(len(found.read) for world in transactions for found in world.logs) > 50
    assert sum(world.crashes for world in transactions) > 5
