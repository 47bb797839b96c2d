"""Keys of logs: directories, segments, retention, validation and flushing. Most are defaults of topic keys."""

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
    doc="Comma-separated directories that hold the partitions; if not set, log.dir applies.")
LOG_DIR = broker_key("log.dir", List(empty=False), ("/tmp/kafka-logs",), HIGH,
    doc="Directory that holds the partitions if log.dirs is not set.")
CORDONED_LOG_DIRS = broker_key("cordoned.log.dirs", List(), (), MEDIUM, PER_BROKER, effect=LATER_CLUSTER,
    doc="Log directories that receive no new partitions; * selects all of them.")
LOG_DIR_FAILURE_TIMEOUT_MS = broker_key("log.dir.failure.timeout.ms", Long(min=1), 30_000, LOW, effect=LATER_CLUSTER,
    doc="Time in milliseconds for which a broker tries to report a failed log directory to the controller before it "
        "stops.")
NUM_RECOVERY_THREADS_PER_DATA_DIR = broker_key("num.recovery.threads.per.data.dir", Int(min=1), 2, HIGH, CLUSTER_WIDE,
    doc="Number of logs of one directory that are opened and recovered at a time.")

# Segments and indexes.

LOG_SEGMENT_BYTES = broker_key("log.segment.bytes", Int(min=MIB), GIB, HIGH, CLUSTER_WIDE,
    doc="Size, in bytes, at which the active segment is closed and a new one is opened.")
LOG_ROLL_MS = broker_key("log.roll.ms", Long(), None, HIGH, CLUSTER_WIDE,
    doc="Age, in milliseconds, at which the active segment is closed; if not set, log.roll.hours applies.")
LOG_ROLL_HOURS = broker_key("log.roll.hours", Int(min=1), 168, HIGH,
    doc="Age, in hours, at which the active segment is closed.")
LOG_ROLL_JITTER_MS = broker_key("log.roll.jitter.ms", Long(), None, HIGH, CLUSTER_WIDE,
    doc="Maximum random reduction of log.roll.ms, in milliseconds; if not set, log.roll.jitter.hours applies.")
LOG_ROLL_JITTER_HOURS = broker_key("log.roll.jitter.hours", Int(min=0), 0, HIGH,
    doc="Maximum random reduction of log.roll.hours, in hours.")
LOG_INDEX_SIZE_MAX_BYTES = broker_key("log.index.size.max.bytes", Int(min=4), 10 * MIB, MEDIUM, CLUSTER_WIDE,
    doc="Maximum size of an offset index, in bytes; the segment is closed when its index is full.")
LOG_INDEX_INTERVAL_BYTES = broker_key("log.index.interval.bytes", Int(min=0), 4 * KIB, MEDIUM, CLUSTER_WIDE,
    doc="Number of bytes of records per entry of the offset index.")
LOG_PREALLOCATE = broker_key("log.preallocate", Boolean(), False, MEDIUM, CLUSTER_WIDE, effect=NO_PREALLOCATION,
    doc="Whether a new segment file is created at its full size.")
LOG_SEGMENT_DELETE_DELAY_MS = broker_key("log.segment.delete.delay.ms", Long(min=0), MINUTE_MS, HIGH, CLUSTER_WIDE,
    doc="Time in milliseconds for which the files of a deleted segment stay on disk, so that running reads can finish.")

# Retention and compaction.

LOG_CLEANUP_POLICY = broker_key("log.cleanup.policy",
    List(one_of=("compact", "delete")), ("delete",), MEDIUM, CLUSTER_WIDE,
    doc="What happens to old records: delete removes old segments, compact keeps the last record of each key; empty "
        "keeps all records.")
LOG_RETENTION_MS = broker_key("log.retention.ms", Long(), None, HIGH, CLUSTER_WIDE,
    doc="Age, in milliseconds, above which a segment is deleted; -1 means no limit. If not set, log.retention.minutes "
        "applies, then log.retention.hours.")
LOG_RETENTION_MINUTES = broker_key("log.retention.minutes", Int(), None, HIGH,
    doc="Age, in minutes, above which a segment is deleted; -1 means no limit.")
