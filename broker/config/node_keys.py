"""Keys of the node itself: what it is, where it listens, its quorum and metadata log, and the topics it creates."""

from .addresses import is_server, is_voter
from .key import (
    DAY_MS,
    GIB,
    HIGH,
    HOUR_MS,
    JAVA,
    LATER_CLUSTER,
    LOW,
    MEDIUM,
    MIB,
    MINUTE_MS,
    NOTHING_UNSTABLE,
    ONE_DECISION,
    PER_BROKER,
    REQUIRED,
    TWO_SNAPSHOTS,
    broker_key,
)
from .values import Boolean, Class, Int, List, Long, String

# fmt: off

PROCESS_ROLES = broker_key("process.roles", List(one_of=("broker", "controller"), empty=False), REQUIRED, HIGH,
    doc="What this node is: a broker, a controller, or both.")
NODE_ID = broker_key("node.id", Int(min=0), REQUIRED, HIGH,
    doc="The number of this node in its cluster; no two nodes share one.")
BROKER_ID = broker_key("broker.id", Int(), -1, HIGH,
    doc="The older name of node.id; the two must not contradict each other.")
BROKER_RACK = broker_key("broker.rack", String(), None, MEDIUM,
    doc="Where this broker stands, so that the replicas of a partition are spread over racks.")

# Listeners.

LISTENERS = broker_key("listeners", List(empty=False), ("PLAINTEXT://:9092",), HIGH, PER_BROKER,
    doc="Where this node listens: NAME://host:port between commas; without a host, on every address.")
ADVERTISED_LISTENERS = broker_key("advertised.listeners", List(empty=False), None, HIGH,
    doc="The addresses that clients are told; without it, those of listeners.")
LISTENER_SECURITY_PROTOCOL_MAP = broker_key("listener.security.protocol.map",
    String(), "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW, PER_BROKER,
    doc="Which protocol each listener speaks: NAME:PROTOCOL between commas.")
INTER_BROKER_LISTENER_NAME = broker_key("inter.broker.listener.name", String(), None, MEDIUM,
    doc="The listener by which brokers reach each other.")
