"""The ledger of a topic that a flow writes: which batches are in it, as committed offsets of a consumer group.

A batch is divided into parts, one for each partition that the topic had at the flow's first start. Each part is one
transaction, which holds its records and one committed offset of the group `<pipeline>.<flow>.sink`:

    partition   the number of the part
    offset      the number of the next batch
    metadata    the run, which is the id of the checkpoint

Records and offset become visible together or not at all. A repeated batch writes the parts that the ledger lacks.
"""

from collections.abc import Mapping
from enum import Enum

from trioka.protocol.lazy_dataclass import frozen


class Step(Enum):
    WRITE = "write"
    SKIP = "skip"


class LedgerMismatch(Exception):
    """The ledger and the checkpoint contradict each other; one clause says how."""


@frozen
class Entry:
    """The ledger of one part."""

    run: str
    next_batch: int


def step(entry: Entry | None, run: str, batch: int, *, is_restart: bool = False) -> Step:
    """What to do with a part of a batch. With `is_restart`, a ledger that does not fit is replaced."""
    if entry is not None and entry.run == run:
        if entry.next_batch == batch + 1:
            return Step.SKIP
        if entry.next_batch == batch or is_restart:
            return Step.WRITE
        raise LedgerMismatch(
            f"the checkpoint is at batch {batch}, and the topic has the batches before {entry.next_batch}"
        )
    if is_restart:
        return Step.WRITE
    if entry is not None:
        raise LedgerMismatch("the topic has records that were written with another checkpoint, which is gone")
    if batch > 0:
        raise LedgerMismatch(f"the checkpoint is at batch {batch}, and the group that says what the topic has is gone")
    return Step.WRITE


def steps(entries: Mapping[int, Entry], parts: int, run: str, batch: int, *, is_restart: bool) -> dict[int, Step]:
    """What to do with each part of a batch."""
    return {part: step(entries.get(part), run, batch, is_restart=is_restart) for part in range(parts)}
