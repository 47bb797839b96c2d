"""Keys of topics, and the broker keys whose values a topic without an own one inherits.

Where several broker keys stand behind a topic's, the first that is set counts: retention.ms is log.retention.ms, else
log.retention.minutes, else log.retention.hours. Units follow from the names.
"""

import re
from typing import Final

from . import log_keys as log
from . import tier_keys as tier
from .key import DAY_MS, GIB, HOUR_MS, LATER_TIERS, MIB, MINUTE_MS, NO_PREALLOCATION, topic_key
from .values import LONG_MAX, Boolean, Double, Int, List, Long, String

_REPLICA: Final = r"[0-9]+:[0-9]+|\*"


def is_replica(text: str) -> str | None:
    return None if re.fullmatch(_REPLICA, text) else "must be * or partition:broker between commas, such as 0:1,1:2"


# fmt: off

# Segments and indexes.

SEGMENT_BYTES = topic_key("segment.bytes", Int(min=MIB), GIB, log.LOG_SEGMENT_BYTES,
    doc="The size at which a segment is closed and the next one begun.")
INTERNAL_SEGMENT_BYTES = topic_key("internal.segment.bytes", Int(min=1), None, hidden=True,
    doc="The segment size of tests, below the floor of segment.bytes; it wins where both are set.")
SEGMENT_MS = topic_key("segment.ms", Long(min=1), 7 * DAY_MS, log.LOG_ROLL_MS, log.LOG_ROLL_HOURS,
    doc="The age at which a segment is closed even if it is not full.")
SEGMENT_JITTER_MS = topic_key("segment.jitter.ms", Long(min=0), 0, log.LOG_ROLL_JITTER_MS, log.LOG_ROLL_JITTER_HOURS,
    doc="At most so much is taken off segment.ms at random, so that not all segments close at once.")
SEGMENT_INDEX_BYTES = topic_key("segment.index.bytes", Int(min=4), 10 * MIB, log.LOG_INDEX_SIZE_MAX_BYTES,
    doc="The size of an offset index; a full one closes its segment.")
INDEX_INTERVAL_BYTES = topic_key("index.interval.bytes", Int(min=0), 4096, log.LOG_INDEX_INTERVAL_BYTES,
    doc="So many bytes of records get one entry in the offset index.")
PREALLOCATE = topic_key("preallocate", Boolean(), False, log.LOG_PREALLOCATE, effect=NO_PREALLOCATION,
    doc="Whether a new segment reserves its whole size at once.")
FILE_DELETE_DELAY_MS = topic_key("file.delete.delay.ms", Long(min=0), MINUTE_MS, log.LOG_SEGMENT_DELETE_DELAY_MS,
    doc="How long a deleted segment's files stay, for those who still read them.")

# What is dropped, and when.

CLEANUP_POLICY = topic_key("cleanup.policy", List(one_of=("compact", "delete")), ("delete",), log.LOG_CLEANUP_POLICY,
    doc="What happens to old records: delete drops them, compact keeps the last of each key; empty keeps all.")
RETENTION_MS = topic_key("retention.ms", Long(min=-1), 7 * DAY_MS,
    log.LOG_RETENTION_MS, log.LOG_RETENTION_MINUTES, log.LOG_RETENTION_HOURS,
    doc="Delete a segment once its newest record is older than this; -1 keeps all.")
RETENTION_BYTES = topic_key("retention.bytes", Long(), -1, log.LOG_RETENTION_BYTES,
    doc="Delete a partition's oldest segments while it is larger than this; -1 sets no limit.")
DELETE_RETENTION_MS = topic_key("delete.retention.ms", Long(min=0), DAY_MS, log.LOG_CLEANER_DELETE_RETENTION_MS,
    doc="How long the mark of a deleted key outlives its record in a compacted topic.")
MIN_CLEANABLE_DIRTY_RATIO = topic_key("min.cleanable.dirty.ratio", Double(min=0, max=1), 0.5,
    log.LOG_CLEANER_MIN_CLEANABLE_RATIO,
    doc="Compact a log once this part of it is not compacted yet.")
MIN_COMPACTION_LAG_MS = topic_key("min.compaction.lag.ms", Long(min=0), 0, log.LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    doc="A record younger than this is not compacted away.")
MAX_COMPACTION_LAG_MS = topic_key("max.compaction.lag.ms", Long(min=1), LONG_MAX, log.LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    doc="A record older than this makes its log due for compaction.")

