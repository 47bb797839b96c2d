"""The `.rsm-manifest` object: JSON of Aiven's tiered-storage plugin, version 1, with a block of trioka's inside.

    {"version":"1",
     "chunkIndex":{"type":"fixed","originalChunkSize":4194304,"originalFileSize":…,"transformedChunkSize":4194304,
                   "finalTransformedChunkSize":…},
     "segmentIndexes":{"offset":{"position":0,"size":…},"timestamp":{…},"producerSnapshot":{…},"leaderEpoch":{…},
                       "transaction":{…} or null},
     "compression":false,
     "remoteLogSegmentMetadata":{
        "remoteLogSegmentId":{"topicIdPartition":{"topicId":…,"topicPartition":{"topic":…,"partition":…}},"id":…},
        "startOffset":…,"endOffset":…,"maxTimestampMs":…,"brokerId":…,"eventTimestampMs":…,
        "segmentLeaderEpochs":{"<epoch>":<start offset>, …},
        "trioka":{"format":1,"clusterId":…,"incarnation":…,"leaderEpoch":…,"segmentSizeInBytes":…,"crc32c":…,
                  "indexesCrc32c":…,"minTimestampMs":…,"records":…,"batches":…,"codecs":[…],"controlBatches":…,
                  "retentionUntilMs":… or null,"manifestCrc32c":"<8 hex digits>"}}}

The plugin refuses unknown fields everywhere but inside `remoteLogSegmentMetadata`, which it writes and never reads:
that is why the block is there. `manifestCrc32c` is the CRC-32C of the whole object with these eight digits as
zeros, so that a reader notices every damaged bit of the object by which the others are checked.

A leader that cancels another one's upload creates the same key as a *tombstone*: the upload then finds its key taken.
It has `"version":"tombstone"`, the segment's id, its start offset and the first four fields of the block, and no
objects belong to it.

The manifest of a segment that Kafka wrote with the plugin has no block, and is read if the segment was stored as it is.
What is compressed or encrypted by the plugin, of another version, or has a field that is not listed here is refused
(`UnsupportedManifest`); what contradicts itself is refused as well (`InvalidManifest`).
"""

import json
import re
from typing import Final, TypeAlias

from ..checksum import crc32c
from ..compression import Codec
from ..lazy_dataclass import frozen
from ..primitives import uuid_text
from .indexes import IndexRange, IndexRanges, InvalidIndexes, LeaderEpoch, check_leader_epochs
from .json_fields import Fields, InvalidManifest, UnsupportedManifest, parse_object
from .object_key import MAX_OFFSET, MAX_PARTITION, RemoteSegment, TopicIdPartition, parse_uuid

CHUNK_BYTES: Final = 4 * 1024 * 1024
MAX_MANIFEST_BYTES: Final = 1024 * 1024
MAX_SEGMENT_BYTES: Final = (1 << 31) - 1
FORMAT: Final = 1

_INT32: Final = (1 << 31) - 1
_UINT32: Final = (1 << 32) - 1
_ZERO_CRC: Final = "00000000"
_CRC: Final = re.compile(rb'"manifestCrc32c":"([0-9a-f]{8})"')
_EPOCH: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_INDEX_NAMES: Final = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")

JsonObject: TypeAlias = dict[str, object]


@frozen
class Uploader:
    """Which leader wrote a manifest or a tombstone. `incarnation` counts the clusters that owned the prefix."""

    cluster_id: str
    incarnation: int
    leader_epoch: int


@frozen
class SegmentContent:
    """What trioka says about the objects of a segment, so that readers choose and check without opening them."""

    crc32c: int  # of the .log object
    indexes_crc32c: int
    min_timestamp_ms: int  # no record is earlier; -1: not known. Not that of the batches: deltas may be negative
    records: int
    batches: int
    control_batches: int
    codecs: frozenset[Codec]
    retention_until_ms: int | None  # None: kept for ever, or as long as its size allows


@frozen
class SegmentManifest:
    segment: RemoteSegment
    end_offset: int  # of the last record
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    leader_epochs: tuple[LeaderEpoch, ...]  # of this segment; the whole chain is in the indexes
    size: int  # of the .log object
    indexes: IndexRanges
    uploader: Uploader | None = None  # None, as `content`: Kafka wrote the segment with Aiven's plugin
    content: SegmentContent | None = None

    @property
    def start_offset(self) -> int:
        return self.segment.start_offset

    @property
    def next_offset(self) -> int:
        return self.end_offset + 1

    @property
    def uploader_epoch(self) -> int:
        """The leader epoch in which the segment was written to the store; without trioka's block at least this."""
        return self.leader_epochs[-1].epoch if self.uploader is None else self.uploader.leader_epoch


