"""Keys of the logs: where they are, what is kept, what is let in, when it is durable. Most are defaults of topics."""

from .key import (
    CLUSTER_WIDE,
    DAY_MS,
    GIB,
    HIGH,
    HOUR_MS,
    KIB,
    LATER_CLUSTER,
    LATER_QUOTAS,
    LOW,
    MEDIUM,
    MIB,
    MINUTE_MS,
    NO_CLEANER_BUFFERS,
    NO_PREALLOCATION,
    NO_THREADS,
    PER_BROKER,
    broker_key,
)
from .values import DOUBLE_MAX, LONG_MAX, Boolean, Double, Int, List, Long, String

# fmt: off

LOG_DIRS = broker_key("log.dirs", List(empty=False), None, HIGH,
    doc="The directories that hold the partitions, between commas.")
LOG_DIR = broker_key("log.dir", List(empty=False), ("/tmp/kafka-logs",), HIGH,
    doc="The directory that holds the partitions, where log.dirs is not set.")
CORDONED_LOG_DIRS = broker_key("cordoned.log.dirs", List(), (), MEDIUM, PER_BROKER, effect=LATER_CLUSTER,
    doc="Directories that get no new partitions; * is all of them.")
LOG_DIR_FAILURE_TIMEOUT_MS = broker_key("log.dir.failure.timeout.ms", Long(min=1), 30_000, LOW, effect=LATER_CLUSTER,
    doc="How long a broker with a failed directory waits for the controller before it stops.")
NUM_RECOVERY_THREADS_PER_DATA_DIR = broker_key("num.recovery.threads.per.data.dir", Int(min=1), 2, HIGH, CLUSTER_WIDE,
    doc="How many logs of one directory are opened at a time.")

# Segments and indexes.

LOG_SEGMENT_BYTES = broker_key("log.segment.bytes", Int(min=MIB), GIB, HIGH, CLUSTER_WIDE,
    doc="The size at which a segment is closed and the next one begun.")
LOG_ROLL_MS = broker_key("log.roll.ms", Long(), None, HIGH, CLUSTER_WIDE,
    doc="The age at which a segment is closed; without it, log.roll.hours counts.")
LOG_ROLL_HOURS = broker_key("log.roll.hours", Int(min=1), 168, HIGH,
    doc="The age at which a segment is closed, in hours.")
LOG_ROLL_JITTER_MS = broker_key("log.roll.jitter.ms", Long(), None, HIGH, CLUSTER_WIDE,
    doc="At most so much is taken off that age at random; without it, log.roll.jitter.hours counts.")
LOG_ROLL_JITTER_HOURS = broker_key("log.roll.jitter.hours", Int(min=0), 0, HIGH,
    doc="At most so much is taken off that age at random, in hours.")
LOG_INDEX_SIZE_MAX_BYTES = broker_key("log.index.size.max.bytes", Int(min=4), 10 * MIB, MEDIUM, CLUSTER_WIDE,
    doc="The size of an offset index; a full one closes its segment.")
LOG_INDEX_INTERVAL_BYTES = broker_key("log.index.interval.bytes", Int(min=0), 4 * KIB, MEDIUM, CLUSTER_WIDE,
    doc="So many bytes of records get one entry in the offset index.")
LOG_PREALLOCATE = broker_key("log.preallocate", Boolean(), False, MEDIUM, CLUSTER_WIDE, effect=NO_PREALLOCATION,
    doc="Whether a new segment reserves its whole size at once.")
LOG_SEGMENT_DELETE_DELAY_MS = broker_key("log.segment.delete.delay.ms", Long(min=0), MINUTE_MS, HIGH, CLUSTER_WIDE,
    doc="How long a deleted segment's files stay, for those who still read them.")

# What is dropped, and when.

LOG_CLEANUP_POLICY = broker_key("log.cleanup.policy",
    List(one_of=("compact", "delete")), ("delete",), MEDIUM, CLUSTER_WIDE,
    doc="What happens to old records: delete drops them, compact keeps the last of each key; empty keeps all.")
