"""A snapshot of what was replayed of one partition of `__remote_log_metadata`, so that a start need not read it all.

    magic          8 bytes   "trioka\\0s"
    version        int32     1
    topic id      16 bytes   of `__remote_log_metadata`: a topic that was created again has another one
    partition      int32
    next offset    int64     the first record that is not in the snapshot
    count          int32     of the partitions that follow; for each
        name, topic id, partition, highest epoch, had segments, delete state, number of segments; for each
            uploader's epoch, and Kafka's RemoteLogSegmentMetadataSnapshotRecord, framed as in the topic
    crc32c         4 bytes   of everything before it

A snapshot replaces the records before its offset, so it has all that the image has, the highest epochs included:
without them a record of a deposed leader would count again. What does not decode is no snapshot, and everything is
replayed.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from trioka.protocol.checksum import crc32c
from trioka.protocol.errors import ProtocolError
from trioka.protocol.internal_records.remote_log import RemoteLogSegmentMetadataSnapshotRecord
from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.storage.files.checkpoint import EpochEntry

from .codec import decode_record, encode_record
from .metadata import PartitionDeleteState, RemotePartition, RemoteSegment, SegmentState

MAX_SNAPSHOT_BYTES: Final = 1 << 30  # about a million segments take 200 MB

_MAGIC: Final = b"trioka\0s"
_VERSION: Final = 1
_CRC: Final = Struct(">I")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_NO_STATE: Final = -1
_ID_BYTES: Final = 16


class PartitionState(NamedTuple):
    """A partition of the image, taken out of it at one moment."""

    about: TopicIdPartition
    max_epoch: int
    had_segments: bool
    delete_state: PartitionDeleteState | None
    segments: tuple[RemoteSegment, ...]


class MetadataSnapshot(NamedTuple):
    topic_id: bytes
    partition: int
    next_offset: int
    partitions: tuple[PartitionState, ...]


def state_of(partition: RemotePartition) -> PartitionState:
    return PartitionState(
        partition.id,
        partition.max_epoch,
        partition.had_segments,
        partition.delete_state,
        tuple(partition.segments.values()),
    )


def restored(state: PartitionState) -> RemotePartition:
    partition = RemotePartition(state.about)
    partition.max_epoch = state.max_epoch
    partition.had_segments = state.had_segments
    partition.delete_state = state.delete_state
    partition.segments = {segment.segment_id: segment for segment in state.segments}
    return partition


# Writing --------------------------------------------------------------------------------------------------------------


def encode_snapshot(snapshot: MetadataSnapshot) -> bytes:
    pieces = [
        _MAGIC,
        _INT32.pack(_VERSION),
        snapshot.topic_id,
        _INT32.pack(snapshot.partition),
        _INT64.pack(snapshot.next_offset),
        _INT32.pack(len(snapshot.partitions)),
    ]
    for state in snapshot.partitions:
        pieces += _partition(state)
    data = b"".join(pieces)
    return data + _CRC.pack(crc32c(data))


def _partition(state: PartitionState) -> Iterable[bytes]:
    yield _sized(state.about.topic.encode())
    yield state.about.topic_id
    yield _INT32.pack(state.about.partition)
    yield _INT32.pack(state.max_epoch)
    yield _INT32.pack(state.had_segments)
    yield _INT32.pack(_NO_STATE if state.delete_state is None else state.delete_state)
    yield _INT32.pack(len(state.segments))
    for segment in state.segments:
        yield _INT32.pack(segment.uploader_epoch)
        yield _sized(encode_record(_record(segment)))


def _sized(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


def _record(segment: RemoteSegment) -> RemoteLogSegmentMetadataSnapshotRecord:
    declared = RemoteLogSegmentMetadataSnapshotRecord
    return declared(
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=[
            declared.SegmentLeaderEpoch(leader_epoch=entry.epoch, offset=entry.start_offset)
            for entry in segment.leader_epochs
        ],
        segment_size_in_bytes=segment.size_bytes,
        custom_metadata=segment.custom_metadata,
        remote_log_segment_state=int(segment.state),
        txn_index_empty=segment.txn_index_empty,
    )


# Reading --------------------------------------------------------------------------------------------------------------


def decode_snapshot(data: bytes) -> MetadataSnapshot:
    """Raises ProtocolError."""
    if len(data) < len(_MAGIC) + _CRC.size or not data.startswith(_MAGIC):
        raise ProtocolError("it is no snapshot of remote log metadata")
    content = data[: -_CRC.size]
    if _CRC.unpack(data[-_CRC.size :])[0] != crc32c(content):
        raise ProtocolError("its checksum is wrong")
    reader = _Reader(content, len(_MAGIC))
    try:
        if (version := reader.number()) != _VERSION:
            raise ProtocolError(f"its version is {version}, not {_VERSION}")
        topic_id, partition, next_offset = reader.take(_ID_BYTES), reader.number(), reader.number(_INT64)
        states = tuple(_read_partition(reader) for _ in range(reader.count()))
    except (IndexError, ValueError) as error:
        raise ProtocolError(f"it does not decode: {error}") from None
    if reader.position != len(content):
        raise ProtocolError(f"{len(content) - reader.position} bytes are left over")
    return MetadataSnapshot(topic_id, partition, next_offset, states)


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self._data = memoryview(data)
        self.position = position

    def number(self, form: Struct = _INT32) -> int:
        return int(form.unpack(self.take(form.size))[0])

    def count(self) -> int:
        if (number := self.number()) < 0:
            raise ValueError(f"{number} is no number of entries")
        return number

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise IndexError("it ends too early")
        taken = bytes(self._data[self.position : end])
        self.position = end
        return taken

    def sized(self) -> bytes:
        return self.take(self.number())


def _read_partition(reader: _Reader) -> PartitionState:
    topic = reader.sized().decode()
    about = TopicIdPartition(reader.take(_ID_BYTES), topic, reader.number())
    max_epoch, had_segments, delete_state = reader.number(), bool(reader.number()), reader.number()
    segments = tuple(_read_segment(reader) for _ in range(reader.count()))
    deleted = None if delete_state == _NO_STATE else PartitionDeleteState(delete_state)
    return PartitionState(about, max_epoch, had_segments, deleted, segments)


def _read_segment(reader: _Reader) -> RemoteSegment:
    uploader_epoch = reader.number()
    record = decode_record(reader.sized())
    if not isinstance(record, RemoteLogSegmentMetadataSnapshotRecord):
        raise ValueError("another record stands in place of a segment")
    return RemoteSegment(
        segment_id=record.segment_id,
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        leader_epochs=tuple(EpochEntry(each.leader_epoch, each.offset) for each in record.segment_leader_epochs),
        size_bytes=record.segment_size_in_bytes,
        state=SegmentState(record.remote_log_segment_state),
        uploader_epoch=uploader_epoch,
        txn_index_empty=record.txn_index_empty,
        custom_metadata=record.custom_metadata,
    )
