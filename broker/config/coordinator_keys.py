"""Keys of group coordination, committed offsets and transactions."""

from .key import (
    CLUSTER_WIDE,
    DAY_MS,
    HIGH,
    HOUR_MS,
    KIB,
    LOW,
    MEDIUM,
    MIB,
    MINUTE_MS,
    NO_BUFFER,
    NO_LINGER,
    NO_SCAN,
    NO_THREADS,
    NOTHING_UNSTABLE,
    broker_key,
)
from .values import INT_MAX, Boolean, Int, List, Long, Short, String

# fmt: off

GROUP_COORDINATOR_REBALANCE_PROTOCOLS = broker_key(
    "group.coordinator.rebalance.protocols",
    List(one_of=("consumer", "classic", "share", "streams"), empty=False),
    ("classic", "consumer", "streams"), MEDIUM,
    doc="Group protocols that this broker serves.")
GROUP_COORDINATOR_THREADS = broker_key("group.coordinator.threads", Int(min=1), 4, HIGH, effect=NO_THREADS,
    doc="Number of threads for group coordination.")
GROUP_COORDINATOR_BACKGROUND_THREADS = broker_key("group.coordinator.background.threads", Int(min=1), 2, HIGH,
    effect=NO_THREADS,
    doc="Number of threads that compute assignments.")
GROUP_COORDINATOR_APPEND_LINGER_MS = broker_key("group.coordinator.append.linger.ms", Int(min=-1), -1, MEDIUM,
    effect=NO_LINGER,
    doc="Time in milliseconds for which a group coordinator collects records before it appends them; -1 adapts the "
        "time to the load.")
GROUP_COORDINATOR_CACHED_BUFFER_MAX_BYTES = broker_key("group.coordinator.cached.buffer.max.bytes",
    Int(min=512 * KIB), MIB + 12, MEDIUM, CLUSTER_WIDE, effect=NO_BUFFER,
    doc="Largest append buffer, in bytes, that a group coordinator keeps for reuse.")

# Classic groups.

GROUP_INITIAL_REBALANCE_DELAY_MS = broker_key("group.initial.rebalance.delay.ms", Int(), 3000, MEDIUM,
    doc="Time in milliseconds that an empty classic group waits for more members before its first rebalance completes.")
GROUP_MIN_SESSION_TIMEOUT_MS = broker_key("group.min.session.timeout.ms", Int(), 6000, MEDIUM,
    doc="Shortest session timeout, in milliseconds, that a member of a classic group may request.")
GROUP_MAX_SESSION_TIMEOUT_MS = broker_key("group.max.session.timeout.ms", Int(), 30 * MINUTE_MS, MEDIUM,
    doc="Longest session timeout, in milliseconds, that a member of a classic group may request.")
GROUP_MAX_SIZE = broker_key("group.max.size", Int(min=1), INT_MAX, MEDIUM,
    doc="Maximum number of members of a classic group.")

# Consumer groups.

GROUP_CONSUMER_ASSIGNORS = broker_key("group.consumer.assignors", List(empty=False), ("uniform", "range"), MEDIUM,
    doc="Assignors that consumer groups may use; the first is the default.")
GROUP_CONSUMER_MIGRATION_POLICY = broker_key(
    "group.consumer.migration.policy",
    String(one_of=("disabled", "downgrade", "upgrade", "bidirectional"), fold=True),
    "bidirectional", MEDIUM,
    doc="Directions in which a group may convert between the classic and the consumer protocol.")
GROUP_CONSUMER_MAX_SIZE = broker_key("group.consumer.max.size", Int(min=1), INT_MAX, MEDIUM,
    doc="Maximum number of members of a consumer group.")
