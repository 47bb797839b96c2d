"""The remote log metadata: which segments of which partitions are in the object store. The image of the topic
`__remote_log_metadata`, which changes only by replay.

What readers ask for:

    image.partition(topic_id, index)               a RemotePartition, or None: nothing is known about it
    partition.segment_at(lineage, offset)          the segment that serves an offset, None if no segment has it
    partition.segment_after(lineage, offset)       the next segment behind a hole, None if there is none
    partition.highest_offset(lineage)              the last offset in the object store, -1 if there is none
    partition.covered_until(lineage, offset)       from `offset` on there is no hole up to here (exclusive)
    partition.finished                             all readable segments, ascending by start offset
    lineage_of(log)                                the leader epochs of a log: which segments are its history

**States** of a segment are Kafka's (RemoteLogSegmentState); a record that is not a transition of the table is ignored:

    COPY_SEGMENT_STARTED → COPY_SEGMENT_FINISHED → DELETE_SEGMENT_STARTED → DELETE_SEGMENT_FINISHED
              └────────────────────────────────────────────┘

**Rule R.** The author of a record writes the leader epoch in which it leads the partition into a record header. A
record whose epoch is lower than one that was already seen for its partition is ignored: its author did not lead any
more. A new leader therefore begins with a record of its epoch (`epoch_record`). Records without the header, as Kafka
writes them, count until the first record with one.

**Usable prefix.** After an unclean election a segment may begin in the history of the new leader and end outside it. It
is good for the offsets up to which its leader epochs are those of the log; `Lineage.usable_end` says how far.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from trioka.protocol.internal_records.remote_log import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.remote_segment.object_key import TopicIdPartition
from trioka.protocol.schema import Entry
from trioka.storage.files.checkpoint import EpochEntry

NO_EPOCH: Final = -1  # of a record without the header
DELETED_EPOCH: Final = (
    2**31 - 1
)  # of records about a deleted topic: nothing that a former leader writes counts any more


class SegmentState(IntEnum):
    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(IntEnum):
    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


NEXT_STATES: Final = {
    SegmentState.COPY_SEGMENT_STARTED: {
        SegmentState.COPY_SEGMENT_STARTED,
        SegmentState.COPY_SEGMENT_FINISHED,
        SegmentState.DELETE_SEGMENT_STARTED,
    },
    SegmentState.COPY_SEGMENT_FINISHED: {SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED},
    SegmentState.DELETE_SEGMENT_STARTED: {SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED},
}


@frozen
class RemoteSegment:
    """A segment as its records describe it. Both offsets are inclusive, as in Kafka's record."""

    segment_id: bytes
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int  # when its last record was written
    leader_epochs: tuple[EpochEntry, ...]  # of its range
    size_bytes: int
    state: SegmentState
    uploader_epoch: int  # the leader epoch in which its copy was started
    txn_index_empty: bool = False
    custom_metadata: bytes | None = None

    @property
    def is_finished(self) -> bool:
        return self.state is SegmentState.COPY_SEGMENT_FINISHED

    @property
    def next_offset(self) -> int:
        return self.end_offset + 1


class Lineage(NamedTuple):
    """The leader epochs of a log from its start on, and its end: the history that its segments must agree with."""

    epochs: tuple[EpochEntry, ...]
    log_end_offset: int

    def usable_end(self, segment: RemoteSegment) -> int:
        """Up to which offset (exclusive) the segment is of this history; its start offset if it is not at all."""
        at = segment.start_offset
        for number, (epoch, start) in enumerate(segment.leader_epochs):
            last = number + 1 == len(segment.leader_epochs)
            end = segment.next_offset if last else segment.leader_epochs[number + 1].start_offset
            if self.epochs and epoch < self.epochs[0].epoch and end <= self.epochs[0].start_offset:
                at = end  # it ends before the log's start, and the log does not know it any more
                continue
            first, until = self._range_of(epoch)
            if first > max(start, at) or until <= at:
                break
            at = max(at, min(end, until))
            if at < end:
                break
        return at

    def _range_of(self, epoch: int) -> tuple[int, int]:
        """Start (inclusive) and end (exclusive) of an epoch here; an empty range if it wrote nothing."""
        at = bisect_right(self.epochs, epoch, key=lambda entry: entry.epoch) - 1
        if at < 0 or self.epochs[at].epoch != epoch:
            return 0, 0
        # The first entry starts where the log was cut, and may be the rest of an epoch that began earlier.
        start = 0 if at == 0 else self.epochs[at].start_offset
        end = self.log_end_offset if at + 1 == len(self.epochs) else self.epochs[at + 1].start_offset
        return start, end


class _HasEpochs(Protocol):
    @property
    def entries(self) -> list[EpochEntry]: ...


class _Log(Protocol):
    @property
    def epochs(self) -> _HasEpochs: ...
    @property
    def log_end_offset(self) -> int: ...


def lineage_of(log: _Log) -> Lineage:
    return Lineage(tuple(log.epochs.entries), log.log_end_offset)


