"""The operations of clients and their results, as data: the history of a run, in which a checker finds broker errors.

An operation is a transaction of a producer, or one send, or a poll, or both together. Its outcome is OK, FAIL (it
certainly did not happen) or INFO (unknown). Every value is sent once, so that a value that is read identifies its
send.

    history.ok(process, sends(("orders-0", b"17", 4)), polls({"orders-0": [(3, b"16")]}), began=10, ended=12)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

Key = str  # a partition
Value = bytes


class Outcome(Enum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Send(NamedTuple):
    key: Key
    value: Value
    offset: int | None  # as it was acknowledged, if it was


class Read(NamedTuple):
    key: Key
    offset: int
    value: Value


class Assign(NamedTuple):
    """From here on a process reads these keys, and no others; what it reads of them continues what it has read before,
    for keys that it had already."""

    keys: frozenset[Key]


class Subscribe(NamedTuple):
    """From here on a process reads the partitions that its group assigns."""

    keys: frozenset[Key]


class Seek(NamedTuple):
    """What a process reads of this key does not continue what it has read before."""

    key: Key


class Commit(NamedTuple):
    group: str
    key: Key
    offset: int


class Committed(NamedTuple):
    """The committed offset that a group received; None for none."""

    group: str
    key: Key
    offset: int | None


Step = Send | Read | Assign | Subscribe | Seek | Commit | Committed
STEPS = (Send, Read, Assign, Subscribe, Seek, Commit, Committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    index: int
    process: str
    outcome: Outcome
    steps: tuple[Step, ...]
    began: float
    ended: float

    @property
    def sends(self) -> Iterator[Send]:
        return (step for step in self.steps if isinstance(step, Send))

    @property
    def reads(self) -> Iterator[Read]:
        return (step for step in self.steps if isinstance(step, Read))

    def __str__(self) -> str:
        return f"#{self.index} {self.process} {self.outcome.value}"


@dataclass(slots=True)
class History:
    operations: list[Operation] = field(default_factory=list)

    def add(
        self,
        process: str,
        outcome: Outcome,
        *steps: Step | Iterable[Step],
        began: float | None = None,
        ended: float | None = None,
    ) -> Operation:
        """Operations are added in the order in which they ended. Without times, each ends before the next begins."""
        flat: list[Step] = []
        for step in steps:
            flat.extend([step] if isinstance(step, STEPS) else step)
        index = len(self.operations)
        operation = Operation(
            index=index,
            process=process,
            outcome=outcome,
            steps=tuple(flat),
            began=index if began is None else began,
            ended=(index if began is None else began) + 0.5 if ended is None else ended,
        )
        self.operations.append(operation)
        return operation

    def ok(self, process: str, *steps: Step | Iterable[Step], **times: float) -> Operation:
        return self.add(process, Outcome.OK, *steps, **times)

    def fail(self, process: str, *steps: Step | Iterable[Step], **times: float) -> Operation:
        return self.add(process, Outcome.FAIL, *steps, **times)

    def info(self, process: str, *steps: Step | Iterable[Step], **times: float) -> Operation:
        return self.add(process, Outcome.INFO, *steps, **times)


def sends(*sent: tuple[Key, Value, int | None]) -> list[Step]:
    return [Send(*each) for each in sent]


def polls(read: Mapping[Key, Sequence[tuple[int, Value]]]) -> list[Step]:
    return [Read(key, offset, value) for key, values in read.items() for offset, value in values]
