"""The `.indexes` object: the five index files of a segment, one behind the other, as Kafka has them on disk.

    offset             8 bytes each    | offset - base int32 | position int32 |            sparse
    timestamp         12 bytes each    | timestamp int64 | offset - base int32 |           sparse
    producer snapshot  the file `<end + 1>.snapshot`
    leader epochs      text as in leader-epoch-checkpoint: `0`, the number of entries, `epoch start-offset` …
    transactions      34 bytes each    | version int16 = 0 | producer id | first offset | last offset |
                                       | last stable offset, int64 each |

Their places stand in the manifest. A segment without aborted transactions has no transaction index, or an empty one.
The leader epochs are the whole chain of the log up to the segment's end and not only those of the segment: a follower
starts with them, and readers decide by them which of two overlapping segments counts.

The object has no checksum of its own; the manifest has one (`indexesCrc32c`) if trioka wrote it. The parsers check
what must hold in every whole index: order, range, and that nothing is left over.
"""

import re
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ..checksum import crc32c
from ..errors import ProtocolError
from ..lazy_dataclass import frozen
from ..primitives import Buffer
from .object_key import MAX_OFFSET

MAX_INDEXES_BYTES: Final = 128 * 1024 * 1024
"""Five indexes of a segment of 2 GiB, with an entry for each 512 bytes, are smaller."""

MAX_LEADER_EPOCHS: Final = 100_000
"""In one chain. Each is a change of the leader since the log began."""

MAX_ABORTED_TRANSACTIONS: Final = 1_000_000

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_SNAPSHOT_HEAD: Final = struct.Struct(">hIi")
_SNAPSHOT_ENTRY: Final = struct.Struct(">q30xq")  # producer id, …, first offset of the open transaction
_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")
_SNAPSHOT_CRC_FROM: Final = 6
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_MAX_EPOCH: Final = (1 << 31) - 1


class InvalidIndexes(ProtocolError):
    """An `.indexes` object that does not hold what an index must hold."""


class IndexRange(NamedTuple):
    """The place of one index in the object."""

    position: int
    size: int

    @property
    def end(self) -> int:
        return self.position + self.size


@frozen
class IndexRanges:
    """The places of all five. They follow one another; `transaction` is None if the segment has no such file."""

    offset: IndexRange
    timestamp: IndexRange
    producer_snapshot: IndexRange
    leader_epoch: IndexRange
    transaction: IndexRange | None

    @property
    def size(self) -> int:
        return (self.transaction or self.leader_epoch).end

    def check(self) -> None:
        """InvalidIndexes unless each begins where the one before it ends."""
        position = 0
        for place in (self.offset, self.timestamp, self.producer_snapshot, self.leader_epoch, self.transaction):
            if place is None:
                continue
            if place.position != position or not 0 <= place.size <= MAX_INDEXES_BYTES:
                raise InvalidIndexes(f"an index at byte {place.position} with {place.size} bytes, behind {position}")
            position = place.end
        if position > MAX_INDEXES_BYTES:
            raise InvalidIndexes(f"the indexes have {position} bytes, the limit is {MAX_INDEXES_BYTES}")


@frozen
class SegmentIndexes:
    """The content of the object."""

    offset: bytes
    timestamp: bytes
    producer_snapshot: bytes
    leader_epoch: bytes
    transaction: bytes | None

    def ranges(self) -> IndexRanges:
        places, position = [], 0
        for content in (self.offset, self.timestamp, self.producer_snapshot, self.leader_epoch):
            places.append(IndexRange(position, len(content)))
            position += len(content)
        return IndexRanges(
            offset=places[0],
            timestamp=places[1],
            producer_snapshot=places[2],
            leader_epoch=places[3],
            transaction=None if self.transaction is None else IndexRange(position, len(self.transaction)),
        )

    def encode(self) -> bytes:
        self.ranges().check()
        parts = (self.offset, self.timestamp, self.producer_snapshot, self.leader_epoch, self.transaction or b"")
        return b"".join(parts)


def decode_indexes(data: Buffer, ranges: IndexRanges) -> SegmentIndexes:
    """The indexes at their places. InvalidIndexes if the object has another size than the manifest says."""
    ranges.check()
    if len(data) != ranges.size:
        raise InvalidIndexes(f"{len(data)} bytes of indexes, {ranges.size} in the manifest")
    view = memoryview(data)

    def part(place: IndexRange) -> bytes:
        return bytes(view[place.position : place.end])

    return SegmentIndexes(
        offset=part(ranges.offset),
        timestamp=part(ranges.timestamp),
        producer_snapshot=part(ranges.producer_snapshot),
        leader_epoch=part(ranges.leader_epoch),
        transaction=None if ranges.transaction is None else part(ranges.transaction),
    )


# --- offsets and timestamps


