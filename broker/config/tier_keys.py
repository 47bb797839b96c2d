"""Keys of tiered storage."""

from typing import Final

from .key import (
    CLUSTER_WIDE,
    GIB,
    JAVA,
    LOW,
    MEDIUM,
    MINUTE_MS,
    NO_THREADS,
    broker_key,
)
from .values import LONG_MAX, Boolean, Double, Int, Long, String, not_empty

NO_EXPIRY: Final = "indexes of remote segments do not change"
NO_WINDOWS: Final = "the bytes are spread evenly over time"
NO_CUSTOM_METADATA: Final = "trioka keeps no custom metadata"
NO_LISTENER: Final = "the metadata of remote segments is read and written inside the brokers"

# fmt: off

REMOTE_LOG_STORAGE_SYSTEM_ENABLE = broker_key("remote.log.storage.system.enable", Boolean(), False, MEDIUM,
    doc="Whether topics may use tiered storage.")
LOG_LOCAL_RETENTION_MS = broker_key("log.local.retention.ms", Long(min=-2), -2, MEDIUM, CLUSTER_WIDE,
    doc="Age, in milliseconds, above which a segment that is in the object store is deleted from the local disk; -2 "
        "means log.retention.ms.")
LOG_LOCAL_RETENTION_BYTES = broker_key("log.local.retention.bytes", Long(min=-2), -2, MEDIUM, CLUSTER_WIDE,
    doc="Local size of a partition, in bytes, above which segments that are in the object store are deleted from the "
        "local disk; -2 means log.retention.bytes.")
FOLLOWER_FETCH_LAST_TIERED_OFFSET_ENABLE = broker_key("follower.fetch.last.tiered.offset.enable",
    Boolean(), False, MEDIUM, CLUSTER_WIDE,
    doc="Whether a new follower skips the records that are in the object store.")
REMOTE_FETCH_MAX_WAIT_MS = broker_key("remote.fetch.max.wait.ms", Int(min=1), 500, MEDIUM, CLUSTER_WIDE,
    doc="Time in milliseconds that a fetch waits for the object store.")
REMOTE_LIST_OFFSETS_REQUEST_TIMEOUT_MS = broker_key("remote.list.offsets.request.timeout.ms",
    Long(min=1), 30_000, MEDIUM, CLUSTER_WIDE,
    doc="Time in milliseconds that ListOffsets waits for the object store.")
REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES = broker_key("remote.log.index.file.cache.total.size.bytes",
    Long(min=1), GIB, LOW, CLUSTER_WIDE,
    doc="Space, in bytes, for cached indexes of remote segments. trioka keeps them in memory, at most 64 MiB.")
REMOTE_LOG_INDEX_FILE_CACHE_TTL_MS = broker_key("remote.log.index.file.cache.ttl.ms", Long(min=-1), 15 * MINUTE_MS, LOW,
    effect=NO_EXPIRY, hidden=True,
    doc="Time in milliseconds for which an index of a remote segment stays in the cache.")
REMOTE_LOG_MANAGER_THREAD_POOL_SIZE = broker_key("remote.log.manager.thread.pool.size", Int(min=1), 2, MEDIUM,
    effect=NO_THREADS,
    doc="Number of threads for tiered storage.")
REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE = broker_key("remote.log.manager.copier.thread.pool.size",
    Int(min=1), 10, MEDIUM, CLUSTER_WIDE,
    doc="Number of segments that are copied to the object store at a time.")
REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE = broker_key("remote.log.manager.expiration.thread.pool.size",
    Int(min=1), 10, MEDIUM, CLUSTER_WIDE,
    doc="Number of segments that are deleted from the object store at a time.")
REMOTE_LOG_MANAGER_FOLLOWER_THREAD_POOL_SIZE = broker_key("remote.log.manager.follower.thread.pool.size",
    Int(min=1), 2, MEDIUM, CLUSTER_WIDE, effect=NO_THREADS,
    doc="Number of threads for the followers' tasks of tiered storage.")
REMOTE_LOG_READER_THREADS = broker_key("remote.log.reader.threads", Int(min=1), 10, MEDIUM, CLUSTER_WIDE,
    doc="Number of requests at a time that read from the object store.")
REMOTE_LOG_READER_MAX_PENDING_TASKS = broker_key("remote.log.reader.max.pending.tasks", Int(min=1), 100, MEDIUM,
    doc="Maximum number of queued reads from the object store.")
REMOTE_LOG_MANAGER_TASK_INTERVAL_MS = broker_key("remote.log.manager.task.interval.ms", Long(min=1), 30_000, LOW,
    doc="Interval, in milliseconds, between two searches for segments to copy or delete.")
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS = broker_key("remote.log.manager.task.retry.backoff.ms",
    Long(min=1), 500, LOW, hidden=True,
    doc="First pause, in milliseconds, before a failed copy is retried.")
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS = broker_key("remote.log.manager.task.retry.backoff.max.ms",
    Long(min=1), 30_000, LOW, hidden=True,
    doc="Longest pause, in milliseconds, before a failed copy is retried.")
