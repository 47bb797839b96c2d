"""Prints the line coverage of each package: statements, those that no test ran, percent. `make coverage` runs it.

It reads the data file that `coverage run` left, and adds up what coverage says of each file.
"""

import sys
from collections import Counter
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).resolve().parents[2]
ALL = "all"


def main() -> int:
    measured = Coverage()
    measured.load()
    statements: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for file in measured.get_data().measured_files():
        package = Path(file).relative_to(ROOT).parts[0]
        _, lines, _, missing, _ = measured.analysis2(file)
        for name in (package, ALL):
            statements[name] += len(lines)
            missed[name] += len(missing)
    if not statements[ALL]:
        print("there is nothing in the coverage data: did the tests run?", file=sys.stderr)
        return 1
    print(f"{'package':<14}{'statements':>12}{'missed':>10}{'percent':>10}")
    for name in [*sorted(set(statements) - {ALL}), ALL]:
        percent = 100 * (statements[name] - missed[name]) / statements[name]
        print(f"{name:<14}{statements[name]:>12}{missed[name]:>10}{percent:>9.1f}%")
    return 0


if __name__ == "__main__":
    sys.exit(main())
