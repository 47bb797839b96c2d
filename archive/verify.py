"""Checks every object of a partition against its manifest, and the segments against one another."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from trioka.protocol.batch import records
from trioka.protocol.checksum import crc32c
from trioka.protocol.errors import KafkaError, ProtocolError
from trioka.protocol.remote_segment.indexes import (
    decode_leader_epochs,
    decode_offset_index,
    decode_open_transactions,
    decode_time_index,
    decode_transactions,
)
from trioka.protocol.remote_segment.manifest import SegmentManifest, Tombstone
from trioka.protocol.remote_segment.object_key import ObjectSuffix, RemoteSegment, TopicIdPartition, parse_key

from .catalog import ArchivedTopic, read_manifest
from .errors import ArchiveError, DamagedSegment, MissingObject
from .partition import ArchivedPartition, read_indexes
from .segment_reader import Batch, SegmentReader
from .store import ReadOnlyStore

DAMAGED: Final = "damaged"
MISSING: Final = "missing"
UNFINISHED: Final = "unfinished"
SUPERSEDED: Final = "superseded"
FOREIGN: Final = "foreign"


class Finding(NamedTuple):
    """`status` is damaged or missing; or, which is no damage: unfinished (objects without a manifest, of an upload that
    runs or was given up), superseded (of a leader whose records were lost), foreign (not an object of a segment)."""

    object: str
    status: str
    what: str

    @property
    def is_problem(self) -> bool:
        return self.status in (DAMAGED, MISSING)


class Verified(NamedTuple):
    """One step of the work: the bytes that were read, and what was found."""

    bytes_read: int
    findings: Sequence[Finding]


def verify_partition(store: ReadOnlyStore, topic: ArchivedTopic, partition: int) -> Iterator[Verified]:
    """Reads each object of the partition once; one step for each segment, and one for the partition."""
    place = TopicIdPartition(topic.topic_id, topic.name, partition)
    sizes: dict[RemoteSegment, dict[ObjectSuffix, int]] = {}
    findings: list[Finding] = []
    for stored in store.objects(place.directory):
        try:
            segment, suffix = parse_key(stored.key)
        except ProtocolError as error:
            findings.append(Finding(stored.key, FOREIGN, str(error)))
            continue
        sizes.setdefault(segment, {})[suffix] = stored.size
    manifests: list[SegmentManifest] = []
    for segment in sorted(sizes):
        found = sizes[segment]
        if ObjectSuffix.MANIFEST not in found:
            what = f"{' and '.join(sorted(found))} without a manifest"
            findings.append(Finding(segment.key(next(iter(found))), UNFINISHED, what))
            continue
        try:
            manifest = read_manifest(store, segment)
        except ArchiveError as error:
            findings.append(_finding(segment.key(ObjectSuffix.MANIFEST), error))
            continue
        if isinstance(manifest, Tombstone):
            if len(found) > 1:
                key = segment.key(ObjectSuffix.MANIFEST)
                findings.append(Finding(key, UNFINISHED, "the upload was cancelled, and has objects"))
            continue
        manifests.append(manifest)
        yield Verified(manifest.size, [*findings, *_verify_segment(store, manifest, found)])
        findings = []
    yield Verified(0, [*findings, *_verify_lineage(store, topic, partition, manifests)])


def _verify_lineage(
    store: ReadOnlyStore, topic: ArchivedTopic, partition: int, manifests: Sequence[SegmentManifest]
) -> Iterator[Finding]:
    directory = TopicIdPartition(topic.topic_id, topic.name, partition).directory
    try:
        found = ArchivedPartition(store, topic.name, partition, manifests)
    except ArchiveError as error:
        yield _finding(directory, error)
        return
    for hole in found.holes:
        yield Finding(directory, MISSING, f"no segment has the offsets {hole.start_offset} to {hole.end_offset - 1}")
    used = {each.manifest.segment for each in found.slices}
    for manifest in manifests:
        if manifest.segment not in used:
            key = manifest.segment.key(ObjectSuffix.MANIFEST)
            yield Finding(key, SUPERSEDED, "other segments have its offsets")


def _verify_segment(
    store: ReadOnlyStore, manifest: SegmentManifest, sizes: dict[ObjectSuffix, int]
) -> Iterator[Finding]:
    for suffix, size in ((ObjectSuffix.LOG, manifest.size), (ObjectSuffix.INDEXES, manifest.indexes.size)):
        key = manifest.segment.key(suffix)
        if suffix not in sizes:
            yield Finding(key, MISSING, "the manifest is there, and this object is not")
        elif sizes[suffix] != size:
            yield Finding(key, DAMAGED, f"{sizes[suffix]} bytes, the manifest says {size}")
        elif suffix is ObjectSuffix.LOG:
            yield from _verify_log(store, manifest)
    if sizes.get(ObjectSuffix.INDEXES) == manifest.indexes.size:
        yield from _verify_indexes(store, manifest)


def _verify_log(store: ReadOnlyStore, manifest: SegmentManifest) -> Iterator[Finding]:
    key = manifest.segment.key(ObjectSuffix.LOG)
    crc = count = batches = control_batches = 0
    codecs, newest, oldest = set(), -1, None
    try:
        for batch in SegmentReader(store, manifest).batches(may_have_gaps=True):
            header = batch.header
            crc = crc32c(batch.data, crc)
            batches += 1
            control_batches += header.is_control
            count += header.record_count
            codecs.add(header.codec)
            newest = max(newest, header.max_timestamp)
            first = _oldest_record(key, batch)
            oldest = first if oldest is None or (first is not None and first < oldest) else oldest
    except ArchiveError as error:
        yield _finding(key, error)
        return
    if newest > manifest.max_timestamp_ms:
        yield Finding(key, DAMAGED, f"a record of {newest} ms is later than the manifest's maxTimestampMs")
    content = manifest.content
    if content is None:
        return
    if crc != content.crc32c:
        yield Finding(key, DAMAGED, "the object fails the checksum of its manifest")
    if oldest is not None and oldest < content.min_timestamp_ms:
        yield Finding(key, DAMAGED, f"a record of {oldest} ms is earlier than the manifest's minTimestampMs")
    for name, has, says in (
        ("records", count, content.records),
        ("batches", batches, content.batches),
        ("control batches", control_batches, content.control_batches),
    ):
        if has != says:
            yield Finding(key, DAMAGED, f"{has} {name}, the manifest says {says}")
    if codecs != content.codecs:
        names = ", ".join(codec.name.lower() for codec in sorted(codecs))
        yield Finding(key, DAMAGED, f"the batches are compressed with {names}, the manifest says otherwise")


def _oldest_record(key: str, batch: Batch) -> int | None:
    """The least timestamp of a batch's records, all of which are decoded."""
    try:
        return min((record.timestamp for record in records(batch.data, batch.header)), default=None)
    except (KafkaError, ProtocolError) as error:
        raise DamagedSegment(f"the batch at offset {batch.header.base_offset} cannot be decoded: {error}") from error


