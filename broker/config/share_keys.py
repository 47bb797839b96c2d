"""Keys of share groups and streams groups."""

from .key import (
    CLUSTER_WIDE,
    HIGH,
    HOUR_MS,
    KIB,
    LATER_SHARE,
    LATER_STREAMS,
    LOW,
    MEDIUM,
    MIB,
    MINUTE_MS,
    NO_BUFFER,
    NO_THREADS,
    broker_key,
)
from .values import INT_MAX, Int, List, Short

# fmt: off

GROUP_SHARE_ASSIGNORS = broker_key("group.share.assignors", List(empty=False), ("simple",), MEDIUM, effect=LATER_SHARE,
    doc="The assignor of share groups.")
GROUP_SHARE_MAX_SIZE = broker_key("group.share.max.size", Int(min=1, max=1000), 200, MEDIUM, effect=LATER_SHARE,
    doc="The most members of a share group.")
GROUP_SHARE_MAX_SHARE_SESSIONS = broker_key("group.share.max.share.sessions", Int(min=1), 2000, MEDIUM,
    effect=LATER_SHARE,
    doc="The most share sessions of a broker.")
GROUP_SHARE_SESSION_TIMEOUT_MS = broker_key("group.share.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    effect=LATER_SHARE,
    doc="A member of a share group that is silent for so long is removed.")
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = broker_key("group.share.min.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    effect=LATER_SHARE,
    doc="The shortest session that a share group may be given.")
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = broker_key("group.share.max.session.timeout.ms", Int(min=1), MINUTE_MS, MEDIUM,
    effect=LATER_SHARE,
    doc="The longest session that a share group may be given.")
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = broker_key("group.share.heartbeat.interval.ms", Int(min=1), 5000, MEDIUM,
    effect=LATER_SHARE,
    doc="How often a member of a share group is told to speak up.")
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = broker_key("group.share.min.heartbeat.interval.ms", Int(min=1), 5000, MEDIUM,
    effect=LATER_SHARE,
    doc="The shortest such interval that a share group may be given.")
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = broker_key("group.share.max.heartbeat.interval.ms", Int(min=1), 15_000, MEDIUM,
    effect=LATER_SHARE,
    doc="The longest such interval that a share group may be given.")
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS = broker_key("group.share.assignment.interval.ms",
    Int(min=0), 1000, MEDIUM, CLUSTER_WIDE, effect=LATER_SHARE,
    doc="The least time between two assignments of a share group.")
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS = broker_key("group.share.min.assignment.interval.ms", Int(min=0), 0, MEDIUM,
    effect=LATER_SHARE,
    doc="The least such time that a share group may be given.")
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS = broker_key("group.share.max.assignment.interval.ms",
    Int(min=0), 15_000, MEDIUM, effect=LATER_SHARE,
    doc="The most such time that a share group may be given.")
GROUP_SHARE_RECORD_LOCK_DURATION_MS = broker_key("group.share.record.lock.duration.ms",
    Int(min=1000, max=HOUR_MS), 30_000, MEDIUM, effect=LATER_SHARE,
    doc="How long a record is kept for the member that got it.")
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = broker_key("group.share.min.record.lock.duration.ms",
    Int(min=1000, max=30_000), 15_000, MEDIUM, effect=LATER_SHARE,
    doc="The shortest such time that a share group may be given.")
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = broker_key("group.share.max.record.lock.duration.ms",
    Int(min=30_000, max=HOUR_MS), MINUTE_MS, MEDIUM, effect=LATER_SHARE,
    doc="The longest such time that a share group may be given.")
GROUP_SHARE_DELIVERY_COUNT_LIMIT = broker_key("group.share.delivery.count.limit", Int(min=2, max=10), 5, MEDIUM,
    effect=LATER_SHARE,
    doc="How many times a record is delivered before it is given up.")
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = broker_key("group.share.min.delivery.count.limit", Int(min=2, max=5), 2, MEDIUM,
    effect=LATER_SHARE,
    doc="The least such number that a share group may be given.")
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = broker_key("group.share.max.delivery.count.limit",
    Int(min=5, max=25), 10, MEDIUM, effect=LATER_SHARE,
    doc="The most such number that a share group may be given.")
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = broker_key("group.share.partition.max.record.locks",
    Int(min=100, max=10_000), 2000, MEDIUM, effect=LATER_SHARE,
    doc="How many records of a partition may be with members at a time.")
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = broker_key("group.share.min.partition.max.record.locks",
    Int(min=100, max=2000), 100, MEDIUM, effect=LATER_SHARE,
    doc="The least such number that a share group may be given.")
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = broker_key("group.share.max.partition.max.record.locks",
    Int(min=2000, max=10_000), 4000, MEDIUM, effect=LATER_SHARE,
    doc="The most such number that a share group may be given.")
GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS = broker_key("group.share.initialize.retry.interval.ms",
    Int(min=1), 30_000, LOW, effect=LATER_SHARE, hidden=True,
    doc="How often the state of a new share partition is asked for again.")

# The state of share groups.

SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS = broker_key("share.coordinator.state.topic.num.partitions",
    Int(min=1), 50, HIGH, effect=LATER_SHARE,
    doc="How many partitions the topic of share states gets.")
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = broker_key("share.coordinator.state.topic.replication.factor",
    Short(min=1), 3, HIGH, effect=LATER_SHARE,
    doc="How many replicas the topic of share states gets.")
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = broker_key("share.coordinator.state.topic.min.isr", Short(min=1), 2, HIGH,
    effect=LATER_SHARE,
    doc="How many replicas in sync a write to the topic of share states needs.")
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES = broker_key("share.coordinator.state.topic.segment.bytes",
    Int(min=1), 100 * MIB, HIGH, effect=LATER_SHARE,
    doc="The segment size of the topic of share states.")
SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC = broker_key("share.coordinator.state.topic.compression.codec",
    Int(), 0, HIGH, effect=LATER_SHARE,
    doc="The codec of the topic of share states, as a number.")
SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS = broker_key("share.coordinator.state.topic.prune.interval.ms",
    Int(min=1), 5 * MINUTE_MS, LOW, effect=LATER_SHARE, hidden=True,
    doc="How often states that nobody needs are cut off.")
SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS = broker_key(
    "share.coordinator.cold.partition.snapshot.interval.ms",
    Int(min=1), 5 * MINUTE_MS, LOW, effect=LATER_SHARE, hidden=True,
    doc="How often a share partition without traffic is written whole.")
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT = broker_key(
    "share.coordinator.snapshot.update.records.per.snapshot",
    Int(min=0, max=500), 500, MEDIUM, effect=LATER_SHARE,
    doc="After how many changes a share partition is written whole.")
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = broker_key("share.coordinator.write.timeout.ms", Int(min=1), 5000, HIGH,
    effect=LATER_SHARE,
    doc="How long a write of a share state waits for its replicas.")
SHARE_COORDINATOR_APPEND_LINGER_MS = broker_key("share.coordinator.append.linger.ms", Int(min=-1), -1, MEDIUM,
    effect=LATER_SHARE,
    doc="How long share states are gathered before they are written; -1 finds its own measure.")
SHARE_COORDINATOR_CACHED_BUFFER_MAX_BYTES = broker_key("share.coordinator.cached.buffer.max.bytes",
    Int(min=512 * KIB), MIB + 12, MEDIUM, CLUSTER_WIDE, effect=NO_BUFFER,
    doc="The largest buffer that a share coordinator keeps for its next write.")
SHARE_COORDINATOR_LOAD_BUFFER_SIZE = broker_key("share.coordinator.load.buffer.size", Int(min=1), 5 * MIB, HIGH,
    effect=NO_BUFFER,
    doc="How many bytes are read at a time when share states are loaded.")
SHARE_COORDINATOR_THREADS = broker_key("share.coordinator.threads", Int(min=1), 1, MEDIUM, effect=NO_THREADS,
    doc="Threads that coordinate share groups.")

# Streams groups.

GROUP_STREAMS_MAX_SIZE = broker_key("group.streams.max.size", Int(min=1), INT_MAX, MEDIUM, effect=LATER_STREAMS,
    doc="The most members of a streams group.")
GROUP_STREAMS_SESSION_TIMEOUT_MS = broker_key("group.streams.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    effect=LATER_STREAMS,
    doc="A member of a streams group that is silent for so long is removed.")
GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS = broker_key("group.streams.min.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    effect=LATER_STREAMS,
    doc="The shortest session that a streams group may be given.")
GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS = broker_key("group.streams.max.session.timeout.ms", Int(min=1), MINUTE_MS, MEDIUM,
    effect=LATER_STREAMS,
    doc="The longest session that a streams group may be given.")
GROUP_STREAMS_HEARTBEAT_INTERVAL_MS = broker_key("group.streams.heartbeat.interval.ms", Int(min=1), 5000, MEDIUM,
    effect=LATER_STREAMS,
    doc="How often a member of a streams group is told to speak up.")
GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS = broker_key("group.streams.min.heartbeat.interval.ms",
    Int(min=1), 5000, MEDIUM, effect=LATER_STREAMS,
    doc="The shortest such interval that a streams group may be given.")
GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS = broker_key("group.streams.max.heartbeat.interval.ms",
    Int(min=1), 15_000, MEDIUM, effect=LATER_STREAMS,
    doc="The longest such interval that a streams group may be given.")
GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS = broker_key("group.streams.assignment.interval.ms",
    Int(min=0), 1000, MEDIUM, CLUSTER_WIDE, effect=LATER_STREAMS,
    doc="The least time between two assignments of a streams group.")
GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS = broker_key("group.streams.min.assignment.interval.ms", Int(min=0), 0, MEDIUM,
    effect=LATER_STREAMS,
    doc="The least such time that a streams group may be given.")
GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS = broker_key("group.streams.max.assignment.interval.ms",
    Int(min=0), 15_000, MEDIUM, effect=LATER_STREAMS,
    doc="The most such time that a streams group may be given.")
GROUP_STREAMS_NUM_STANDBY_REPLICAS = broker_key("group.streams.num.standby.replicas", Int(min=0), 0, MEDIUM,
    effect=LATER_STREAMS,
    doc="How many standby copies of its state a task gets.")
GROUP_STREAMS_MAX_STANDBY_REPLICAS = broker_key("group.streams.max.standby.replicas", Int(min=0), 2, MEDIUM,
    effect=LATER_STREAMS,
    doc="The most standby copies that a streams group may be given.")
GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS = broker_key("group.streams.initial.rebalance.delay.ms",
    Int(min=0), 3000, MEDIUM, effect=LATER_STREAMS,
    doc="How long a new streams group waits for more members before its first assignment.")
