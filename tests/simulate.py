"""Simulated worlds by the thousand: how many seeds, how many violations, and what that is worth.

make sim SEEDS=2000                                        both worlds, on all cores
python tests/simulate.py --world replication --seed 51        one seed again; its trace has the same hash
python tests/simulate.py --world replication --seed 51 --shrink     with as little trouble as still breaks it
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from hashlib import sha256
from multiprocessing import Pool

import zoo
from replication_parts import Weather
from replication_world import ReplicationWorld

CALM = {"loss": 0.0, "repeat": 0.0, "power": 0.0, "clean": 0.0, "max_delay_ms": 10, "flush_ms": 20, "is_power": False}
NEVER_MS = 10**9
SHORTER = (0.9, 0.7, 0.5, 0.3)


def one(world: str, seed: int) -> str | None:
    """What went wrong; None if nothing did."""
    run: Callable[[int], object] = zoo.run_raft if world == "raft" else zoo.run_replication
    try:
        run(seed)
    except AssertionError as broken:
        return str(broken)
    return None


def _one_of_many(task: tuple[str, int]) -> tuple[str, int, str | None]:
    return (*task, one(*task))


def many(worlds: list[str], seeds: range) -> int:
    began, broken = time.monotonic(), 0
    tasks = [(world, seed) for seed in seeds for world in worlds]
    with Pool(os.cpu_count()) as pool:
        for world, seed, problem in pool.imap_unordered(_one_of_many, tasks, chunksize=4):
            if problem is not None:
                broken += 1
                print(f"{world} seed {seed}: {problem[:200]}", flush=True)
    bound = 3 / len(tasks)
    print(f"{len(tasks)} seeds of {' and '.join(worlds)} in {time.monotonic() - began:.0f} s: {broken} violations")
    if not broken:
        print(f"so that less than {bound:.4%} of all seeds have one, with a confidence of 95 % (3/n)")
    return 1 if broken else 0


def again(seed: int) -> int:
    """One seed of the replication, with the hash of all that happened."""
    world = ReplicationWorld(seed)
    problem = "nothing went wrong"
    try:
        world.run(zoo.CHAOS_MS, zoo.HEAL_MS)
    except AssertionError as broken:
        problem = str(broken)[:200]
    trace = sha256(repr((world.events, world.truth, sorted(world.acked.items()))).encode()).hexdigest()[:16]
    print(f"seed {seed}: {problem}; {world.events} events, {len(world.truth)} records, trace {trace}")
    return 0


def shrink(seed: int) -> int:
    """Trouble is taken away, kind by kind, as long as the same promise is broken."""

    def breaks(weather: Weather, chaos_ms: int) -> str | None:
        try:
            ReplicationWorld(seed, weather=weather).run(chaos_ms, zoo.HEAL_MS)
        except AssertionError as broken:
            return str(broken).partition(":")[0]
        return None

    weather, chaos_ms = Weather.of(seed), zoo.CHAOS_MS
    promise = breaks(weather, chaos_ms)
    if promise is None:
        print(f"seed {seed} breaks nothing")
        return 1
    for calmer in _calmer(weather):
        candidate = replace(weather, **calmer)  # type: ignore[arg-type]
        if breaks(candidate, chaos_ms) == promise:
            weather = candidate
    for part in SHORTER:
        if breaks(weather, int(zoo.CHAOS_MS * part)) == promise:
            chaos_ms = int(zoo.CHAOS_MS * part)
    print(f"seed {seed} breaks {promise} within {chaos_ms} ms of {weather}")
    return 0


def _calmer(weather: object) -> Iterator[dict[str, object]]:
    for each in fields(weather):  # type: ignore[arg-type]
        yield {
            each.name: NEVER_MS if each.name.endswith("_every_ms") else CALM.get(each.name, getattr(weather, each.name))
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=["raft", "replication"], action="append")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--shrink", action="store_true")
    said = parser.parse_args()
    if said.seed is not None:
        return shrink(said.seed) if said.shrink else again(said.seed)
    return many(said.world or ["raft", "replication"], range(said.first, said.first + said.seeds))


if __name__ == "__main__":
    sys.exit(main())
