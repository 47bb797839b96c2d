"""Keys of connections, requests, fetches, quotas and metrics."""

from .key import (
    CLUSTER_WIDE,
    EVEN_MOVES,
    HIGH,
    JAVA,
    KIB,
    LATER_CLUSTER,
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
    doc="Maximum size of a request, in bytes; the broker closes a connection that announces a larger one.")
SOCKET_SEND_BUFFER_BYTES = broker_key("socket.send.buffer.bytes", Int(), 100 * KIB, HIGH,
    doc="Send buffer (SO_SNDBUF) of a connection, in bytes; -1 leaves the size to the kernel. If not set, the kernel "
        "also decides, except for local clients that fetch more than 2 MB at a time.")
SOCKET_RECEIVE_BUFFER_BYTES = broker_key("socket.receive.buffer.bytes", Int(), 100 * KIB, HIGH,
    doc="Receive buffer (SO_RCVBUF) of a connection, in bytes; if not set, or -1, the kernel decides.")
SOCKET_LISTEN_BACKLOG_SIZE = broker_key("socket.listen.backlog.size", Int(min=1), 50, MEDIUM,
    doc="Maximum number of connections that wait to be accepted.")
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = broker_key("socket.connection.setup.timeout.ms", Long(), 10_000, MEDIUM,
    effect=LATER_CLUSTER,
    doc="Time in milliseconds that the first attempt to connect to another node may take.")
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = broker_key("socket.connection.setup.timeout.max.ms", Long(), 30_000, MEDIUM,
    effect=LATER_CLUSTER,
    doc="Upper limit, in milliseconds, of the connection timeout, which grows with consecutive failures.")
CONNECTIONS_MAX_IDLE_MS = broker_key("connections.max.idle.ms", Long(), 10 * MINUTE_MS, MEDIUM,
    doc="Time in milliseconds after which an idle connection is closed.")
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = broker_key("connection.failed.authentication.delay.ms",
    Int(min=0), 100, LOW,
    doc="Delay, in milliseconds, before a failed authentication is answered.")
CONNECTIONS_MAX_REAUTH_MS = broker_key("connections.max.reauth.ms", Long(), 0, MEDIUM,
    doc="Time in milliseconds after which a client must authenticate again; 0 means never.")
MAX_CONNECTIONS = broker_key("max.connections", Int(min=0), INT_MAX, MEDIUM, CLUSTER_WIDE,
    doc="Maximum number of connections to this broker.")
MAX_CONNECTIONS_PER_IP = broker_key("max.connections.per.ip", Int(min=0), INT_MAX, MEDIUM, CLUSTER_WIDE,
    doc="Maximum number of connections from one IP address.")
MAX_CONNECTIONS_PER_IP_OVERRIDES = broker_key("max.connections.per.ip.overrides", String(), "", MEDIUM, CLUSTER_WIDE,
    doc="Limits for single hosts or addresses in place of max.connections.per.ip: comma-separated host:count pairs.")
MAX_CONNECTION_CREATION_RATE = broker_key("max.connection.creation.rate", Int(min=0), INT_MAX, MEDIUM, CLUSTER_WIDE,
    doc="Maximum number of new connections per second.")
QUEUED_MAX_REQUESTS = broker_key("queued.max.requests", Int(min=1), 500, HIGH, effect=NO_QUEUE,
    doc="Number of queued requests at which the broker stops reading from sockets.")
QUEUED_MAX_REQUEST_BYTES = broker_key("queued.max.request.bytes", Long(), -1, MEDIUM,
    doc="Memory, in bytes, for requests that have not completely arrived; -1 means 256 MiB.")
REQUEST_TIMEOUT_MS = broker_key("request.timeout.ms", Int(), 30_000, HIGH,
    doc="Time in milliseconds that this node waits for the response of another node, and for the replication of a "
        "transaction marker.")
NUM_NETWORK_THREADS = broker_key("num.network.threads", Int(min=1), 3, HIGH, CLUSTER_WIDE, effect=NO_THREADS,
    doc="Number of threads that read requests and write responses.")
NUM_IO_THREADS = broker_key("num.io.threads", Int(min=1), 8, HIGH, CLUSTER_WIDE, effect=NO_THREADS,
    doc="Number of threads that process requests.")
BACKGROUND_THREADS = broker_key("background.threads", Int(min=1), 10, HIGH, CLUSTER_WIDE, effect=NO_THREADS,
    doc="Number of threads for background tasks.")

# Fetching.

FETCH_MAX_BYTES = broker_key("fetch.max.bytes", Int(min=KIB), 55 * MIB, MEDIUM,
    doc="Maximum size of a Fetch response, in bytes, even if the client allows more.")
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = broker_key("max.incremental.fetch.session.cache.slots",
    Int(min=0), 1000, MEDIUM,
    doc="Maximum number of incremental fetch sessions (KIP-227).")
FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = broker_key("fetch.purgatory.purge.interval.requests", Int(), 1000, MEDIUM,
    effect=NO_PURGATORY,
    doc="Number of delayed Fetch requests between two purges of the purgatory.")
PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS = broker_key("producer.purgatory.purge.interval.requests",
    Int(), 1000, MEDIUM, effect=NO_PURGATORY,
    doc="Number of delayed Produce requests between two purges of the purgatory.")
DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS = broker_key("delete.records.purgatory.purge.interval.requests",
    Int(), 1, MEDIUM, effect=NO_PURGATORY,
    doc="Number of delayed DeleteRecords requests between two purges of the purgatory.")
SHARE_FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = broker_key("share.fetch.purgatory.purge.interval.requests",
    Int(), 1000, MEDIUM, effect=NO_PURGATORY,
    doc="Number of delayed ShareFetch requests between two purges of the purgatory.")

# Quotas and metrics.

QUOTA_WINDOW_NUM = broker_key("quota.window.num", Int(min=1), 11, LOW,
    doc="Number of windows over which a client's rate is averaged.")
QUOTA_WINDOW_SIZE_SECONDS = broker_key("quota.window.size.seconds", Int(min=1), 1, LOW,
    doc="Length of a window for client quotas, in seconds.")
REPLICATION_QUOTA_WINDOW_NUM = broker_key("replication.quota.window.num", Int(min=1), 11, LOW,
    doc="Number of windows over which the rate of throttled replication is averaged.")
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = broker_key("replication.quota.window.size.seconds", Int(min=1), 1, LOW,
    doc="Length of a window for throttled replication, in seconds.")
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM = broker_key("alter.log.dirs.replication.quota.window.num",
    Int(min=1), 11, LOW, effect=EVEN_MOVES,
    doc="Number of windows over which the rate of moves between log directories is averaged.")
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = broker_key(
    "alter.log.dirs.replication.quota.window.size.seconds",
    Int(min=1), 1, LOW, effect=EVEN_MOVES,
    doc="Length of a window for moves between log directories, in seconds.")
CONTROLLER_QUOTA_WINDOW_NUM = broker_key("controller.quota.window.num", Int(min=1), 11, LOW,
    doc="Number of windows over which the rate of topic and partition changes is averaged.")
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = broker_key("controller.quota.window.size.seconds", Int(min=1), 1, LOW,
    doc="Length of a window for topic and partition changes, in seconds.")
CLIENT_QUOTA_CALLBACK_CLASS = broker_key("client.quota.callback.class", Class(), None, LOW, effect=JAVA,
    doc="Java class that determines client quotas.")
METRIC_REPORTERS = broker_key("metric.reporters",
    List(), ("org.apache.kafka.common.metrics.JmxReporter",), LOW, CLUSTER_WIDE, effect=JAVA,
    doc="Java classes that receive metrics.")
KAFKA_METRICS_REPORTERS = broker_key("kafka.metrics.reporters", List(), (), LOW, effect=JAVA,
    doc="Java classes that receive Yammer metrics.")
KAFKA_METRICS_POLLING_INTERVAL_SECS = broker_key("kafka.metrics.polling.interval.secs", Int(min=1), 10, LOW,
    effect=JAVA,
    doc="Interval, in seconds, at which the classes of kafka.metrics.reporters poll.")
METRICS_NUM_SAMPLES = broker_key("metrics.num.samples", Int(min=1), 2, LOW, effect=NO_JMX_METRICS,
    doc="Number of samples from which a metric is computed.")
METRICS_SAMPLE_WINDOW_MS = broker_key("metrics.sample.window.ms", Long(min=1), 30_000, LOW, effect=NO_JMX_METRICS,
    doc="Length of one sample of a metric, in milliseconds.")
METRICS_RECORDING_LEVEL = broker_key("metrics.recording.level", String(), "INFO", LOW, effect=NO_JMX_METRICS,
    doc="Most detailed level at which metrics are recorded.")
TELEMETRY_MAX_BYTES = broker_key("telemetry.max.bytes", Int(min=1), MIB, LOW, effect=LATER_TELEMETRY,
    doc="Maximum size, in bytes, of a metrics report that a client pushes.")
CONFIG_PROVIDERS = broker_key("config.providers", List(), (), LOW, CLUSTER_WIDE,
    doc="Names of the providers that resolve references such as `${file:/run/secrets/kafka:password}` in "
        "server.properties. `config.providers.NAME.class` is Kafka's FileConfigProvider, EnvVarConfigProvider or "
        "DirectoryConfigProvider; `config.providers.NAME.param.allowed.paths` and `.allowlist.pattern` limit what it "
        "may read. References are resolved when the node starts.")
