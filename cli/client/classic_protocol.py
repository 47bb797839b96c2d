"""What members of a classic consumer group send each other, and Kafka's range assignor."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from trioka.protocol.codec import decoder, encode
from trioka.protocol.errors import ProtocolError
from trioka.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from ..terminal.failure import Failure
from .cluster_client import TopicPartition

WRITTEN_VERSION: Final = 0
VERSION_BYTES: Final = 2
MAX_ELEMENTS: Final = 200_000


def assign_ranges(members: Mapping[str, Iterable[str]], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Of each topic, each subscriber gets consecutive partitions, and the first members one more if they cannot be
    divided evenly.

    `members` are the topics of each member, `counts` the number of partitions of each topic that exists.
    """
    found: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic, count in sorted(counts.items()):
        readers = sorted(member for member, topics in members.items() if topic in topics)
        begin = 0
        for number, member in enumerate(readers):
            end = begin + count // len(readers) + (number < count % len(readers))
            found[member] += [TopicPartition(topic, index) for index in range(begin, end)]
            begin = end
    return found


def write_subscription(topics: Sequence[str]) -> bytes:
    return _written(ConsumerProtocolSubscription(topics=list(topics)))


def write_assignment(places: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place.partition)
    AssignedPartition = ConsumerProtocolAssignment.AssignedPartition
    assigned = [AssignedPartition(topic=topic, partitions=found) for topic, found in by_topic.items()]
    return _written(ConsumerProtocolAssignment(assigned_partitions=assigned))


def read_subscription(data: bytes) -> list[str]:
    """The topics of a member."""
    return list(_read(ConsumerProtocolSubscription, data).topics)


def read_assignment(data: bytes) -> list[TopicPartition]:
    """A member without an assignment has no bytes."""
    if not data:
        return []
    found = _read(ConsumerProtocolAssignment, data)
    return [TopicPartition(each.topic, index) for each in found.assigned_partitions for index in each.partitions]


def _written(message: Any) -> bytes:
    return WRITTEN_VERSION.to_bytes(VERSION_BYTES) + encode(message, WRITTEN_VERSION)


def _read(kind: type[Any], data: bytes) -> Any:
    """A newer version may append fields to those that are known here."""
    version = min(int.from_bytes(data[:VERSION_BYTES]), kind.__versions__.last)
    try:
        return decoder(kind, version)(memoryview(data), VERSION_BYTES, MAX_ELEMENTS)[0]
    except ProtocolError as error:
        raise Failure(f"a member of the group speaks another protocol: {error}") from None