LOG_RETENTION_MS = broker_key("log.retention.ms", Long(), None, HIGH, CLUSTER_WIDE,
    doc="The age above which a segment is deleted, -1 for none; without it, the minutes count, then the hours.")
LOG_RETENTION_MINUTES = broker_key("log.retention.minutes", Int(), None, HIGH,
    doc="The age above which a segment is deleted, in minutes.")
LOG_RETENTION_HOURS = broker_key("log.retention.hours", Int(), 168, HIGH,
    doc="The age above which a segment is deleted, in hours.")
LOG_RETENTION_BYTES = broker_key("log.retention.bytes", Long(), -1, HIGH, CLUSTER_WIDE,
    doc="The size above which a partition's oldest segments are deleted; -1 sets no limit.")
LOG_RETENTION_CHECK_INTERVAL_MS = broker_key("log.retention.check.interval.ms", Long(min=1), 5 * MINUTE_MS, MEDIUM,
    doc="How often retention looks for something to delete.")
LOG_CLEANER_ENABLE = broker_key("log.cleaner.enable", Boolean(), True, MEDIUM,
    doc="Whether logs are compacted at all.")
LOG_CLEANER_THREADS = broker_key("log.cleaner.threads", Int(min=0), 1, MEDIUM, CLUSTER_WIDE, effect=NO_THREADS,
    doc="How many logs are compacted at a time.")
LOG_CLEANER_BACKOFF_MS = broker_key("log.cleaner.backoff.ms", Long(min=0), 15_000, MEDIUM, CLUSTER_WIDE,
    doc="How long the cleaner sleeps when there is nothing to clean.")
LOG_CLEANER_DEDUPE_BUFFER_SIZE = broker_key("log.cleaner.dedupe.buffer.size", Long(), 128 * MIB, MEDIUM, CLUSTER_WIDE,
    doc="The memory for the keys of one compaction, in bytes.")
LOG_CLEANER_IO_BUFFER_SIZE = broker_key("log.cleaner.io.buffer.size", Int(min=0), 512 * KIB, MEDIUM, CLUSTER_WIDE,
    effect=NO_CLEANER_BUFFERS,
    doc="The memory for the records of one compaction, in bytes.")
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = broker_key("log.cleaner.io.buffer.load.factor", Double(), 0.9, MEDIUM, CLUSTER_WIDE,
    effect=NO_CLEANER_BUFFERS,
    doc="How full the table of keys may get.")
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = broker_key("log.cleaner.io.max.bytes.per.second",
    Double(), DOUBLE_MAX, MEDIUM, CLUSTER_WIDE, effect=LATER_QUOTAS,
    doc="The most bytes that compaction reads and writes in a second.")
LOG_CLEANER_MIN_CLEANABLE_RATIO = broker_key("log.cleaner.min.cleanable.ratio",
    Double(min=0, max=1), 0.5, MEDIUM, CLUSTER_WIDE,
    doc="A log is compacted once this part of it is not compacted yet.")
LOG_CLEANER_DELETE_RETENTION_MS = broker_key("log.cleaner.delete.retention.ms",
    Long(min=0), DAY_MS, MEDIUM, CLUSTER_WIDE,
    doc="How long the mark of a deleted key outlives its record.")
LOG_CLEANER_MIN_COMPACTION_LAG_MS = broker_key("log.cleaner.min.compaction.lag.ms",
    Long(min=0), 0, MEDIUM, CLUSTER_WIDE,
    doc="A record younger than this is not compacted away.")
LOG_CLEANER_MAX_COMPACTION_LAG_MS = broker_key("log.cleaner.max.compaction.lag.ms",
    Long(min=1), LONG_MAX, MEDIUM, CLUSTER_WIDE,
    doc="A record older than this makes its log due for compaction.")

# What is let in.