class RemotePartition:
    """What the object store has of one partition."""

    __slots__ = ("_ends", "_finished", "_starts", "delete_state", "had_segments", "id", "max_epoch", "segments")

    def __init__(self, topic_id_partition: TopicIdPartition) -> None:
        self.id = topic_id_partition
        self.segments: dict[bytes, RemoteSegment] = {}  # by segment id; deleted segments are removed
        self.had_segments = False  # whether a record has ever named one; the log of records never forgets
        self.max_epoch = NO_EPOCH
        self.delete_state: PartitionDeleteState | None = None
        self._finished: list[RemoteSegment] | None = None
        self._starts: list[int] = []
        self._ends: list[int] = []  # of each, the largest end offset (exclusive) of it and those before it

    # Lookups ---------------------------------------------------------------------------------------------------------

    @property
    def finished(self) -> Sequence[RemoteSegment]:
        if self._finished is None:
            ordered = sorted(
                (segment for segment in self.segments.values() if segment.is_finished),
                key=lambda segment: (segment.start_offset, segment.end_offset, segment.segment_id),
            )
            end, self._ends = 0, []
            for segment in ordered:
                end = max(end, segment.next_offset)
                self._ends.append(end)
            self._starts = [segment.start_offset for segment in ordered]
            self._finished = ordered
        return self._finished

    def segment_at(self, lineage: Lineage, offset: int, *, without: bytes | None = None) -> RemoteSegment | None:
        """The finished segment of this history that has the offset; of several, the one that begins last. `without`
        leaves one out."""
        finished = self.finished
        number = bisect_right(self._starts, offset) - 1
        while number >= 0 and self._ends[number] > offset:
            segment = finished[number]
            if segment.segment_id != without and lineage.usable_end(segment) > offset:
                return segment
            number -= 1
        return None

    def segment_after(self, lineage: Lineage, offset: int) -> RemoteSegment | None:
        """The first finished segment of this history that begins behind the offset."""
        finished = self.finished
        for segment in finished[bisect_right(self._starts, offset) :]:
            if lineage.usable_end(segment) > segment.start_offset:
                return segment
        return None

    def covered_until(self, lineage: Lineage, offset: int, *, without: bytes | None = None) -> int:
        """From `offset` on, every offset before the returned one is in a finished segment of this history."""
        while (segment := self.segment_at(lineage, offset, without=without)) is not None:
            offset = lineage.usable_end(segment)
        return offset

    def highest_offset(self, lineage: Lineage) -> int:
        """The last offset of this history in a finished segment; -1 if there is none."""
        finished, end = self.finished, 0
        for number in range(len(finished) - 1, -1, -1):
            if self._ends[number] <= end:
                break
            usable_end = lineage.usable_end(finished[number])
            if usable_end > finished[number].start_offset:
                end = max(end, usable_end)
        return end - 1

    def size_bytes(self, lineage: Lineage) -> int:
        """Of the finished segments of this history."""
        return sum(s.size_bytes for s in self.finished if lineage.usable_end(s) > s.start_offset)

    # Replay ----------------------------------------------------------------------------------------------------------

    def accepts(self, epoch: int) -> bool:
        """Whether a record of this epoch counts (rule R)."""
        return epoch >= self.max_epoch

    def replay(self, record: Entry, epoch: int) -> bool:
        """True if the record counted. A record that did not has changed nothing."""
        if not self.accepts(epoch):
            return False
        self.max_epoch = epoch
        if isinstance(record, RemoteLogSegmentMetadataRecord):
            return self._replay_segment(record, epoch)
        if isinstance(record, RemoteLogSegmentMetadataUpdateRecord):
            return self._replay_update(record)
        assert isinstance(record, RemotePartitionDeleteMetadataRecord)
        return self._replay_deletion(record)

    def _replay_segment(self, record: RemoteLogSegmentMetadataRecord, epoch: int) -> bool:
        if _state_of(record.remote_log_segment_state) is not SegmentState.COPY_SEGMENT_STARTED:
            return False
        segment = read_segment(record, epoch)
        before = self.segments.get(segment.segment_id)
        if before is not None and before.state is not segment.state:
            return False
        self.segments[segment.segment_id] = segment
        self.had_segments = True
        return True

    def _replay_update(self, record: RemoteLogSegmentMetadataUpdateRecord) -> bool:
        segment_id = record.remote_log_segment_id.id
        if segment_id == NO_SEGMENT:
            return True  # it carries only the epoch
        segment, state = self.segments.get(segment_id), _state_of(record.remote_log_segment_state)
        if segment is None or state is None or state not in NEXT_STATES[segment.state]:
            return False
        self._finished = None
        if state is SegmentState.DELETE_SEGMENT_FINISHED:
            del self.segments[segment_id]
            return True
        self.segments[segment_id] = RemoteSegment(
            segment_id=segment_id,
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            broker_id=record.broker_id,
            max_timestamp_ms=segment.max_timestamp_ms,
            event_timestamp_ms=record.event_timestamp_ms,
            leader_epochs=segment.leader_epochs,
            size_bytes=segment.size_bytes,
            state=state,
            uploader_epoch=segment.uploader_epoch,
            txn_index_empty=segment.txn_index_empty,
            custom_metadata=segment.custom_metadata if record.custom_metadata is None else record.custom_metadata,
        )
        return True

    def _replay_deletion(self, record: RemotePartitionDeleteMetadataRecord) -> bool:
        try:
            state = PartitionDeleteState(record.remote_partition_delete_state)
        except ValueError:
            return False
        if self.delete_state is not None and state not in (self.delete_state, self.delete_state + 1):
            return False
        if self.delete_state is None and state is not PartitionDeleteState.DELETE_PARTITION_MARKED:
            return False
        self.delete_state = state
        return True


