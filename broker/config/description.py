"""Configuration entries in the responses of DescribeConfigs and CreateTopics.

There is an entry for every key, set or not, with its effective value, its source, and its synonyms in order of
precedence. Clients and tools show these lists, so they follow Kafka's rules, three of which are surprising:

  - The synonyms of a topic's key start at its first broker key. If log.retention.hours is set and log.retention.ms is
    not, retention.ms has the value of the hours, no synonyms, and the source DEFAULT. CreateTopics reports
    server.properties as the source of the same key.
  - The value of an undeclared key, in server.properties or set at run time, is omitted: it might be a secret.
  - A key with a listener prefix is reported as read-only, although it can be changed.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import dropwhile
from typing import Final

from .key import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    Key,
    Mode,
    broker_key_of,
)
from .layers import EMPTY, EQUIVALENT_KEYS, Config, GroupConfig, TopicConfig, unit_ms
from .values import Whole

UNKNOWN_TYPE: Final = 0


def describe_topic(config: TopicConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The entries of a topic; only those in `names`, unless it is empty."""
    entries = []
    for name in _entry_names(TOPIC_KEYS, config.overrides, names):
        if (key := TOPIC_KEYS.get(name)) is None:
            entries.append(_unknown(name, (ConfigSynonym(name, None, ConfigSource.TOPIC),), read_only=False))
            continue
        value = _value_text(key, config[key])
        own = (ConfigSynonym(name, value, ConfigSource.TOPIC),) if name in config.overrides else ()
        inherited = _broker_synonyms(config.config, key.synonyms[0]) if key.synonyms else ()
        entries.append(_entry(key, value, (*own, *inherited)))
    return entries


def describe_created_topic(config: TopicConfig) -> list[ConfigEntry]:
    """The entries of a new topic for CreateTopics: values as they were set, without synonyms."""
    entries = []
    for name in _entry_names(TOPIC_KEYS, config.overrides, None):
        key = TOPIC_KEYS[name]
        value, source = _inherited_text(config.config, key)
        if name in config.overrides:
            value, source = config.overrides[name], ConfigSource.TOPIC
        entries.append(ConfigEntry(name, value, source, key.sensitive, False, (), key.type.number, key.doc))
    return entries


