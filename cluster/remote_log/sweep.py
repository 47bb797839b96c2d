"""The orphan sweep: which objects below a prefix belong to no segment of the remote log metadata.

The order makes it safe: **first** the store is listed, **then** the metadata is replayed to an end that was determined
after the listing. The record that starts a copy is older than its objects, so every listed object that belongs to a
segment is known by then.

An orphan is deleted when it is a day old. What happens depends on what is at the key of its manifest:

    nothing      data and indexes go: the copy was never completed, and no leader continues it
    a tombstone  data and indexes go; the tombstone itself after a week, when no uploader can be alive any more
    a manifest   with data: nothing goes. The segment is complete and its records are lost, so it is reported: the
                 metadata topic was damaged or deleted, and `trioka tier restore` can read the segment
                 without data: it goes
"""

from collections.abc import Container, Iterable, Iterator
from typing import Final

from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.remote_segment.object_key import ObjectSuffix, RemoteSegment

from .jobs import ManifestKey

DAY_MS: Final = 24 * 60 * 60 * 1000
ORPHAN_AGE_MS: Final = DAY_MS
TOMBSTONE_AGE_MS: Final = 7 * DAY_MS


@frozen
class ListedObject:
    segment: RemoteSegment
    suffix: ObjectSuffix
    size: int
    last_modified_ms: int


@frozen
class Orphan:
    """The objects of one segment that no record knows."""

    segment: RemoteSegment
    objects: tuple[ListedObject, ...]

    @property
    def suffixes(self) -> frozenset[ObjectSuffix]:
        return frozenset(each.suffix for each in self.objects)

    @property
    def last_modified_ms(self) -> int:
        return max(each.last_modified_ms for each in self.objects)

    @property
    def size(self) -> int:
        return sum(each.size for each in self.objects)


def orphans(listed: Iterable[ListedObject], known: Container[bytes], now_ms: int) -> Iterator[Orphan]:
    """The segments without a record whose newest object is older than a day. `known` has the ids of all segments, as
    replayed behind the listing."""
    by_segment: dict[RemoteSegment, list[ListedObject]] = {}
    for each in listed:
        if each.segment.segment_id not in known:
            by_segment.setdefault(each.segment, []).append(each)
    for segment, objects in by_segment.items():
        orphan = Orphan(segment=segment, objects=tuple(objects))
        if now_ms - orphan.last_modified_ms > ORPHAN_AGE_MS:
            yield orphan


def is_complete(orphan: Orphan, manifest: ManifestKey) -> bool:
    """Whether the orphan is a readable segment, which is reported and kept."""
    return manifest is ManifestKey.MANIFEST and ObjectSuffix.LOG in orphan.suffixes


def garbage(orphan: Orphan, manifest: ManifestKey, now_ms: int) -> tuple[ObjectSuffix, ...]:
    """What of an orphan is deleted, in this order. `manifest` is what was read at the key of its manifest."""
    if is_complete(orphan, manifest):
        return ()
    goes = set(orphan.suffixes)
    if manifest is ManifestKey.TOMBSTONE and now_ms - orphan.last_modified_ms <= TOMBSTONE_AGE_MS:
        goes.discard(ObjectSuffix.MANIFEST)
    return tuple(s for s in (ObjectSuffix.MANIFEST, ObjectSuffix.INDEXES, ObjectSuffix.LOG) if s in goes)
