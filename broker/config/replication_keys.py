"""Keys of the traffic between leaders and followers."""

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
    doc="How many connections fetch from each other broker.")
REPLICA_FETCH_MAX_BYTES = broker_key("replica.fetch.max.bytes", Int(min=0), MIB, MEDIUM,
    doc="How many bytes of one partition a follower asks for.")
REPLICA_FETCH_RESPONSE_MAX_BYTES = broker_key("replica.fetch.response.max.bytes", Int(min=0), 10 * MIB, MEDIUM,
    doc="How many bytes a follower asks for in one request.")
REPLICA_FETCH_MIN_BYTES = broker_key("replica.fetch.min.bytes", Int(), 1, HIGH,
    doc="So many bytes make a leader answer a follower at once.")
REPLICA_FETCH_WAIT_MAX_MS = broker_key("replica.fetch.wait.max.ms", Int(), 500, HIGH,
    doc="How long a leader lets a follower wait for them.")
REPLICA_FETCH_BACKOFF_MS = broker_key("replica.fetch.backoff.ms", Int(min=0), 1000, MEDIUM,
    doc="How long a follower pauses after a failed fetch.")
REPLICA_LAG_TIME_MAX_MS = broker_key("replica.lag.time.max.ms", Long(), 30_000, HIGH,
    doc="A follower that is not caught up for so long is no longer in sync.")
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = broker_key("replica.high.watermark.checkpoint.interval.ms",
    Long(), 5000, HIGH,
    doc="How often high watermarks are written down.")
REPLICA_SOCKET_TIMEOUT_MS = broker_key("replica.socket.timeout.ms", Int(), 30_000, HIGH,
    doc="How long a follower waits for an answer.")
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = broker_key("replica.socket.receive.buffer.bytes", Int(), 64 * KIB, HIGH,
    doc="The kernel's receive buffer of a follower's connection; if it is not set, or -1, the system sizes it.")
REPLICA_SELECTOR_CLASS = broker_key("replica.selector.class", String(), None, MEDIUM,
    doc="How a consumer's replica is chosen: the leader, or with RackAwareReplicaSelector one in its rack.")
NUM_REPLICA_ALTER_LOG_DIRS_THREADS = broker_key("num.replica.alter.log.dirs.threads", Int(), None, HIGH,
    doc="How many partitions are copied to another directory at a time; as many as there are directories if not set.")
AUTO_LEADER_REBALANCE_ENABLE = broker_key("auto.leader.rebalance.enable", Boolean(), True, HIGH,
    doc="Whether leadership goes back to the preferred replicas by itself.")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = broker_key("leader.imbalance.check.interval.seconds", Long(min=1), 300, HIGH,
    doc="How often that is looked at.")
UNCLEAN_LEADER_ELECTION_INTERVAL_MS = broker_key("unclean.leader.election.interval.ms",
    Long(min=1), 5 * MINUTE_MS, MEDIUM, hidden=True,
    doc="How often it is looked for partitions that only an unclean election can help.")

# Rates that are only ever set while the broker runs.

LEADER_REPLICATION_THROTTLED_RATE = broker_key("leader.replication.throttled.rate",
    Long(min=0), None, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="The most bytes that a leader sends to throttled replicas in a second.")
FOLLOWER_REPLICATION_THROTTLED_RATE = broker_key("follower.replication.throttled.rate",
    Long(min=0), None, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="The most bytes that a follower fetches for throttled replicas in a second.")
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = broker_key("replica.alter.log.dirs.io.max.bytes.per.second",
    Long(min=0), None, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="The most bytes that moves between directories read in a second.")
