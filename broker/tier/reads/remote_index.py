"""The indexes of a remote segment: where an offset or a time begins in its `.log` object.

They are kept as the bytes that Kafka writes, and searched there: a segment of 1 GiB has 260,000 entries. A wrong entry
does no harm: what it points to is a batch with the offset and a valid CRC, or an error.
"""

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final

from trioka.protocol.checksum import crc32c
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.remote_segment.indexes import (
    AbortedTransaction,
    InvalidIndexes,
    SegmentIndexes,
    decode_indexes,
    decode_transactions,
)
from trioka.protocol.remote_segment.manifest import SegmentManifest, decode_manifest
from trioka.protocol.remote_segment.object_key import RemoteSegment

from .batch_range import Anchor

_OFFSET: Final = Struct(">ii")  # offset - base, position
_TIME: Final = Struct(">qi")  # largest timestamp up to this record, offset - base
FIXED_BYTES: Final = 500  # of an index in memory, beside its entries


class _Column:
    """The first field of the entries of an index, as a sequence for bisect."""

    __slots__ = ("_data", "_entry")

    def __init__(self, data: bytes, entry: Struct) -> None:
        self._data = data
        self._entry = entry

    def __len__(self) -> int:
        return len(self._data) // self._entry.size

    def __getitem__(self, index: int) -> int:
        first: int = self._entry.unpack_from(self._data, index * self._entry.size)[0]
        return first


@frozen
class RemoteIndex:
    """What reads of a segment need."""

    base_offset: int
    size: int  # of the .log object
    offsets: bytes
    times: bytes
    aborted: tuple[AbortedTransaction, ...]
    is_exact: bool  # an entry has the last offset of the batch at its position: trioka wrote it
    is_contiguous: bool  # every offset of the range has a record

    @property
    def memory_bytes(self) -> int:
        return FIXED_BYTES + len(self.offsets) + len(self.times) + 100 * len(self.aborted)

    def place_before(self, offset: int) -> tuple[int, Anchor]:
        """A position in the object at which a batch begins, and what is known about it. The batch with this offset does
        not begin before it."""
        number = bisect_right(_Column(self.offsets, _OFFSET), offset - self.base_offset) - 1
        if number < 0:
            return 0, Anchor(self.base_offset, None, self.is_contiguous)
        relative, position = _OFFSET.unpack_from(self.offsets, number * _OFFSET.size)
        last = self.base_offset + relative
        return position, Anchor(self.base_offset, last if self.is_exact else None, self.is_exact and self.is_contiguous)

    def offset_before(self, timestamp: int) -> int:
        """No record before this offset is as late as `timestamp`."""
        number = bisect_left(_Column(self.times, _TIME), timestamp) - 1
        if number < 0:
            return self.base_offset
        relative: int = _TIME.unpack_from(self.times, number * _TIME.size)[1]
        return self.base_offset + relative + 1


def check_manifest(data: bytes, segment: RemoteSegment) -> SegmentManifest:
    """The manifest of that segment. InvalidManifest or UnsupportedManifest for anything else, a tombstone too."""
    manifest = decode_manifest(data)
    if not isinstance(manifest, SegmentManifest) or manifest.segment != segment:
        raise InvalidIndexes(f"the manifest is not that of {segment}")
    return manifest


def read_indexes(data: memoryview, manifest: SegmentManifest) -> SegmentIndexes:
    """The five indexes, checked by the manifest's checksum if it has one. Raises ProtocolError."""
    content = manifest.content
    if content is not None and crc32c(data) != content.indexes_crc32c:
        raise InvalidIndexes("the indexes fail their checksum")
    return decode_indexes(data, manifest.indexes)


def remote_index(indexes: SegmentIndexes, manifest: SegmentManifest) -> RemoteIndex:
    """Raises ProtocolError."""
    for name, data, width in (("offset", indexes.offset, _OFFSET), ("time", indexes.timestamp, _TIME)):
        if len(data) % width.size:
            raise InvalidIndexes(f"the {name} index ends inside an entry")
    return RemoteIndex(
        base_offset=manifest.start_offset,
        size=manifest.size,
        offsets=indexes.offset,
        times=indexes.timestamp,
        aborted=tuple(decode_transactions(indexes.transaction or b"")),
        is_exact=manifest.content is not None,
        is_contiguous=manifest.content is not None
        and manifest.content.records == manifest.end_offset - manifest.start_offset + 1,
    )
