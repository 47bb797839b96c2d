"""The partition of a key, as Kafka's Java client and librdkafka's `murmur2_random` choose it."""

from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of Kafka, unsigned."""
    size = len(data)
    value = (SEED ^ size) & MASK
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ (word >> 24)) * MULTIPLIER & MASK
        value = (value * MULTIPLIER & MASK) ^ word
    if size > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ (value >> 13)) * MULTIPLIER & MASK
    return value ^ (value >> 15)


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