@frozen
class Tombstone:
    """In the place of a manifest: the segment was cancelled, and must not come into being."""

    segment: RemoteSegment
    broker_id: int
    event_timestamp_ms: int
    uploader: Uploader  # who cancelled


# --- writing


def encode_manifest(manifest: SegmentManifest) -> bytes:
    _check(manifest)
    final_chunk = manifest.size - (manifest.size - 1) // CHUNK_BYTES * CHUNK_BYTES
    ranges = manifest.indexes
    places = (ranges.offset, ranges.timestamp, ranges.producer_snapshot, ranges.leader_epoch, ranges.transaction)
    metadata = {
        "remoteLogSegmentId": _segment_id(manifest.segment),
        "startOffset": manifest.start_offset,
        "endOffset": manifest.end_offset,
        "maxTimestampMs": manifest.max_timestamp_ms,
        "brokerId": manifest.broker_id,
        "eventTimestampMs": manifest.event_timestamp_ms,
        "segmentLeaderEpochs": {str(entry.epoch): entry.start_offset for entry in manifest.leader_epochs},
    }
    if manifest.uploader is not None and manifest.content is not None:
        metadata["trioka"] = _uploader(manifest.uploader) | _content(manifest.content, manifest.size)
    return _sealed(
        {
            "version": "1",
            "chunkIndex": {
                "type": "fixed",
                "originalChunkSize": CHUNK_BYTES,
                "originalFileSize": manifest.size,
                "transformedChunkSize": CHUNK_BYTES,
                "finalTransformedChunkSize": final_chunk,
            },
            "segmentIndexes": {
                name: None if place is None else {"position": place.position, "size": place.size}
                for name, place in zip(_INDEX_NAMES, places, strict=True)
            },
            "compression": False,
            "remoteLogSegmentMetadata": metadata,
        }
    )


def encode_tombstone(tombstone: Tombstone) -> bytes:
    metadata = {
        "remoteLogSegmentId": _segment_id(tombstone.segment),
        "startOffset": tombstone.segment.start_offset,
        "brokerId": tombstone.broker_id,
        "eventTimestampMs": tombstone.event_timestamp_ms,
        "trioka": _uploader(tombstone.uploader) | {"manifestCrc32c": _ZERO_CRC},
    }
    return _sealed({"version": "tombstone", "remoteLogSegmentMetadata": metadata})


def _segment_id(segment: RemoteSegment) -> JsonObject:
    place = segment.topic_id_partition
    return {
        "topicIdPartition": {
            "topicId": uuid_text(place.topic_id),
            "topicPartition": {"topic": place.topic, "partition": place.partition},
        },
        "id": uuid_text(segment.segment_id),
    }


def _uploader(uploader: Uploader) -> JsonObject:
    return {
        "format": FORMAT,
        "clusterId": uploader.cluster_id,
        "incarnation": uploader.incarnation,
        "leaderEpoch": uploader.leader_epoch,
    }


def _content(content: SegmentContent, size: int) -> JsonObject:
    return {
        "segmentSizeInBytes": size,
        "crc32c": content.crc32c,
        "indexesCrc32c": content.indexes_crc32c,
        "minTimestampMs": content.min_timestamp_ms,
        "records": content.records,
        "batches": content.batches,
        "codecs": [codec.name.lower() for codec in sorted(content.codecs)],
        "controlBatches": content.control_batches,
        "retentionUntilMs": content.retention_until_ms,
        "manifestCrc32c": _ZERO_CRC,
    }


def _sealed(document: JsonObject) -> bytes:
    """The JSON, with its own checksum if it has a place for one."""
    data = json.dumps(document, separators=(",", ":")).encode("ascii")
    if len(data) > MAX_MANIFEST_BYTES:
        raise InvalidManifest(f"a manifest of {len(data)} bytes; the limit is {MAX_MANIFEST_BYTES}")
    zero = f'"manifestCrc32c":"{_ZERO_CRC}"'.encode()
    return data.replace(zero, f'"manifestCrc32c":"{crc32c(data):08x}"'.encode())


# --- reading


