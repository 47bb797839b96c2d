"""Keys that Kafka does not have: HTTP, the JAAS file, TLS, limits of metrics, the fast path, record checks, scrubbing,
memory directories, the object store.

Their names begin with `trioka.`, so that they cannot collide with keys of later versions of Kafka. They are hidden:
DescribeConfigs returns them only if they are set.
"""

from typing import Final

from .addresses import Server, parse_server
from .key import CLUSTER_WIDE, HIGH, LOW, MEDIUM, MIB, broker_key
from .tier_url import tier_url_problem
from .values import Boolean, Int, List, Long, Password, String

PREFIX: Final = "trioka."
LOOPBACK: Final = "127.0.0.1"


def http_address(text: str) -> Server:
    """Parse `host:port`; `:port` means the loopback address."""
    return parse_server(LOOPBACK + text if text.startswith(":") else text)


def _is_address(text: str) -> str | None:
    try:
        http_address(text)
    except ValueError as error:
        return str(error)
    return None


# fmt: off

HTTP_LISTENERS = broker_key("trioka.http.listeners", List(check=_is_address), (), HIGH, hidden=True,
    doc="Addresses for `/metrics`, `/livez`, `/readyz` and `/startupz`, as comma-separated `host:port`: the broker "
        "uses the first that is free. `:port` listens on the loopback address only; empty disables HTTP.")
JAAS_FILE = broker_key("trioka.jaas.file", String(), None, MEDIUM, hidden=True,
    doc="JAAS file with the sections `<listener>.KafkaServer` and `KafkaServer`, for SASL mechanisms whose "
        "`sasl.jaas.config` is not set. Kafka names this file by a system property of Java.")
HTTP_HOSTS = broker_key("trioka.http.hosts", List(), (), MEDIUM, hidden=True,
    doc="Host names that HTTP requests may use besides IP addresses and localhost. Other names are rejected as a "
        "protection against DNS rebinding; `*` accepts any name.")
METRICS_MAX_PARTITIONS = broker_key("trioka.metrics.max.partitions", Int(min=0), 10_000, LOW, hidden=True,
    doc="Maximum number of partitions, and of topics, with metrics of their own; sums always include all of them.")
METRICS_MAX_GROUPS = broker_key("trioka.metrics.max.groups", Int(min=0), 1000, LOW, hidden=True,
    doc="Maximum number of groups with metrics of their own.")
CONTROLLED_SHUTDOWN_TIMEOUT_MS = broker_key("trioka.controlled.shutdown.timeout.ms", Int(min=0), 25_000, MEDIUM,
    hidden=True,
    doc="Time in milliseconds that a stopping broker waits for the controller to move the leadership of its "
        "partitions.")
LINEARIZABLE_READ_TIMEOUT_MS = broker_key("trioka.linearizable.read.timeout.ms", Int(min=1), 5000, LOW, CLUSTER_WIDE,
    hidden=True,
    doc="Time in milliseconds that a request waits until the leader knows that it still leads, for topics with "
        "trioka.read.consistency=linearizable. After it the client gets NOT_LEADER_OR_FOLLOWER and tries again.")
FAST_PATH_ENABLE = broker_key("trioka.fast.path.enable", Boolean(), True, LOW, hidden=True,
    doc="Whether repeated Produce and Fetch requests are served without being decoded. The responses are the same; "
        "`false` is slower, and shows whether the fast path is the cause of a problem.")
VALIDATE_RECORDS = broker_key("trioka.validate.records", String(one_of=("full", "header")), "full", MEDIUM, hidden=True,
    doc="How record batches from clients are validated. `full` checks every record, as Kafka does. `header` checks "
        "only the batch header and the CRC; a client can then store a batch that no consumer of the partition can read "
        "past.")
SCRUB_ENABLE = broker_key("trioka.scrub.enable", Boolean(), True, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="Whether the broker periodically reads the records of all partitions and verifies their checksums.")
SCRUB_INTERVAL_MS = broker_key("trioka.scrub.interval.ms", Long(min=1), 604_800_000, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="Time in milliseconds between two scrubs of a partition. After a start of the broker, all partitions are "
        "scrubbed.")
SCRUB_BYTES_PER_SECOND = broker_key("trioka.scrub.bytes.per.second", Long(min=1), 16_777_216, MEDIUM, CLUSTER_WIDE,
    hidden=True, doc="Maximum number of bytes per second that scrubbing reads on this broker.")
TLS_HANDSHAKE_TIMEOUT_MS = broker_key("trioka.tls.handshake.timeout.ms", Int(min=1), 10_000, LOW, hidden=True,
    doc="Time in milliseconds that a TLS handshake may take.")
