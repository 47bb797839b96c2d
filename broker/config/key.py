"""Declarations of configuration keys: name, type, default, documentation, and whether trioka honours the key.

    RETENTION_MS = topic_key("retention.ms", Long(min=-1), 7 * DAY_MS, synonyms=(log.LOG_RETENTION_MS, …),
        doc="Age, in milliseconds, of a segment's newest record above which the segment is deleted; -1 means no limit.")

Validation, DescribeConfigs, dynamic changes and docs/CONFIG.md use the declaration. The declared object is also a typed
index: `config[RETENTION_MS]` is an int for mypy.

There are about four hundred keys and a broker starts in half a second, so a key is a plain object with slots. Creating
all of them takes 1 ms; a data class or a compiled regular expression per key would take 20 ms.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

from .values import T_co, ValueType

T = TypeVar("T")

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

# Marks a key without a default: the node does not start without a value.
REQUIRED: Final[Any] = type("Required", (), {"__repr__": lambda _: "REQUIRED"})()

LISTENER_PREFIX: Final = "listener.name."
SASL_MECHANISM_PREFIXES: Final = frozenset({"gssapi", "oauthbearer", "plain", "scram-sha-256", "scram-sha-512"})


class Importance(IntEnum):
    LOW = 0
    MEDIUM = 1
    HIGH = 2


class Mode(IntEnum):
    """How a broker key can change: by a restart only, per broker, or also for all brokers."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", "-")


