"""What is done to one segment in the object store, step by step: a copy, a cancelled copy, a deletion.

A job is a generator. It yields commands, is sent their results, and returns its `Outcome`; it does no I/O and knows no
time. A command that fails is thrown into it as `StoreFailed` or `RecordNotWritten`: the job ends there, and the image
of the remote log metadata (remote_log/metadata.py) decides what is done next, by this broker or by another leader.

    copy     STARTED ─▶ data, indexes ─▶ create manifest ─▶ FINISHED
    cancel   create a tombstone at the manifest's key ─▶ DELETE_STARTED ─▶ delete data, indexes ─▶ DELETE_FINISHED
                └ it exists already: the copy is complete, so it is adopted ─▶ FINISHED
    delete   DELETE_STARTED ─▶ delete manifest, indexes, data ─▶ DELETE_FINISHED

Three rules make every step safe against a leader that is deposed and goes on:

- A record counts only if its epoch is the latest (rule R). `WriteRecord` returns whether it did, after it was read
  back; objects are deleted only behind a DELETE_STARTED that counted.
- The manifest is created, never overwritten. A copy is complete when its manifest exists, and cannot become complete
  once there is a tombstone at that key.
- A tombstone is not deleted with its segment, or a late uploader could still create the manifest. The sweep removes it.
"""

from collections.abc import Generator
from enum import Enum
from typing import Final, TypeAlias

from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.protocol.schema import Entry

from .metadata import RemoteSegment, SegmentState, segment_record, update_record


class StoreFailed(Exception):
    """The object store did not carry out the request, or it is not known whether it did."""


class RecordNotWritten(Exception):
    """A record is not in `__remote_log_metadata`, or it is not known whether it is."""


class ManifestKey(Enum):
    """What is at the key of a manifest."""

    NOTHING = "nothing"
    MANIFEST = "manifest"
    TOMBSTONE = "tombstone"


class ObjectKind(Enum):
    """The objects of a segment, in the order in which they are deleted: never a manifest without its data."""

    MANIFEST = "manifest"
    INDEXES = "indexes"
    DATA = "data"


class Outcome(Enum):
    DONE = "done"
    ADOPTED = "adopted"  # the copy was complete
    FENCED = "fenced"  # a tombstone of a later leader, or a record that did not count


# Commands -------------------------------------------------------------------------------------------------------------


@frozen
class WriteRecord:
    """Appends to `__remote_log_metadata`. Result: whether the record counted, once it was replayed."""

    record: Entry
    epoch: int


@frozen
class PutSegment:
    """Uploads data and indexes of a local segment. They may exist already."""

    segment: RemoteSegment


@frozen
class CreateManifest:
    """Result: False if there is an object at its key."""

    segment: RemoteSegment


@frozen
class CreateTombstone:
    """Result: False if there is an object at the manifest's key."""

    segment: RemoteSegment


@frozen
class ReadManifestKey:
    """Result: a ManifestKey."""

    segment: RemoteSegment


@frozen
class DeleteObjects:
    """Deletes these objects of a segment, one after the other. Those that are missing are no failure."""

    segment: RemoteSegment
    kinds: tuple[ObjectKind, ...]


Command: TypeAlias = WriteRecord | PutSegment | CreateManifest | CreateTombstone | ReadManifestKey | DeleteObjects
Result: TypeAlias = bool | ManifestKey | None
Job: TypeAlias = Generator[Command, Result, Outcome]

WITHOUT_MANIFEST: Final = (ObjectKind.INDEXES, ObjectKind.DATA)
ALL_OBJECTS: Final = (ObjectKind.MANIFEST, *WITHOUT_MANIFEST)


@frozen
class Author:
    """The leader that runs a job: it writes the records in its leader epoch."""

    broker_id: int
    epoch: int
    now_ms: int

    def record_of(self, about: TopicIdPartition, segment: RemoteSegment, state: SegmentState) -> WriteRecord:
        if state is SegmentState.COPY_SEGMENT_STARTED:
            return WriteRecord(record=segment_record(about, segment), epoch=self.epoch)
        record = update_record(about, segment.segment_id, state, broker_id=self.broker_id, now_ms=self.now_ms)
        return WriteRecord(record=record, epoch=self.epoch)


# Jobs -----------------------------------------------------------------------------------------------------------------


def copy_segment(about: TopicIdPartition, segment: RemoteSegment, author: Author) -> Job:
    """Uploads a closed local segment. Visible to readers when its FINISHED record is replayed."""
    assert segment.state is SegmentState.COPY_SEGMENT_STARTED
    if not (yield author.record_of(about, segment, SegmentState.COPY_SEGMENT_STARTED)):
        return Outcome.FENCED
    yield PutSegment(segment=segment)
    if not (yield CreateManifest(segment=segment)):
        found = yield ReadManifestKey(segment=segment)
        if found is not ManifestKey.MANIFEST:
            return Outcome.FENCED
    if not (yield author.record_of(about, segment, SegmentState.COPY_SEGMENT_FINISHED)):
        return Outcome.FENCED
    return Outcome.DONE


def cancel_copy(about: TopicIdPartition, segment: RemoteSegment, author: Author) -> Job:
    """Ends a copy that was started, here or by an earlier leader, and is not continued: adopts it if it is complete,
    otherwise makes sure that it never will be, and deletes what it has uploaded."""
    if not (yield CreateTombstone(segment=segment)):
        found = yield ReadManifestKey(segment=segment)
        if found is ManifestKey.MANIFEST:
            adopted = yield author.record_of(about, segment, SegmentState.COPY_SEGMENT_FINISHED)
            return Outcome.ADOPTED if adopted else Outcome.FENCED
        if found is ManifestKey.NOTHING:
            raise StoreFailed(f"{about}: the tombstone of a segment is gone while its copy is being cancelled")
    if not (yield author.record_of(about, segment, SegmentState.DELETE_SEGMENT_STARTED)):
        return Outcome.FENCED
    yield DeleteObjects(segment=segment, kinds=WITHOUT_MANIFEST)
    yield author.record_of(about, segment, SegmentState.DELETE_SEGMENT_FINISHED)
    return Outcome.DONE


def delete_segment(about: TopicIdPartition, segment: RemoteSegment, author: Author) -> Job:
    """Deletes a segment that must not be read any more, or continues a deletion that had begun."""
    if not (yield author.record_of(about, segment, SegmentState.DELETE_SEGMENT_STARTED)):
        return Outcome.FENCED
    found = yield ReadManifestKey(segment=segment)
    kinds = WITHOUT_MANIFEST if found is ManifestKey.TOMBSTONE else ALL_OBJECTS
    yield DeleteObjects(segment=segment, kinds=kinds)
    yield author.record_of(about, segment, SegmentState.DELETE_SEGMENT_FINISHED)
    return Outcome.DONE