TLS_RELOAD_INTERVAL_MS = broker_key("trioka.tls.reload.interval.ms", Int(min=100), 30_000, LOW, CLUSTER_WIDE,
    hidden=True,
    doc="Time in milliseconds between two looks at the files of key stores and trust stores. New connections use a "
        "file that has changed.")
OAUTH_ALLOWED_URLS = broker_key("trioka.oauth.allowed.urls", List(), (), HIGH, hidden=True,
    doc="URLs from which sasl.oauthbearer.jwks.endpoint.url may load keys, as in Kafka's Java system property "
        "`org.apache.kafka.sasl.oauthbearer.allowed.urls`.")
OAUTH_ALLOWED_FILES = broker_key("trioka.oauth.allowed.files", List(), (), HIGH, hidden=True,
    doc="Absolute paths of files from which sasl.oauthbearer.jwks.endpoint.url may load keys, as in Kafka's Java "
        "system property `org.apache.kafka.sasl.oauthbearer.allowed.files`.")
MEMORY_LOG_DIRS = broker_key("trioka.log.dirs.memory", List(), (), HIGH, hidden=True,
    doc="Those of log.dirs that are in memory (tmpfs) and hold only topics with trioka.log.dir.class=memory. They are "
        "empty after a restart of the machine: the broker then copies its replicas from other brokers.")
TIER_URL = broker_key("trioka.tier.url", String(check=tier_url_problem), None, HIGH, hidden=True,
    doc="Object store for tiered topics: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or "
        "`file:///directory`, the same on all nodes. It requires remote.log.storage.system.enable and the package "
        "`trioka[tier]`.")
TIER_ENDPOINT = broker_key("trioka.tier.endpoint", String(), None, MEDIUM, hidden=True,
    doc="URL of the object store's server, if it is not the provider's own, as in `http://localhost:9000`.")
TIER_REGION = broker_key("trioka.tier.region", String(), None, MEDIUM, hidden=True,
    doc="Region of the bucket. If it is not set, the environment decides (AWS_REGION).")
TIER_ACCESS_KEY = broker_key("trioka.tier.access.key", Password(), None, MEDIUM, hidden=True,
    doc="Access key of the object store; the account's name for Azure. If it is not set, the environment decides "
        "(AWS_ACCESS_KEY_ID, instance roles, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME).")
TIER_SECRET_KEY = broker_key("trioka.tier.secret.key", Password(), None, MEDIUM, hidden=True,
    doc="Secret of trioka.tier.access.key.")
TIER_PATH_STYLE = broker_key("trioka.tier.path.style", Boolean(), True, LOW, hidden=True,
    doc="Whether the bucket of an S3 store is in the path of a request rather than in the host name.")
TIER_REQUEST_TIMEOUT_MS = broker_key("trioka.tier.request.timeout.ms", Int(min=100), 30_000, MEDIUM, hidden=True,
    doc="Time in milliseconds that a request to the object store may take. Retries begin within the same time.")
TIER_REQUEST_RETRIES = broker_key("trioka.tier.request.retries", Int(min=0, max=100), 3, LOW, hidden=True,
    doc="Maximum number of retries of a request to the object store.")
TIER_CACHE_BYTES = broker_key("trioka.tier.cache.bytes", Long(min=0), 128 * MIB, MEDIUM, hidden=True,
    doc="Memory, in bytes, for data that was read from the object store.")
TIER_EARLY_UPLOAD = broker_key("trioka.tier.early.upload", Boolean(), True, MEDIUM, CLUSTER_WIDE, hidden=True,
    doc="Whether the active segment of a tiered topic with segments of 32 MiB or more is uploaded while it is written, "
        "so that it can be read from the object store soon after it is closed. The bucket should have a rule that "
        "deletes incomplete uploads: `trioka tier lifecycle --print`.")
TIER_INCARNATION = broker_key("trioka.tier.incarnation", Int(min=1), 1, LOW, hidden=True,
    doc="Which of the clusters that owned the objects this is. `trioka tier restore` prints the number for a restored "
        "cluster; brokers of a cluster with a lower one stop writing to the object store.")
TIER_MISSING_POLICY = broker_key("trioka.tier.missing.policy", String(one_of=("skip", "fail")), "skip", MEDIUM,
    CLUSTER_WIDE, hidden=True,
    doc="What happens to a remote segment whose objects have disappeared from the object store. `skip` records the "
        "loss, and consumers continue with the next segment; `fail` keeps the segment, and reads of it fail.")
