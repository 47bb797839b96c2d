"""The gateway's settings, each declared once: name, type, default and a sentence for docs/GATEWAY.md.

They come from a properties file and from `--override KEY=VALUE`, as `trioka serve` takes its configuration. The cluster
and the credentials towards it are not among them: `trioka gateway` takes those as every command does
(`--bootstrap-server`, `--command-config`).
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

KIB: Final = 1024
MIB: Final = 1024 * KIB
OFF: Final = "off"
MAX_PORT: Final = 65535
MAX_RACK_CHARS: Final = 249


class SettingsError(ValueError):
    """A setting is unknown or has a wrong value. The message is one sentence."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


Value: TypeAlias = "int | str | bool | Address | None"


class Setting(NamedTuple):
    name: str
    parse: Callable[[str], Value]
    default: str
    doc: str


def listener(text: str) -> Address | None:
    """`127.0.0.1:8082`, `[::]:8082`, or `off`; port 0 takes any free port."""
    if text == OFF:
        return None
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:/\[\]\s]+)):(\d{1,5})", text)
    if found is None or int(found[3]) > MAX_PORT:
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:8082, or off")
    return Address(found[1] or found[2], int(found[3]))


def between(low: int, high: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if re.fullmatch(r"-?\d{1,18}", text) is None or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(text)

    return number


def boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def file_name(text: str) -> str | None:
    return text or None


def rack_name(text: str) -> str | None:
    if len(text) > MAX_RACK_CHARS or not text.isprintable():
        raise ValueError(f"must be the name of a rack, of at most {MAX_RACK_CHARS} characters")
    return text or None


def topic_name(text: str) -> str:
    if re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", text) is None or text in (".", ".."):
        raise ValueError("must be the name of a topic")
    return text


GRPC_LISTENER: Final = "grpc.listener"
HTTP_LISTENER: Final = "http.listener"
METRICS_LISTENER: Final = "metrics.listener"
TLS_CERTIFICATE: Final = "tls.certificate.file"
TLS_KEY: Final = "tls.key.file"
TLS_CLIENT_CA: Final = "tls.client.ca.file"
TLS_RELOAD_INTERVAL_MS: Final = "tls.reload.interval.ms"
MAX_MESSAGE_BYTES: Final = "grpc.max.message.bytes"
MAX_CONNECTIONS: Final = "grpc.max.connections"
MAX_STREAMS: Final = "grpc.max.streams.per.connection"
MAX_CALLS: Final = "grpc.max.concurrent.calls"
MAX_UNACKNOWLEDGED_RECORDS: Final = "stream.max.unacknowledged.records"
MAX_UNACKNOWLEDGED_BYTES: Final = "stream.max.unacknowledged.bytes"
MAX_UNWRITTEN_BYTES: Final = "produce.max.unwritten.bytes"
MAX_SUBSCRIPTIONS: Final = "subscribe.max.streams"
MAX_PRINCIPALS: Final = "cluster.max.principals"
MAX_PRODUCER_NAMES: Final = "producer.max.names"
COMMIT_INTERVAL_MS: Final = "producer.commit.interval.ms"
REQUEST_TIMEOUT_MS: Final = "cluster.request.timeout.ms"
CLIENT_RACK: Final = "client.rack"
HTTP_MAX_CONNECTIONS: Final = "http.max.connections"
HTTP_MAX_BODY_BYTES: Final = "http.max.body.bytes"
HTTP_MAX_BODIES_BYTES: Final = "http.max.bodies.bytes"
SHUTDOWN_GRACE_MS: Final = "shutdown.grace.ms"
REST_MAX_CONSUMERS: Final = "rest.max.consumers"
REST_CONSUMER_IDLE_MS: Final = "rest.consumer.idle.ms"
REGISTRY: Final = "registry"
REGISTRY_TOPIC: Final = "registry.topic"
REGISTRY_REPLICAS: Final = "registry.topic.replication.factor"

_MAX_INT32: Final = 0x7FFFFFFF

DECLARED: Final[tuple[Setting, ...]] = (
    Setting(GRPC_LISTENER, listener, "127.0.0.1:50051", "Address of the gRPC service; off for none."),
    Setting(HTTP_LISTENER, listener, "127.0.0.1:8082", "Address of HTTP: REST and the schema registry; off for none."),
    Setting(
        METRICS_LISTENER,
        listener,
        "127.0.0.1:9464",
        "Address of /metrics, /livez and /readyz, without TLS; off for none.",
    ),
    Setting(TLS_CERTIFICATE, file_name, "", "PEM file with the certificate chain of the gRPC and HTTP listeners."),
    Setting(TLS_KEY, file_name, "", "PEM file with the private key of that certificate, not encrypted."),
    Setting(
        TLS_CLIENT_CA,
        file_name,
        "",
        "PEM file of authorities; with it, every client must have a certificate of theirs.",
    ),
    Setting(
        TLS_RELOAD_INTERVAL_MS,
        between(100, _MAX_INT32),
        "10000",
        "How often the three files are looked at; changed ones are loaded for new connections.",
    ),
    Setting(MAX_MESSAGE_BYTES, between(KIB, 64 * MIB), str(4 * MIB), "Largest gRPC message in either direction."),
    Setting(
        MAX_CONNECTIONS, between(1, 1_000_000), "1000", "Connections of the gRPC listener; a further one is closed."
    ),
    Setting(
        MAX_STREAMS, between(1, 1_000_000), "100", "Calls that one gRPC connection may have open; a further one waits."
    ),
    Setting(
        MAX_CALLS,
        between(1, 1_000_000),
        "5000",
        "Calls of all connections together; a further one is RESOURCE_EXHAUSTED.",
    ),
    Setting(
        MAX_UNACKNOWLEDGED_RECORDS,
        between(1, 1_000_000),
        "10000",
        "Records of one stream that are not yet written, or not yet acknowledged by the client.",
    ),
    Setting(
        MAX_UNACKNOWLEDGED_BYTES,
        between(KIB, 1024 * MIB),
        str(32 * MIB),
        "Bytes that one stream may hold: a reader that stops, and requests that are not yet written.",
    ),
    Setting(
        MAX_UNWRITTEN_BYTES,
        between(64 * MIB, 1024 * 1024 * MIB),
        str(256 * MIB),
        "Bytes of requests of all callers that are not yet written; a further one is RESOURCE_EXHAUSTED.",
    ),
    Setting(
        MAX_SUBSCRIPTIONS,
        between(1, 10_000),
        "100",
        "Open Subscribe calls: each is a member of a group, with threads of its own.",
    ),
    Setting(
        MAX_PRINCIPALS,
        between(1, 10_000),
        "100",
        "Users whose connections to the cluster stay open; the oldest unused goes first.",
    ),
    Setting(MAX_PRODUCER_NAMES, between(1, 10_000), "100", "Producer names with an open transactional producer."),
    Setting(
        COMMIT_INTERVAL_MS,
        between(0, 1000),
        "10",
        "How long a stream of a named producer collects requests for one transaction.",
    ),
    Setting(
        CLIENT_RACK,
        rack_name,
        "",
        "Rack of this gateway: reads of the level NEAREST, and members of groups, use a replica there.",
    ),
    Setting(REQUEST_TIMEOUT_MS, between(100, _MAX_INT32), "30000", "Time limit of one request to the cluster."),
    Setting(
        HTTP_MAX_CONNECTIONS,
        between(1, 1_000_000),
        "1000",
        "Connections of the HTTP listener; a further one is answered 503.",
    ),
    Setting(HTTP_MAX_BODY_BYTES, between(KIB, 1024 * MIB), str(16 * MIB), "Largest body of an HTTP request."),
    Setting(
        HTTP_MAX_BODIES_BYTES,
        between(KIB, 1024 * 1024 * MIB),
        str(256 * MIB),
        "Bytes of the bodies of all HTTP requests that are not answered; a further one is answered 503.",
    ),
    Setting(
        REST_MAX_CONSUMERS, between(1, 10_000), "100", "Consumer instances of REST; a further one is answered 429."
    ),
    Setting(
        REST_CONSUMER_IDLE_MS,
        between(1000, 86_400_000),
        "300000",
        "After this time without a request a consumer instance of REST is closed.",
    ),
    Setting(REGISTRY, boolean, "false", "Whether this gateway serves the schema registry; --registry sets it."),
    Setting(REGISTRY_TOPIC, topic_name, "_schemas", "The topic that keeps the schemas: one partition, compacted."),
    Setting(
        REGISTRY_REPLICAS,
        between(1, 32767),
        "3",
        "Replicas of that topic if the registry creates it; as many as there are brokers, if those are fewer.",
    ),
    Setting(
        SHUTDOWN_GRACE_MS, between(0, 3_600_000), "10000", "How long a stop waits for calls; then they are cancelled."
    ),
)
BY_NAME: Final[Mapping[str, Setting]] = {each.name: each for each in DECLARED}


class Settings:
    """The values by name, checked. A value that was not given has its default."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        given = {} if given is None else given
        for name in given:
            if name not in BY_NAME:
                raise SettingsError(f"there is no setting {name[:80]!r}; docs/GATEWAY.md lists them.")
        self._values: dict[str, Value] = {}
        for setting in DECLARED:
            text = given.get(setting.name, setting.default).strip()
            try:
                self._values[setting.name] = setting.parse(text)
            except ValueError as error:
                raise SettingsError(f"{setting.name} is {text[:80]!r}, and {error}.") from None
        if (self.text(TLS_CERTIFICATE) is None) != (self.text(TLS_KEY) is None):
            raise SettingsError(f"{TLS_CERTIFICATE} and {TLS_KEY} are given together, or neither.")
        if self.text(TLS_CLIENT_CA) is not None and self.text(TLS_CERTIFICATE) is None:
            raise SettingsError(f"{TLS_CLIENT_CA} needs {TLS_CERTIFICATE} and {TLS_KEY}.")
        if self.listener(GRPC_LISTENER) is None and self.listener(HTTP_LISTENER) is None:
            raise SettingsError(f"{GRPC_LISTENER} and {HTTP_LISTENER} are both off, so there is nothing to serve.")

    def number(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int)
        return value

    def seconds(self, name: str) -> float:
        """A setting in milliseconds."""
        return self.number(name) / 1000

    def flag(self, name: str) -> bool:
        return self._values[name] is True

    def text(self, name: str) -> str | None:
        value = self._values[name]
        assert value is None or isinstance(value, str)
        return value

    def listener(self, name: str) -> Address | None:
        value = self._values[name]
        assert value is None or isinstance(value, Address)
        return value


def check_exposure(settings: Settings, *, is_cluster_authenticated: bool) -> None:
    """Refuse a listener that others can reach while nothing identifies them. Raises SettingsError."""
    if is_cluster_authenticated or settings.text(TLS_CLIENT_CA) is not None:
        return
    for name in (GRPC_LISTENER, HTTP_LISTENER):
        address = settings.listener(name)
        if address is not None and not address.is_loopback:
            raise SettingsError(
                f"{name} is {address}, which other machines reach, while the cluster has no authentication and "
                f"{TLS_CLIENT_CA} is not set; use a loopback address, client certificates, or a cluster with SASL."
            )
