"""What is in the archive: topics, partitions, and the manifests of their segments."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import Final

from trioka.protocol.errors import ProtocolError
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.primitives import uuid_text
from trioka.protocol.remote_segment.manifest import MAX_MANIFEST_BYTES, SegmentManifest, Tombstone, decode_manifest
from trioka.protocol.remote_segment.object_key import (
    MAX_PARTITION,
    ObjectSuffix,
    RemoteSegment,
    TopicIdPartition,
    parse_key,
    parse_topic_directory,
    parse_uuid,
    topic_directory,
)

from .errors import AmbiguousTopic, ArchiveError, DamagedSegment, MissingObject, UnknownPartition
from .store import ReadOnlyStore

MAX_SEGMENTS: Final = 500_000
"""Of one partition: a petabyte in segments of 2 GiB."""

CACHED_MANIFESTS: Final = 50_000
READERS: Final = 16
"""Manifests that are read at the same time."""

REQUESTED_MANIFESTS: Final = 1024
"""Manifests that wait to be read, each as an object of Python."""


@frozen
class ArchivedTopic:
    name: str
    topic_id: bytes

    @property
    def directory(self) -> str:
        return topic_directory(self.name, self.topic_id)

    @property
    def id_text(self) -> str:
        return uuid_text(self.topic_id)


class Catalog:
    """Lists the store, and keeps manifests: once written, one never changes."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self._store = store
        self._manifests: OrderedDict[RemoteSegment, SegmentManifest | Tombstone] = OrderedDict()
        self._lock = Lock()

    def topics(self) -> list[ArchivedTopic]:
        return [topic for name in self._store.directories("") if (topic := _topic(name)) is not None]

    def topic(self, name: str, topic_id: bytes | str | None = None) -> ArchivedTopic:
        """The topic of that name; where several were created under it, one of them must be named by its id."""
        wanted = topic_id if topic_id is None or isinstance(topic_id, bytes) else _parsed(topic_id)
        named = [topic for topic in self.topics() if topic.name == name]
        found = [topic for topic in named if wanted is None or topic.topic_id == wanted]
        if not found:
            known = f", only {', '.join(topic.id_text for topic in named)}" if named else ""
            wanted_text = "" if wanted is None else f" with the id {uuid_text(wanted)}"
            raise UnknownPartition(f"{self._store.name} has no topic {name!r}{wanted_text}{known}")
        if len(found) > 1:  # of a deleted topic, cancelled uploads may be left
            found = [topic for topic in found if self._has_segments(topic)] or found
        if len(found) > 1:
            ids = ", ".join(topic.id_text for topic in found)
            raise AmbiguousTopic(f"{self._store.name} has {len(found)} topics {name!r}, with the ids {ids}: give one")
        return found[0]

    def _has_segments(self, topic: ArchivedTopic) -> bool:
        for partition in self.partitions(topic):
            with suppress(UnknownPartition):
                if self.manifests(topic, partition):
                    return True
        return False

    def partitions(self, topic: ArchivedTopic) -> list[int]:
        names = self._store.directories(topic.directory)
        found = (int(name) for name in names if name.isascii() and name.isdigit() and len(name) <= 10)
        return sorted(number for number in found if number <= MAX_PARTITION)

    def manifests(self, topic: ArchivedTopic, partition: int) -> list[SegmentManifest]:
        """All complete segments of a partition. Those of a cancelled upload are left out."""
        place = TopicIdPartition(topic.topic_id, topic.name, partition)
        segments = []
        for stored in self._store.objects(place.directory):
            try:
                segment, suffix = parse_key(stored.key)
            except ProtocolError:
                continue
            if suffix is ObjectSuffix.MANIFEST and segment.topic_id_partition == place:
                segments.append(segment)
                if len(segments) > MAX_SEGMENTS:
                    raise ArchiveError(f"{self._store.name}: {place} has more than {MAX_SEGMENTS} segments")
        if not segments:
            raise UnknownPartition(f"{self._store.name} has no segment of {topic.name}-{partition}")
        found = [each for each in self._read_all(segments) if isinstance(each, SegmentManifest)]
        return sorted(found, key=lambda each: (each.start_offset, each.end_offset, each.segment.segment_id))

    def _read_all(self, segments: Iterable[RemoteSegment]) -> Iterator[SegmentManifest | Tombstone]:
        missing = []
        for segment in segments:
            with self._lock:
                known = self._manifests.get(segment)
                if known is not None:
                    self._manifests.move_to_end(segment)
            if known is None:
                missing.append(segment)
            else:
                yield known
        if len(missing) == 1:
            found = self._read_if_there(missing[0])
            yield from () if found is None else (found,)
        elif missing:
            with ThreadPoolExecutor(min(READERS, len(missing)), thread_name_prefix="archive-manifest") as pool:
                for start in range(0, len(missing), REQUESTED_MANIFESTS):
                    part = pool.map(self._read_if_there, missing[start : start + REQUESTED_MANIFESTS])
                    yield from (found for found in part if found is not None)

    def _read_if_there(self, segment: RemoteSegment) -> SegmentManifest | Tombstone | None:
        """None if it was deleted since it was listed, by retention or by a rule of the store."""
        try:
            found = read_manifest(self._store, segment)
        except MissingObject:
            return None
        with self._lock:
            self._manifests[segment] = found
            if len(self._manifests) > CACHED_MANIFESTS:
                self._manifests.popitem(last=False)
        return found


def read_manifest(store: ReadOnlyStore, segment: RemoteSegment) -> SegmentManifest | Tombstone:
    """The manifest of a segment; it must name the segment whose key it has."""
    key = segment.key(ObjectSuffix.MANIFEST)
    try:
        manifest = decode_manifest(store.read(key, limit=MAX_MANIFEST_BYTES))
    except ProtocolError as error:
        raise DamagedSegment(f"{store.name}: {key}: {error}") from error
    if manifest.segment != segment:
        raise DamagedSegment(f"{store.name}: {key} is the manifest of another segment, {manifest.segment}")
    return manifest


def _topic(directory: str) -> ArchivedTopic | None:
    """None for the directories of the store that are not of topics, as `_trioka`."""
    try:
        name, topic_id = parse_topic_directory(directory)
    except ProtocolError:
        return None
    return ArchivedTopic(name=name, topic_id=topic_id)


def _parsed(topic_id: str) -> bytes:
    try:
        return parse_uuid(topic_id)
    except ProtocolError as error:
        raise ArchiveError(f"topic id: {error}") from error