class ConfigSource(IntEnum):
    """Source of a value, with the numbers of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Resource(IntEnum):
    """Type of a resource that has a configuration, with the numbers of DescribeConfigs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One key of a resource, as DescribeConfigs returns it."""

    name: str
    value: str | None  # None if not set or sensitive
    source: int
    sensitive: bool
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]  # by precedence, the effective one first
    type: int  # 0 for an undeclared key
    documentation: str | None


LOW, MEDIUM, HIGH = Importance.LOW, Importance.MEDIUM, Importance.HIGH
READ_ONLY, PER_BROKER, CLUSTER_WIDE = Mode.READ_ONLY, Mode.PER_BROKER, Mode.CLUSTER_WIDE

# Reasons why a key is accepted but ignored, to follow "Ignored because". Keys without a reason are honoured.
HONOURED: Final = ""
NO_THREADS: Final = "trioka has no thread pools"
NO_QUEUE: Final = "each connection has one request processed at a time; further requests wait in the kernel's buffers"
NOTHING_UNSTABLE: Final = "unstable features are not offered"
TWO_SNAPSHOTS: Final = "trioka keeps the last two metadata snapshots"
NO_PURGATORY: Final = "completed requests leave nothing to purge"
JAVA: Final = "trioka has no Java runtime"
KERBEROS: Final = "Kerberos is not supported"
NO_JMX_METRICS: Final = "metrics are served over HTTP and not sampled in windows"
NO_BUFFER: Final = "the buffers of coordinators have a fixed size"
NO_LINGER: Final = "coordinators append records at once"
ONE_DECISION: Final = "the controller processes one request at a time, so there are no records to collect"
NO_SCAN: Final = "each transaction has its own timer"
NO_PREALLOCATION: Final = "segment files grow as they are written"
NO_CLEANER_BUFFERS: Final = "log.cleaner.dedupe.buffer.size alone limits the memory of compaction"
LATER_CLUSTER: Final = "this is not implemented yet"
LATER_SHARE: Final = "share groups are not implemented yet"
LATER_STREAMS: Final = "streams groups are not implemented yet"
LATER_SECURITY: Final = "nodes do not log in to each other by OAUTHBEARER"
LATER_QUOTAS: Final = "this throttle is not implemented yet"
LATER_TELEMETRY: Final = "client telemetry is not implemented yet"


class Key(Generic[T_co]):
    """A declared key. `default` is a parsed value; None means "not set"."""

    __slots__ = ("default", "doc", "effect", "hidden", "importance", "mode", "name", "synonyms", "type")

    def __init__(
        self,
        name: str,
        type: ValueType[Any],
        default: T_co,
        importance: Importance,
        mode: Mode,
        effect: str,
        hidden: bool,
        synonyms: "tuple[Key[Any], ...]",
        doc: str,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.importance = importance
        self.mode = mode
        self.effect = effect  # HONOURED, or the reason why the key is ignored
        self.hidden = hidden  # DescribeConfigs returns it only if it is set
        self.synonyms = synonyms  # the broker keys that a topic or group inherits from, by precedence
        self.doc = doc

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def sensitive(self) -> bool:
        return self.type.sensitive

    @property
    def is_list(self) -> bool:
        return self.type.name == "list"

    @property
    def default_text(self) -> str | None:
        """The default as Kafka prints it; None if there is none."""
        return None if self.default is None or self.required else self.type.show(self.default)

    def parse(self, text: str) -> T_co:
        """Parse a text. The message of the ValueError is a sentence with the key and the text."""
        try:
            value: T_co = self.type.parse(text)
        except ValueError as error:
            shown = "[hidden]" if self.sensitive else f"'{text[:80]}'"
            raise ValueError(f"Invalid value {shown} for configuration {self.name}: it {error}.") from None
        return value


BROKER_KEYS: Final[dict[str, Key[object]]] = {}
TOPIC_KEYS: Final[dict[str, Key[object]]] = {}
GROUP_KEYS: Final[dict[str, Key[object]]] = {}
CLIENT_METRICS_KEYS: Final[dict[str, Key[object]]] = {}
# Keys of the authorizer in server.properties. The authorizer is a plug-in in Kafka, so DescribeConfigs does not return
# these keys, and a change needs a restart.
AUTHORIZER_KEYS: Final[dict[str, Key[object]]] = {}


@overload
def broker_key(
    name: str,
    type: ValueType[T],
    default: None,
    importance: Importance = ...,
    mode: Mode = ...,
    *,
    doc: str,
    effect: str = ...,
    hidden: bool = ...,
) -> Key[T | None]: ...
@overload
def broker_key(
    name: str,
    type: ValueType[T],
    default: T,
    importance: Importance = ...,
    mode: Mode = ...,
    *,
    doc: str,
    effect: str = ...,
    hidden: bool = ...,
) -> Key[T]: ...
def broker_key(
    name: str,
    type: ValueType[Any],
    default: object,
    importance: Importance = MEDIUM,
    mode: Mode = READ_ONLY,
    *,
    doc: str,
    effect: str = HONOURED,
    hidden: bool = False,
) -> Key[Any]:
    """Declare a key of brokers."""
    return _declare(BROKER_KEYS, Key(name, type, default, importance, mode, effect, hidden, (), doc))


@overload
def topic_key(
    name: str,
    type: ValueType[T],
    default: None,
    *synonyms: Key[object],
    doc: str,
    effect: str = ...,
    hidden: bool = ...,
) -> Key[T | None]: ...
@overload
def topic_key(
    name: str,
    type: ValueType[T],
    default: T,
    *synonyms: Key[object],
    doc: str,
    effect: str = ...,
    hidden: bool = ...,
) -> Key[T]: ...
def topic_key(
    name: str,
    type: ValueType[Any],
    default: object,
    *synonyms: Key[object],
    doc: str,
    effect: str = HONOURED,
    hidden: bool = False,
) -> Key[Any]:
    """Declare a key of topics. `synonyms` are the broker keys that a topic inherits from, by precedence."""
    return _declare(TOPIC_KEYS, Key(name, type, default, MEDIUM, CLUSTER_WIDE, effect, hidden, synonyms, doc))


def group_key(
    name: str, type: ValueType[T], default: T, *synonyms: Key[object], doc: str, effect: str = HONOURED
) -> Key[T]:
    """Declare a key of groups, with at most one synonym."""
    return _declare(GROUP_KEYS, Key(name, type, default, MEDIUM, CLUSTER_WIDE, effect, False, synonyms, doc))


def client_metrics_key(name: str, type: ValueType[T], default: T, *, doc: str) -> Key[T]:
    """Declare a key of client metrics subscriptions."""
    key = Key(name, type, default, MEDIUM, CLUSTER_WIDE, LATER_TELEMETRY, False, (), doc)
    return _declare(CLIENT_METRICS_KEYS, key)


def authorizer_key(name: str, type: ValueType[T], default: T, *, doc: str) -> Key[T]:
    """Declare a key of the authorizer."""
    return _declare(AUTHORIZER_KEYS, Key(name, type, default, MEDIUM, READ_ONLY, HONOURED, True, (), doc))


def _declare(keys: "dict[str, Key[object]]", key: Key[T]) -> Key[T]:
    assert key.name not in keys, f"{key.name} is declared twice"
    keys[key.name] = key
    return key


def described(keys: Mapping[str, Key[object]]) -> Iterator[Key[object]]:
    """The keys that DescribeConfigs returns even if they are not set, sorted by name."""
    return (keys[name] for name in sorted(keys) if not keys[name].hidden)


def broker_key_of(name: str) -> Key[object] | None:
    """The key that a name in server.properties refers to; None if it is unknown.

    `listener.name.<listener>.<key>` is the key for one listener; some SASL keys also have a mechanism:
    `listener.name.<listener>.<mechanism>.<key>`, or `<mechanism>.<key>` for all listeners.
    """
    if (key := BROKER_KEYS.get(name)) is not None:
        return key
    if not name.startswith(LISTENER_PREFIX):
        mechanism, _, rest = name.partition(".")
        return BROKER_KEYS.get(rest) if mechanism in SASL_MECHANISM_PREFIXES else None
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    return BROKER_KEYS.get(rest) or BROKER_KEYS.get(rest.partition(".")[2])
