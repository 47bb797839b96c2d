"""Which sequences of a producer name are written: the rule of exactly once. Pure.

    floor               next
      │                  │
 ─────┼──────────────────┼─────→ sequences
 dup. │ dup. if written, │ new
      │ else out of order│

`next` comes from the cluster when a gateway takes over a name: one more than the highest sequence that was committed,
and everything below it counts as written. From then on this gateway knows each sequence that it wrote. So a sequence
that comes late, after a higher one, is refused, and not mistaken for a duplicate, which would lose it.

A transaction takes several requests. `plan` decides about each; `committed` is called when the transaction is.
"""

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum
from typing import Final

MAX_REMEMBERED: Final = 10_000  # sequences above the floor
MAX_SEQUENCE: Final = (1 << 63) - 2  # it is committed as an offset, plus one


class Verdict(Enum):
    WRITE = "write"
    DUPLICATE = "duplicate"
    OUT_OF_ORDER = "out of order"


class Sequences:
    def __init__(self, next_sequence: int) -> None:
        self._floor = next_sequence
        self._next = next_sequence
        self._written: list[int] = []  # at or above the floor, rising

    @property
    def next(self) -> int:
        """The lowest sequence that is new; committed as the offset."""
        return self._next

    def plan(self, sequences: Sequence[int]) -> list[Verdict]:
        """What becomes of these requests if they are written in one transaction, in this order."""
        upcoming, chosen = self._next, set[int]()
        verdicts = []
        for sequence in sequences:
            if sequence >= upcoming:
                verdicts.append(Verdict.WRITE)
                upcoming = sequence + 1
                chosen.add(sequence)
            elif sequence < self._floor or sequence in chosen or self._was_written(sequence):
                verdicts.append(Verdict.DUPLICATE)
            else:
                verdicts.append(Verdict.OUT_OF_ORDER)
        return verdicts

    def _was_written(self, sequence: int) -> bool:
        at = bisect_left(self._written, sequence)
        return at < len(self._written) and self._written[at] == sequence

    def committed(self, sequences: Sequence[int]) -> None:
        """These were written; they are those of one `plan` that are to be written, in their order."""
        assert all(one < other for one, other in zip((self._next - 1, *sequences), sequences, strict=False))
        self._written.extend(sequences)
        if sequences:
            self._next = sequences[-1] + 1
        surplus = len(self._written) - MAX_REMEMBERED
        if surplus > 0:
            self._floor = self._written[surplus - 1] + 1
            del self._written[:surplus]


class StreamOrder:
    """The order of one stream: after a request that may be repeated has failed, later ones wait for it.

    Without this rule, a pipelined request would be written in front of the repetition of an earlier one.
    """

    def __init__(self) -> None:
        self._failed: int | None = None

    def may_write(self, sequence: int) -> bool:
        if self._failed is not None and sequence <= self._failed:
            self._failed = None
        return self._failed is None

    def failed(self, sequence: int) -> None:
        if self._failed is None or sequence < self._failed:
            self._failed = sequence

    @property
    def expected(self) -> int | None:
        return self._failed
