"""Every name and every format on disk: the contract with Apache Kafka 4.3, whose files these are, to the byte.

A log directory (one entry of `log.dirs`):

    meta.properties                        the owner of this directory                     text, java.util.Properties
    .lock                                  held by the process that has the directory open, empty
    .kafka_cleanshutdown                   there only while the node is stopped cleanly    JSON
    bootstrap.checkpoint                   first metadata records, written by the format tool; a log of batches
    recovery-point-offset-checkpoint       below this offset everything is synced          text, offsets
    log-start-offset-checkpoint            the first offset that may still be read         text, offsets
    trioka-local-log-start-checkpoint      the first offset on this disk, of tiered logs   text, offsets
    replication-offset-checkpoint          the high watermark                              text, offsets
    cleaner-offset-checkpoint              below this offset the log is compacted          text, offsets
    orders-0/                              a partition
    orders-0.<32 hex digits>-delete/       a partition on its way out: renamed at once, removed a minute later
    orders-0.<32 hex digits>-future/       a copy that will replace the partition in another directory
    orders-0.<32 hex digits>-stray/        a partition that the metadata no longer gives to this node
    __cluster_metadata-0/                  the metadata quorum's log, with two more kinds of file (below)

A partition's directory; twenty digits name the base offset, the offset of a segment's first record:

    partition.metadata                     the topic's id                                  text
    leader-epoch-checkpoint                (epoch, first offset of that epoch)             text
    00000000000000000000.log               record batches, one after another               protocol/batch.py
    00000000000000000000.index             offset → position                               8 bytes an entry
    00000000000000000000.timeindex         timestamp → offset                              12 bytes an entry
    00000000000000000000.txnindex          aborted transactions; absent while there are none   34 bytes an entry
    00000000000000000042.snapshot          the producers as they stood *before* offset 42  binary
    ….log.deleted  ….index.deleted         out of the log already, removed after file.delete.delay.ms
    ….log.cleaned                          a compaction's output while it grows: worthless after a crash
    ….log.swap                             a compaction's output, whole and synced: finished after a crash
    quorum-state                           (metadata log only) epoch and vote              JSON
    00000000000000000042-0000000003.checkpoint   (metadata log only) snapshot before offset 42, last epoch 3
    ….checkpoint.part  ….checkpoint.deleted      the same while it grows, and on its way out

The small formats. Integers are big-endian.

    .index       | relative offset int32 | position int32 |                 offsets relative to the base offset
    .timeindex   | timestamp int64 | relative offset int32 |
    .txnindex    | version int16 = 0 | producer id int64 | first offset int64 | last offset int64 |
                 | last stable offset int64 |
    .snapshot    | version int16 = 1 | crc32c uint32 | count int32 | count × entry |        crc over all that follows it
       entry     | producer id int64 | epoch int16 | last sequence int32 | last offset int64 | offset delta int32 |
                 | timestamp int64 | coordinator epoch int32 | first offset of the open transaction int64, or -1 |
                 and then, which Kafka does not read, the earlier batches of each producer (producer_snapshot.py)

    offsets      0\\n                           version
                 2\\n                           number of entries
                 a.b-c 12 0\\n                  topic, partition, offset
                 orders 0 17\\n
    epochs       0\\n 2\\n 0 0\\n 3 17\\n         the same, with entries of epoch and start offset
    partition    version: 0\\n                  and no line end after the second line
                 topic_id: Yh0YwpEqQ3-BZ1eQrVf9_A
    marker       {"version":0,"brokerEpoch":42}
    quorum       {"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",
                  "data_version":1}      on one line
"""

import re
from enum import StrEnum
from typing import Final, NamedTuple

META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
BOOTSTRAP: Final = "bootstrap.checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
LOCAL_LOG_STARTS: Final = "trioka-local-log-start-checkpoint"  # Kafka ignores files that it does not know
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
QUORUM_STATE: Final = "quorum-state"

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"

OFFSET_DIGITS: Final = 20
EPOCH_DIGITS: Final = 10
UNIQUE_DIGITS: Final = 32  # a UUID in hex, without dashes
MAX_OFFSET: Final = 2**63 - 1
MAX_NAME_BYTES: Final = 255  # of a directory entry, on every file system that matters


class CorruptFile(Exception):
    """A file does not have its declared format: torn, foreign, or of an unknown version."""

    def __init__(self, path: str, reason: str, *, line: int | None = None) -> None:
        self.path = path
        self.reason = reason
        self.line = line
        super().__init__(f"{path}: {reason}" if line is None else f"{path}, line {line}: {reason}")


class TopicPartition(NamedTuple):
    """A partition by name. A tuple, because it is a key in every table of every package."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# Segments ----------------------------------------------------------------------------------------------------------


class Kind(StrEnum):
    """What a file of a segment holds; the value is its extension."""

    LOG = ".log"
    INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class Suffix(StrEnum):
    """The state of a segment's file; the value is appended to its name."""

    NONE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"


