"""Measures the cost of exactly once: `python bench/transactions.py`, with the options of `side_by_side.py` and
`--pairs`.

Idempotent produce is compared with plain produce of the same batches: the CPU of the broker's process per gigabyte, to
which sequences should add a tenth at most. The difference is small and measurements are noisy, so both are measured in
pairs, one right after the other on the same broker, in alternating order; the result is the median of the ratios of all
pairs, with the middle half of them as its uncertainty. Transactions are compared with Apache Kafka's, in one run: one
producer that commits one transaction after the other, and many of them at once.
"""

import argparse
import sys
from collections.abc import Sequence
from statistics import median, quantiles
from typing import TYPE_CHECKING

import side_by_side
from measures import LOADS, Measure
from ratios import OURS

if TYPE_CHECKING:
    from side_by_side import Bench

PLAIN, IDEMPOTENT = "produce-100B-16KB", "produce-100B-16KB-idempotent"
TRANSACTIONS = "transactions-*"
COST = "cpu_seconds_per_gb"
COST_GOAL = 1.1
RESTLESS = 0.2
PAIRS = 20
PAIR_SECONDS = 1.0  # of each of the two: the closer together they are, the less changes in between


Costs = Sequence[tuple[float, float]]  # per gigabyte, plain and idempotent, pair by pair


def surcharges(costs: Costs) -> list[float]:
    """For each pair, the additional CPU per gigabyte with sequences."""
    return [idempotent / plain for plain, idempotent in costs if plain]


def verdict(name: str, costs: Costs) -> str:
    """A sentence. It does not mention the goal if the pairs vary by more than the goal's margin."""
    found = surcharges(costs)
    low, _, high = quantiles(found, n=4) if len(found) > 1 else (found[0], found[0], found[0])
    at_best = min(cost for _, cost in costs) / min(cost for cost, _ in costs if cost)
    text = f"{name}: idempotent takes {median(found):.2f}× the CPU of plain, {at_best:.2f}× at best"
    text += f" (median of {len(found)} pairs; the middle half lies between {low:.2f} and {high:.2f})"
    if name != OURS:
        return text
    if high - low > RESTLESS:
        return f"{text}; this machine is too noisy to show whether the goal of {COST_GOAL}× is met"
    return f"{text}; the goal of {COST_GOAL}× is " + ("met" if median(found) <= COST_GOAL else "NOT met")


def paired(bench: "Bench", pairs: int) -> list[str]:
    """A sentence for each broker."""
    plain, idempotent = (_measure(name) for name in (PLAIN, IDEMPOTENT))
    text = []
    for name, make in bench.makers.items():
        with make() as node:
            bench.warm_up(name, node, [plain, idempotent])
            costs = []
            for number in range(pairs):
                order = [plain, idempotent] if number % 2 == 0 else [idempotent, plain]
                cost = {one.name: bench.load_figures(node, one)[COST] for one in order}
                costs.append((cost[PLAIN], cost[IDEMPOTENT]))
            text.append(verdict(name, costs))
    return text


def _measure(name: str) -> Measure:
    (found,) = (one for one in LOADS if one.name == name)
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    own, others = parser.parse_known_args(arguments)
    output = str(side_by_side.ROOT / "build" / "bench" / "transactions")
    options = side_by_side.parse(["--measures", TRANSACTIONS, "--output", output, *others])
    if own.pairs:
        quick = argparse.Namespace(**{**vars(options), "seconds": PAIR_SECONDS})
        with side_by_side.whole_bench(quick) as bench:
            print("\n".join(paired(bench, own.pairs)), flush=True)
    side_by_side.contest(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
