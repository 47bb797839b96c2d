"""What is done to the nodes of a chaos run: a list of faults that a seed has chosen, one after the other.

A fault is done, lasts a while, and is undone; then the cluster must become whole, and every client must go on.

    kill        kill -9 of one node, now and then of two or of all, and a start after a while, or at once
    pause       SIGSTOP of one node, now and then of two, for longer or shorter than others wait for a sign of life
    partition   a node or a pair of nodes, cut off both ways or one way; now and then from clients as well
    stop        SIGTERM, a clean stop: of one node, of several at once, or of all, one after the other
    full        no byte fits on a node's disk; it is freed, and the node restarted
    slow        each write of a node takes its time
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from chaos.load import DEALS, PLAIN
from chaos.network import CLIENTS, Cut
from chaos.nodes import NUMBERS, Nodes

KINDS: Final = ("kill", "pause", "partition", "stop", "full", "slow")
PAUSE_S: Final = (0.5, 6.0)
PARTITION_S: Final = (1.0, 7.0)
DOWN_S: Final = (0.0, 0.0, 0.5, 2.0, 4.0)  # until a node that was killed is started again
DISK_S: Final = (2.0, 5.0)

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    what: str
    lasts_s: float
    do: Callable[[], None]
    undo: Undo


def schedule(counts: dict[str, int], random: Random) -> list[str]:
    """The kinds in the order in which they come."""
    kinds = [kind for kind in KINDS for _ in range(counts.get(kind, 0))]
    random.shuffle(kinds)
    return kinds


class Faults:
    def __init__(self, nodes: Nodes, random: Random) -> None:
        self._nodes = nodes
        self._random = random

    def new(self, kind: str) -> Fault:
        return {
            "kill": self._kill,
            "pause": self._pause,
            "partition": self._partition,
            "stop": self._stop,
            "full": self._full,
            "slow": self._slow,
        }[kind]()

    def _victim(self) -> int:
        """A random node, more often than not a leader of a partition or of the metadata."""
        chosen = self._random.random()
        if chosen < 0.25 and (controller := self._nodes.controller()) is not None:
            return controller
        leaders = self._nodes.leaders((PLAIN, DEALS))
        if chosen < 0.75 and leaders:
            return leaders[self._random.choice(sorted(leaders))]
        return self._random.choice(NUMBERS)

    def _victims(self, counts: Sequence[int]) -> list[int]:
        count = self._random.choice(counts)
        first = self._victim()
        others = [node for node in NUMBERS if node != first]
        self._random.shuffle(others)
        return [first, *others][:count]

    def _kill(self) -> Fault:
        lasts_s = self._random.choice(DOWN_S)
        victims = self._victims((1,) * 16 + (2, 2, 2, 3))

        def do() -> None:
            for node in victims:
                self._nodes.kill(node)

        def undo() -> None:
            for node in victims:
                self._nodes.spawn(node)

        return Fault(what=f"kill -9 {_names(victims)}", lasts_s=lasts_s, do=do, undo=undo)

    def _pause(self) -> Fault:
        lasts_s = self._random.uniform(*PAUSE_S)
        victims = self._victims((1,) * 9 + (2,))

        def do() -> None:
            for node in victims:
                self._nodes.pause(node)

        def undo() -> None:
            for node in victims:
                self._nodes.resume(node)

        return Fault(what=f"pause {_names(victims)}", lasts_s=lasts_s, do=do, undo=undo)

    def _stop(self) -> Fault:
        lasts_s = self._random.choice(DOWN_S)
        victims = self._victims((1, 1, 1, 2, 3))
        if len(victims) == len(NUMBERS) and self._random.random() < 0.5:
            return Fault(what="rolling restart", lasts_s=0.0, do=self._roll, undo=lambda: None)

        def undo() -> None:
            for node in victims:
                self._nodes.spawn(node)

        return Fault(what=f"stop {_names(victims)}", lasts_s=lasts_s, do=lambda: self._nodes.stop(victims), undo=undo)

    def _roll(self) -> None:
        """One node after the other, without waiting until the cluster is whole in between."""
        for node in NUMBERS:
            self._nodes.stop([node])
            self._nodes.spawn(node)

    def _partition(self) -> Fault:
        lasts_s = self._random.uniform(*PARTITION_S)
        a = self._victim()
        b, c = self._random.sample([node for node in NUMBERS if node != a], 2)
        shapes: list[tuple[str, list[Cut]]] = [
            (f"{a} | {b} {c}", [(a, b), (b, a), (a, c), (c, a)]),
            (f"{a} -x-> {b} {c}", [(a, b), (a, c)]),
            (f"{b} {c} -x-> {a}", [(b, a), (c, a)]),
            (f"{a} | {b}", [(a, b), (b, a)]),
            (f"{a} -x-> {b}", [(a, b)]),
            (f"{b} -x-> {a}", [(b, a)]),
            ("1 | 2 | 3", [(x, y) for x in NUMBERS for y in NUMBERS if x != y]),
        ]
        shape, cuts = self._random.choice(shapes)
        if self._nodes.network.cuts_clients and self._random.random() < 0.25:
            side = self._random.choice([[(a, CLIENTS), (CLIENTS, a)], [(CLIENTS, a)], [(a, CLIENTS)]])
            shape, cuts = f"{shape}, clients {'|' if len(side) == 2 else '-x-'} {a}", cuts + side
        return Fault(
            what=f"partition {shape}",
            lasts_s=lasts_s,
            do=lambda: self._nodes.network.cut(cuts),
            undo=self._nodes.network.heal,
        )

    def _full(self) -> Fault:
        lasts_s = self._random.uniform(*DISK_S)
        node = self._victim()

        def undo() -> None:
            self._nodes.free_disk(node)
            self._nodes.restart(node)

        return Fault(
            what=f"full disk {node}",
            lasts_s=lasts_s,
            do=lambda: self._nodes.fill_disk(node),
            undo=undo,
        )

    def _slow(self) -> Fault:
        lasts_s = self._random.uniform(*DISK_S)
        node = self._victim()
        return Fault(
            what=f"slow disk {node}",
            lasts_s=lasts_s,
            do=lambda: self._nodes.slow_disk(node, True),
            undo=lambda: self._nodes.slow_disk(node, False),
        )


def carry_out(fault: Fault) -> None:
    """Always undoes the fault: the run would wait for a node that stays paused."""
    fault.do()
    try:
        time.sleep(fault.lasts_s)
    finally:
        fault.undo()


def _names(nodes: Sequence[int]) -> str:
    return " ".join(map(str, sorted(nodes)))
