"""Keys of topics, and the broker keys that they inherit from.

If a topic key has several broker keys, the first that is set applies: retention.ms is log.retention.ms, else
log.retention.minutes, else log.retention.hours. Values are converted between the units in the names.
"""

import re
from typing import Final

from . import log_keys as log
from . import tier_keys as tier
from .key import DAY_MS, GIB, HOUR_MS, MIB, MINUTE_MS, NO_PREALLOCATION, topic_key
from .values import LONG_MAX, Boolean, Double, Int, List, Long, String

_REPLICA: Final = r"[0-9]+:[0-9]+|\*"


def is_replica(text: str) -> str | None:
    return (
        None if re.fullmatch(_REPLICA, text) else "must be * or comma-separated partition:broker pairs, such as 0:1,1:2"
    )


# fmt: off

# Segments and indexes.

SEGMENT_BYTES = topic_key("segment.bytes", Int(min=MIB), GIB, log.LOG_SEGMENT_BYTES,
    doc="Size, in bytes, at which the active segment is closed and a new one is opened.")
INTERNAL_SEGMENT_BYTES = topic_key("internal.segment.bytes", Int(min=1), None, hidden=True,
    doc="Segment size for tests, in bytes; may be below the minimum of segment.bytes and overrides it.")
SEGMENT_MS = topic_key("segment.ms", Long(min=1), 7 * DAY_MS, log.LOG_ROLL_MS, log.LOG_ROLL_HOURS,
    doc="Age, in milliseconds, at which the active segment is closed even if it is not full.")
SEGMENT_JITTER_MS = topic_key("segment.jitter.ms", Long(min=0), 0, log.LOG_ROLL_JITTER_MS, log.LOG_ROLL_JITTER_HOURS,
    doc="Maximum random reduction of segment.ms, in milliseconds, so that segments do not all close at once.")
SEGMENT_INDEX_BYTES = topic_key("segment.index.bytes", Int(min=4), 10 * MIB, log.LOG_INDEX_SIZE_MAX_BYTES,
    doc="Maximum size of an offset index, in bytes; the segment is closed when its index is full.")
INDEX_INTERVAL_BYTES = topic_key("index.interval.bytes", Int(min=0), 4096, log.LOG_INDEX_INTERVAL_BYTES,
    doc="Number of bytes of records per entry of the offset index.")
PREALLOCATE = topic_key("preallocate", Boolean(), False, log.LOG_PREALLOCATE, effect=NO_PREALLOCATION,
    doc="Whether a new segment file is created at its full size.")
FILE_DELETE_DELAY_MS = topic_key("file.delete.delay.ms", Long(min=0), MINUTE_MS, log.LOG_SEGMENT_DELETE_DELAY_MS,
    doc="Time in milliseconds for which the files of a deleted segment stay on disk, so that running reads can finish.")

# Retention and compaction.

CLEANUP_POLICY = topic_key("cleanup.policy", List(one_of=("compact", "delete")), ("delete",), log.LOG_CLEANUP_POLICY,
    doc="What happens to old records: delete removes old segments, compact keeps the last record of each key; empty "
        "keeps all records.")
RETENTION_MS = topic_key("retention.ms", Long(min=-1), 7 * DAY_MS,
    log.LOG_RETENTION_MS, log.LOG_RETENTION_MINUTES, log.LOG_RETENTION_HOURS,
    doc="Age, in milliseconds, of a segment's newest record above which the segment is deleted; -1 means no limit.")
RETENTION_BYTES = topic_key("retention.bytes", Long(), -1, log.LOG_RETENTION_BYTES,
    doc="Size of a partition, in bytes, above which its oldest segments are deleted; -1 means no limit.")
DELETE_RETENTION_MS = topic_key("delete.retention.ms", Long(min=0), DAY_MS, log.LOG_CLEANER_DELETE_RETENTION_MS,
    doc="Time in milliseconds for which compaction keeps the tombstone of a deleted key.")
MIN_CLEANABLE_DIRTY_RATIO = topic_key("min.cleanable.dirty.ratio", Double(min=0, max=1), 0.5,
    log.LOG_CLEANER_MIN_CLEANABLE_RATIO,
    doc="Ratio of bytes that are not yet compacted to the size of the log, from 0 to 1, at which a log is compacted.")
MIN_COMPACTION_LAG_MS = topic_key("min.compaction.lag.ms", Long(min=0), 0, log.LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    doc="Age, in milliseconds, below which a record is not compacted.")
MAX_COMPACTION_LAG_MS = topic_key("max.compaction.lag.ms", Long(min=1), LONG_MAX, log.LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    doc="Age, in milliseconds, of an uncompacted record at which its log must be compacted.")

# Validation and compression of record batches.

MAX_MESSAGE_BYTES = topic_key("max.message.bytes", Int(min=0), MIB + 12, log.MESSAGE_MAX_BYTES,
    doc="Maximum size of a record batch, in bytes, after compression.")
MESSAGE_TIMESTAMP_TYPE = topic_key("message.timestamp.type", String(one_of=("CreateTime", "LogAppendTime")),
    "CreateTime", log.LOG_MESSAGE_TIMESTAMP_TYPE,
    doc="Whether a record keeps the producer's timestamp (CreateTime) or gets the time of the append (LogAppendTime).")
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = topic_key("message.timestamp.before.max.ms", Long(min=0), LONG_MAX,
    log.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    doc="Maximum time, in milliseconds, by which a record's timestamp may precede the broker's clock; older records "
        "are rejected.")
