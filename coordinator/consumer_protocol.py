"""Reads and writes the messages that consumers of the classic protocol send each other.

Usually the broker passes these bytes on unread. It reads them where a group has members of both protocols: there the
broker computes the assignments, and sends them to classic members in the form that their leader would have used.

    bytes   int16 version · the declared message, in that version; a later version is read as the newest known one
"""

from collections.abc import Collection, Mapping
from struct import Struct
from typing import Final, TypeVar

from trioka.protocol.codec import decoder, encode
from trioka.protocol.decoding import MAX_ELEMENTS
from trioka.protocol.errors import ProtocolError
from trioka.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from .assignors import Assignment
from .topics import Topics

PROTOCOL_TYPE: Final = "consumer"  # only groups of this type use it
NEWEST: Final = 3

_INT16: Final = Struct(">h")

M = TypeVar("M", ConsumerProtocolAssignment, ConsumerProtocolSubscription)


def read_subscription(blob: bytes) -> ConsumerProtocolSubscription:
    """Raises ProtocolError for malformed bytes."""
    return _read(ConsumerProtocolSubscription, blob)


def read_assignment(blob: bytes) -> ConsumerProtocolAssignment:
    """Raises ProtocolError for malformed bytes. A member without an assignment has empty bytes."""
    return _read(ConsumerProtocolAssignment, blob) if blob else ConsumerProtocolAssignment(assigned_partitions=[])


def write_assignment(partitions: Mapping[bytes, Collection[int]], topics: Topics, version: int) -> bytes:
    """Encodes an assignment; deleted topics have no name and are omitted."""
    names = {topic.name: topic_id for topic_id in partitions if (topic := topics.by_id(topic_id)) is not None}
    assigned = [
        ConsumerProtocolAssignment.AssignedPartition(topic=name, partitions=sorted(partitions[names[name]]))
        for name in sorted(names)
    ]
    return _INT16.pack(version) + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def version_of(blob: bytes) -> int:
    if len(blob) < _INT16.size:
        raise ProtocolError("the subscription of a consumer is too short for a version")
    version: int = _INT16.unpack_from(blob)[0]
    if version < 0:
        raise ProtocolError(f"the subscription of a consumer has version {version}")
    return min(version, NEWEST)


def by_id(named: Mapping[str, Collection[int]], topics: Topics) -> Assignment:
    """Partitions by topic id, of the topics that exist."""
    known = {topic.id: frozenset(numbers) for name, numbers in named.items() if (topic := topics.by_name(name))}
    return {topic_id: numbers for topic_id, numbers in known.items() if numbers}


def _read(kind: type[M], blob: bytes) -> M:
    message: M = decoder(kind, version_of(blob))(memoryview(blob), _INT16.size, MAX_ELEMENTS)[0]
    return message
