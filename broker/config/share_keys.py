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
    doc="Assignor of share groups.")
GROUP_SHARE_MAX_SIZE = broker_key("group.share.max.size", Int(min=1, max=1000), 200, MEDIUM, effect=LATER_SHARE,
    doc="Maximum number of members of a share group.")
GROUP_SHARE_MAX_SHARE_SESSIONS = broker_key("group.share.max.share.sessions", Int(min=1), 2000, MEDIUM,
    effect=LATER_SHARE,
    doc="Maximum number of share sessions on a broker.")
GROUP_SHARE_SESSION_TIMEOUT_MS = broker_key("group.share.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    effect=LATER_SHARE,
    doc="Time in milliseconds without a heartbeat after which a member is removed from its share group.")
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = broker_key("group.share.min.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    effect=LATER_SHARE,
    doc="Lower limit, in milliseconds, of a share group's share.session.timeout.ms.")
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = broker_key("group.share.max.session.timeout.ms", Int(min=1), MINUTE_MS, MEDIUM,
    effect=LATER_SHARE,
    doc="Upper limit, in milliseconds, of a share group's share.session.timeout.ms.")
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = broker_key("group.share.heartbeat.interval.ms", Int(min=1), 5000, MEDIUM,
    effect=LATER_SHARE,
    doc="Heartbeat interval, in milliseconds, that the broker sets for members of a share group.")
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = broker_key("group.share.min.heartbeat.interval.ms", Int(min=1), 5000, MEDIUM,
    effect=LATER_SHARE,
    doc="Lower limit, in milliseconds, of a share group's share.heartbeat.interval.ms.")
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = broker_key("group.share.max.heartbeat.interval.ms", Int(min=1), 15_000, MEDIUM,
    effect=LATER_SHARE,
    doc="Upper limit, in milliseconds, of a share group's share.heartbeat.interval.ms.")
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS = broker_key("group.share.assignment.interval.ms",
    Int(min=0), 1000, MEDIUM, CLUSTER_WIDE, effect=LATER_SHARE,
    doc="Minimum time, in milliseconds, between two assignments of a share group.")
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS = broker_key("group.share.min.assignment.interval.ms", Int(min=0), 0, MEDIUM,
    effect=LATER_SHARE,
    doc="Lower limit, in milliseconds, of a share group's share.assignment.interval.ms.")
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS = broker_key("group.share.max.assignment.interval.ms",
    Int(min=0), 15_000, MEDIUM, effect=LATER_SHARE,
    doc="Upper limit, in milliseconds, of a share group's share.assignment.interval.ms.")
GROUP_SHARE_RECORD_LOCK_DURATION_MS = broker_key("group.share.record.lock.duration.ms",
    Int(min=1000, max=HOUR_MS), 30_000, MEDIUM, effect=LATER_SHARE,
    doc="Time in milliseconds for which a delivered record is locked to the member that acquired it.")
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = broker_key("group.share.min.record.lock.duration.ms",
    Int(min=1000, max=30_000), 15_000, MEDIUM, effect=LATER_SHARE,
    doc="Lower limit, in milliseconds, of a share group's share.record.lock.duration.ms.")
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = broker_key("group.share.max.record.lock.duration.ms",
    Int(min=30_000, max=HOUR_MS), MINUTE_MS, MEDIUM, effect=LATER_SHARE,
    doc="Upper limit, in milliseconds, of a share group's share.record.lock.duration.ms.")
GROUP_SHARE_DELIVERY_COUNT_LIMIT = broker_key("group.share.delivery.count.limit", Int(min=2, max=10), 5, MEDIUM,
    effect=LATER_SHARE,
    doc="Number of times a record is delivered before a share group gives up on it.")
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = broker_key("group.share.min.delivery.count.limit", Int(min=2, max=5), 2, MEDIUM,
    effect=LATER_SHARE,
    doc="Lower limit of a share group's share.delivery.count.limit.")
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = broker_key("group.share.max.delivery.count.limit",
    Int(min=5, max=25), 10, MEDIUM, effect=LATER_SHARE,
    doc="Upper limit of a share group's share.delivery.count.limit.")
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = broker_key("group.share.partition.max.record.locks",
    Int(min=100, max=10_000), 2000, MEDIUM, effect=LATER_SHARE,
    doc="Maximum number of records of one partition that members may hold locked at a time.")
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = broker_key("group.share.min.partition.max.record.locks",
    Int(min=100, max=2000), 100, MEDIUM, effect=LATER_SHARE,
    doc="Lower limit of a share group's share.partition.max.record.locks.")
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = broker_key("group.share.max.partition.max.record.locks",
    Int(min=2000, max=10_000), 4000, MEDIUM, effect=LATER_SHARE,
    doc="Upper limit of a share group's share.partition.max.record.locks.")
GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS = broker_key("group.share.initialize.retry.interval.ms",
    Int(min=1), 30_000, LOW, effect=LATER_SHARE, hidden=True,
    doc="Interval, in milliseconds, at which the initialization of a share partition is retried.")

# The state of share groups.

SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS = broker_key("share.coordinator.state.topic.num.partitions",
    Int(min=1), 50, HIGH, effect=LATER_SHARE,
    doc="Number of partitions of __share_group_state when it is created.")
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = broker_key("share.coordinator.state.topic.replication.factor",
    Short(min=1), 3, HIGH, effect=LATER_SHARE,
    doc="Replication factor of __share_group_state when it is created.")
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = broker_key("share.coordinator.state.topic.min.isr", Short(min=1), 2, HIGH,
    effect=LATER_SHARE,
    doc="Value of min.insync.replicas for __share_group_state.")
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES = broker_key("share.coordinator.state.topic.segment.bytes",
    Int(min=1), 100 * MIB, HIGH, effect=LATER_SHARE,
    doc="Segment size of __share_group_state, in bytes.")
SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC = broker_key("share.coordinator.state.topic.compression.codec",
    Int(), 0, HIGH, effect=LATER_SHARE,
    doc="Compression codec of __share_group_state, as its number in the record batch format; 0 is none.")
SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS = broker_key("share.coordinator.state.topic.prune.interval.ms",
    Int(min=1), 5 * MINUTE_MS, LOW, effect=LATER_SHARE, hidden=True,
    doc="Interval, in milliseconds, at which obsolete records of __share_group_state are deleted.")
SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS = broker_key(
    "share.coordinator.cold.partition.snapshot.interval.ms",
    Int(min=1), 5 * MINUTE_MS, LOW, effect=LATER_SHARE, hidden=True,
    doc="Interval, in milliseconds, between two snapshots of a share partition without traffic.")
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT = broker_key(
    "share.coordinator.snapshot.update.records.per.snapshot",
    Int(min=0, max=500), 500, MEDIUM, effect=LATER_SHARE,
    doc="Number of updates of a share partition between two snapshots.")
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = broker_key("share.coordinator.write.timeout.ms", Int(min=1), 5000, HIGH,
    effect=LATER_SHARE,
    doc="Time in milliseconds that a write to __share_group_state waits for its replicas.")
SHARE_COORDINATOR_APPEND_LINGER_MS = broker_key("share.coordinator.append.linger.ms", Int(min=-1), -1, MEDIUM,
    effect=LATER_SHARE,
    doc="Time in milliseconds for which a share coordinator collects records before it appends them; -1 adapts the "
        "time to the load.")
SHARE_COORDINATOR_CACHED_BUFFER_MAX_BYTES = broker_key("share.coordinator.cached.buffer.max.bytes",
    Int(min=512 * KIB), MIB + 12, MEDIUM, CLUSTER_WIDE, effect=NO_BUFFER,
    doc="Largest append buffer, in bytes, that a share coordinator keeps for reuse.")
SHARE_COORDINATOR_LOAD_BUFFER_SIZE = broker_key("share.coordinator.load.buffer.size", Int(min=1), 5 * MIB, HIGH,
    effect=NO_BUFFER,
    doc="Number of bytes per read while a share coordinator loads a partition of __share_group_state.")
SHARE_COORDINATOR_THREADS = broker_key("share.coordinator.threads", Int(min=1), 1, MEDIUM, effect=NO_THREADS,
    doc="Number of threads for share coordination.")

# Streams groups.

GROUP_STREAMS_MAX_SIZE = broker_key("group.streams.max.size", Int(min=1), INT_MAX, MEDIUM, effect=LATER_STREAMS,
    doc="Maximum number of members of a streams group.")
GROUP_STREAMS_SESSION_TIMEOUT_MS = broker_key("group.streams.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    effect=LATER_STREAMS,
    doc="Time in milliseconds without a heartbeat after which a member is removed from its streams group.")
GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS = broker_key("group.streams.min.session.timeout.ms", Int(min=1), 45_000, MEDIUM,
    effect=LATER_STREAMS,
    doc="Lower limit, in milliseconds, of a streams group's streams.session.timeout.ms.")
GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS = broker_key("group.streams.max.session.timeout.ms", Int(min=1), MINUTE_MS, MEDIUM,
    effect=LATER_STREAMS,
    doc="Upper limit, in milliseconds, of a streams group's streams.session.timeout.ms.")
GROUP_STREAMS_HEARTBEAT_INTERVAL_MS = broker_key("group.streams.heartbeat.interval.ms", Int(min=1), 5000, MEDIUM,
    effect=LATER_STREAMS,
    doc="Heartbeat interval, in milliseconds, that the broker sets for members of a streams group.")
GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS = broker_key("group.streams.min.heartbeat.interval.ms",
    Int(min=1), 5000, MEDIUM, effect=LATER_STREAMS,
    doc="Lower limit, in milliseconds, of a streams group's streams.heartbeat.interval.ms.")
GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS = broker_key("group.streams.max.heartbeat.interval.ms",
    Int(min=1), 15_000, MEDIUM, effect=LATER_STREAMS,
    doc="Upper limit, in milliseconds, of a streams group's streams.heartbeat.interval.ms.")
GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS = broker_key("group.streams.assignment.interval.ms",
    Int(min=0), 1000, MEDIUM, CLUSTER_WIDE, effect=LATER_STREAMS,
    doc="Minimum time, in milliseconds, between two assignments of a streams group.")
GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS = broker_key("group.streams.min.assignment.interval.ms", Int(min=0), 0, MEDIUM,
    effect=LATER_STREAMS,
    doc="Lower limit, in milliseconds, of a streams group's streams.assignment.interval.ms.")
GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS = broker_key("group.streams.max.assignment.interval.ms",
    Int(min=0), 15_000, MEDIUM, effect=LATER_STREAMS,
    doc="Upper limit, in milliseconds, of a streams group's streams.assignment.interval.ms.")
GROUP_STREAMS_NUM_STANDBY_REPLICAS = broker_key("group.streams.num.standby.replicas", Int(min=0), 0, MEDIUM,
    effect=LATER_STREAMS,
    doc="Number of standby replicas of each task's state.")
GROUP_STREAMS_MAX_STANDBY_REPLICAS = broker_key("group.streams.max.standby.replicas", Int(min=0), 2, MEDIUM,
    effect=LATER_STREAMS,
    doc="Upper limit of a streams group's streams.num.standby.replicas.")
GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS = broker_key("group.streams.initial.rebalance.delay.ms",
    Int(min=0), 3000, MEDIUM, effect=LATER_STREAMS,
    doc="Time in milliseconds that a new streams group waits for more members before its first assignment.")