def decode_manifest(data: bytes) -> SegmentManifest | Tombstone:
    """InvalidManifest if it is damaged, UnsupportedManifest for a segment that trioka does not read."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise InvalidManifest(f"{len(data)} bytes; the limit for a manifest is {MAX_MANIFEST_BYTES}")
    document = parse_object(data)
    version = document.text("version")
    if version == "tombstone":
        return _decode_tombstone(data, document)
    if version != "1":
        raise UnsupportedManifest(f"version {version!r}; this reader knows version '1'")
    _refuse_transformations(document)
    size = _decode_chunk_index(document.fields("chunkIndex"))
    indexes = _decode_indexes(document.fields("segmentIndexes"))
    metadata = document.fields("remoteLogSegmentMetadata")
    document.end()
    block = metadata.optional_fields("trioka")
    uploader = None if block is None else _decode_uploader(block)
    content = None if block is None else _decode_content(block, size)
    if block is not None:
        _check_crc(data, block)
    manifest = SegmentManifest(
        segment=_decode_segment(metadata),
        end_offset=metadata.integer("endOffset", 0, MAX_OFFSET),
        max_timestamp_ms=metadata.integer("maxTimestampMs", -1, MAX_OFFSET),
        broker_id=metadata.integer("brokerId", 0, _INT32),
        event_timestamp_ms=metadata.integer("eventTimestampMs", -1, MAX_OFFSET),
        leader_epochs=_decode_leader_epochs(metadata.fields("segmentLeaderEpochs")),
        size=size,
        indexes=indexes,
        uploader=uploader,
        content=content,
    )
    # Kafka 4 has one more property, which the plugin's JSON library finds by the name of its getter.
    metadata.optional_boolean("txnIdxEmpty")
    metadata.end()
    _check(manifest)
    return manifest


def _refuse_transformations(document: Fields) -> None:
    if document.has("encryption"):
        raise UnsupportedManifest("the segment is encrypted by Aiven's plugin, and this reader has no key for it")
    if document.boolean("compression"):
        raise UnsupportedManifest(
            "the segment is compressed by Aiven's plugin; only segments stored as they are are read"
        )


def _decode_chunk_index(chunks: Fields) -> int:
    """The size of the segment, whose chunks must be its own bytes."""
    kind = chunks.text("type")
    if kind != "fixed":
        raise UnsupportedManifest(
            f"chunks of type {kind!r}; only those of a segment stored as it is, 'fixed', are read"
        )
    chunk_size = chunks.integer("originalChunkSize", 1, _INT32)
    size = chunks.integer("originalFileSize", 1, MAX_SEGMENT_BYTES)
    transformed = chunks.integer("transformedChunkSize", 0, _INT32)
    final = chunks.integer("finalTransformedChunkSize", 0, _INT32)
    chunks.end()
    if transformed != chunk_size or final != size - (size - 1) // chunk_size * chunk_size:
        raise UnsupportedManifest(
            f"chunks of {chunk_size} bytes became {transformed} and {final}; only raw segments are read"
        )
    return size


def _decode_indexes(indexes: Fields) -> IndexRanges:
    places: list[IndexRange | None] = []
    for name in _INDEX_NAMES:
        place = indexes.nullable_fields(name)
        if place is None:
            places.append(None)
            continue
        places.append(IndexRange(place.integer("position", 0, _INT32), place.integer("size", 0, _INT32)))
        place.end()
    indexes.end()
    offset, timestamp, producer_snapshot, leader_epoch, transaction = places
    if offset is None or timestamp is None or producer_snapshot is None or leader_epoch is None:
        raise InvalidManifest("segmentIndexes: only `transaction` may be null")
    return IndexRanges(
        offset=offset,
        timestamp=timestamp,
        producer_snapshot=producer_snapshot,
        leader_epoch=leader_epoch,
        transaction=transaction,
    )


def _decode_segment(metadata: Fields) -> RemoteSegment:
    identifier = metadata.fields("remoteLogSegmentId")
    place = identifier.fields("topicIdPartition")
    partition = place.fields("topicPartition")
    segment = RemoteSegment(
        TopicIdPartition(
            parse_uuid(place.text("topicId")),
            partition.text("topic"),
            partition.integer("partition", 0, MAX_PARTITION),
        ),
        metadata.integer("startOffset", 0, MAX_OFFSET),
        parse_uuid(identifier.text("id")),
    )
    for fields in (partition, place, identifier):
        fields.end()
    return segment


def _decode_leader_epochs(epochs: Fields) -> tuple[LeaderEpoch, ...]:
    found = []
    for name in epochs.names():
        if _EPOCH.fullmatch(name) is None:
            raise InvalidManifest(f"segmentLeaderEpochs: {name[:80]!r} is not an epoch")
        found.append(LeaderEpoch(int(name), epochs.integer(name, 0, MAX_OFFSET)))
    return tuple(sorted(found))


def _decode_uploader(block: Fields) -> Uploader:
    version = block.integer("format", 0, _INT32)
    if version != FORMAT:
        raise UnsupportedManifest(f"format {version}; this reader knows format {FORMAT}: upgrade it")
    return Uploader(
        cluster_id=block.text("clusterId"),
        incarnation=block.integer("incarnation", 0, MAX_OFFSET),
        leader_epoch=block.integer("leaderEpoch", 0, _INT32),
    )


def _decode_content(block: Fields, size: int) -> SegmentContent:
    if block.integer("segmentSizeInBytes", 1, MAX_SEGMENT_BYTES) != size:
        raise InvalidManifest(f"trioka.segmentSizeInBytes is not the size of the segment, {size}")
    codecs = block.texts("codecs")
    names = {codec.name.lower(): codec for codec in Codec}
    if unknown := [name for name in codecs if name not in names]:
        raise UnsupportedManifest(f"batches are compressed with {unknown[0]!r}; this reader knows {', '.join(names)}")
    return SegmentContent(
        crc32c=block.integer("crc32c", 0, _UINT32),
        indexes_crc32c=block.integer("indexesCrc32c", 0, _UINT32),
        min_timestamp_ms=block.integer("minTimestampMs", -1, MAX_OFFSET),
        records=block.integer("records", 0, MAX_OFFSET),
        batches=block.integer("batches", 0, MAX_OFFSET),
        control_batches=block.integer("controlBatches", 0, MAX_OFFSET),
        codecs=frozenset(names[name] for name in codecs),
        retention_until_ms=block.nullable_integer("retentionUntilMs", 0, MAX_OFFSET),
    )


def _decode_tombstone(data: bytes, document: Fields) -> Tombstone:
    metadata = document.fields("remoteLogSegmentMetadata")
    document.end()
    block = metadata.fields("trioka")
    tombstone = Tombstone(
        segment=_decode_segment(metadata),
        broker_id=metadata.integer("brokerId", 0, _INT32),
        event_timestamp_ms=metadata.integer("eventTimestampMs", -1, MAX_OFFSET),
        uploader=_decode_uploader(block),
    )
    metadata.end()
    _check_crc(data, block)
    return tombstone


def _check_crc(data: bytes, block: Fields) -> None:
    expected = block.text("manifestCrc32c")
    block.end()
    places = _CRC.findall(data)
    if len(places) != 1:
        raise InvalidManifest("the manifest has no manifestCrc32c of eight digits, or several")
    zeroed = _CRC.sub(f'"manifestCrc32c":"{_ZERO_CRC}"'.encode(), data)
    if f"{crc32c(zeroed):08x}" != expected:
        raise InvalidManifest("the manifest fails its checksum: it was damaged or edited")


def _check(manifest: SegmentManifest) -> None:
    """What must hold in every manifest, written or read."""
    if not manifest.start_offset <= manifest.end_offset <= MAX_OFFSET:
        raise InvalidManifest(f"startOffset {manifest.start_offset} is above endOffset {manifest.end_offset}")
    if (manifest.uploader is None) != (manifest.content is None):
        raise InvalidManifest("a manifest has both an uploader and a description of its content, or neither")
    try:
        manifest.indexes.check()
        check_leader_epochs(manifest.leader_epochs)
    except InvalidIndexes as error:
        raise InvalidManifest(f"segmentIndexes or segmentLeaderEpochs: {error}") from error
    if not manifest.leader_epochs or manifest.leader_epochs[-1].start_offset > manifest.end_offset:
        raise InvalidManifest("segmentLeaderEpochs has no epoch, or one that begins behind the segment")
    if not 1 <= manifest.size <= MAX_SEGMENT_BYTES:
        raise InvalidManifest(f"a segment of {manifest.size} bytes")
    if manifest.uploader is not None and manifest.uploader.leader_epoch < manifest.leader_epochs[-1].epoch:
        raise InvalidManifest("the uploader's leader epoch is older than an epoch of the segment")