# What is let in.

MAX_MESSAGE_BYTES = topic_key("max.message.bytes", Int(min=0), MIB + 12, log.MESSAGE_MAX_BYTES,
    doc="The largest batch of records, as it is after compression.")
MESSAGE_TIMESTAMP_TYPE = topic_key("message.timestamp.type", String(one_of=("CreateTime", "LogAppendTime")),
    "CreateTime", log.LOG_MESSAGE_TIMESTAMP_TYPE,
    doc="Whether a record keeps its producer's time or gets that of its arrival.")
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = topic_key("message.timestamp.before.max.ms", Long(min=0), LONG_MAX,
    log.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    doc="A record whose time lies further back than this is refused.")
MESSAGE_TIMESTAMP_AFTER_MAX_MS = topic_key("message.timestamp.after.max.ms", Long(min=0), HOUR_MS,
    log.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    doc="A record whose time lies further ahead than this is refused.")
COMPRESSION_TYPE = topic_key("compression.type",
    String(one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")), "producer", log.COMPRESSION_TYPE,
    doc="The codec in which batches are kept; producer keeps what the client sent.")
COMPRESSION_GZIP_LEVEL = topic_key("compression.gzip.level", Int(min=1, max=9, also=(-1,)), -1,
    log.COMPRESSION_GZIP_LEVEL,
    doc="How hard gzip tries, from 1 to 9; -1 is its own default.")
COMPRESSION_LZ4_LEVEL = topic_key("compression.lz4.level", Int(min=1, max=17), 9, log.COMPRESSION_LZ4_LEVEL,
    doc="How hard lz4 tries.")
COMPRESSION_ZSTD_LEVEL = topic_key("compression.zstd.level", Int(min=-131072, max=22), 3, log.COMPRESSION_ZSTD_LEVEL,
    doc="How hard zstd tries; negative levels are faster.")

# When it is made durable, and where.

FLUSH_MESSAGES = topic_key("flush.messages", Long(min=1), LONG_MAX, log.LOG_FLUSH_INTERVAL_MESSAGES,
    doc="After so many records a log is synced to its disk.")
FLUSH_MS = topic_key("flush.ms", Long(min=0), LONG_MAX,
    log.LOG_FLUSH_INTERVAL_MS, log.LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    doc="After so long a log is synced to its disk.")
MIN_INSYNC_REPLICAS = topic_key("min.insync.replicas", Int(min=1), 1, log.MIN_INSYNC_REPLICAS,
    doc="With acks=all, a write needs so many replicas in sync.")
UNCLEAN_LEADER_ELECTION_ENABLE = topic_key("unclean.leader.election.enable", Boolean(), False,
    log.UNCLEAN_LEADER_ELECTION_ENABLE,
    doc="Whether a replica that lags may lead when no other is left, at the price of lost records.")
LEADER_REPLICATION_THROTTLED_REPLICAS = topic_key("leader.replication.throttled.replicas", List(check=is_replica), (),
    doc="Replicas that are throttled where they are read: partition:broker between commas, or * for all.")
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = topic_key("follower.replication.throttled.replicas", List(check=is_replica),
    (),
    doc="Replicas that are throttled where they are written: partition:broker between commas, or * for all.")

# Tiered storage.

REMOTE_STORAGE_ENABLE = topic_key("remote.storage.enable", Boolean(), False, effect=LATER_TIERS,
    doc="Whether closed segments go to an object store as well.")
REMOTE_LOG_COPY_DISABLE = topic_key("remote.log.copy.disable", Boolean(), False, effect=LATER_TIERS,
    doc="Whether the object store gets nothing new and is only read.")
REMOTE_LOG_DELETE_ON_DISABLE = topic_key("remote.log.delete.on.disable", Boolean(), False, effect=LATER_TIERS,
    doc="Whether switching the object store off deletes what is in it.")
LOCAL_RETENTION_MS = topic_key("local.retention.ms", Long(min=-2), -2, tier.LOG_LOCAL_RETENTION_MS, effect=LATER_TIERS,
    doc="The age above which a segment that is in the object store leaves the disk; -2 is as retention.ms.")
LOCAL_RETENTION_BYTES = topic_key("local.retention.bytes", Long(min=-2), -2, tier.LOG_LOCAL_RETENTION_BYTES,
    effect=LATER_TIERS,
    doc="The size above which segments that are in the object store leave the disk; -2 is as retention.bytes.")
