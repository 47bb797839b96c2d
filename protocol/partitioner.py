"""Chooses the partition of a key as Kafka's default partitioner does: murmur2 with Kafka's seed, without the sign."""

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    size = len(data)
    found = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ (word >> _R)) * _M & _MASK
        found = (found * _M & _MASK) ^ word
    if size > whole:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    found = (found ^ (found >> 13)) * _M & _MASK
    return found ^ (found >> 15)
