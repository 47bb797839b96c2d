"""A hash of all topic properties that a group's assignment depends on, to detect changes (KIP-1101).

Numbers are little-endian, text is UTF-16 (little-endian, followed by its length in characters).

    topic   int8 0 · the topic's id, as two int64 · name · int32 partitions ·
            for each partition: int32 its number · for each rack, sorted: int32 its length · the rack
    group   int64 for each topic, in the order of their names; 0 if there are none

both through XXH3 (64 bits). Apache Kafka writes the same number, so a group that changes brokers keeps its assignment.
"""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Final

from xxhash import xxh3_64_intdigest

from ..topics import Topic, Topics

CACHED_TOPICS: Final = 10_000

_INT32: Final = Struct("<i")
_INT64: Final = Struct("<q")


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    found = [topic for name in sorted(names) if (topic := topics.by_name(name)) is not None]
    return _xxh3(b"".join(_INT64.pack(topic_hash(topic)) for topic in found)) if found else 0


@lru_cache(CACHED_TOPICS)
def topic_hash(topic: Topic) -> int:
    pieces = [b"\0", topic.id[7::-1], topic.id[:7:-1], _text(topic.name), _INT32.pack(topic.partitions)]
    for number, racks in enumerate(topic.racks):
        pieces.append(_INT32.pack(number))
        for rack in sorted(racks):
            written = _text(rack)
            pieces += (written[-4:], written)
    return _xxh3(b"".join(pieces))


def _text(text: str) -> bytes:
    written = text.encode("utf-16-le")
    return written + _INT32.pack(len(written) // 2)


def _xxh3(data: bytes) -> int:
    """The hash as a signed integer, as in records."""
    number: int = _INT64.unpack(xxh3_64_intdigest(data).to_bytes(8, "little"))[0]
    return number
