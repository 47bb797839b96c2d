"""Keys of the node: roles, listeners, controller quorum, metadata log, and creation of topics."""

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
    doc="Roles of this node: broker, controller, or both.")
NODE_ID = broker_key("node.id", Int(min=0), REQUIRED, HIGH,
    doc="Id of this node, unique in the cluster.")
BROKER_ID = broker_key("broker.id", Int(), -1, HIGH,
    doc="Former name of node.id; if both are set, they must be equal.")
BROKER_RACK = broker_key("broker.rack", String(), None, MEDIUM,
    doc="Rack of this broker; replicas of a partition are spread over racks.")

# Listeners.

LISTENERS = broker_key("listeners", List(empty=False), ("PLAINTEXT://:9092",), HIGH, PER_BROKER,
    doc="Comma-separated addresses that this node listens on, as NAME://host:port; an empty host means all interfaces.")
ADVERTISED_LISTENERS = broker_key("advertised.listeners", List(empty=False), None, HIGH,
    doc="Addresses that clients connect to, as NAME://host:port; if not set, those of listeners.")
LISTENER_SECURITY_PROTOCOL_MAP = broker_key("listener.security.protocol.map",
    String(), "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW, PER_BROKER,
    doc="Security protocol of each listener name: comma-separated NAME:PROTOCOL pairs.")
INTER_BROKER_LISTENER_NAME = broker_key("inter.broker.listener.name", String(), None, MEDIUM,
    doc="Name of the listener for traffic between brokers; if not set, security.inter.broker.protocol selects it.")
