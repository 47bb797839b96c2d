"""Keys of replication."""

from .key import (
    CLUSTER_WIDE,
    HIGH,
    KIB,
    MEDIUM,
    MIB,
    MINUTE_MS,
    broker_key,
)
from .values import Boolean, Int, Long, String

# fmt: off

NUM_REPLICA_FETCHERS = broker_key("num.replica.fetchers", Int(min=1), 1, HIGH, CLUSTER_WIDE,
    doc="Number of fetch connections to each other broker.")
REPLICA_FETCH_MAX_BYTES = broker_key("replica.fetch.max.bytes", Int(min=0), MIB, MEDIUM,
    doc="Maximum number of bytes of one partition that a follower requests in a fetch.")
REPLICA_FETCH_RESPONSE_MAX_BYTES = broker_key("replica.fetch.response.max.bytes", Int(min=0), 10 * MIB, MEDIUM,
    doc="Maximum number of bytes that a follower requests in a fetch.")
REPLICA_FETCH_MIN_BYTES = broker_key("replica.fetch.min.bytes", Int(), 1, HIGH,
    doc="Number of available bytes at which a leader answers a follower's fetch at once.")
REPLICA_FETCH_WAIT_MAX_MS = broker_key("replica.fetch.wait.max.ms", Int(), 500, HIGH,
    doc="Time in milliseconds that a leader waits for replica.fetch.min.bytes before it answers.")
REPLICA_FETCH_BACKOFF_MS = broker_key("replica.fetch.backoff.ms", Int(min=0), 1000, MEDIUM,
    doc="Pause of a follower, in milliseconds, after a failed fetch.")
REPLICA_LAG_TIME_MAX_MS = broker_key("replica.lag.time.max.ms", Long(), 30_000, HIGH,
    doc="Time in milliseconds after which a follower that has not caught up leaves the ISR.")
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = broker_key("replica.high.watermark.checkpoint.interval.ms",
    Long(), 5000, HIGH,
    doc="Interval, in milliseconds, at which high watermarks are checkpointed.")
REPLICA_SOCKET_TIMEOUT_MS = broker_key("replica.socket.timeout.ms", Int(), 30_000, HIGH,
    doc="Time in milliseconds that a follower waits for a response of the leader.")
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = broker_key("replica.socket.receive.buffer.bytes", Int(), 64 * KIB, HIGH,
    doc="Receive buffer (SO_RCVBUF) of a follower's connection, in bytes; if not set, or -1, the kernel decides.")
REPLICA_SELECTOR_CLASS = broker_key("replica.selector.class", String(), None, MEDIUM,
    doc="Replica that a consumer reads from: the leader by default, or a replica in the consumer's rack with "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector.")
NUM_REPLICA_ALTER_LOG_DIRS_THREADS = broker_key("num.replica.alter.log.dirs.threads", Int(), None, HIGH,
    doc="Number of partitions that are copied to another log directory at a time; if not set, the number of log "
        "directories.")
AUTO_LEADER_REBALANCE_ENABLE = broker_key("auto.leader.rebalance.enable", Boolean(), True, HIGH,
    doc="Whether the controller returns leadership to the preferred replicas automatically.")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = broker_key("leader.imbalance.check.interval.seconds", Long(min=1), 300, HIGH,
    doc="Interval, in seconds, between two searches for partitions whose leader is not the preferred replica.")
UNCLEAN_LEADER_ELECTION_INTERVAL_MS = broker_key("unclean.leader.election.interval.ms",
    Long(min=1), 5 * MINUTE_MS, MEDIUM, hidden=True,
    doc="Interval, in milliseconds, between two searches for partitions that need an unclean election.")

# Rates, which are set at run time only.

LEADER_REPLICATION_THROTTLED_RATE = broker_key("leader.replication.throttled.rate",
    Long(min=0), None, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="Maximum number of bytes per second that a leader sends to throttled replicas.")
FOLLOWER_REPLICATION_THROTTLED_RATE = broker_key("follower.replication.throttled.rate",
    Long(min=0), None, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="Maximum number of bytes per second that a follower fetches for throttled replicas.")
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = broker_key("replica.alter.log.dirs.io.max.bytes.per.second",
    Long(min=0), None, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="Maximum number of bytes per second that moves between log directories read.")