def describe_broker(config: Config, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The entries of this broker, including undeclared keys that are set."""
    texts = {**config.static, **config.cluster, **config.broker}
    entries = []
    for name in _entry_names(BROKER_KEYS, texts, names):
        key = broker_key_of(name)
        if key is None:
            entries.append(_unknown(name, _synonyms(config, (name,), sensitive=True), read_only=True))
        elif key.name != name:
            synonyms = _synonyms(config, (name, key.name), key.sensitive)
            value = None if key.sensitive else texts[name]
            entries.append(_entry(key, value, synonyms, read_only=True)._replace(name=name, documentation=None))
        else:
            value = None if key.required and not config.is_set(key) else _value_text(key, config[key])
            entries.append(_entry(key, value, _broker_synonyms(config, key), read_only=key.mode is Mode.READ_ONLY))
    return entries


def describe_all_brokers(config: Config, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The entries of the cluster-wide default: the broker resource without a name."""
    entries = []
    for name, text in sorted(config.cluster.items()):
        if names and name not in names:
            continue
        key = broker_key_of(name)
        value = None if key is None or key.sensitive else text
        synonyms = (ConfigSynonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        if key is None:
            entries.append(_unknown(name, synonyms, read_only=True))
        else:
            read_only = key.mode is Mode.READ_ONLY or key.name != name
            entries.append(_entry(key, value, synonyms, read_only=read_only)._replace(name=name))
    return entries


def describe_group(config: GroupConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The entries of a group, which need not exist."""
    entries = []
    for name in _entry_names(GROUP_KEYS, config.overrides, names):
        if (key := GROUP_KEYS.get(name)) is None:
            entries.append(_unknown(name, (ConfigSynonym(name, None, ConfigSource.GROUP),), read_only=False))
            continue
        value = _value_text(key, config[key])
        own = (ConfigSynonym(name, value, ConfigSource.GROUP),) if name in config.overrides else ()
        if key.synonyms:
            inherited = _broker_synonyms(config.config, key.synonyms[0])
        else:
            inherited = (ConfigSynonym(name, key.default_text, ConfigSource.DEFAULT),)
        entries.append(_entry(key, value, (*own, *inherited)))
    return entries


def describe_client_metrics(
    overrides: Mapping[str, str] = EMPTY, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The entries of a client metrics subscription, which need not exist."""
    entries = []
    for name in _entry_names(CLIENT_METRICS_KEYS, overrides, names):
        if (key := CLIENT_METRICS_KEYS.get(name)) is None:
            continue
        text = overrides.get(name)
        value = key.default_text if text is None else key.type.show(key.type.parse(text))
        entries.append(
            _entry(key, value, () if text is None else (ConfigSynonym(name, value, ConfigSource.CLIENT_METRICS),))
        )
    return entries


def describe_loggers(levels: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The entries of loggers, with the levels that the caller passes."""
    return [
        ConfigEntry(name, level, ConfigSource.BROKER_LOGGER, False, False, (), UNKNOWN_TYPE, None)
        for name, level in sorted(levels.items())
        if not names or name in names
    ]


def _entry_names(
    keys: Mapping[str, Key[object]], texts: Mapping[str, str], names: Collection[str] | None
) -> Iterable[str]:
    """The keys that have an entry: all that are set or not hidden, restricted to the requested names."""
    if names:
        return sorted({name for name in names if name in texts or (name in keys and not keys[name].hidden)})
    return sorted({name for name, key in keys.items() if not key.hidden} | texts.keys())


def _value_text(key: Key[object], value: object) -> str | None:
    return None if value is None or key.sensitive else key.type.show(value)


def _entry(
    key: Key[object], value: str | None, synonyms: tuple[ConfigSynonym, ...], *, read_only: bool = False
) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(key.name, value, source, key.sensitive, read_only, synonyms, key.type.number, key.doc)


def _unknown(name: str, synonyms: tuple[ConfigSynonym, ...], *, read_only: bool) -> ConfigEntry:
    return ConfigEntry(name, None, synonyms[0].source, True, read_only, synonyms, UNKNOWN_TYPE, None)


def _broker_synonyms(config: Config, key: Key[object]) -> tuple[ConfigSynonym, ...]:
    """The sources of a broker key's value by precedence, starting at the first layer that sets the key itself."""
    synonyms = _synonyms(config, EQUIVALENT_KEYS.get(key.name, (key.name,)), key.sensitive)
    return tuple(dropwhile(lambda synonym: synonym.name != key.name, synonyms))


def _synonyms(config: Config, names: tuple[str, ...], sensitive: bool) -> tuple[ConfigSynonym, ...]:
    """All settings of the names: by layer, then in the order of the names."""
    synonyms = [
        ConfigSynonym(name, None if sensitive else texts[name], source)
        for source, texts in _layers(config)
        for name in names
        if name in texts
    ]
    for name in names:
        if (key := BROKER_KEYS.get(name)) is not None and (default := key.default_text) is not None:
            synonyms.append(ConfigSynonym(name, None if sensitive else default, ConfigSource.DEFAULT))
    return tuple(synonyms)


def _layers(config: Config) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
    return (
        (ConfigSource.DYNAMIC_BROKER, config.broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.cluster),
        (ConfigSource.STATIC_BROKER, config.static),
    )


def _inherited_text(config: Config, key: Key[object]) -> tuple[str | None, ConfigSource]:
    for source, texts in _layers(config):
        for synonym in key.synonyms:
            if (text := texts.get(synonym.name)) is not None:
                factor = unit_ms(synonym) if isinstance(key.type, Whole) else 1
                return text if factor == 1 else str(int(text) * factor), source
    return key.default_text, ConfigSource.DEFAULT
