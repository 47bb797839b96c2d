"""The partition of an internal topic that stores a group or a transactional id.

It is Java's hash of the name modulo the number of partitions, as in Apache Kafka. All brokers must agree on it, or two
brokers would coordinate the same group.
"""

from array import array
from functools import lru_cache
from sys import byteorder
from typing import Final

INT_MIN: Final = -(2**31)

# Cache, because every heartbeat needs it: so many names, if they are short; about two megabytes at most.
CACHED_NAMES: Final = 8192
MAX_CACHED_CHARS: Final = 128


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, as a signed 32-bit integer."""
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if byteorder == "big":
        units.byteswap()
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def partition_of(name: str, count: int) -> int:
    value = _cached_hash(name) if len(name) <= MAX_CACHED_CHARS else java_hash(name)
    return (0 if value == INT_MIN else abs(value)) % count


_cached_hash: Final = lru_cache(CACHED_NAMES)(java_hash)