MESSAGE_TIMESTAMP_AFTER_MAX_MS = topic_key("message.timestamp.after.max.ms", Long(min=0), HOUR_MS,
    log.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    doc="Maximum time, in milliseconds, by which a record's timestamp may be ahead of the broker's clock; other "
        "records are rejected.")
COMPRESSION_TYPE = topic_key("compression.type",
    String(one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")), "producer", log.COMPRESSION_TYPE,
    doc="Codec in which record batches are stored; producer keeps the codec that the client used.")
COMPRESSION_GZIP_LEVEL = topic_key("compression.gzip.level", Int(min=1, max=9, also=(-1,)), -1,
    log.COMPRESSION_GZIP_LEVEL,
    doc="Compression level of gzip; -1 selects gzip's default level.")
COMPRESSION_LZ4_LEVEL = topic_key("compression.lz4.level", Int(min=1, max=17), 9, log.COMPRESSION_LZ4_LEVEL,
    doc="Compression level of lz4.")
COMPRESSION_ZSTD_LEVEL = topic_key("compression.zstd.level", Int(min=-131072, max=22), 3, log.COMPRESSION_ZSTD_LEVEL,
    doc="Compression level of zstd; negative levels are faster and compress less.")

# Flushing and replication.

FLUSH_MESSAGES = topic_key("flush.messages", Long(min=1), LONG_MAX, log.LOG_FLUSH_INTERVAL_MESSAGES,
    doc="Number of appended records after which a log is flushed to disk.")
FLUSH_MS = topic_key("flush.ms", Long(min=0), LONG_MAX,
    log.LOG_FLUSH_INTERVAL_MS, log.LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    doc="Time in milliseconds after which appended records are flushed to disk.")
MIN_INSYNC_REPLICAS = topic_key("min.insync.replicas", Int(min=1), 1, log.MIN_INSYNC_REPLICAS,
    doc="Minimum size of the ISR for a write with acks=all to be accepted.")
UNCLEAN_LEADER_ELECTION_ENABLE = topic_key("unclean.leader.election.enable", Boolean(), False,
    log.UNCLEAN_LEADER_ELECTION_ENABLE,
    doc="Whether a replica outside the ISR may become leader if no replica in the ISR is available, at the cost of "
        "losing records.")
READ_CONSISTENCY = topic_key("trioka.read.consistency", String(one_of=("committed", "linearizable")), "committed",
    hidden=True,
    doc="What consumers see at the end of a partition. `committed`: the leader's high watermark, as in Kafka, which is "
        "old if another leader was elected meanwhile. `linearizable`: every record that was acknowledged with acks=all "
        "before the request was sent; not with unclean.leader.election.enable (docs/CONSISTENCY.md).")
LOG_DIR_CLASS = topic_key("trioka.log.dir.class", String(one_of=("disk", "memory")), "disk",
    hidden=True,
    doc="Class of the log directories that hold the replicas. `memory`: directories of trioka.log.dirs.memory; a "
        "topic with several replicas then requires min.insync.replicas of 2 or more. The class of an existing topic "
        "cannot be changed (docs/OPERATIONS.md, Memory is lost).")
MEMORY_RESTORE = topic_key("trioka.memory.restore", String(one_of=("manual", "auto")), "manual",
    hidden=True,
    doc="What happens to a partition with trioka.log.dir.class=memory and remote.storage.enable when all replicas have "
        "lost their memory. `manual`: it has no leader until an unclean election is requested. `auto`: a replica is "
        "elected without a request, once no replica counts as complete (in sync, eligible, last leader) any more. In "
        "both cases the partition continues behind its last record in the object store.")
LEADER_REPLICATION_THROTTLED_REPLICAS = topic_key("leader.replication.throttled.replicas", List(check=is_replica), (),
    doc="Replicas whose replication is throttled on the leader: comma-separated partition:broker pairs, or * for all.")
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = topic_key("follower.replication.throttled.replicas", List(check=is_replica),
    (),
    doc="Replicas whose replication is throttled on the follower: comma-separated partition:broker pairs, or * for "
        "all.")

# Tiered storage.

REMOTE_STORAGE_ENABLE = topic_key("remote.storage.enable", Boolean(), False,
    doc="Whether closed segments are also copied to the object store.")
REMOTE_LOG_COPY_DISABLE = topic_key("remote.log.copy.disable", Boolean(), False,
    doc="Whether the object store becomes read-only: no new segments are copied to it.")
REMOTE_LOG_DELETE_ON_DISABLE = topic_key("remote.log.delete.on.disable", Boolean(), False,
    doc="Whether setting remote.storage.enable to false deletes the topic's data in the object store.")
LOCAL_RETENTION_MS = topic_key("local.retention.ms", Long(min=-2), -2, tier.LOG_LOCAL_RETENTION_MS,
    doc="Age, in milliseconds, above which a segment that is in the object store is deleted from the local disk; -2 "
        "means retention.ms.")
LOCAL_RETENTION_BYTES = topic_key("local.retention.bytes", Long(min=-2), -2, tier.LOG_LOCAL_RETENTION_BYTES,
    doc="Local size of a partition, in bytes, above which segments that are in the object store are deleted from the "
        "local disk; -2 means retention.bytes.")
