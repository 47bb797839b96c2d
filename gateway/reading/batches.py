"""The batches of a Fetch response: which of them a reader may see, and their records. Pure.

A response may begin with a batch that starts before the requested offset, and end with one that is cut off. Control
batches are transaction markers, never records. For a reader that wants no aborted records, the broker names the aborted
transactions of the range; a batch of one of them is left out. The rule is that of Kafka's consumer:

    aborted      producer id, first offset    in the order of their first offsets
    a batch whose last offset is at or above the first offset of a transaction belongs to it, if the producer is the
    same, until the marker that aborts it
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from trioka.protocol import batch
from trioka.protocol.batch import BatchHeader
from trioka.protocol.record import ControlType, Record, read_control_key

MAX_DECOMPRESSED_BYTES: Final = 32 * 1024 * 1024  # of one batch


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


class SeenBatch(NamedTuple):
    """`visible` is false for a batch that moves the position and is not for the reader."""

    header: BatchHeader
    visible: bool


def seen_batches(data: memoryview, position: int, aborted: Iterable[Aborted] | None) -> Iterator[SeenBatch]:
    """The batches from `position` on. `aborted` is None for a reader that wants every committed batch and every batch
    of a transaction, whatever becomes of it."""
    waiting = sorted(aborted or (), key=lambda each: each.first_offset, reverse=True)
    producers: set[int] = set()
    for header in batch.headers(data, partial_tail=True):
        if header.last_offset < position:
            continue
        while waiting and waiting[-1].first_offset <= header.last_offset:
            producers.add(waiting.pop().producer_id)
        if header.is_control:
            if aborted is not None and _is_abort(data, header):
                producers.discard(header.producer_id)
            yield SeenBatch(header, False)
        elif aborted is not None and header.is_transactional and header.producer_id in producers:
            yield SeenBatch(header, False)
        else:
            yield SeenBatch(header, header.record_count > 0)


def records_from(data: memoryview, header: BatchHeader, position: int, end: int | None) -> Iterator[Record]:
    """The records of a batch from `position` on, and before `end`."""
    batch.verify(data, header)
    for record in batch.records(data, header, limit=MAX_DECOMPRESSED_BYTES):
        if record.offset >= position and (end is None or record.offset < end):
            yield record


def _is_abort(data: memoryview, header: BatchHeader) -> bool:
    first = next(iter(batch.records(data, header)), None)
    return first is not None and read_control_key(first.key) is ControlType.ABORT
