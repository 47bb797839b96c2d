"""Keys of connections, requests, fetches, quotas and metrics."""

from .key import (
    CLUSTER_WIDE,
    HIGH,
    JAVA,
    KIB,
    LATER_CLUSTER,
    LATER_QUOTAS,
    LATER_SECURITY,
    LATER_TELEMETRY,
    LOW,
    MEDIUM,
    MIB,
    MINUTE_MS,
    NO_JMX_METRICS,
    NO_PURGATORY,
    NO_QUEUE,
    NO_THREADS,
    broker_key,
)
from .values import INT_MAX, Class, Int, List, Long, String

# fmt: off

SOCKET_REQUEST_MAX_BYTES = broker_key("socket.request.max.bytes", Int(min=1), 100 * MIB, HIGH,
    doc="The largest request; a connection that announces a larger one is closed.")
SOCKET_SEND_BUFFER_BYTES = broker_key("socket.send.buffer.bytes", Int(), 100 * KIB, HIGH,
    doc="The kernel's send buffer of a connection; -1: the system sizes it. If it is not set, it does so too, but for "
    "clients nearby that fetch more than 2 MB at a time.")
SOCKET_RECEIVE_BUFFER_BYTES = broker_key("socket.receive.buffer.bytes", Int(), 100 * KIB, HIGH,
    doc="The kernel's receive buffer of a connection; if it is not set, or -1, the system sizes it.")
SOCKET_LISTEN_BACKLOG_SIZE = broker_key("socket.listen.backlog.size", Int(min=1), 50, MEDIUM,
    doc="How many connections may wait to be accepted.")
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = broker_key("socket.connection.setup.timeout.ms", Long(), 10_000, MEDIUM,
    effect=LATER_CLUSTER,
    doc="How long a connection to another node may take at first.")
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = broker_key("socket.connection.setup.timeout.max.ms", Long(), 30_000, MEDIUM,
    effect=LATER_CLUSTER,
    doc="How long a connection to another node may take after many failures.")
CONNECTIONS_MAX_IDLE_MS = broker_key("connections.max.idle.ms", Long(), 10 * MINUTE_MS, MEDIUM,
    doc="A connection that says nothing for so long is closed.")
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = broker_key("connection.failed.authentication.delay.ms",
    Int(min=0), 100, LOW, effect=LATER_SECURITY,
    doc="How long a failed login waits for its answer.")
CONNECTIONS_MAX_REAUTH_MS = broker_key("connections.max.reauth.ms", Long(), 0, MEDIUM, effect=LATER_SECURITY,
    doc="How long a login lasts before the client must repeat it; 0 is for ever.")
MAX_CONNECTIONS = broker_key("max.connections", Int(min=0), INT_MAX, MEDIUM, CLUSTER_WIDE,
    doc="The most connections to this broker.")
MAX_CONNECTIONS_PER_IP = broker_key("max.connections.per.ip", Int(min=0), INT_MAX, MEDIUM, CLUSTER_WIDE,
    doc="The most connections from one address.")
MAX_CONNECTIONS_PER_IP_OVERRIDES = broker_key("max.connections.per.ip.overrides", String(), "", MEDIUM, CLUSTER_WIDE,
    doc="Other limits for single hosts or addresses: host:count between commas.")
MAX_CONNECTION_CREATION_RATE = broker_key("max.connection.creation.rate", Int(min=0), INT_MAX, MEDIUM, CLUSTER_WIDE,
    doc="The most new connections in a second.")
QUEUED_MAX_REQUESTS = broker_key("queued.max.requests", Int(min=1), 500, HIGH, effect=NO_QUEUE,
    doc="How many requests may wait before no more are read.")
QUEUED_MAX_REQUEST_BYTES = broker_key("queued.max.request.bytes", Long(), -1, MEDIUM,
    doc="How many bytes of requests that are not complete may be in memory; -1 is 256 MiB.")
REQUEST_TIMEOUT_MS = broker_key("request.timeout.ms", Int(), 30_000, HIGH,
    doc="How long this node waits for another one's answer, and a transaction's marker until it is replicated.")
NUM_NETWORK_THREADS = broker_key("num.network.threads", Int(min=1), 3, HIGH, CLUSTER_WIDE, effect=NO_THREADS,
    doc="Threads that read requests and write answers.")
NUM_IO_THREADS = broker_key("num.io.threads", Int(min=1), 8, HIGH, CLUSTER_WIDE, effect=NO_THREADS,
    doc="Threads that work on requests.")
BACKGROUND_THREADS = broker_key("background.threads", Int(min=1), 10, HIGH, CLUSTER_WIDE, effect=NO_THREADS,
    doc="Threads for everything else.")

