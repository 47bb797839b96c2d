"""The latest offset of each key in the part of a log that compaction has not seen yet.

Kafka keeps sixteen bytes of MD5 for each key in a fixed buffer. Here the keys themselves are in a dict: two different
keys are never confused, for any keys of a client, at the price of some 150 bytes more for each key. Its size is
bounded (log.cleaner.dedupe.buffer.size), by an estimate of what an entry costs; when it is full, compaction ends at the
batch where that happened and begins there the next time. One batch always fits, so that every round gets further.
"""

from typing import Final

from ..files.layout import MAX_OFFSET

DEFAULT_LIMIT_BYTES: Final = 128 * 1024 * 1024  # log.cleaner.dedupe.buffer.size

ENTRY_BYTES: Final = 180
"""Of a key beside its own bytes: 33 for a bytes object and up to 15 for its alignment, 32 for the offset, and up to 100
for its share of the dict while that grows: 24 and an index for each place, a third of them empty, old and new at once.
"""

NO_OFFSET: Final = -1


class OffsetMap:
    """Key → offset of its last record, for records up to `latest_offset`. It does not contain later records."""

    __slots__ = ("_offsets", "_size", "latest_offset", "limit_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        assert limit_bytes > 0
        self.limit_bytes = limit_bytes
        self.latest_offset = NO_OFFSET
        self._offsets: dict[bytes, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return self._size >= self.limit_bytes

    def put(self, key: bytes, offset: int) -> None:
        assert 0 <= offset <= MAX_OFFSET
        if key not in self._offsets:
            self._size += len(key) + ENTRY_BYTES
        self._offsets[key] = offset

    def get(self, key: bytes) -> int:
        """NO_OFFSET for a key that has no record in the part that was mapped."""
        return self._offsets.get(key, NO_OFFSET)