REMOTE_LOG_MANAGER_TASK_RETRY_JITTER = broker_key("remote.log.manager.task.retry.jitter",
    Double(min=0, max=0.5), 0.2, LOW, hidden=True,
    doc="Random variation of the pauses between retries, as a fraction.")
REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND = broker_key("remote.log.manager.copy.max.bytes.per.second",
    Long(min=1), LONG_MAX, MEDIUM, CLUSTER_WIDE,
    doc="Maximum number of bytes per second that are copied to the object store.")
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM = broker_key("remote.log.manager.copy.quota.window.num",
    Int(min=1), 11, MEDIUM, effect=NO_WINDOWS,
    doc="Number of windows over which the rate of copies to the object store is averaged.")
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS = broker_key("remote.log.manager.copy.quota.window.size.seconds",
    Int(min=1), 1, MEDIUM, effect=NO_WINDOWS,
    doc="Length of a window for copies to the object store, in seconds.")
REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND = broker_key("remote.log.manager.fetch.max.bytes.per.second",
    Long(min=1), LONG_MAX, MEDIUM, CLUSTER_WIDE,
    doc="Maximum number of bytes per second that are read from the object store.")
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM = broker_key("remote.log.manager.fetch.quota.window.num",
    Int(min=1), 11, MEDIUM, effect=NO_WINDOWS,
    doc="Number of windows over which the rate of reads from the object store is averaged.")
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS = broker_key("remote.log.manager.fetch.quota.window.size.seconds",
    Int(min=1), 1, MEDIUM, effect=NO_WINDOWS,
    doc="Length of a window for reads from the object store, in seconds.")
REMOTE_LOG_METADATA_CUSTOM_METADATA_MAX_BYTES = broker_key("remote.log.metadata.custom.metadata.max.bytes",
    Int(min=0), 128, LOW, effect=NO_CUSTOM_METADATA,
    doc="Maximum size, in bytes, of the custom metadata that a store keeps with a segment.")
REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME = broker_key("remote.log.metadata.manager.listener.name",
    String(check=not_empty), None, MEDIUM, effect=NO_LISTENER,
    doc="Listener over which metadata of remote segments is read and written.")
REMOTE_LOG_METADATA_MANAGER_CLASS_NAME = broker_key(
    "remote.log.metadata.manager.class.name",
    String(check=not_empty),
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", MEDIUM, effect=JAVA,
    doc="Java class that stores the metadata of remote segments.")
REMOTE_LOG_METADATA_MANAGER_CLASS_PATH = broker_key("remote.log.metadata.manager.class.path", String(), None, MEDIUM,
    effect=JAVA,
    doc="Class path of remote.log.metadata.manager.class.name.")
REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX = broker_key("remote.log.metadata.manager.impl.prefix",
    String(check=not_empty), "rlmm.config.", MEDIUM, effect=JAVA,
    doc="Prefix of the keys that are passed to remote.log.metadata.manager.class.name.")
REMOTE_LOG_METADATA_TOPIC_NUM_PARTITIONS = broker_key("rlmm.config.remote.log.metadata.topic.num.partitions",
    Int(min=1), 50, LOW, hidden=True,
    doc="Number of partitions of `__remote_log_metadata` when it is created. It must not be changed later.")
REMOTE_LOG_METADATA_TOPIC_REPLICATION_FACTOR = broker_key(
    "rlmm.config.remote.log.metadata.topic.replication.factor", Int(min=1), 3, LOW, hidden=True,
    doc="Number of replicas of `__remote_log_metadata` when it is created.")
REMOTE_LOG_METADATA_TOPIC_RETENTION_MS = broker_key("rlmm.config.remote.log.metadata.topic.retention.ms",
    Long(min=-1), -1, LOW, hidden=True,
    doc="Time in milliseconds for which `__remote_log_metadata` keeps its records; it must be longer than any topic "
        "keeps its segments in the object store.")
REMOTE_LOG_METADATA_TOPIC_MIN_ISR = broker_key("rlmm.config.remote.log.metadata.topic.min.isr", Int(min=1), 2, LOW,
    hidden=True,
    doc="The min.insync.replicas of `__remote_log_metadata`, at most its number of replicas.")
REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME = broker_key("remote.log.storage.manager.class.name",
    String(check=not_empty), None, MEDIUM, effect=JAVA,
    doc="Java class that stores remote segments.")
REMOTE_LOG_STORAGE_MANAGER_CLASS_PATH = broker_key("remote.log.storage.manager.class.path", String(), None, MEDIUM,
    effect=JAVA,
    doc="Class path of remote.log.storage.manager.class.name.")
REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX = broker_key("remote.log.storage.manager.impl.prefix",
    String(check=not_empty), "rsm.config.", MEDIUM, effect=JAVA,
    doc="Prefix of the keys that are passed to remote.log.storage.manager.class.name.")
TIER_RESTORE_COPIES_MS = broker_key("trioka.tier.restore.copies.ms", Long(min=1), MINUTE_MS, LOW, hidden=True,
    doc="Time in milliseconds between two copies of the cluster's metadata and of committed offsets to the object "
        "store, if they have changed. `trioka tier restore` reads them: it loses what was changed later.")
