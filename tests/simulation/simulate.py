"""Runs simulated worlds for many seeds: the number of seeds, of violations, and their statistical value.

make sim SEEDS=2000                                        so many seeds of every world, on all cores
python tests/simulation/simulate.py --world replication --seed 51        one seed again; its trace has the same hash
python tests/simulation/simulate.py --world replication --seed 51 --shrink     with as little trouble as still breaks it
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import fields, replace
from multiprocessing import Pool
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the packages of tests/, not this folder's modules

from simulation.simulators import WORLDS, fingerprint, run

SHORTER = (0.9, 0.7, 0.5, 0.3)
TELL_EVERY = 1000  # seeds


def one(world: str, seed: int) -> str | None:
    """The violation; None if there is none."""
    try:
        run(world, seed)
    except AssertionError as broken:
        return str(broken) or "an assertion failed"
    except Exception as unexpected:  # is no better
        return f"{type(unexpected).__name__}: {unexpected}"
    return None


def _one_of_many(task: tuple[str, int]) -> tuple[str, int, str | None]:
    return (*task, one(*task))


def many(worlds: list[str], seeds: range, processes: int) -> int:
    began, broken, done = time.monotonic(), 0, Counter[str]()
    tasks = [(world, seed) for seed in seeds for world in worlds]
    with Pool(processes) if processes > 1 else nullcontext() as pool:
        outcomes = map(_one_of_many, tasks) if pool is None else pool.imap_unordered(_one_of_many, tasks, chunksize=4)
        for world, seed, problem in outcomes:
            done[world] += 1
            if problem is not None:
                broken += 1
                print(f"{world} seed {seed}: {problem[:200]}", flush=True)
            if done.total() % TELL_EVERY == 0:
                print(f"{done.total()} seeds, {broken} violations, {time.monotonic() - began:.0f} s", flush=True)
    counts = ", ".join(f"{count} of {world}" for world, count in done.items())
    print(f"{len(tasks)} seeds ({counts}) in {time.monotonic() - began:.0f} s: {broken} violations")
    if not broken:
        print(f"so that less than {3 / len(tasks):.4%} of all seeds have one, with a confidence of 95 % (3/n)")
    return 1 if broken else 0


def again(name: str, seed: int) -> int:
    """One seed, with the hash of all its events."""
    world = WORLDS[name].begin(seed)
    problem = "nothing went wrong"
    try:
        WORLDS[name].live(world, 1.0)
    except AssertionError as broken:
        problem = str(broken)[:200]
    print(f"{name} seed {seed}: {problem}; {world.events} events, trace {fingerprint(name, world)}")
    return 0


def shrink(name: str, seed: int) -> int:
    """ScheduledFault is taken away, kind by kind, as long as the same promise is broken."""
    kind = WORLDS[name]

    def breaks(profile: object, part: float) -> str | None:
        try:
            kind.live(kind.begin(seed, profile=profile), part)
        except AssertionError as broken:
            return str(broken).partition(":")[0]
        return None

    profile, part = kind.profile(seed), 1.0
    promise = breaks(profile, part)
    if promise is None:
        print(f"seed {seed} breaks nothing")
        return 1
    for calmer in _calmer(name, profile):
        candidate = replace(profile, **calmer)
        if breaks(candidate, part) == promise:
            profile = candidate
    for trouble in getattr(profile, "troubles", ()):  # one by one, where they are a list
        candidate = replace(profile, troubles=tuple(each for each in profile.troubles if each != trouble))
        if breaks(candidate, part) == promise:
            profile = candidate
    for shorter in SHORTER:
        if breaks(profile, shorter) == promise:
            part = shorter
    print(f"seed {seed} breaks {promise} within {part:.0%} of the time, in {profile}")
    return 0


def _calmer(name: str, profile: object) -> Iterator[dict[str, object]]:
    calm = WORLDS[name].calm
    for each in fields(profile):  # type: ignore[arg-type]
        if each.name in calm:
            yield {each.name: calm[each.name]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=list(WORLDS), action="append")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--shrink", action="store_true")
    text = parser.parse_args()
    if text.seed is not None:
        name = text.world[0] if text.world else "replication"
        return shrink(name, text.seed) if text.shrink else again(name, text.seed)
    return many(text.world or list(WORLDS), range(text.first, text.first + text.seeds), text.processes)


if __name__ == "__main__":
    sys.exit(main())
