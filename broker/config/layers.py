"""Effective configuration values, computed from layers of texts.

    broker     default  <  server.properties  <  dynamic, all brokers  <  dynamic, this broker
    topic      value of the broker's synonyms  <  set for the topic
    group      value of the broker's synonym   <  set for the group

    config[NUM_PARTITIONS]                       an int
    config.topic({"retention.ms": "-1"})[RETENTION_MS]

A `Config` is immutable; a change creates a new one. The texts are kept because DescribeConfigs shows them. Texts from
the metadata log were validated when they were set, perhaps by another program or an older version. An invalid text
does not stop the broker: it is skipped and listed in `rejected` for the log.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, cast

from trioka.cluster.placement.topic_overrides import MEMORY
from trioka.protocol.compression import Codec
from trioka.storage.log_config import NO_LIMIT, LogConfig, SchemaIdRules, SubjectStrategy

from . import schema_keys as schema
from . import topic_keys as topic
from .group_keys import GROUP_BOUNDS
from .key import BROKER_KEYS, GROUP_KEYS, HOUR_MS, LISTENER_PREFIX, MINUTE_MS, TOPIC_KEYS, Key
from .trioka_keys import VALIDATE_RECORDS
from .values import LONG_MAX, Whole

T = TypeVar("T")

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})

# Broker keys with the same meaning in different units, by precedence. Setting one of them dynamically overrides all
# the others in server.properties.
EQUIVALENT_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    synonym.name: tuple(other.name for other in key.synonyms)
    for key in TOPIC_KEYS.values()
    for synonym in key.synonyms
    if len(key.synonyms) > 1 and synonym is not topic.FLUSH_MS.synonyms[1]
}

_UNITS: Final = (("minutes", MINUTE_MS), ("hours", HOUR_MS))


class ConfigError(ValueError):
    """The node cannot start with this configuration. The message is a sentence that names the key; `others` are further
    errors of the same configuration, if they are known, and `remarks` what else there is to say about it."""

    def __init__(self, message: str, others: Sequence[str] = (), remarks: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.others = tuple(others)
        self.remarks = tuple(remarks)


class Layered:
    """Parsed values of the texts in several layers; later layers win."""

    __slots__ = ("_values", "rejected")

    def __init__(self, keys: Mapping[str, Key[object]], layers: tuple[Mapping[str, str], ...]) -> None:
        self._values: dict[str, Any] = {}
        rejected: list[str] = []
        for texts in layers:
            for name, text in texts.items():
                if (key := keys.get(name)) is not None:
                    try:
                        self._values[name] = key.parse(text)
                    except ValueError as error:
                        rejected.append(str(error))
        self.rejected = tuple(rejected)  # error messages about skipped texts


class Config(Layered):
    """A broker's configuration."""

    __slots__ = ("_inherited", "broker", "cluster", "static")

    def __init__(
        self,
        static: Mapping[str, str] = EMPTY,
        *,
        cluster: Mapping[str, str] = EMPTY,
        broker: Mapping[str, str] = EMPTY,
    ) -> None:
        super().__init__(BROKER_KEYS, (_without_synonyms(static, cluster, broker), cluster, broker))
        self.static = static  # server.properties, environment, overrides
        self.cluster = cluster  # dynamic, all brokers
        self.broker = broker  # dynamic, this broker
        self._inherited: dict[str, Any] = {}

    def __getitem__(self, key: Key[T]) -> T:
        value: T = self._values.get(key.name, key.default)
        assert not (value is key.default and key.required), f"{key.name} has no value; was this configuration checked?"
        return value

    def is_set(self, key: Key[object]) -> bool:
        """Whether any layer sets the key."""
        return key.name in self._values

    def changed(self, *, cluster: Mapping[str, str] | None = None, broker: Mapping[str, str] | None = None) -> "Config":
        """Return a configuration with other dynamic layers."""
        return Config(
            self.static,
            cluster=self.cluster if cluster is None else cluster,
            broker=self.broker if broker is None else broker,
        )

    def of_listener(self, listener: str, key: Key[T]) -> T:
        """The value of `listener.name.<listener>.<key>`, or of the key itself if that is not set."""
        name = f"{LISTENER_PREFIX}{listener.lower()}.{key.name}"
        for texts in (self.broker, self.cluster, self.static):
            if (text := texts.get(name)) is not None:
                return key.parse(text)
        return self[key]

    def inherited(self, key: Key[T]) -> T:
        """The value of a topic or group that does not set the key: that of the first synonym that is set."""
        if key.name not in self._inherited:
            self._inherited[key.name] = self._inherit(key)
        return cast(T, self._inherited[key.name])

    def _inherit(self, key: Key[object]) -> object:
        for synonym in key.synonyms:
            if synonym.name in self._values:
                value = self._values[synonym.name]
                if isinstance(key.type, Whole):
                    value *= unit_ms(synonym)
                    # Kafka's brokers also accept values below the topic's minimum, such as -5 hours of retention.
                    return value if key.type.min is None else max(value, key.type.min)
                return value
        return key.default

    def topic(self, overrides: Mapping[str, str] = EMPTY) -> "TopicConfig":
        return TopicConfig(self, overrides)

    def group(self, overrides: Mapping[str, str] = EMPTY) -> "GroupConfig":
        return GroupConfig(self, overrides)