SECURITY_INTER_BROKER_PROTOCOL = broker_key("security.inter.broker.protocol",
    String(one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")), "PLAINTEXT", MEDIUM,
    doc="Picks the listener between brokers by its protocol; inter.broker.listener.name is the better way.")
CONTROLLER_LISTENER_NAMES = broker_key("controller.listener.names", List(empty=False), REQUIRED, HIGH,
    doc="The listeners of controllers; a broker uses the first to reach them.")
EARLY_START_LISTENERS = broker_key("early.start.listeners", List(), None, HIGH, effect=LATER_CLUSTER,
    doc="The listeners that open before the node knows the cluster's metadata.")

# The quorum of controllers, and its log.

CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = broker_key("controller.quorum.bootstrap.servers", List(check=is_server), (), HIGH,
    doc="Where controllers can be found: host:port between commas.")
CONTROLLER_QUORUM_VOTERS = broker_key("controller.quorum.voters", List(check=is_voter), (), HIGH,
    doc="All controllers of a quorum that never changes: id@host:port between commas.")
CONTROLLER_QUORUM_AUTO_JOIN_ENABLE = broker_key("controller.quorum.auto.join.enable", Boolean(), False, LOW,
    doc="Whether a new controller makes itself a voter.")
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS = broker_key("controller.quorum.election.timeout.ms", Int(min=0), 1000, HIGH,
    doc="How long a candidate waits for votes before it stands again.")
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS = broker_key("controller.quorum.election.backoff.max.ms",
    Int(min=0), 1000, HIGH,
    doc="The longest pause before a candidate that lost stands again.")
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS = broker_key("controller.quorum.fetch.timeout.ms", Int(min=0), 2000, HIGH,
    doc="How long a voter goes without word from the leader before it calls an election.")
CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS = broker_key("controller.quorum.request.timeout.ms", Int(min=0), 2000, MEDIUM,
    doc="How long a controller waits for another one's answer.")
CONTROLLER_QUORUM_RETRY_BACKOFF_MS = broker_key("controller.quorum.retry.backoff.ms", Int(min=0), 20, LOW,
    doc="The pause before a request to another controller is repeated.")
CONTROLLER_QUORUM_APPEND_LINGER_MS = broker_key("controller.quorum.append.linger.ms", Int(min=0), 25, MEDIUM,
    effect=ONE_DECISION,
    doc="How long the leader gathers metadata records before it writes them.")
CONTROLLER_QUORUM_FETCH_MAX_BYTES = broker_key("controller.quorum.fetch.max.bytes", Int(min=1), MIB, LOW,
    doc="The most bytes of the metadata log in one answer.")
CONTROLLER_QUORUM_FETCH_SNAPSHOT_MAX_BYTES = broker_key("controller.quorum.fetch.snapshot.max.bytes",
    Int(min=1), MIB, LOW,
    doc="The most bytes of a metadata snapshot in one answer.")
METADATA_LOG_DIR = broker_key("metadata.log.dir", String(), None, HIGH,
    doc="Where the metadata log is kept; without it, in the first of log.dirs.")
METADATA_LOG_SEGMENT_BYTES = broker_key("metadata.log.segment.bytes", Int(min=8 * MIB), GIB, HIGH,
    doc="The size at which a segment of the metadata log is closed.")
METADATA_LOG_SEGMENT_MS = broker_key("metadata.log.segment.ms", Long(), 7 * DAY_MS, HIGH,
    doc="The age at which a segment of the metadata log is closed.")
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = broker_key("metadata.log.max.record.bytes.between.snapshots",
    Long(min=1), 20 * MIB, HIGH,
    doc="So many bytes of new metadata records call for a snapshot.")
METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS = broker_key("metadata.log.max.snapshot.interval.ms", Long(min=0), HOUR_MS, HIGH,
    doc="So much time with new metadata records calls for a snapshot; 0 leaves it to the bytes.")
METADATA_MAX_IDLE_INTERVAL_MS = broker_key("metadata.max.idle.interval.ms", Int(min=0), 500, LOW,
    doc="How often a controller that others follow writes a record that says it is alive; 0 is never.")
METADATA_MAX_RETENTION_BYTES = broker_key("metadata.max.retention.bytes", Long(), 100 * MIB, HIGH, effect=TWO_SNAPSHOTS,
    doc="The size above which old metadata segments and snapshots are deleted.")
METADATA_MAX_RETENTION_MS = broker_key("metadata.max.retention.ms", Long(), 7 * DAY_MS, HIGH, effect=TWO_SNAPSHOTS,
    doc="The age above which old metadata segments and snapshots are deleted.")
BROKER_HEARTBEAT_INTERVAL_MS = broker_key("broker.heartbeat.interval.ms", Int(), 2000, MEDIUM,
    doc="How often a broker tells the controller that it is alive.")
BROKER_SESSION_TIMEOUT_MS = broker_key("broker.session.timeout.ms", Int(), 9000, MEDIUM,
    doc="How long a broker may be silent before the controller fences it.")
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = broker_key("initial.broker.registration.timeout.ms", Int(), MINUTE_MS, MEDIUM,
    doc="How long a starting broker tries to register before it gives up.")
CONTROLLED_SHUTDOWN_ENABLE = broker_key("controlled.shutdown.enable", Boolean(), True, MEDIUM,
    doc="Whether a broker gives its partitions to others before it stops.")
CONTROLLER_SOCKET_TIMEOUT_MS = broker_key("controller.socket.timeout.ms", Int(), 30_000, MEDIUM, effect=LATER_CLUSTER,
    doc="How long a broker waits for the controller's answer.")

# Topics.

AUTO_CREATE_TOPICS_ENABLE = broker_key("auto.create.topics.enable", Boolean(), True, HIGH,
    doc="Whether asking for a topic that does not exist creates it.")
DELETE_TOPIC_ENABLE = broker_key("delete.topic.enable", Boolean(), True, HIGH,
    doc="Whether topics can be deleted at all.")
NUM_PARTITIONS = broker_key("num.partitions", Int(min=1), 1, MEDIUM,
    doc="How many partitions a topic gets when its creator does not say.")
DEFAULT_REPLICATION_FACTOR = broker_key("default.replication.factor", Int(), 1, MEDIUM,
    doc="How many replicas a partition gets when the topic's creator does not say.")
MAX_REQUEST_PARTITION_SIZE_LIMIT = broker_key("max.request.partition.size.limit", Int(min=1), 2000, MEDIUM,
    doc="The most partitions in one answer to DescribeTopicPartitions.")
CREATE_TOPIC_POLICY_CLASS_NAME = broker_key("create.topic.policy.class.name", Class(), None, LOW, effect=JAVA,
    doc="A class that judges the creation of topics. No node starts with one here.")
ALTER_CONFIG_POLICY_CLASS_NAME = broker_key("alter.config.policy.class.name", Class(), None, LOW, effect=JAVA,
    doc="A class that judges changes of configurations. No node starts with one here.")

# Of Kafka's own tests.

INTERNAL_METADATA_LOG_SEGMENT_BYTES = broker_key("internal.metadata.log.segment.bytes", Int(), None, LOW, hidden=True,
    doc="The size of metadata segments, below the floor of metadata.log.segment.bytes.")
UNSTABLE_API_VERSIONS_ENABLE = broker_key("unstable.api.versions.enable", Boolean(), False, HIGH, hidden=True,
    effect=NOTHING_UNSTABLE,
    doc="Whether versions of APIs that are not final yet are offered.")
UNSTABLE_FEATURE_VERSIONS_ENABLE = broker_key("unstable.feature.versions.enable", Boolean(), False, HIGH, hidden=True,
    effect=NOTHING_UNSTABLE,
    doc="Whether versions of features that are not final yet can be chosen.")
