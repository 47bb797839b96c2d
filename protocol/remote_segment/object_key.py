"""Object keys of tiered segments, in the layout of Aiven's tiered-storage plugin.

    [prefix/]orders-MWJ6FHTfRYy67jzwZdeqSQ/7/00000000000000001234-tqimKeZwStOEOwRzT3L5oQ.log
             topic  topic id               partition
                                             start offset, 20 digits
                                                                  segment id             suffix

    .log            the segment, byte for byte
    .indexes        its indexes, one behind the other (indexes.py)
    .rsm-manifest   JSON (manifest.py), written last: a segment without one does not exist

Ids are in base64 for URLs, without padding, as Kafka prints them. Such an id may contain `-` and so may a topic's name:
the last 22 characters are the id. Keys are parsed strictly: each key has one spelling, so that what is listed, checked
and deleted is the same object.
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from ..errors import ProtocolError
from ..primitives import uuid_from_text, uuid_text

MAX_OFFSET: Final = (1 << 63) - 1
MAX_PARTITION: Final = (1 << 31) - 1
MAX_TOPIC_NAME: Final = 249

_ID: Final = "[A-Za-z0-9_-]{22}"
_DIRECTORY: Final = re.compile(rf"([A-Za-z0-9._-]{{1,{MAX_TOPIC_NAME}}})-({_ID})")
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_FILE: Final = re.compile(rf"([0-9]{{20}})-({_ID})\.(log|indexes|rsm-manifest)")


class ObjectSuffix(StrEnum):
    """What an object of a segment holds. The value is the last part of its key, behind a dot."""

    LOG = "log"
    INDEXES = "indexes"
    MANIFEST = "rsm-manifest"


class TopicIdPartition(NamedTuple):
    topic_id: bytes
    topic: str
    partition: int

    @property
    def directory(self) -> str:
        """Where the partition's objects lie; ends with a slash."""
        return f"{topic_directory(self.topic, self.topic_id)}{self.partition}/"

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} ({uuid_text(self.topic_id)})"


class RemoteSegment(NamedTuple):
    """One segment of the object store: what the keys of its three objects have in common."""

    topic_id_partition: TopicIdPartition
    start_offset: int
    segment_id: bytes

    def key(self, suffix: ObjectSuffix, prefix: str = "") -> str:
        """The key of one of the three objects; `prefix` as for `with_prefix`."""
        name = f"{self.start_offset:020d}-{uuid_text(self.segment_id)}.{suffix.value}"
        return with_prefix(prefix) + self.topic_id_partition.directory + name

    def __str__(self) -> str:
        return f"{self.topic_id_partition} at {self.start_offset} ({uuid_text(self.segment_id)})"


def topic_directory(topic: str, topic_id: bytes) -> str:
    """Where a topic's objects lie; ends with a slash."""
    return f"{topic}-{uuid_text(topic_id)}/"


def with_prefix(prefix: str) -> str:
    """The prefix with one slash at its end; an empty one stays empty."""
    stripped = prefix.strip("/")
    return f"{stripped}/" if stripped else ""


def parse_topic_directory(name: str) -> tuple[str, bytes]:
    """Topic and topic id of the name of a directory, without its slash. ProtocolError if it is not one of a topic."""
    found = _DIRECTORY.fullmatch(name)
    if found is None or found[1] in (".", ".."):
        raise ProtocolError(f"{name!r} is not a topic and its id")
    return found[1], parse_uuid(found[2])


def parse_key(key: str, prefix: str = "") -> tuple[RemoteSegment, ObjectSuffix]:
    """The segment and the object that a key names. ProtocolError for every other key."""
    start = with_prefix(prefix)
    parts = key[len(start) :].split("/")
    if not key.startswith(start) or len(parts) != 3:
        raise ProtocolError(f"{key!r} is not the key of a segment below {start!r}")
    topic, topic_id = parse_topic_directory(parts[0])
    found = _FILE.fullmatch(parts[2])
    if found is None or _PARTITION.fullmatch(parts[1]) is None:
        raise ProtocolError(f"{key!r} is not a partition, a start offset, a segment id and a suffix")
    partition, start_offset = int(parts[1]), int(found[1])
    if partition > MAX_PARTITION or start_offset > MAX_OFFSET:
        raise ProtocolError(f"{key!r} has the partition {partition} and the offset {start_offset}")
    segment = RemoteSegment(TopicIdPartition(topic_id, topic, partition), start_offset, parse_uuid(found[2]))
    return segment, ObjectSuffix(found[3])


def parse_uuid(text: str) -> bytes:
    """The uuid of a text, in the one spelling that it has."""
    uuid = uuid_from_text(text)
    if uuid_text(uuid) != text:  # the last character has four bits that no uuid has
        raise ProtocolError(f"{text!r} is not the spelling of a uuid; that is {uuid_text(uuid)!r}")
    return uuid
