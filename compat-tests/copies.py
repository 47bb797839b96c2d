"""What copiers did, what others saw of it, and the history that follows from both (tests/history/operations.py).

Nothing here runs anything: `copying.py` does, and fills a `Copies`.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from clients.client import Record
from clients.copier import CopiedTransaction
from history.operations import Assign, Commit, Committed, History, Outcome, Read, Send, Step, Subscribe

PARTITIONS = 3
SOURCE, TARGET, GROUP = "source", "target", "copiers"

Done = tuple[int, str, Outcome, int, list[Step]]  # end, process, result, begin, steps


class Named(Protocol):
    """A copier, as far as its history goes."""

    name: str
    copied: list[CopiedTransaction]


class Saw(NamedTuple):
    """A poll of the output."""

    began_ms: int
    ended_ms: int
    reads: list[Read]


@dataclass(slots=True, kw_only=True)
class Copies:
    """`committed` has the group's last committed offsets, by partition, and `output` the records at the end."""

    began_ms: int = 0
    written_ms: int = 0
    committed_ms: int = 0
    written: list[tuple[Record, int]] = field(default_factory=list)
    copiers: Sequence[Named] = ()
    saw: Sequence[Saw] = ()
    committed: dict[int, int] = field(default_factory=dict)
    output: dict[int, list[Read]] = field(default_factory=dict)

    @property
    def aborted(self) -> set[bytes]:
        """The values of transactions that were certainly aborted."""
        return {
            send.value
            for copier in self.copiers
            for copied in copier.copied
            if outcome_of(copied) is Outcome.FAIL
            for send in sends_of(copier.name, copied)
        }

    def history(self) -> History:
        history = History()
        # The source is written sequentially: the copiers start later, and the history assumes that.
        step_ms = (self.written_ms - self.began_ms) / max(1, len(self.written))
        for number, (record, offset) in enumerate(self.written):
            sent = Send(key(SOURCE, record.partition), record.value or b"", offset)
            began = self.began_ms + number * step_ms
            history.ok("writer", sent, began=began, ended=began + step_ms / 2)
        history.ok("watcher", Assign(keys(TARGET)), began=self.began_ms, ended=self.began_ms)
        for ended_ms, process, outcome, began_ms, steps in sorted(self._done(), key=lambda each: each[0]):
            history.add(process, outcome, steps, began=began_ms, ended=ended_ms)
        reads = [read for partition in sorted(self.output) for read in self.output[partition]]
        history.ok("judge", Assign(keys(TARGET)), reads, began=now_ms(), ended=now_ms())
        return history

    def _done(self) -> Iterable[Done]:
        for copier in self.copiers:
            yield self.written_ms, copier.name, Outcome.OK, self.written_ms, [Subscribe(keys(SOURCE))]
            yield from self._done_by(copier)
        for saw in self.saw:
            yield saw.ended_ms, "watcher", Outcome.OK, saw.began_ms, [*saw.reads]
        result = [Committed(GROUP, key(SOURCE, p), offset) for p, offset in self.committed.items()]
        yield now_ms(), "watcher", Outcome.OK, self.committed_ms, [*result]

    def _done_by(self, copier: Named) -> Iterator[Done]:
        for copied in copier.copied:
            steps: list[Step] = [Read(key(SOURCE, p), offset, value.encode()) for p, offset, value in copied.read]
            steps += sends_of(copier.name, copied)
            following = {partition: offset + 1 for partition, offset, _ in copied.read}
            steps += [Commit(GROUP, key(SOURCE, p), offset) for p, offset in following.items()]
            # A killed copier would have reported this before the end.
            yield copied.ended_ms or self.committed_ms, copier.name, outcome_of(copied), copied.began_ms, steps


def outcome_of(copied: CopiedTransaction) -> Outcome:
    """A copier that was killed before it requested a commit has certainly not committed."""
    if copied.ended == "open":
        return Outcome.INFO if copied.has_asked else Outcome.FAIL
    return Outcome(copied.ended)


def sends_of(name: str, copied: CopiedTransaction) -> list[Send]:
    offsets: list[int] | list[None] = copied.offsets or [None] * len(copied.read)
    return [
        Send(key(TARGET, partition), f"{value}|{name}|{copied.number}".encode(), offset)
        for (partition, _, value), offset in zip(copied.read, offsets, strict=True)
    ]


def must_be_copied(output: dict[int, list[Read]], each: int) -> None:
    """Every record once, in the order of its partition, and nothing else."""
    for partition in range(PARTITIONS):
        copied = [read.value.decode().partition("|")[0] for read in output[partition]]
        assert copied == [f"{partition}-{number}" for number in range(each)], f"{TARGET}-{partition}"


def key(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def keys(topic: str) -> frozenset[str]:
    return frozenset(key(topic, partition) for partition in range(PARTITIONS))


def now_ms() -> int:
    return int(time.time() * 1000)