# Fetching.

FETCH_MAX_BYTES = broker_key("fetch.max.bytes", Int(min=KIB), 55 * MIB, MEDIUM,
    doc="The most bytes in one answer to Fetch, whatever the client allows.")
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = broker_key("max.incremental.fetch.session.cache.slots",
    Int(min=0), 1000, MEDIUM,
    doc="How many fetch sessions are kept.")
FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = broker_key("fetch.purgatory.purge.interval.requests", Int(), 1000, MEDIUM,
    effect=NO_PURGATORY,
    doc="After how many waiting fetches Kafka tidies up.")
PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS = broker_key("producer.purgatory.purge.interval.requests",
    Int(), 1000, MEDIUM, effect=NO_PURGATORY,
    doc="After how many waiting produce requests Kafka tidies up.")
DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS = broker_key("delete.records.purgatory.purge.interval.requests",
    Int(), 1, MEDIUM, effect=NO_PURGATORY,
    doc="After how many waiting deletions Kafka tidies up.")
SHARE_FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = broker_key("share.fetch.purgatory.purge.interval.requests",
    Int(), 1000, MEDIUM, effect=NO_PURGATORY,
    doc="After how many waiting share fetches Kafka tidies up.")

# Quotas and metrics.

QUOTA_WINDOW_NUM = broker_key("quota.window.num", Int(min=1), 11, LOW, effect=LATER_QUOTAS,
    doc="How many windows a client's rate is averaged over.")
QUOTA_WINDOW_SIZE_SECONDS = broker_key("quota.window.size.seconds", Int(min=1), 1, LOW, effect=LATER_QUOTAS,
    doc="How long such a window is.")
REPLICATION_QUOTA_WINDOW_NUM = broker_key("replication.quota.window.num", Int(min=1), 11, LOW,
    doc="How many windows the rate of throttled replication is averaged over.")
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = broker_key("replication.quota.window.size.seconds", Int(min=1), 1, LOW,
    doc="How long such a window is.")
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM = broker_key("alter.log.dirs.replication.quota.window.num",
    Int(min=1), 11, LOW, effect=LATER_QUOTAS,
    doc="How many windows the rate of moves between directories is averaged over.")
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = broker_key(
    "alter.log.dirs.replication.quota.window.size.seconds",
    Int(min=1), 1, LOW, effect=LATER_QUOTAS,
    doc="How long such a window is.")
CONTROLLER_QUOTA_WINDOW_NUM = broker_key("controller.quota.window.num", Int(min=1), 11, LOW, effect=LATER_QUOTAS,
    doc="How many windows the rate of topic and partition changes is averaged over.")
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = broker_key("controller.quota.window.size.seconds", Int(min=1), 1, LOW,
    effect=LATER_QUOTAS,
    doc="How long such a window is.")
CLIENT_QUOTA_CALLBACK_CLASS = broker_key("client.quota.callback.class", Class(), None, LOW, effect=JAVA,
    doc="A class that decides on quotas.")
METRIC_REPORTERS = broker_key("metric.reporters",
    List(), ("org.apache.kafka.common.metrics.JmxReporter",), LOW, CLUSTER_WIDE, effect=JAVA,
    doc="Classes that are told about metrics.")
KAFKA_METRICS_REPORTERS = broker_key("kafka.metrics.reporters", List(), (), LOW, effect=JAVA,
    doc="Classes that are told about metrics of an older kind.")
KAFKA_METRICS_POLLING_INTERVAL_SECS = broker_key("kafka.metrics.polling.interval.secs", Int(min=1), 10, LOW,
    effect=JAVA,
    doc="How often those classes look.")
METRICS_NUM_SAMPLES = broker_key("metrics.num.samples", Int(min=1), 2, LOW, effect=NO_JMX_METRICS,
    doc="How many samples a metric is computed from.")
METRICS_SAMPLE_WINDOW_MS = broker_key("metrics.sample.window.ms", Long(min=1), 30_000, LOW, effect=NO_JMX_METRICS,
    doc="How long one sample takes.")
METRICS_RECORDING_LEVEL = broker_key("metrics.recording.level", String(), "INFO", LOW, effect=NO_JMX_METRICS,
    doc="How fine metrics are recorded.")
TELEMETRY_MAX_BYTES = broker_key("telemetry.max.bytes", Int(min=1), MIB, LOW, effect=LATER_TELEMETRY,
    doc="The largest report of metrics that a client may push.")
CONFIG_PROVIDERS = broker_key("config.providers", List(), (), LOW, CLUSTER_WIDE, effect=JAVA,
    doc="Classes that put values in the place of variables in a configuration.")
