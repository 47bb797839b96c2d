"""What exactly once costs: `python bench/transactions.py`, with the options of `side_by_side.py`.

Idempotent produce is compared with plain produce of the same batches, broker by broker and round by round: the CPU that
a gigabyte takes, of which sequences should add a tenth at most. Transactions are compared with Apache Kafka's, in one
run: one producer that commits one transaction after the other, and many of them at once.
"""

import sys
from collections.abc import Mapping, Sequence
from statistics import median

import side_by_side
from ratios import OURS, Rounds

PLAIN, IDEMPOTENT = "produce-100B-16KB", "produce-100B-16KB-idempotent"
MEASURES = f"{PLAIN},{IDEMPOTENT},transactions-*"
COST = "cpu_seconds_per_gb"
COST_GOAL = 1.1


def surcharges(rounds: Mapping[str, Sequence[Mapping[str, float] | None]]) -> list[float]:
    """For each round, how much more CPU a gigabyte took with sequences than without."""
    pairs = zip(rounds.get(IDEMPOTENT, ()), rounds.get(PLAIN, ()), strict=True)
    return [one[COST] / other[COST] for one, other in pairs if one and other and other[COST]]


def verdicts(rounds: Rounds) -> list[str]:
    said = []
    for name, measures in rounds.items():
        found = surcharges(measures)
        if not found:
            continue
        line = f"{name}: idempotent takes {median(found):.2f}× the CPU of plain ({min(found):.2f} to {max(found):.2f})"
        if name == OURS:
            line += f"; the goal of {COST_GOAL}× is " + ("met" if median(found) <= COST_GOAL else "NOT met")
        said.append(line)
    return said


def main(arguments: Sequence[str]) -> int:
    output = str(side_by_side.ROOT / "build" / "bench" / "transactions")
    options = side_by_side.parse(["--measures", MEASURES, "--output", output, *arguments])
    print("\n".join(verdicts(side_by_side.contest(options).rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