class TopicConfig(Layered):
    """A topic's configuration: its own texts over a broker's configuration."""

    __slots__ = ("config", "overrides")

    def __init__(self, config: Config, overrides: Mapping[str, str] = EMPTY) -> None:
        super().__init__(TOPIC_KEYS, (overrides,))
        self.config = config
        self.overrides = overrides

    def __getitem__(self, key: Key[T]) -> T:
        if key.name in self._values:
            return cast(T, self._values[key.name])
        return self.config.inherited(key)

    def is_set(self, key: Key[object]) -> bool:
        return key.name in self._values


class GroupConfig(Layered):
    """A group's configuration. Its values are clamped to the broker's bounds, which may have changed since."""

    __slots__ = ("config", "overrides")

    def __init__(self, config: Config, overrides: Mapping[str, str] = EMPTY) -> None:
        super().__init__(GROUP_KEYS, (overrides,))
        self.config = config
        self.overrides = overrides

    def __getitem__(self, key: Key[T]) -> T:
        if key.name not in self._values:
            return self.config.inherited(key)
        value = self._values[key.name]
        for bounded, low, high in GROUP_BOUNDS:
            if bounded is key:
                value = value if low is None else max(value, self.config[low])
                value = min(value, self.config[high])
        return cast(T, value)


def unit_ms(synonym: Key[object]) -> int:
    """The factor from the unit of a key, which is the last part of its name, to milliseconds; 1 for other units."""
    return next((factor for unit, factor in _UNITS if synonym.name.endswith(f".{unit}")), 1)


def _without_synonyms(static: Mapping[str, str], *dynamic: Mapping[str, str]) -> Mapping[str, str]:
    hidden = {other for texts in dynamic for name in texts for other in EQUIVALENT_KEYS.get(name, ())}
    return {name: text for name, text in static.items() if name not in hidden} if hidden else static


_CODECS: Final[Mapping[str, Codec | None]] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


_STRATEGIES: Final[Mapping[str, SubjectStrategy]] = {
    schema.TOPIC_NAME: "topic",
    schema.RECORD_NAME: "record",
    schema.TOPIC_RECORD_NAME: "topic_record",
}


def _schema_ids(config: TopicConfig) -> SchemaIdRules | None:
    checks_keys, checks_values = config[schema.KEY_SCHEMA_VALIDATION], config[schema.VALUE_SCHEMA_VALIDATION]
    if not checks_keys and not checks_values:
        return None
    return SchemaIdRules(
        _STRATEGIES[config[schema.KEY_SUBJECT_NAME_STRATEGY]] if checks_keys else None,
        _STRATEGIES[config[schema.VALUE_SUBJECT_NAME_STRATEGY]] if checks_values else None,
    )


def log_config(config: TopicConfig) -> LogConfig:
    """The configuration of the topic's logs for storage."""
    internal_segment_bytes = config[topic.INTERNAL_SEGMENT_BYTES]
    is_in_memory = config[topic.LOG_DIR_CLASS] == MEMORY  # a sync would make nothing durable
    return LogConfig(
        segment_bytes=config[topic.SEGMENT_BYTES] if internal_segment_bytes is None else internal_segment_bytes,
        segment_ms=config[topic.SEGMENT_MS],
        segment_jitter_ms=config[topic.SEGMENT_JITTER_MS],
        segment_index_bytes=config[topic.SEGMENT_INDEX_BYTES],
        index_interval_bytes=config[topic.INDEX_INTERVAL_BYTES],
        cleanup_policy=frozenset(cast(tuple[Literal["compact", "delete"], ...], config[topic.CLEANUP_POLICY])),
        retention_ms=config[topic.RETENTION_MS],
        retention_bytes=max(config[topic.RETENTION_BYTES], NO_LIMIT),
        file_delete_delay_ms=config[topic.FILE_DELETE_DELAY_MS],
        delete_retention_ms=config[topic.DELETE_RETENTION_MS],
        min_cleanable_dirty_ratio=config[topic.MIN_CLEANABLE_DIRTY_RATIO],
        # A dynamic default of the broker can make the minimum exceed the maximum; the maximum wins.
        min_compaction_lag_ms=min(config[topic.MIN_COMPACTION_LAG_MS], config[topic.MAX_COMPACTION_LAG_MS]),
        max_compaction_lag_ms=config[topic.MAX_COMPACTION_LAG_MS],
        remote_storage=config[topic.REMOTE_STORAGE_ENABLE],
        remote_copy_disable=config[topic.REMOTE_LOG_COPY_DISABLE],
        local_retention_ms=config[topic.LOCAL_RETENTION_MS],
        local_retention_bytes=config[topic.LOCAL_RETENTION_BYTES],
        max_message_bytes=config[topic.MAX_MESSAGE_BYTES],
        message_timestamp_type=cast(Literal["CreateTime", "LogAppendTime"], config[topic.MESSAGE_TIMESTAMP_TYPE]),
        message_timestamp_before_max_ms=config[topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
        message_timestamp_after_max_ms=config[topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS],
        compression_type=_CODECS[config[topic.COMPRESSION_TYPE]],
        compression_gzip_level=config[topic.COMPRESSION_GZIP_LEVEL],
        compression_lz4_level=config[topic.COMPRESSION_LZ4_LEVEL],
        compression_zstd_level=config[topic.COMPRESSION_ZSTD_LEVEL],
        schema_ids=_schema_ids(config),
        validate_records=cast(Literal["full", "header"], config.config[VALIDATE_RECORDS]),
        flush_messages=LONG_MAX if is_in_memory else config[topic.FLUSH_MESSAGES],
        flush_ms=LONG_MAX if is_in_memory else config[topic.FLUSH_MS],
    )