LOG_RETENTION_HOURS = broker_key("log.retention.hours", Int(), 168, HIGH,
    doc="Age, in hours, above which a segment is deleted; -1 means no limit.")
LOG_RETENTION_BYTES = broker_key("log.retention.bytes", Long(), -1, HIGH, CLUSTER_WIDE,
    doc="Size of a partition, in bytes, above which its oldest segments are deleted; -1 means no limit.")
LOG_RETENTION_CHECK_INTERVAL_MS = broker_key("log.retention.check.interval.ms", Long(min=1), 5 * MINUTE_MS, MEDIUM,
    doc="Interval, in milliseconds, between two retention checks of all partitions.")
LOG_CLEANER_ENABLE = broker_key("log.cleaner.enable", Boolean(), True, MEDIUM,
    doc="Whether logs are compacted.")
LOG_CLEANER_THREADS = broker_key("log.cleaner.threads", Int(min=0), 1, MEDIUM, CLUSTER_WIDE, effect=NO_THREADS,
    doc="Number of logs that are compacted at a time.")
LOG_CLEANER_BACKOFF_MS = broker_key("log.cleaner.backoff.ms", Long(min=0), 15_000, MEDIUM, CLUSTER_WIDE,
    doc="Time in milliseconds that the log cleaner sleeps when no log needs compaction.")
LOG_CLEANER_DEDUPE_BUFFER_SIZE = broker_key("log.cleaner.dedupe.buffer.size", Long(), 128 * MIB, MEDIUM, CLUSTER_WIDE,
    doc="Memory, in bytes, for the offset map of one compaction.")
LOG_CLEANER_IO_BUFFER_SIZE = broker_key("log.cleaner.io.buffer.size", Int(min=0), 512 * KIB, MEDIUM, CLUSTER_WIDE,
    effect=NO_CLEANER_BUFFERS,
    doc="Memory, in bytes, for the I/O buffers of compaction.")
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = broker_key("log.cleaner.io.buffer.load.factor", Double(), 0.9, MEDIUM, CLUSTER_WIDE,
    effect=NO_CLEANER_BUFFERS,
    doc="Maximum fill ratio of the offset map of a compaction.")
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = broker_key("log.cleaner.io.max.bytes.per.second",
    Double(), DOUBLE_MAX, MEDIUM, CLUSTER_WIDE, effect=LATER_QUOTAS,
    doc="Maximum number of bytes per second that compaction reads and writes.")
LOG_CLEANER_MIN_CLEANABLE_RATIO = broker_key("log.cleaner.min.cleanable.ratio",
    Double(min=0, max=1), 0.5, MEDIUM, CLUSTER_WIDE,
    doc="Ratio of bytes that are not yet compacted to the size of the log, from 0 to 1, at which a log is compacted.")
LOG_CLEANER_DELETE_RETENTION_MS = broker_key("log.cleaner.delete.retention.ms",
    Long(min=0), DAY_MS, MEDIUM, CLUSTER_WIDE,
    doc="Time in milliseconds for which compaction keeps the tombstone of a deleted key.")
LOG_CLEANER_MIN_COMPACTION_LAG_MS = broker_key("log.cleaner.min.compaction.lag.ms",
    Long(min=0), 0, MEDIUM, CLUSTER_WIDE,
    doc="Age, in milliseconds, below which a record is not compacted.")
LOG_CLEANER_MAX_COMPACTION_LAG_MS = broker_key("log.cleaner.max.compaction.lag.ms",
    Long(min=1), LONG_MAX, MEDIUM, CLUSTER_WIDE,
    doc="Age, in milliseconds, of an uncompacted record at which its log must be compacted.")

# Validation and compression of record batches.

MESSAGE_MAX_BYTES = broker_key("message.max.bytes", Int(min=0), MIB + 12, HIGH, CLUSTER_WIDE,
    doc="Maximum size of a record batch, in bytes, after compression.")
