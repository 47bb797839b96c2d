"""A config key, declared once: what it is called, what it may be, what it means, and whether trioka heeds it.

    RETENTION_MS = topic_key("retention.ms", Long(min=-1), 7 * DAY_MS, synonyms=(log.LOG_RETENTION_MS, …),
        doc="Delete a segment once its newest record is older than this; -1 keeps all.")

From the declaration come validation, DescribeConfigs, dynamic change and the reference page. The declared name is a
typed look-up as well: `config[RETENTION_MS]` is an int for the reader and for mypy.

There are some four hundred keys and a broker starts in half a second, so a key is a plain object with slots: making
all of them takes a millisecond, where a data class per key, or a regular expression per key, would take twenty.
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

# The default of a key that has none: the node does not start without a value.
REQUIRED: Final[Any] = type("Required", (), {"__repr__": lambda _: "REQUIRED"})()

LISTENER_PREFIX: Final = "listener.name."


class Importance(IntEnum):
    LOW = 0
    MEDIUM = 1
    HIGH = 2


class Mode(IntEnum):
    """How a broker key changes: by a new start only, for single brokers only, or for one or all of them."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", "-")


class Source(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Resource(IntEnum):
    """What has a configuration; the numbers are those of DescribeConfigs and its siblings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int


class Entry(NamedTuple):
    """One key of one resource, with everything that DescribeConfigs says about it."""

    name: str
    value: str | None  # None too if it is sensitive
    source: int
    sensitive: bool
    read_only: bool
    synonyms: tuple[Synonym, ...]  # the value's own place first, then what it hides
    type: int  # 0 for a key that nobody declared
    documentation: str | None


LOW, MEDIUM, HIGH = Importance.LOW, Importance.MEDIUM, Importance.HIGH
READ_ONLY, PER_BROKER, CLUSTER_WIDE = Mode.READ_ONLY, Mode.PER_BROKER, Mode.CLUSTER_WIDE

# Why a key is accepted and has no effect. A key without such a reason is honoured.
HONOURED: Final = ""
NO_THREADS: Final = "one event loop does what Kafka's thread pools do"
NO_QUEUE: Final = "a connection has one request served at a time, and what it sends meanwhile waits in the kernel"
NOTHING_UNSTABLE: Final = "nothing unstable is offered"
TWO_SNAPSHOTS: Final = "the last two snapshots of the metadata are kept"
NO_PURGATORY: Final = "a request that waited leaves nothing behind that would have to be purged"
JAVA: Final = "it names a Java class, or something else of the Java runtime"
KERBEROS: Final = "Kerberos is not supported"
NO_JMX_METRICS: Final = "metrics are served over HTTP, and are not sampled in windows"
NO_BUFFER: Final = "internal topics are read in pieces of a fixed size"
NO_LINGER: Final = "what a coordinator decides is written at once"
ONE_DECISION: Final = "the controller decides one thing at a time, so that there is nothing to gather"
NO_SCAN: Final = "a transaction that took too long is aborted when its time is over"
NO_PREALLOCATION: Final = "files grow as they are written"
NO_CLEANER_BUFFERS: Final = "compaction has one limit for its memory, log.cleaner.dedupe.buffer.size"
LATER_CLUSTER: Final = "nodes do not look at it yet"
LATER_SHARE: Final = "share groups are not there yet"
LATER_STREAMS: Final = "streams groups are not there yet"
LATER_SECURITY: Final = "TLS, SASL and tokens are not there yet"
LATER_TIERS: Final = "tiered storage is not there yet"
LATER_QUOTAS: Final = "quotas are stored, and not enforced yet"
LATER_TELEMETRY: Final = "client telemetry is not there yet"


class Key(Generic[T_co]):
    """See the top of this file. `default` is the parsed value; None stands for "not set"."""

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
        self.effect = effect  # HONOURED, or the reason why it has none
        self.hidden = hidden  # DescribeConfigs shows it only where somebody has set it
        self.synonyms = synonyms  # the broker keys that a topic or group inherits from, the strongest first
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
        """The value of a text; a ValueError is one sentence that names the key and the text."""
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
# What stands in server.properties for the authorizer, which in Kafka is a plug-in: no client sees what it is set to,
# and a new value counts from the next start on.
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
    """Declare a key of topics, and the broker keys that a topic without an own value inherits from."""
    return _declare(TOPIC_KEYS, Key(name, type, default, MEDIUM, CLUSTER_WIDE, effect, hidden, synonyms, doc))


def group_key(
    name: str, type: ValueType[T], default: T, *synonyms: Key[object], doc: str, effect: str = HONOURED
) -> Key[T]:
    """Declare a key of groups. It has one synonym at most."""
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
    """The keys that a client sees though nobody has set them, in the order of their names."""
    return (keys[name] for name in sorted(keys) if not keys[name].hidden)


def broker_key_of(name: str) -> Key[object] | None:
    """The key that a name in server.properties means: `listener.name.<listener>.<key>` is that key for one listener.

    For some SASL keys a mechanism stands between: `listener.name.<listener>.<mechanism>.<key>`.
    """
    if (key := BROKER_KEYS.get(name)) is not None or not name.startswith(LISTENER_PREFIX):
        return key
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    return BROKER_KEYS.get(rest) or BROKER_KEYS.get(rest.partition(".")[2])