class RemoteLogMetadata:
    """The image: all partitions of which this broker has replayed a record."""

    __slots__ = ("_partitions",)

    def __init__(self) -> None:
        self._partitions: dict[tuple[bytes, int], RemotePartition] = {}

    def __iter__(self) -> Iterator[RemotePartition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def partition(self, topic_id: bytes, index: int) -> RemotePartition | None:
        return self._partitions.get((topic_id, index))

    def put(self, partition: RemotePartition) -> None:
        """From a snapshot (remote_log/snapshot.py), in place of the records before it."""
        self._partitions[partition.id.topic_id, partition.id.partition] = partition

    def forget(self, topic_id: bytes, index: int) -> None:
        """The records of this partition are not replayed here any more."""
        self._partitions.pop((topic_id, index), None)

    def replay(self, record: Entry, epoch: int) -> bool:
        """True if the record counted."""
        about = subject_of(record)
        if about is None:
            return False
        partition = self._partitions.get((about.topic_id, about.partition))
        if partition is None:
            partition = self._partitions[about.topic_id, about.partition] = RemotePartition(about)
        counted = partition.replay(record, epoch)
        if partition.delete_state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
            del self._partitions[about.topic_id, about.partition]
        return counted


# Records --------------------------------------------------------------------------------------------------------------

NO_SEGMENT: Final = bytes(16)


def subject_of(record: Entry) -> TopicIdPartition | None:
    """The partition that a record is about; None for a record of a snapshot, which names no partition."""
    if isinstance(record, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord):
        named = record.remote_log_segment_id.topic_id_partition
        return TopicIdPartition(named.id, named.name, named.partition)
    if isinstance(record, RemotePartitionDeleteMetadataRecord):
        deleted = record.topic_id_partition
        return TopicIdPartition(deleted.id, deleted.name, deleted.partition)
    return None


def read_segment(record: RemoteLogSegmentMetadataRecord, epoch: int) -> RemoteSegment:
    return RemoteSegment(
        segment_id=record.remote_log_segment_id.id,
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        leader_epochs=tuple(
            EpochEntry(entry.leader_epoch, entry.offset)
            for entry in sorted(record.segment_leader_epochs, key=lambda entry: entry.leader_epoch)
        ),
        size_bytes=record.segment_size_in_bytes,
        state=SegmentState(record.remote_log_segment_state),
        uploader_epoch=epoch,
        txn_index_empty=record.txn_index_empty,
        custom_metadata=record.custom_metadata,
    )


def segment_record(about: TopicIdPartition, segment: RemoteSegment) -> RemoteLogSegmentMetadataRecord:
    declared = RemoteLogSegmentMetadataRecord
    return declared(
        remote_log_segment_id=declared.RemoteLogSegmentId(
            topic_id_partition=declared.RemoteLogSegmentId.TopicIdPartition(
                name=about.topic, id=about.topic_id, partition=about.partition
            ),
            id=segment.segment_id,
        ),
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


def update_record(
    about: TopicIdPartition, segment_id: bytes, state: SegmentState, *, broker_id: int, now_ms: int
) -> RemoteLogSegmentMetadataUpdateRecord:
    declared = RemoteLogSegmentMetadataUpdateRecord
    return declared(
        remote_log_segment_id=declared.RemoteLogSegmentId(
            topic_id_partition=declared.RemoteLogSegmentId.TopicIdPartition(
                name=about.topic, id=about.topic_id, partition=about.partition
            ),
            id=segment_id,
        ),
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        custom_metadata=None,
        remote_log_segment_state=int(state),
    )


def epoch_record(about: TopicIdPartition, *, broker_id: int, now_ms: int) -> RemoteLogSegmentMetadataUpdateRecord:
    """Changes no segment. Its header makes the epoch of a new leader known, so that nothing that an earlier leader
    writes behind it counts. Kafka ignores an update of an unknown segment."""
    state = SegmentState.DELETE_SEGMENT_FINISHED
    return update_record(about, NO_SEGMENT, state, broker_id=broker_id, now_ms=now_ms)


def partition_delete_record(
    about: TopicIdPartition, state: PartitionDeleteState, *, broker_id: int, now_ms: int
) -> RemotePartitionDeleteMetadataRecord:
    declared = RemotePartitionDeleteMetadataRecord
    return declared(
        topic_id_partition=declared.TopicIdPartition(name=about.topic, id=about.topic_id, partition=about.partition),
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        remote_partition_delete_state=int(state),
    )


def _state_of(value: int) -> SegmentState | None:
    try:
        return SegmentState(value)
    except ValueError:
        return None
