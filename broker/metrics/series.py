"""Every series of a scrape, declared once: name, type, labels and meaning.

There are three naming schemes, so that existing dashboards and alerts keep working:

    JMX       as jmx_exporter names Kafka's own metrics with the rules of Strimzi: kafka_server_brokertopicmetrics_…
    EXPORTER  as kafka_exporter does: kafka_consumergroup_lag, kafka_topic_partition_current_offset …
    OWN       trioka's, in base units: trioka_…, and process_… as every Prometheus client has them

A sum of a series over all brokers of a cluster must count nothing twice. So a partition is reported by its leader, a
topic by the leader of its partition 0, a group by its coordinator, and cluster-wide state by the active controller.
"""

from enum import Enum
from typing import Final, NamedTuple


class Dialect(Enum):
    JMX = "Kafka's own, as jmx_exporter and Strimzi name them"
    EXPORTER = "kafka_exporter's"
    OWN = "trioka's own"


class Kind(Enum):
    """Prometheus' metric types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


class Series(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    dialect: Dialect


SERIES: Final[dict[str, Series]] = {}


def _declare(dialect: Dialect, name: str, kind: Kind, labels: tuple[str, ...], doc: str) -> Series:
    assert name not in SERIES, f"{name} is declared twice"
    assert (kind is Kind.COUNTER) == name.endswith("_total"), f"{name}: a counter, and nothing else, ends with _total"
    series = SERIES[name] = Series(name, kind, labels, doc, dialect)
    return series


def _jmx(name: str, doc: str, *labels: str, kind: Kind | None = None) -> Series:
    return _declare(Dialect.JMX, f"kafka_{name}", kind or _kind_of(name), labels, doc)


def _exporter(name: str, doc: str, *labels: str) -> Series:
    return _declare(Dialect.EXPORTER, f"kafka_{name}", _kind_of(name), labels, doc)


def _own(name: str, doc: str, *labels: str, kind: Kind | None = None) -> Series:
    return _declare(Dialect.OWN, name, kind or _kind_of(name), labels, doc)


def _kind_of(name: str) -> Kind:
    return Kind.COUNTER if name.endswith("_total") else Kind.GAUGE


# fmt: off

# -- Kafka's own: topics. Each is there for every topic, and once without a label, for all of them ---------------------

BYTES_IN = _jmx("server_brokertopicmetrics_bytesin_total",
    "Bytes of record batches that leaders here have appended.", "topic")
BYTES_OUT = _jmx("server_brokertopicmetrics_bytesout_total",
    "Bytes of record batches that were sent to consumers and followers.", "topic")
MESSAGES_IN = _jmx("server_brokertopicmetrics_messagesin_total",
    "Records that leaders here have appended.", "topic")
PRODUCE_REQUESTS = _jmx("server_brokertopicmetrics_totalproducerequests_total",
    "Batches that producers sent, whether or not they were appended.", "topic")
FAILED_PRODUCE_REQUESTS = _jmx("server_brokertopicmetrics_failedproducerequests_total",
    "Batches that producers sent and that were refused.", "topic")
FETCH_REQUESTS = _jmx("server_brokertopicmetrics_totalfetchrequests_total",
    "Partitions read by fetches, whether or not the read succeeded.", "topic")
FAILED_FETCH_REQUESTS = _jmx("server_brokertopicmetrics_failedfetchrequests_total",
    "Reads of a partition by fetches that were refused.", "topic")

REPLICATION_BYTES_IN = _jmx("server_brokertopicmetrics_replicationbytesin_total",
    "Bytes of record batches that replicas here have fetched from their leaders.")
REPLICATION_BYTES_OUT = _jmx("server_brokertopicmetrics_replicationbytesout_total",
    "Bytes of record batches that leaders here have sent to their followers.")

# -- Kafka's own: replicas ---------------------------------------------------------------------------------------------

PARTITION_COUNT = _jmx("server_replicamanager_partitioncount", "Partitions of which this broker has a replica.")
LEADER_COUNT = _jmx("server_replicamanager_leadercount", "Partitions that this broker leads.")
UNDER_REPLICATED = _jmx("server_replicamanager_underreplicatedpartitions",
    "Partitions led here of which a replica is not in sync.")
UNDER_MIN_ISR = _jmx("server_replicamanager_underminisrpartitioncount",
    "Partitions led here with fewer replicas in sync than min.insync.replicas: they refuse acks=all.")
AT_MIN_ISR = _jmx("server_replicamanager_atminisrpartitioncount",
    "Partitions led here with just min.insync.replicas in sync: one more failure, and they refuse acks=all.")
OFFLINE_REPLICAS = _jmx("server_replicamanager_offlinereplicacount",
    "Replicas of this broker in log directories that are offline.")
REASSIGNING = _jmx("server_replicamanager_reassigningpartitions", "Partitions led here that are being reassigned.")
ISR_SHRINKS = _jmx("server_replicamanager_isrshrinks_total",
    "How often the ISR of a partition led here shrank.")
ISR_EXPANDS = _jmx("server_replicamanager_isrexpands_total", "How often the ISR of a partition led here expanded.")
FAILED_ISR_UPDATES = _jmx("server_replicamanager_failedisrupdates_total",
    "How often the controller refused an ISR proposed by a leader here; the leader proposes again.")
PARTITION_AT_MIN_ISR = _jmx("cluster_partition_atminisr",
    "1 if just min.insync.replicas are in sync.", "topic", "partition")
PARTITION_UNDER_MIN_ISR = _jmx("cluster_partition_underminisr",
    "1 if fewer than min.insync.replicas are in sync.", "topic", "partition")
PARTITION_UNDER_REPLICATED = _jmx("cluster_partition_underreplicated",
    "1 if a replica is not in sync.", "topic", "partition")
LOG_SIZE = _jmx("log_log_size", "Bytes of a replica's segments.", "topic", "partition")
LOG_SEGMENTS = _jmx("log_log_numlogsegments", "Segments of a replica.", "topic", "partition")
LOG_START = _jmx("log_log_logstartoffset", "The first offset that a replica has.", "topic", "partition")
LOG_END = _jmx("log_log_logendoffset", "The offset of a replica's next record.", "topic", "partition")
DIRECTORY_OFFLINE = _jmx("log_logmanager_logdirectoryoffline",
    "1 if a log directory is offline.", "logDirectory")
OFFLINE_DIRECTORIES = _jmx("log_logmanager_offlinelogdirectorycount", "Log directories that are offline.")

# -- Kafka's own: tiered storage. Each is there for every tiered topic, and once without a label, for all of them ------

REMOTE_COPY_BYTES = _jmx("server_brokertopicmetrics_remotecopybytes_total",
    "Bytes of segments that were copied to the object store.", "topic")
REMOTE_COPY_REQUESTS = _jmx("server_brokertopicmetrics_remotecopyrequests_total",
    "Copies of segments that were begun.", "topic")
REMOTE_COPY_ERRORS = _jmx("server_brokertopicmetrics_remotecopyerrors_total",
    "Copies of segments that failed and were begun again.", "topic")
REMOTE_FETCH_BYTES = _jmx("server_brokertopicmetrics_remotefetchbytes_total",
    "Bytes of records that consumers were sent from the object store.", "topic")
REMOTE_FETCH_REQUESTS = _jmx("server_brokertopicmetrics_remotefetchrequests_total",
    "Reads of a partition from the object store.", "topic")
REMOTE_FETCH_ERRORS = _jmx("server_brokertopicmetrics_remotefetcherrors_total",
    "Reads from the object store that failed.", "topic")
REMOTE_DELETE_REQUESTS = _jmx("server_brokertopicmetrics_remotedeleterequests_total",
    "Deletions of segments in the object store that were begun.", "topic")
REMOTE_DELETE_ERRORS = _jmx("server_brokertopicmetrics_remotedeleteerrors_total",
    "Deletions of segments in the object store that failed and were begun again.", "topic")
REMOTE_COPY_LAG_BYTES = _jmx("server_brokertopicmetrics_remotecopylagbytes",
    "Bytes of closed segments that are not in the object store yet.", "topic")
REMOTE_COPY_LAG_SEGMENTS = _jmx("server_brokertopicmetrics_remotecopylagsegments",
    "Closed segments that are not in the object store yet.", "topic")
REMOTE_LOG_METADATA_COUNT = _jmx("server_brokertopicmetrics_remotelogmetadatacount",
    "Segments that the remote log metadata knows, in any state.", "topic")
REMOTE_LOG_SIZE = _jmx("server_brokertopicmetrics_remotelogsizebytes",
    "Bytes of readable segments in the object store.", "topic")

REMOTE_READER_QUEUE = _jmx("log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize",
    "Reads from the object store that were begun and have no answer yet.")
REMOTE_READER_IDLE = _jmx("log_remote_remotestoragethreadpool_remotelogreaderavgidlepercent",
    "Share of remote.log.reader.threads that is not used now, from 0 to 1.")

# -- Kafka's own: the controller and the quorum ------------------------------------------------------------------------

ACTIVE_CONTROLLER = _jmx("controller_kafkacontroller_activecontrollercount", "1 if this node is the active controller.")
ACTIVE_BROKERS = _jmx("controller_kafkacontroller_activebrokercount", "Brokers that are not fenced.")
FENCED_BROKERS = _jmx("controller_kafkacontroller_fencedbrokercount", "Brokers that are fenced.")
GLOBAL_TOPICS = _jmx("controller_kafkacontroller_globaltopiccount", "Topics of the cluster.")
GLOBAL_PARTITIONS = _jmx("controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster.")
OFFLINE_PARTITIONS = _jmx("controller_kafkacontroller_offlinepartitionscount",
    "Partitions of the cluster without a leader: they can be neither written nor read.")
PREFERRED_IMBALANCE = _jmx("controller_kafkacontroller_preferredreplicaimbalancecount",
    "Partitions that are not led by their preferred replica.")
UNCLEAN_ELECTIONS = _jmx("controller_controllerstats_uncleanleaderelections_total",
    "Leaders that were elected though they may lack records which were acknowledged.")
CURRENT_LEADER = _jmx("server_raftmetrics_current_leader", "The node that leads the quorum; -1 if none is known.")
CURRENT_EPOCH = _jmx("server_raftmetrics_current_epoch", "The quorum's epoch.")
QUORUM_HIGH_WATERMARK = _jmx("server_raftmetrics_high_watermark", "The high watermark of the metadata log.")
QUORUM_LOG_END = _jmx("server_raftmetrics_log_end_offset", "The end offset of this node's metadata log.")
QUORUM_STATE = _jmx("server_raftmetrics_current_state",
    "1 for this node's current state in the quorum.", "current_state")
COMMIT_LATENCY_AVERAGE = _jmx("server_raftmetrics_commit_latency_avg",
    "Average milliseconds to commit to the metadata log, over the last commits.")
COMMIT_LATENCY_MAX = _jmx("server_raftmetrics_commit_latency_max",
    "Maximum milliseconds to commit to the metadata log, over the last commits.")
APPEND_RATE = _jmx("server_raftmetrics_append_records_rate",
    "Records per second appended to the metadata log, over the last half minute.")
# The same without Strimzi's rule for this group of metrics.
CURRENT_LEADER_PLAIN = _jmx("server_raft_metrics_current_leader",
    "The same as kafka_server_raftmetrics_current_leader.")
CURRENT_EPOCH_PLAIN = _jmx("server_raft_metrics_current_epoch", "The same as kafka_server_raftmetrics_current_epoch.")
HIGH_WATERMARK_PLAIN = _jmx("server_raft_metrics_high_watermark",
    "The same as kafka_server_raftmetrics_high_watermark.")
LOG_END_PLAIN = _jmx("server_raft_metrics_log_end_offset", "The same as kafka_server_raftmetrics_log_end_offset.")
COMMIT_LATENCY_PLAIN = _jmx("server_raft_metrics_commit_latency_avg",
    "The same as kafka_server_raftmetrics_commit_latency_avg.")
CHANNEL_BYTES_IN = _jmx("server_raftchannelmetrics_incoming_byte_total",
    "Bytes of responses received from nodes of the quorum.")
CHANNEL_BYTES_OUT = _jmx("server_raftchannelmetrics_outgoing_byte_total",
    "Bytes of requests sent to nodes of the quorum.")
CHANNEL_REQUESTS = _jmx("server_raftchannelmetrics_request_total", "Requests sent to nodes of the quorum.")
CHANNEL_RESPONSES = _jmx("server_raftchannelmetrics_response_total", "Responses received from nodes of the quorum.")
LAST_APPLIED = _jmx("server_brokermetadatametrics_last_applied_record_offset",
    "Offset of the last metadata record that this broker has replayed.")

# -- Kafka's own: requests and connections -----------------------------------------------------------------------------

REQUESTS = _jmx("network_requestmetrics_requests_total", "Requests that were answered, by API and version.", "request")
ERRORS = _jmx("network_requestmetrics_errors_total",
    "Errors in responses: of a whole request, or of each partition, topic or group in it.",
    "request", "error")
TOTAL_TIME = _jmx("network_requestmetrics_totaltimems",
    "Milliseconds from a request to its response; quantiles of the last minute or two.", "request", "quantile",
    kind=Kind.SUMMARY)
NETWORK_IDLE = _jmx("network_socketserver_networkprocessoravgidle_percent",
    "The share of time, 0 to 1, in which the event loop was idle; it does the work of Kafka's network threads.")
HANDLER_IDLE = _jmx("server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "The same; the event loop does the work of Kafka's request handlers, too.")
CONNECTION_COUNT = _jmx("server_socket_server_metrics_connection_count",
    "Connections that are open.", "listener", "networkProcessor")
CONNECTION_CREATIONS = _jmx("server_socket_server_metrics_connection_creation_total",
    "Connections that were ever accepted.", "listener", "networkProcessor")
SUCCESSFUL_AUTHENTICATIONS = _jmx("server_socket_server_metrics_successful_authentication_total",
    "SASL logins that succeeded.", "listener", "networkProcessor")
FAILED_AUTHENTICATIONS = _jmx("server_socket_server_metrics_failed_authentication_total",
    "SASL logins that failed.", "listener", "networkProcessor")
SUCCESSFUL_REAUTHENTICATIONS = _jmx("server_socket_server_metrics_successful_reauthentication_total",
    "SASL re-authentications that succeeded.", "listener", "networkProcessor")
FAILED_REAUTHENTICATIONS = _jmx("server_socket_server_metrics_failed_reauthentication_total",
    "SASL re-authentications that failed.", "listener", "networkProcessor")
EXPIRED_CONNECTIONS_KILLED = _jmx("server_socket_server_metrics_expired_connections_killed_total",
    "Connections that were closed because their SASL session had ended.", "listener", "networkProcessor")
# Of clients, while any quota of the type is set; the labels are the tags by which a client is counted.
QUOTA_BYTE_RATE = _jmx("server_quota_byte_rate",
    "Bytes in a second that count for a quota: of Produce requests, of Fetch responses.",
    "resource", "user", "clientId")
QUOTA_REQUEST_TIME = _jmx("server_quota_request_time",
    "Time of the event loop that counts for request_percentage, in percent.", "resource", "user", "clientId")
EXEMPT_REQUEST_TIME = _jmx("server_request_exempt_request_time",
    "Time of the event loop for requests that do not count for request_percentage, such as those between nodes, in "
    "percent; while any client has such a quota.")
QUOTA_MUTATION_RATE = _jmx("server_quota_mutation_rate",
    "Partitions in a second that were created or deleted, as the active controller reports.",
    "resource", "user", "clientId")
QUOTA_TOKENS = _jmx("server_quota_tokens",
    "How many partitions may be created or deleted now; negative while the quota is overdrawn.",
    "resource", "user", "clientId")
QUOTA_THROTTLE_TIME = _jmx("server_quota_throttle_time",
    "Milliseconds for which throttled clients had to wait, on average; 0 if none had to.",
    "resource", "user", "clientId")
FETCH_SESSIONS = _jmx("server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions in the cache.")
GROUPS = _jmx("coordinator_group_groupmetadatamanager_numgroups", "Groups coordinated by this broker.")
OFFSETS = _jmx("coordinator_group_groupmetadatamanager_numoffsets",
    "Committed offsets of the groups coordinated by this broker.")

# -- kafka_exporter's --------------------------------------------------------------------------------------------------

BROKERS = _exporter("brokers", "Brokers in the cluster, without those that are fenced.")
BROKER_INFO = _exporter("broker_info", "1 for each broker that is not fenced.", "id", "address")
TOPIC_PARTITIONS = _exporter("topic_partitions", "Partitions of a topic.", "topic")
CURRENT_OFFSET = _exporter("topic_partition_current_offset",
    "The high watermark: the end offset for consumers.", "topic", "partition")
OLDEST_OFFSET = _exporter("topic_partition_oldest_offset", "The first offset that can be read.", "topic", "partition")
PARTITION_LEADER = _exporter("topic_partition_leader",
    "The broker that leads; -1 if there is none.", "topic", "partition")
PARTITION_REPLICAS = _exporter("topic_partition_replicas", "Replicas of a partition.", "topic", "partition")
IN_SYNC_REPLICAS = _exporter("topic_partition_in_sync_replica",
    "In-sync replicas of a partition.", "topic", "partition")
LEADER_IS_PREFERRED = _exporter("topic_partition_leader_is_preferred",
    "1 if the preferred replica leads.", "topic", "partition")
UNDER_REPLICATED_PARTITION = _exporter("topic_partition_under_replicated_partition",
    "1 if a replica is not in sync.", "topic", "partition")
GROUP_OFFSET = _exporter("consumergroup_current_offset",
    "The offset that a group has committed.", "consumergroup", "topic", "partition")
GROUP_OFFSET_SUM = _exporter("consumergroup_current_offset_sum", "The same of a whole topic.", "consumergroup", "topic")
GROUP_LAG = _exporter("consumergroup_lag",
    "Lag of a group: records between its committed offset and the high watermark, in a partition with a replica here.",
    "consumergroup", "topic", "partition")
GROUP_LAG_SUM = _exporter("consumergroup_lag_sum", "The same of a whole topic.", "consumergroup", "topic")
GROUP_MEMBERS = _exporter("consumergroup_members", "Members of a group.", "consumergroup")

# -- own ---------------------------------------------------------------------------------------------------------------

BUILD_INFO = _own("trioka_build_info", "1; the labels name the versions.", "version", "python")
REQUEST_DURATION = _own("trioka_request_duration_seconds",
    "Seconds from a request to its response, by API.", "api", kind=Kind.HISTOGRAM)
LOOP_LAG = _own("trioka_loop_lag_seconds",
    "The longest delay of the event loop in the last half minute: a ready request waited so long.")
SECONDS_TO_DATA_LOSS = _own("trioka_group_seconds_to_data_loss",
    "How long until retention.ms lets go of the oldest records that a group has not read; 0 if it has begun to."
    " Only where a group is behind and records expire.", "consumergroup", "topic")
CONNECTIONS = _own("trioka_connections", "Connections that are open.", "listener")
TLS_CERTIFICATE_EXPIRY = _own("trioka_tls_certificate_expiry_seconds",
    "Time until the certificate of a TLS listener ends; negative once it has.", "listener")
TLS_HANDSHAKES = _own("trioka_tls_handshakes_total", "TLS handshakes that succeeded.", "listener")
TLS_FAILURES = _own("trioka_tls_handshake_failures_total", "TLS handshakes that failed.", "listener")
PARKED = _own("trioka_waiting_requests", "Requests parked until records, replicas, members or a timeout complete them.")
LOG_DIRECTORY_OFFLINE = _own("trioka_log_directory_offline", "1 if a log directory is offline.", "directory")
LOG_DIRECTORY_FREE = _own("trioka_log_directory_free_bytes",
    "Free bytes on the volume of a log directory.", "directory")
LOG_DIRECTORY_TOTAL = _own("trioka_log_directory_size_bytes",
    "Total bytes of the volume of a log directory.", "directory")
DAMAGED_PARTITIONS = _own("trioka_damaged_partitions",
    "Replicas with damaged records: they serve intact records, refuse damaged ones, and are being healed.")
DAMAGED_RANGES = _own("trioka_damaged_ranges", "Ranges of records on this broker that are damaged now.")
UNHEALED_RANGES = _own("trioka_unhealed_ranges", "Damaged ranges on this broker of which no replica had a good copy.")
HEALED_RANGES = _own("trioka_healed_ranges_total", "Damaged ranges that were replaced by a copy of another replica.")
SCRUBBED_BYTES = _own("trioka_scrub_bytes_total", "Bytes of logs that the scrubber has compared with their checksums.")
SCRUB_FOUND = _own("trioka_scrub_damaged_ranges_total", "Damaged ranges that the scrubber has found.")
SCRUB_LAST = _own("trioka_scrub_last_complete_timestamp_seconds",
    "When a replica was last scrubbed completely, since the broker started; 0 if not yet.", "topic", "partition")
LEFT_OUT = _own("trioka_metrics_left_out",
    "Objects without a series of their own, because there are more than trioka.metrics.max.…", "what")
PROCESS_CPU = _own("process_cpu_seconds_total", "CPU time of this process.")
PROCESS_RESIDENT = _own("process_resident_memory_bytes", "Resident memory of this process.")
PROCESS_VIRTUAL = _own("process_virtual_memory_bytes", "Virtual memory of this process.")
PROCESS_START = _own("process_start_time_seconds", "Start time of this process, in seconds since 1970.")
PROCESS_FILES = _own("process_open_fds", "Open file descriptors of this process.")
PROCESS_MAX_FILES = _own("process_max_fds", "The limit of open file descriptors.")
TIER_OLDEST = _own("trioka_tier_oldest_unuploaded_seconds",
    "Age of the oldest closed segment that is not in the object store, over all partitions that this broker leads.")
TIER_WOULD_BE_LOST = _own("trioka_tier_would_be_lost_bytes",
    "Bytes of tiered topics and memory topics that are not in the object store: what would be lost if all brokers were "
    "lost now, or, for a memory topic, if their machines restarted.", "topic")
TIER_WOULD_BE_LOST_RECORDS = _own("trioka_tier_would_be_lost_records",
    "Records of tiered topics and memory topics that are not in the object store, as differences of offsets.", "topic")
TIER_WOULD_BE_LOST_SECONDS = _own("trioka_tier_would_be_lost_seconds",
    "Age of the oldest record of tiered topics and memory topics that is not in the object store.", "topic")
TIER_MEMORY_RESTORES = _own("trioka_tier_memory_restores_total",
    "Partitions of memory topics that lost the memory of all replicas and continued from the object store.")
TIER_MISSING = _own("trioka_tier_missing_segments_total",
    "Segments that lost objects in the object store, by a lifecycle rule or a hand.")
TIER_REQUESTS = _own("trioka_tier_store_requests_total",
    "Requests to the object store that write or delete objects.")
TIER_ERRORS = _own("trioka_tier_store_errors_total", "Requests of copies and deletions that failed.")
TIER_SWEPT = _own("trioka_tier_swept_objects_total", "Objects that the sweep has deleted: no segment had them.")
TIER_DELETING = _own("trioka_tier_deleting_partitions",
    "Partitions of deleted topics whose segments are being deleted from the object store.")
TIER_CACHE_BYTES = _own("trioka_tier_cache_bytes", "Memory that is used by data and indexes of remote segments.")
TIER_CACHE_HITS = _own("trioka_tier_cache_hits_total", "Ranges of remote segments that were in memory when needed.")
TIER_CACHE_MISSES = _own("trioka_tier_cache_misses_total", "Ranges of remote segments that were not.")
TIER_REJECTED_READS = _own("trioka_tier_rejected_reads_total",
    "Reads that got nothing, because remote.log.reader.max.pending.tasks others were pending.")
TIER_SUPERSEDED = _own("trioka_tier_superseded",
    "1 if a restored cluster owns the objects, so that this broker does not write to the object store.")