class OffsetPosition(NamedTuple):
    """A batch that begins at `position` of the segment and holds `offset` or only later ones."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """No record up to `offset` is later than `timestamp`."""

    timestamp: int
    offset: int


def decode_offset_index(data: Buffer, base_offset: int) -> list[OffsetPosition]:
    if len(data) % _OFFSET_ENTRY.size:
        raise InvalidIndexes(f"the offset index ends inside an entry, at byte {len(data)}")
    entries: list[OffsetPosition] = []
    last_offset = last_position = -1
    for relative, position in _OFFSET_ENTRY.iter_unpack(data):
        if relative <= last_offset or position <= last_position:
            raise InvalidIndexes(f"entry {len(entries)} of the offset index, ({relative}, {position}), does not rise")
        last_offset, last_position = relative, position
        entries.append(OffsetPosition(base_offset + relative, position))
    return entries


def decode_time_index(data: Buffer, base_offset: int) -> list[TimestampOffset]:
    if len(data) % _TIME_ENTRY.size:
        raise InvalidIndexes(f"the time index ends inside an entry, at byte {len(data)}")
    entries: list[TimestampOffset] = []
    last_timestamp = last_offset = -1
    for timestamp, relative in _TIME_ENTRY.iter_unpack(data):
        if timestamp <= last_timestamp or relative < last_offset or relative < 0:
            raise InvalidIndexes(f"entry {len(entries)} of the time index, ({timestamp}, {relative}), does not rise")
        last_timestamp, last_offset = timestamp, relative
        entries.append(TimestampOffset(timestamp, base_offset + relative))
    return entries


# --- leader epochs


class LeaderEpoch(NamedTuple):
    """The leader of `epoch` wrote from `start_offset` on, up to the next entry."""

    epoch: int
    start_offset: int


def check_leader_epochs(epochs: Sequence[LeaderEpoch]) -> None:
    """InvalidIndexes unless epochs and offsets rise together."""
    previous = LeaderEpoch(-1, -1)
    for entry in epochs:
        if not previous.epoch < entry.epoch <= _MAX_EPOCH or not previous.start_offset < entry.start_offset:
            raise InvalidIndexes(f"{entry} does not follow {previous}")
        if entry.start_offset > MAX_OFFSET:
            raise InvalidIndexes(f"{entry} has an offset above {MAX_OFFSET}")
        previous = entry


def encode_leader_epochs(epochs: Sequence[LeaderEpoch]) -> bytes:
    check_leader_epochs(epochs)
    if len(epochs) > MAX_LEADER_EPOCHS:
        raise InvalidIndexes(f"{len(epochs)} leader epochs, the limit is {MAX_LEADER_EPOCHS}")
    lines = ["0", str(len(epochs)), *(f"{entry.epoch} {entry.start_offset}" for entry in epochs)]
    return ("\n".join(lines) + "\n").encode("ascii")


def decode_leader_epochs(data: Buffer) -> tuple[LeaderEpoch, ...]:
    try:
        lines = bytes(data).decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidIndexes(f"byte {error.start} of the leader epochs is not ASCII") from None
    if lines.pop() or len(lines) < 2 or lines[0] != "0":
        raise InvalidIndexes("the leader epochs do not begin with version 0 and a number, or end inside a line")
    if _number(lines[1], MAX_LEADER_EPOCHS) != len(lines) - 2:
        raise InvalidIndexes(f"{lines[1]} leader epochs are announced, and {len(lines) - 2} follow")
    epochs = []
    for line in lines[2:]:
        words = line.split(" ")
        if len(words) != 2:
            raise InvalidIndexes(f"{line!r} is not an epoch and an offset")
        epochs.append(LeaderEpoch(_number(words[0], _MAX_EPOCH), _number(words[1], MAX_OFFSET)))
    check_leader_epochs(epochs)
    return tuple(epochs)


def _number(text: str, limit: int) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > limit:
        raise InvalidIndexes(f"{text!r} in the leader epochs is not a number up to {limit}")
    return int(text)


# --- aborted transactions


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its first record, its marker, and the last stable offset when the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_transactions(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_TRANSACTION_ENTRY.pack(0, *transaction) for transaction in transactions)


def decode_transactions(data: Buffer) -> list[AbortedTransaction]:
    size = _TRANSACTION_ENTRY.size
    if len(data) % size or len(data) > size * MAX_ABORTED_TRANSACTIONS:
        raise InvalidIndexes(f"the transaction index has {len(data)} bytes; an entry has {size}")
    entries: list[AbortedTransaction] = []
    previous = -1
    for version, *fields in _TRANSACTION_ENTRY.iter_unpack(data):
        entry = AbortedTransaction._make(fields)
        if version != 0:
            raise InvalidIndexes(f"entry {len(entries)} of the transaction index has version {version}, not 0")
        if entry.producer_id < 0 or not 0 <= entry.first_offset < entry.last_offset or entry.last_offset <= previous:
            raise InvalidIndexes(f"entry {len(entries)} of the transaction index, {entry}, is no transaction here")
        if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            raise InvalidIndexes(f"entry {len(entries)} of the transaction index, {entry}, was stable too late")
        previous = entry.last_offset
        entries.append(entry)
    return entries


# --- producers


def decode_open_transactions(data: Buffer) -> dict[int, int]:
    """The producers of a snapshot that have an open transaction, and its first offset.

    | version int16 = 1 | crc32c uint32 of all that follows | count int32 | count × 46 bytes | more, by trioka |
    """
    view = memoryview(data)
    if len(view) < _SNAPSHOT_HEAD.size:
        raise InvalidIndexes(f"the producer snapshot has {len(view)} bytes")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(view)
    if version != 1:
        raise InvalidIndexes(f"the producer snapshot has version {version}, not 1")
    if crc32c(view[_SNAPSHOT_CRC_FROM:]) != crc:
        raise InvalidIndexes("the producer snapshot fails its checksum")
    end = _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size
    if not _SNAPSHOT_HEAD.size <= end <= len(view):
        raise InvalidIndexes(f"the producer snapshot announces {count} producers in {len(view)} bytes")
    entries = _SNAPSHOT_ENTRY.iter_unpack(view[_SNAPSHOT_HEAD.size : end])
    return {producer_id: first_offset for producer_id, first_offset in entries if first_offset >= 0}