COMPRESSION_TYPE = broker_key("compression.type",
    String(one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")), "producer", HIGH, CLUSTER_WIDE,
    doc="Codec in which record batches are stored; producer keeps the codec that the client used.")
COMPRESSION_GZIP_LEVEL = broker_key("compression.gzip.level", Int(min=1, max=9, also=(-1,)), -1, MEDIUM, CLUSTER_WIDE,
    doc="Compression level of gzip; -1 selects gzip's default level.")
COMPRESSION_LZ4_LEVEL = broker_key("compression.lz4.level", Int(min=1, max=17), 9, MEDIUM, CLUSTER_WIDE,
    doc="Compression level of lz4.")
COMPRESSION_ZSTD_LEVEL = broker_key("compression.zstd.level", Int(min=-131_072, max=22), 3, MEDIUM, CLUSTER_WIDE,
    doc="Compression level of zstd; negative levels are faster and compress less.")
LOG_MESSAGE_TIMESTAMP_TYPE = broker_key("log.message.timestamp.type",
    String(one_of=("CreateTime", "LogAppendTime")), "CreateTime", MEDIUM, CLUSTER_WIDE,
    doc="Whether a record keeps the producer's timestamp (CreateTime) or gets the time of the append (LogAppendTime).")
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = broker_key("log.message.timestamp.before.max.ms",
    Long(min=0), LONG_MAX, MEDIUM, CLUSTER_WIDE,
    doc="Maximum time, in milliseconds, by which a record's timestamp may precede the broker's clock; older records "
        "are rejected.")
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = broker_key("log.message.timestamp.after.max.ms",
    Long(min=0), HOUR_MS, MEDIUM, CLUSTER_WIDE,
    doc="Maximum time, in milliseconds, by which a record's timestamp may be ahead of the broker's clock; other "
        "records are rejected.")
MIN_INSYNC_REPLICAS = broker_key("min.insync.replicas", Int(min=1), 1, HIGH, CLUSTER_WIDE,
    doc="Minimum size of the ISR for a write with acks=all to be accepted.")
UNCLEAN_LEADER_ELECTION_ENABLE = broker_key("unclean.leader.election.enable", Boolean(), False, HIGH, CLUSTER_WIDE,
    doc="Whether a replica outside the ISR may become leader if no replica in the ISR is available, at the cost of "
        "losing records.")

# Flushing.

LOG_FLUSH_INTERVAL_MESSAGES = broker_key("log.flush.interval.messages", Long(min=1), LONG_MAX, HIGH, CLUSTER_WIDE,
    doc="Number of appended records after which a log is flushed to disk.")
LOG_FLUSH_INTERVAL_MS = broker_key("log.flush.interval.ms", Long(), None, HIGH, CLUSTER_WIDE,
    doc="Time in milliseconds after which appended records are flushed to disk; if not set, "
        "log.flush.scheduler.interval.ms applies.")
LOG_FLUSH_SCHEDULER_INTERVAL_MS = broker_key("log.flush.scheduler.interval.ms", Long(), LONG_MAX, HIGH,
    doc="Interval, in milliseconds, between two searches for logs that are due for a flush.")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = broker_key("log.flush.offset.checkpoint.interval.ms",
    Int(min=0), MINUTE_MS, HIGH,
    doc="Interval, in milliseconds, at which the recovery points of the logs are checkpointed.")
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = broker_key("log.flush.start.offset.checkpoint.interval.ms",
    Int(min=0), MINUTE_MS, HIGH,
    doc="Interval, in milliseconds, at which the start offsets of the logs are checkpointed.")
LOG_INITIAL_TASK_DELAY_MS = broker_key("log.initial.task.delay.ms", Long(min=0), 30_000, LOW, hidden=True,
    doc="Delay, in milliseconds, between the start of the broker and the first retention check.")

# Producers.

PRODUCER_ID_EXPIRATION_MS = broker_key("producer.id.expiration.ms", Int(min=1), DAY_MS, LOW, CLUSTER_WIDE,
    doc="Time in milliseconds after its last write at which the state of a producer id is removed.")
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = broker_key("producer.id.expiration.check.interval.ms",
    Int(min=1), 10 * MINUTE_MS, LOW, hidden=True,
    doc="Interval, in milliseconds, between two searches for expired producer ids.")