def _verify_indexes(store: ReadOnlyStore, manifest: SegmentManifest) -> Iterator[Finding]:
    key = manifest.segment.key(ObjectSuffix.INDEXES)
    try:
        indexes = read_indexes(store, manifest)
        for entry in decode_offset_index(indexes.offset, manifest.start_offset):
            if not entry.position < manifest.size or entry.offset > manifest.end_offset:
                raise DamagedSegment(f"the offset index has {entry}, beyond the segment")
        for moment in decode_time_index(indexes.timestamp, manifest.start_offset):
            if moment.timestamp > manifest.max_timestamp_ms or moment.offset > manifest.end_offset:
                raise DamagedSegment(f"the time index has {moment}, beyond the segment")
        for transaction in decode_transactions(indexes.transaction or b""):
            if not manifest.start_offset <= transaction.last_offset <= manifest.end_offset:
                raise DamagedSegment(f"the transaction index has {transaction}, outside of the segment")
        decode_open_transactions(indexes.producer_snapshot)
        chain = decode_leader_epochs(indexes.leader_epoch)
        own = [entry for entry in chain if entry.start_offset > manifest.start_offset]
        if own != list(manifest.leader_epochs[1:]):
            raise DamagedSegment("the leader epochs are not those of the manifest")
    except (ArchiveError, ProtocolError) as error:
        yield _finding(key, error)


def _finding(key: str, error: Exception) -> Finding:
    return Finding(key, MISSING if isinstance(error, MissingObject) else DAMAGED, str(error))