GROUP_CONSUMER_SESSION_TIMEOUT_MS = broker_key("group.consumer.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    doc="Time in milliseconds without a heartbeat after which a member is removed from its consumer group.")
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = broker_key("group.consumer.min.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    doc="Lower limit, in milliseconds, of a consumer group's consumer.session.timeout.ms.")
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = broker_key("group.consumer.max.session.timeout.ms",
    Int(min=1), MINUTE_MS, MEDIUM,
    doc="Upper limit, in milliseconds, of a consumer group's consumer.session.timeout.ms.")
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = broker_key("group.consumer.heartbeat.interval.ms", Int(min=1), 5000, MEDIUM,
    doc="Heartbeat interval, in milliseconds, that the broker sets for members of a consumer group.")
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = broker_key("group.consumer.min.heartbeat.interval.ms",
    Int(min=1), 5000, MEDIUM,
    doc="Lower limit, in milliseconds, of a consumer group's consumer.heartbeat.interval.ms.")
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = broker_key("group.consumer.max.heartbeat.interval.ms",
    Int(min=1), 15_000, MEDIUM,
    doc="Upper limit, in milliseconds, of a consumer group's consumer.heartbeat.interval.ms.")
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = broker_key("group.consumer.assignment.interval.ms",
    Int(min=0), 1000, MEDIUM, CLUSTER_WIDE,
    doc="Minimum time, in milliseconds, between two assignments of a consumer group.")
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = broker_key("group.consumer.min.assignment.interval.ms",
    Int(min=0), 0, MEDIUM,
    doc="Lower limit, in milliseconds, of a consumer group's consumer.assignment.interval.ms.")
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = broker_key("group.consumer.max.assignment.interval.ms",
    Int(min=0), 15_000, MEDIUM,
    doc="Upper limit, in milliseconds, of a consumer group's consumer.assignment.interval.ms.")
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS = broker_key("group.consumer.regex.refresh.interval.ms",
    Int(min=10_000), 10 * MINUTE_MS, MEDIUM, hidden=True,
    doc="Interval, in milliseconds, at which subscriptions by regular expression are matched against the topics again.")

# Committed offsets.

OFFSETS_TOPIC_NUM_PARTITIONS = broker_key("offsets.topic.num.partitions", Int(min=1), 50, HIGH,
    doc="Number of partitions of __consumer_offsets when it is created.")
OFFSETS_TOPIC_REPLICATION_FACTOR = broker_key("offsets.topic.replication.factor", Short(min=1), 3, HIGH,
    doc="Replication factor of __consumer_offsets when it is created.")
OFFSETS_TOPIC_SEGMENT_BYTES = broker_key("offsets.topic.segment.bytes", Int(min=1), 100 * MIB, HIGH,
    doc="Segment size of __consumer_offsets, in bytes.")
OFFSETS_TOPIC_COMPRESSION_CODEC = broker_key("offsets.topic.compression.codec", Int(), 0, HIGH,
    doc="Compression codec of __consumer_offsets, as its number in the record batch format; 0 is none.")
OFFSETS_LOAD_BUFFER_SIZE = broker_key("offsets.load.buffer.size", Int(min=1), 5 * MIB, HIGH, effect=NO_BUFFER,
    doc="Number of bytes per read while a group coordinator loads a partition of __consumer_offsets.")
OFFSETS_COMMIT_TIMEOUT_MS = broker_key("offsets.commit.timeout.ms", Int(min=1), 5000, HIGH,
    doc="Time in milliseconds that an offset commit waits for the replicas of __consumer_offsets.")
OFFSETS_RETENTION_MINUTES = broker_key("offsets.retention.minutes", Int(min=1), 10_080, HIGH,
    doc="Time in minutes for which the offsets of an empty group are kept.")
OFFSETS_RETENTION_CHECK_INTERVAL_MS = broker_key("offsets.retention.check.interval.ms",
    Long(min=1), 10 * MINUTE_MS, HIGH,
    doc="Interval, in milliseconds, between two searches for expired offsets.")
OFFSET_METADATA_MAX_BYTES = broker_key("offset.metadata.max.bytes", Int(), 4 * KIB, HIGH,
    doc="Maximum size, in bytes, of the metadata string of a committed offset.")

# Transactions.

TRANSACTION_MAX_TIMEOUT_MS = broker_key("transaction.max.timeout.ms", Int(min=1), 15 * MINUTE_MS, HIGH,
    doc="Longest transaction timeout, in milliseconds, that a producer may request.")
TRANSACTIONAL_ID_EXPIRATION_MS = broker_key("transactional.id.expiration.ms", Int(min=1), 7 * DAY_MS, HIGH,
    doc="Time in milliseconds after which an unused transactional id is removed.")
TRANSACTION_STATE_LOG_NUM_PARTITIONS = broker_key("transaction.state.log.num.partitions", Int(min=1), 50, HIGH,
    doc="Number of partitions of __transaction_state when it is created.")
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = broker_key("transaction.state.log.replication.factor", Short(min=1), 3, HIGH,
    doc="Replication factor of __transaction_state when it is created.")
TRANSACTION_STATE_LOG_MIN_ISR = broker_key("transaction.state.log.min.isr", Int(min=1), 2, HIGH,
    doc="Value of min.insync.replicas for __transaction_state.")
TRANSACTION_STATE_LOG_SEGMENT_BYTES = broker_key("transaction.state.log.segment.bytes", Int(min=1), 100 * MIB, HIGH,
    doc="Segment size of __transaction_state, in bytes.")
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE = broker_key("transaction.state.log.load.buffer.size", Int(min=1), 5 * MIB, HIGH,
    effect=NO_BUFFER,
    doc="Number of bytes per read while a transaction coordinator loads a partition of __transaction_state.")
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS = broker_key(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    Int(min=1), 10_000, LOW, effect=NO_SCAN,
    doc="Interval, in milliseconds, between two searches for transactions that have timed out.")
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = broker_key(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    Int(min=1), HOUR_MS, LOW,
    doc="Interval, in milliseconds, between two searches for expired transactional ids.")
TRANSACTION_PARTITION_VERIFICATION_ENABLE = broker_key("transaction.partition.verification.enable",
    Boolean(), True, LOW, CLUSTER_WIDE,
    doc="Whether the leader rejects a transactional write to a partition that was not added to the transaction.")
TRANSACTION_TWO_PHASE_COMMIT_ENABLE = broker_key("transaction.two.phase.commit.enable", Boolean(), False, LOW,
    effect=NOTHING_UNSTABLE,
    doc="Whether an external coordinator may prepare a transaction, which then never times out (KIP-939).")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS = broker_key("add.partitions.to.txn.retry.backoff.ms", Int(min=1), 20, HIGH,
    doc="Pause, in milliseconds, before a leader retries to add a partition to a transaction.")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = broker_key("add.partitions.to.txn.retry.backoff.max.ms",
    Int(min=0), 100, HIGH,
    doc="Time in milliseconds for which a leader retries to add a partition before it returns an error.")
