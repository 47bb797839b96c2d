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
    doc="The kinds of groups that are served.")
GROUP_COORDINATOR_THREADS = broker_key("group.coordinator.threads", Int(min=1), 4, HIGH, effect=NO_THREADS,
    doc="Threads that coordinate groups.")
GROUP_COORDINATOR_BACKGROUND_THREADS = broker_key("group.coordinator.background.threads", Int(min=1), 2, HIGH,
    effect=NO_THREADS,
    doc="Threads that compute assignments.")
GROUP_COORDINATOR_APPEND_LINGER_MS = broker_key("group.coordinator.append.linger.ms", Int(min=-1), -1, MEDIUM,
    effect=NO_LINGER,
    doc="How long a coordinator gathers records before it writes them; -1 finds its own measure.")
GROUP_COORDINATOR_CACHED_BUFFER_MAX_BYTES = broker_key("group.coordinator.cached.buffer.max.bytes",
    Int(min=512 * KIB), MIB + 12, MEDIUM, CLUSTER_WIDE, effect=NO_BUFFER,
    doc="The largest buffer that a coordinator keeps for its next write.")

# Classic groups.

GROUP_INITIAL_REBALANCE_DELAY_MS = broker_key("group.initial.rebalance.delay.ms", Int(), 3000, MEDIUM,
    doc="How long an empty group waits for more members before its first assignment.")
GROUP_MIN_SESSION_TIMEOUT_MS = broker_key("group.min.session.timeout.ms", Int(), 6000, MEDIUM,
    doc="The shortest session that a member of a classic group may ask for.")
GROUP_MAX_SESSION_TIMEOUT_MS = broker_key("group.max.session.timeout.ms", Int(), 30 * MINUTE_MS, MEDIUM,
    doc="The longest session that a member of a classic group may ask for.")
GROUP_MAX_SIZE = broker_key("group.max.size", Int(min=1), INT_MAX, MEDIUM,
    doc="The most members of a classic group.")

# Consumer groups.

GROUP_CONSUMER_ASSIGNORS = broker_key("group.consumer.assignors", List(empty=False), ("uniform", "range"), MEDIUM,
    doc="The assignors that a consumer group may use, the default first.")
GROUP_CONSUMER_MIGRATION_POLICY = broker_key(
    "group.consumer.migration.policy",
    String(one_of=("disabled", "downgrade", "upgrade", "bidirectional"), fold=True),
    "bidirectional", MEDIUM,
    doc="Whether a group may change between the classic and the consumer protocol.")
GROUP_CONSUMER_MAX_SIZE = broker_key("group.consumer.max.size", Int(min=1), INT_MAX, MEDIUM,
    doc="The most members of a consumer group.")