MESSAGE_MAX_BYTES = broker_key("message.max.bytes", Int(min=0), MIB + 12, HIGH, CLUSTER_WIDE,
    doc="The largest batch of records.")
COMPRESSION_TYPE = broker_key("compression.type",
    String(one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")), "producer", HIGH, CLUSTER_WIDE,
    doc="The codec in which batches are kept; producer keeps what the client sent.")
COMPRESSION_GZIP_LEVEL = broker_key("compression.gzip.level", Int(min=1, max=9, also=(-1,)), -1, MEDIUM, CLUSTER_WIDE,
    doc="How hard gzip tries, from 1 to 9; -1 is its own default.")
COMPRESSION_LZ4_LEVEL = broker_key("compression.lz4.level", Int(min=1, max=17), 9, MEDIUM, CLUSTER_WIDE,
    doc="How hard lz4 tries.")
COMPRESSION_ZSTD_LEVEL = broker_key("compression.zstd.level", Int(min=-131_072, max=22), 3, MEDIUM, CLUSTER_WIDE,
    doc="How hard zstd tries; negative levels are faster.")
LOG_MESSAGE_TIMESTAMP_TYPE = broker_key("log.message.timestamp.type",
    String(one_of=("CreateTime", "LogAppendTime")), "CreateTime", MEDIUM, CLUSTER_WIDE,
    doc="Whether a record keeps its producer's time or gets that of its arrival.")
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = broker_key("log.message.timestamp.before.max.ms",
    Long(min=0), LONG_MAX, MEDIUM, CLUSTER_WIDE,
    doc="A record whose time lies further back than this is refused.")
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = broker_key("log.message.timestamp.after.max.ms",
    Long(min=0), HOUR_MS, MEDIUM, CLUSTER_WIDE,
    doc="A record whose time lies further ahead than this is refused.")
MIN_INSYNC_REPLICAS = broker_key("min.insync.replicas", Int(min=1), 1, HIGH, CLUSTER_WIDE,
    doc="With acks=all, a write needs so many replicas in sync.")
UNCLEAN_LEADER_ELECTION_ENABLE = broker_key("unclean.leader.election.enable", Boolean(), False, HIGH, CLUSTER_WIDE,
    doc="Whether a replica that lags may lead when no other is left, at the price of lost records.")

# When it is made durable.

LOG_FLUSH_INTERVAL_MESSAGES = broker_key("log.flush.interval.messages", Long(min=1), LONG_MAX, HIGH, CLUSTER_WIDE,
    doc="After so many records a log is synced to its disk.")
LOG_FLUSH_INTERVAL_MS = broker_key("log.flush.interval.ms", Long(), None, HIGH, CLUSTER_WIDE,
    doc="After so long a log is synced to its disk; without it, log.flush.scheduler.interval.ms counts.")
LOG_FLUSH_SCHEDULER_INTERVAL_MS = broker_key("log.flush.scheduler.interval.ms", Long(), LONG_MAX, HIGH,
    doc="How often logs are looked at that might be due for a sync.")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = broker_key("log.flush.offset.checkpoint.interval.ms",
    Int(min=0), MINUTE_MS, HIGH,
    doc="How often it is written down up to where logs were synced.")
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = broker_key("log.flush.start.offset.checkpoint.interval.ms",
    Int(min=0), MINUTE_MS, HIGH,
    doc="How often it is written down where logs begin.")
LOG_INITIAL_TASK_DELAY_MS = broker_key("log.initial.task.delay.ms", Long(min=0), 30_000, LOW, hidden=True,
    doc="How long a started broker waits before its first round of retention.")

# Producers.

PRODUCER_ID_EXPIRATION_MS = broker_key("producer.id.expiration.ms", Int(min=1), DAY_MS, LOW, CLUSTER_WIDE,
    doc="A producer that writes nothing for so long is forgotten.")
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = broker_key("producer.id.expiration.check.interval.ms",
    Int(min=1), 10 * MINUTE_MS, LOW, hidden=True,
    doc="How often it is looked for such producers.")
