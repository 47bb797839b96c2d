"""The order in which outputs are filled: an output comes after all that it reads.

levels({"orders": {}, "totals": {"orders"}, "customers": {}})   →   [["customers", "orders"], ["totals"]]
"""

from collections.abc import Mapping, Set


class Cycle(Exception):
    """Outputs that read each other; `names` are those of one cycle, in order."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(" reads ".join([*names, names[0]]))
        self.names = names


def levels(reads: Mapping[str, Set[str]]) -> list[list[str]]:
    """The names by level. What is read and has no entry of its own counts as present."""
    waiting = {name: {one for one in read if one in reads} for name, read in reads.items()}
    found: list[list[str]] = []
    while waiting:
        level = sorted(name for name, read in waiting.items() if not read)
        if not level:
            raise Cycle(_cycle(waiting))
        found.append(level)
        done = set(level)
        waiting = {name: read - done for name, read in waiting.items() if name not in done}
    return found


def downstream(reads: Mapping[str, Set[str]], failed: Set[str]) -> set[str]:
    """Everything that reads one of the failed outputs, directly or not."""
    found: set[str] = set()
    while True:
        more = {name for name, read in reads.items() if read & (failed | found)} - found - failed
        if not more:
            return found
        found |= more


def _cycle(waiting: Mapping[str, Set[str]]) -> list[str]:
    """Follow the reads from any name: each of these reads another one, so the path comes back to itself."""
    path = [min(waiting)]
    while (following := min(waiting[path[-1]])) not in path:
        path.append(following)
    return path[path.index(following) :]