GROUP_CONSUMER_SESSION_TIMEOUT_MS = broker_key("group.consumer.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    doc="A member of a consumer group that is silent for so long is removed.")
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = broker_key("group.consumer.min.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    doc="The shortest session that a consumer group may be given.")
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = broker_key("group.consumer.max.session.timeout.ms",
    Int(min=1), MINUTE_MS, MEDIUM,
    doc="The longest session that a consumer group may be given.")
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = broker_key("group.consumer.heartbeat.interval.ms", Int(min=1), 5000, MEDIUM,
    doc="How often a member of a consumer group is told to speak up.")
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = broker_key("group.consumer.min.heartbeat.interval.ms",
    Int(min=1), 5000, MEDIUM,
    doc="The shortest such interval that a consumer group may be given.")
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = broker_key("group.consumer.max.heartbeat.interval.ms",
    Int(min=1), 15_000, MEDIUM,
    doc="The longest such interval that a consumer group may be given.")
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = broker_key("group.consumer.assignment.interval.ms",
    Int(min=0), 1000, MEDIUM, CLUSTER_WIDE,
    doc="The least time between two assignments of a consumer group.")
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = broker_key("group.consumer.min.assignment.interval.ms",
    Int(min=0), 0, MEDIUM,
    doc="The least such time that a consumer group may be given.")
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = broker_key("group.consumer.max.assignment.interval.ms",
    Int(min=0), 15_000, MEDIUM,
    doc="The most such time that a consumer group may be given.")
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS = broker_key("group.consumer.regex.refresh.interval.ms",
    Int(min=10_000), 10 * MINUTE_MS, MEDIUM, hidden=True,
    doc="How often a subscription by pattern looks for new topics.")

# Committed offsets.

OFFSETS_TOPIC_NUM_PARTITIONS = broker_key("offsets.topic.num.partitions", Int(min=1), 50, HIGH,
    doc="How many partitions the topic of committed offsets gets.")
OFFSETS_TOPIC_REPLICATION_FACTOR = broker_key("offsets.topic.replication.factor", Short(min=1), 3, HIGH,
    doc="How many replicas the topic of committed offsets gets.")
OFFSETS_TOPIC_SEGMENT_BYTES = broker_key("offsets.topic.segment.bytes", Int(min=1), 100 * MIB, HIGH,
    doc="The segment size of the topic of committed offsets.")
OFFSETS_TOPIC_COMPRESSION_CODEC = broker_key("offsets.topic.compression.codec", Int(), 0, HIGH,
    doc="The codec of the topic of committed offsets, as a number.")
OFFSETS_LOAD_BUFFER_SIZE = broker_key("offsets.load.buffer.size", Int(min=1), 5 * MIB, HIGH, effect=NO_BUFFER,
    doc="How many bytes are read at a time when committed offsets are loaded.")
OFFSETS_COMMIT_TIMEOUT_MS = broker_key("offsets.commit.timeout.ms", Int(min=1), 5000, HIGH,
    doc="How long a commit waits for the replicas of the topic of committed offsets.")
OFFSETS_RETENTION_MINUTES = broker_key("offsets.retention.minutes", Int(min=1), 10_080, HIGH,
    doc="How long the offsets of an empty group are kept.")
OFFSETS_RETENTION_CHECK_INTERVAL_MS = broker_key("offsets.retention.check.interval.ms",
    Long(min=1), 10 * MINUTE_MS, HIGH,
    doc="How often it is looked for offsets that are too old.")
OFFSET_METADATA_MAX_BYTES = broker_key("offset.metadata.max.bytes", Int(), 4 * KIB, HIGH,
    doc="The longest text beside a committed offset.")

# Transactions.

TRANSACTION_MAX_TIMEOUT_MS = broker_key("transaction.max.timeout.ms", Int(min=1), 15 * MINUTE_MS, HIGH,
    doc="The longest timeout that a transaction may ask for.")
TRANSACTIONAL_ID_EXPIRATION_MS = broker_key("transactional.id.expiration.ms", Int(min=1), 7 * DAY_MS, HIGH,
    doc="A transactional id that is not used for so long is forgotten.")
TRANSACTION_STATE_LOG_NUM_PARTITIONS = broker_key("transaction.state.log.num.partitions", Int(min=1), 50, HIGH,
    doc="How many partitions the topic of transactions gets.")
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = broker_key("transaction.state.log.replication.factor", Short(min=1), 3, HIGH,
    doc="How many replicas the topic of transactions gets.")
TRANSACTION_STATE_LOG_MIN_ISR = broker_key("transaction.state.log.min.isr", Int(min=1), 2, HIGH,
    doc="How many replicas in sync a write to the topic of transactions needs.")
TRANSACTION_STATE_LOG_SEGMENT_BYTES = broker_key("transaction.state.log.segment.bytes", Int(min=1), 100 * MIB, HIGH,
    doc="The segment size of the topic of transactions.")
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE = broker_key("transaction.state.log.load.buffer.size", Int(min=1), 5 * MIB, HIGH,
    effect=NO_BUFFER,
    doc="How many bytes are read at a time when transactions are loaded.")
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS = broker_key(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    Int(min=1), 10_000, LOW, effect=NO_SCAN,
    doc="How often it is looked for transactions that took too long.")
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = broker_key(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    Int(min=1), HOUR_MS, LOW,
    doc="How often it is looked for transactional ids that expired.")
TRANSACTION_PARTITION_VERIFICATION_ENABLE = broker_key("transaction.partition.verification.enable",
    Boolean(), True, LOW, CLUSTER_WIDE,
    doc="Whether a write is refused whose transaction does not know the partition.")
TRANSACTION_TWO_PHASE_COMMIT_ENABLE = broker_key("transaction.two.phase.commit.enable", Boolean(), False, LOW,
    effect=NOTHING_UNSTABLE,
    doc="Whether a transaction may be prepared by an outside coordinator and then never times out.")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS = broker_key("add.partitions.to.txn.retry.backoff.ms", Int(min=1), 20, HIGH,
    doc="The pause before a partition is added to a transaction again.")
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = broker_key("add.partitions.to.txn.retry.backoff.max.ms",
    Int(min=0), 100, HIGH,
    doc="How long that is tried before the client is told to try again.")