class SegmentFile(NamedTuple):
    base_offset: int
    kind: Kind
    suffix: Suffix


SEGMENT_KINDS: Final = (Kind.LOG, Kind.INDEX, Kind.TIME_INDEX, Kind.TXN_INDEX)
# The files that are renamed and replaced together; a snapshot belongs to an offset, not to a segment.

_SEGMENT_FILE: Final = re.compile(
    rf"([0-9]{{{OFFSET_DIGITS}}})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?"
)


def offset_name(offset: int) -> str:
    assert 0 <= offset <= MAX_OFFSET, offset
    return f"{offset:0{OFFSET_DIGITS}d}"


def segment_file(base_offset: int, kind: Kind, suffix: Suffix = Suffix.NONE) -> str:
    return f"{offset_name(base_offset)}{kind.value}{suffix.value}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """None for any other file. (Suffixes are compared as a whole, so a `.txnindex` is no `.index`.)"""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None:
        return None
    offset, kind, suffix = match.groups()
    base_offset = int(offset)
    return SegmentFile(base_offset, Kind(kind), Suffix(suffix or "")) if base_offset <= MAX_OFFSET else None


# Partitions --------------------------------------------------------------------------------------------------------


class DirectoryState(StrEnum):
    """The state of a partition's directory, as shown by its name; the value ends the name."""

    LIVE = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


class PartitionDirectory(NamedTuple):
    topic_partition: TopicPartition  # of a shortened name: the shortened topic
    state: DirectoryState
    unique: str  # "" for a live partition


_PARTITION_DIRECTORY: Final = re.compile(r"(\S+)-([0-9]{1,10})(?:\.([^\s.]+)(-delete|-future|-stray))?")


def partition_directory(topic_partition: TopicPartition) -> str:
    assert topic_partition.topic, "a topic has a name"
    assert topic_partition.partition >= 0, topic_partition
    return str(topic_partition)


def renamed_directory(topic_partition: TopicPartition, state: DirectoryState, unique: str) -> str:
    """The name on the way out (or in). `unique` comes from outside, 32 hex digits: names must not meet again.

    A long topic is cut so that the name fits into a directory entry, but never for a copy that will live: there the
    topic's name is still needed. (A topic has at most 249 characters, so only a `-future` name can be too long, and
    then the file system refuses it, as Kafka's would.)
    """
    assert state is not DirectoryState.LIVE
    assert re.fullmatch(rf"[0-9a-f]{{{UNIQUE_DIGITS}}}", unique), unique
    ending = f"-{topic_partition.partition}.{unique}{state.value}"
    topic = topic_partition.topic
    if state is not DirectoryState.FUTURE:
        topic = topic[: MAX_NAME_BYTES - len(ending)]
    return topic + ending


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """None for what is not a partition's directory.

    A topic may itself end in something like `-3.x-delete`; the longest reading as a renamed directory wins, as it
    does in Kafka, which is why a name that ends in `-delete` without the rest of the form is no partition at all.
    """
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    topic, partition, unique, state = match.groups()
    if int(partition) > 2**31 - 1:
        return None
    return PartitionDirectory(TopicPartition(topic, int(partition)), DirectoryState(state or ""), unique or "")


# Snapshots of the metadata log -------------------------------------------------------------------------------------


class CheckpointState(StrEnum):
    """The state of a metadata snapshot; the value ends the name."""

    WHOLE = ".checkpoint"
    PART = ".checkpoint.part"
    DELETED = ".checkpoint.deleted"


class MetadataSnapshot(NamedTuple):
    end_offset: int  # exclusive: the snapshot covers every record before it
    epoch: int
    state: CheckpointState


_METADATA_SNAPSHOT: Final = re.compile(
    rf"([0-9]{{{OFFSET_DIGITS}}})-([0-9]{{{EPOCH_DIGITS}}})(-[0-9]+)?(\.checkpoint(?:\.part|\.deleted)?)"
)


def metadata_snapshot(end_offset: int, epoch: int, state: CheckpointState = CheckpointState.WHOLE) -> str:
    assert 0 <= epoch < 2**31, epoch
    return f"{offset_name(end_offset)}-{epoch:0{EPOCH_DIGITS}d}{state.value}"


def parse_metadata_snapshot(name: str) -> MetadataSnapshot | None:
    """None for anything else. Kafka puts a random number into the name of an unfinished one; trioka needs none."""
    match = _METADATA_SNAPSHOT.fullmatch(name)
    if match is None:
        return None
    offset, epoch, random, state = match.groups()
    if random and state != CheckpointState.PART:
        return None
    if int(offset) > MAX_OFFSET or int(epoch) >= 2**31:
        return None
    return MetadataSnapshot(int(offset), int(epoch), CheckpointState(state))
