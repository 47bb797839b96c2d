"""What consumers of the classic protocol tell one another, read and written by the broker.

As a rule the broker passes these blobs on without a look. It looks into them where a group has members of both
protocols: there the broker says who gets what, and says it to those members as their leader would have said it.

    blob    int16 version · the declared message, in that version; one of the future is read as the newest that is known
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

PROTOCOL_TYPE: Final = "consumer"  # only groups of this type speak it
NEWEST: Final = 3

_INT16: Final = Struct(">h")

M = TypeVar("M", ConsumerProtocolAssignment, ConsumerProtocolSubscription)


def read_subscription(blob: bytes) -> ConsumerProtocolSubscription:
    """ProtocolError, if it is none."""
    return _read(ConsumerProtocolSubscription, blob)


def read_assignment(blob: bytes) -> ConsumerProtocolAssignment:
    """ProtocolError, if it is none. Who was never given anything has an empty blob, and nothing."""
    return _read(ConsumerProtocolAssignment, blob) if blob else ConsumerProtocolAssignment(assigned_partitions=[])


def write_assignment(partitions: Mapping[bytes, Collection[int]], topics: Topics, version: int) -> bytes:
    """Topics that are gone have no name to be assigned by."""
    names = {topic.name: topic_id for topic_id in partitions if (topic := topics.by_id(topic_id)) is not None}
    assigned = [
        ConsumerProtocolAssignment.AssignedPartition(topic=name, partitions=sorted(partitions[names[name]]))
        for name in sorted(names)
    ]
    return _INT16.pack(version) + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def version_of(blob: bytes) -> int:
    if len(blob) < _INT16.size:
        raise ProtocolError("what a consumer says of itself is too short to have a version")
    version: int = _INT16.unpack_from(blob)[0]
    if version < 0:
        raise ProtocolError(f"what a consumer says of itself has version {version}")
    return min(version, NEWEST)


def by_id(named: Mapping[str, Collection[int]], topics: Topics) -> Assignment:
    """Partitions by the ids of their topics, as far as these exist."""
    known = {topic.id: frozenset(numbers) for name, numbers in named.items() if (topic := topics.by_name(name))}
    return {topic_id: numbers for topic_id, numbers in known.items() if numbers}


def _read(kind: type[M], blob: bytes) -> M:
    message: M = decoder(kind, version_of(blob))(memoryview(blob), _INT16.size, MAX_ELEMENTS)[0]
    return message
