"""Which partition of an internal topic remembers a group or a transactional id.

Java's hash of the name, over the number of partitions: the same on every broker, here as in Apache Kafka, or else two
brokers would each take a group for theirs.
"""

from array import array
from sys import byteorder
from typing import Final

INT_MIN: Final = -(2**31)


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
    value = java_hash(name)
    return (0 if value == INT_MIN else abs(value)) % count
