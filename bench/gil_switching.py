"""Latency of a client while other threads of the broker compute, by the interpreter's switch interval.

    python bench/gil_switching.py [--rounds 3] [--partitions 2000]

The load generator sends 1,000 records a second to one partition. Meanwhile eight worker threads create a topic with
many partitions, which alternates between Python and disk; and, in another row, a thread only computes, as one that
loads a large group's offsets does. Fresh brokers with the interpreter's default interval of 5 ms and with trioka's
interval (broker/network/scheduling.py) take turns; the best round of each counts.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from load_generator import program, run_load
from nodes import TriokaNode, allow_many_files, end_in_order

from trioka.broker.network.scheduling import SWITCH_INTERVAL_S

DEFAULT_TURN_S: Final = 0.005
SECONDS: Final = 4.0
BEGIN_S: Final = 1.0  # after the start of the load
WITH_TURNS: Final = """
import threading
from trioka.broker import time_slice
time_slice.SWITCH_INTERVAL_S = {turn_s}
def compute():
    while True:
        sum(range(1000))
if {computes}:
    threading.Thread(target=compute, daemon=True).start()
from trioka.__main__ import main
main()
"""

Figures = dict[str, float]


def latencies(folder: Path, turn_s: float, computes: bool, partitions: int) -> Figures:
    """Latencies in milliseconds, and the duration of the topic's creation in seconds."""
    node = TriokaNode(folder, [sys.executable, "-c", WITH_TURNS.format(turn_s=turn_s, computes=computes)])
    node.start()
    try:
        took: list[float] = []

        def create() -> None:
            time.sleep(BEGIN_S)
            began = time.perf_counter()
            run_load("create", {"address": node.address, "topic": "many", "partitions": partitions}, seconds=120)
            took.append(time.perf_counter() - began)

        creating = threading.Thread(target=create)
        if partitions:
            creating.start()
        options = {"address": node.address, "topic": "turns", "record": 100, "rate": 1000, "warmup": 0.5}
        result = run_load("latency", {**options, "seconds": SECONDS}, seconds=SECONDS)
        if partitions:
            creating.join()
        return {name: micros / 1000 for name, micros in result["micros"].items()} | {"made": sum(took)}
    finally:
        node.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=2000)
    options = parser.parse_args()
    allow_many_files()
    end_in_order()
    program()
    rows = {
        "nothing": (False, 0),
        f"{options.partitions} partitions are made": (False, options.partitions),
        "a thread computes": (True, 0),
    }
    turns = {"5 ms": DEFAULT_TURN_S, f"{SWITCH_INTERVAL_S * 1e6:.0f} µs": SWITCH_INTERVAL_S}
    found: dict[tuple[str, str], list[Figures]] = {(row, turn): [] for row in rows for turn in turns}
    with tempfile.TemporaryDirectory(prefix="trioka-bench-", ignore_cleanup_errors=True) as name:
        for _ in range(options.rounds):
            for row, (computes, partitions) in rows.items():
                for turn, turn_s in turns.items():
                    found[row, turn].append(latencies(Path(name), turn_s, computes, partitions))
    print("| beside | turns | p50 ms | p99 ms | p99.9 ms | made in s |\n|---|---|---|---|---|---|")
    for (row, turn), rounds in found.items():
        best = {key: min(each[key] for each in rounds) for key in ("p50", "p99", "p99.9", "made")}
        print(f"| {row} | {turn} | " + " | ".join(f"{value:.2f}" for value in best.values()) + " |")


if __name__ == "__main__":
    main()
