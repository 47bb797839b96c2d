"""Which partition of an internal topic remembers a group or a transactional id.

Java's hash of the name, over the number of partitions: the same on every broker, here as in Apache Kafka, or else two
brokers would each take a group for theirs.
"""

from array import array
from functools import lru_cache
from sys import byteorder
from typing import Final

INT_MIN: Final = -(2**31)

# Every heartbeat asks for the same names again. So many are kept, if they are short: some two megabytes at the most.
KEPT_NAMES: Final = 8192
MAX_KEPT_CHARS: Final = 128


def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 code units, in 32 bits with a sign."""
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if byteorder == "big":
        units.byteswap()
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def partition_of(name: str, count: int) -> int:
    value = _kept_hash(name) if len(name) <= MAX_KEPT_CHARS else java_hash(name)
    return (0 if value == INT_MIN else abs(value)) % count


_kept_hash: Final = lru_cache(KEPT_NAMES)(java_hash)