SECURITY_INTER_BROKER_PROTOCOL = broker_key("security.inter.broker.protocol",
    String(one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")), "PLAINTEXT", MEDIUM,
    doc="Selects the listener between brokers by security protocol; inter.broker.listener.name is preferred.")
CONTROLLER_LISTENER_NAMES = broker_key("controller.listener.names", List(empty=False), REQUIRED, HIGH,
    doc="Names of the controllers' listeners; brokers use the first to connect to controllers.")
EARLY_START_LISTENERS = broker_key("early.start.listeners", List(), None, HIGH, effect=LATER_CLUSTER,
    doc="Listeners that open before the node has loaded the cluster metadata.")

# The quorum of controllers, and its log.

CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = broker_key("controller.quorum.bootstrap.servers", List(check=is_server), (), HIGH,
    doc="Addresses at which this node looks for the controller quorum: comma-separated host:port.")
CONTROLLER_QUORUM_VOTERS = broker_key("controller.quorum.voters", List(check=is_voter), (), HIGH,
    doc="All voters of a static controller quorum: comma-separated id@host:port.")
CONTROLLER_QUORUM_AUTO_JOIN_ENABLE = broker_key("controller.quorum.auto.join.enable", Boolean(), False, LOW,
    doc="Whether a new controller adds itself to the voters of the quorum (KIP-853).")
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS = broker_key("controller.quorum.election.timeout.ms", Int(min=0), 1000, HIGH,
    doc="Time in milliseconds that a candidate waits for votes before it starts a new election.")
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS = broker_key("controller.quorum.election.backoff.max.ms",
    Int(min=0), 1000, HIGH,
    doc="Upper limit, in milliseconds, of the random pause after a lost election.")
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS = broker_key("controller.quorum.fetch.timeout.ms", Int(min=0), 2000, HIGH,
    doc="Time in milliseconds without a successful fetch from the leader after which a voter starts an election.")
CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS = broker_key("controller.quorum.request.timeout.ms", Int(min=0), 2000, MEDIUM,
    doc="Time in milliseconds that a node waits for the response of a controller of the quorum.")
CONTROLLER_QUORUM_RETRY_BACKOFF_MS = broker_key("controller.quorum.retry.backoff.ms", Int(min=0), 20, LOW,
    doc="Pause, in milliseconds, before a request to a controller of the quorum is retried.")
CONTROLLER_QUORUM_APPEND_LINGER_MS = broker_key("controller.quorum.append.linger.ms", Int(min=0), 25, MEDIUM,
    effect=ONE_DECISION,
    doc="Time in milliseconds for which the leader of the quorum collects metadata records before it appends them.")
CONTROLLER_QUORUM_FETCH_MAX_BYTES = broker_key("controller.quorum.fetch.max.bytes", Int(min=1), MIB, LOW,
    doc="Maximum number of bytes of the metadata log in one response.")
CONTROLLER_QUORUM_FETCH_SNAPSHOT_MAX_BYTES = broker_key("controller.quorum.fetch.snapshot.max.bytes",
    Int(min=1), MIB, LOW,
    doc="Maximum number of bytes of a metadata snapshot in one response.")
METADATA_LOG_DIR = broker_key("metadata.log.dir", String(), None, HIGH,
    doc="Directory of the metadata log; if not set, the first of log.dirs.")
METADATA_LOG_SEGMENT_BYTES = broker_key("metadata.log.segment.bytes", Int(min=8 * MIB), GIB, HIGH,
    doc="Size, in bytes, at which a segment of the metadata log is closed.")
METADATA_LOG_SEGMENT_MS = broker_key("metadata.log.segment.ms", Long(), 7 * DAY_MS, HIGH,
    doc="Age, in milliseconds, at which a segment of the metadata log is closed.")
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = broker_key("metadata.log.max.record.bytes.between.snapshots",
    Long(min=1), 20 * MIB, HIGH,
    doc="Number of bytes of new metadata records after which a snapshot is written.")
METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS = broker_key("metadata.log.max.snapshot.interval.ms", Long(min=0), HOUR_MS, HIGH,
    doc="Time in milliseconds after which a snapshot is written if there are new metadata records; 0 disables "
        "snapshots by time.")
METADATA_MAX_IDLE_INTERVAL_MS = broker_key("metadata.max.idle.interval.ms", Int(min=0), 500, LOW,
    doc="Interval, in milliseconds, at which the active controller of a quorum with other nodes appends a no-op "
        "record; 0 disables it.")
METADATA_MAX_RETENTION_BYTES = broker_key("metadata.max.retention.bytes", Long(), 100 * MIB, HIGH, effect=TWO_SNAPSHOTS,
    doc="Size, in bytes, above which old metadata segments and snapshots are deleted.")
METADATA_MAX_RETENTION_MS = broker_key("metadata.max.retention.ms", Long(), 7 * DAY_MS, HIGH, effect=TWO_SNAPSHOTS,
    doc="Age, in milliseconds, above which old metadata segments and snapshots are deleted.")
BROKER_HEARTBEAT_INTERVAL_MS = broker_key("broker.heartbeat.interval.ms", Int(), 2000, MEDIUM,
    doc="Interval, in milliseconds, between heartbeats of a broker to the controller.")
BROKER_SESSION_TIMEOUT_MS = broker_key("broker.session.timeout.ms", Int(), 9000, MEDIUM,
    doc="Time in milliseconds without a heartbeat after which the controller fences a broker.")
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = broker_key("initial.broker.registration.timeout.ms", Int(), MINUTE_MS, MEDIUM,
    doc="Time in milliseconds for which a starting broker tries to register before it stops.")
CONTROLLED_SHUTDOWN_ENABLE = broker_key("controlled.shutdown.enable", Boolean(), True, MEDIUM,
    doc="Whether a broker hands over the leadership of its partitions before it stops.")
CONTROLLER_SOCKET_TIMEOUT_MS = broker_key("controller.socket.timeout.ms", Int(), 30_000, MEDIUM, effect=LATER_CLUSTER,
    doc="Time in milliseconds that a broker waits for a response of the controller.")

# Topics.

AUTO_CREATE_TOPICS_ENABLE = broker_key("auto.create.topics.enable", Boolean(), True, HIGH,
    doc="Whether a Metadata request for a topic that does not exist creates the topic.")
DELETE_TOPIC_ENABLE = broker_key("delete.topic.enable", Boolean(), True, HIGH,
    doc="Whether topics can be deleted.")
NUM_PARTITIONS = broker_key("num.partitions", Int(min=1), 1, MEDIUM,
    doc="Number of partitions of a new topic whose creation request does not specify it.")
DEFAULT_REPLICATION_FACTOR = broker_key("default.replication.factor", Int(), 1, MEDIUM,
    doc="Replication factor of a new topic whose creation request does not specify it.")
MAX_REQUEST_PARTITION_SIZE_LIMIT = broker_key("max.request.partition.size.limit", Int(min=1), 2000, MEDIUM,
    doc="Maximum number of partitions in a DescribeTopicPartitions response.")
CREATE_TOPIC_POLICY_CLASS_NAME = broker_key("create.topic.policy.class.name", Class(), None, LOW, effect=JAVA,
    doc="Java class that approves the creation of topics; a node refuses to start if it is set.")
ALTER_CONFIG_POLICY_CLASS_NAME = broker_key("alter.config.policy.class.name", Class(), None, LOW, effect=JAVA,
    doc="Java class that approves configuration changes; a node refuses to start if it is set.")

# Keys for tests.

INTERNAL_METADATA_LOG_SEGMENT_BYTES = broker_key("internal.metadata.log.segment.bytes", Int(), None, LOW, hidden=True,
    doc="Segment size of the metadata log for tests, in bytes; may be below the minimum of metadata.log.segment.bytes.")
UNSTABLE_API_VERSIONS_ENABLE = broker_key("unstable.api.versions.enable", Boolean(), False, HIGH, hidden=True,
    effect=NOTHING_UNSTABLE,
    doc="Whether API versions that are not yet stable are advertised.")
UNSTABLE_FEATURE_VERSIONS_ENABLE = broker_key("unstable.feature.versions.enable", Boolean(), False, HIGH, hidden=True,
    effect=NOTHING_UNSTABLE,
    doc="Whether feature versions that are not yet stable can be chosen.")
