"""What DescribeConfigs, and CreateTopics in its answer, say about a configuration.

Every key is told, set or not, with the value that counts, where it comes from, and what it hides: its synonyms, the
strongest first. Kafka's clients and tools show these lists, so they follow Kafka's rules, of which three are odd:

  - A topic's key tells of the broker keys behind it only from the first of them on. When log.retention.hours is
    set and log.retention.ms is not, retention.ms has the hours' value, no synonyms, and claims to be a default.
    CreateTopics says of the same key that it comes from server.properties.
  - A key that nobody declared, in server.properties or set at run time, might hold a secret. Its value is not told.
  - A key with a listener's prefix is told as read-only, though it can be changed.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import dropwhile
from typing import Final

from .key import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    Entry,
    Key,
    Mode,
    Source,
    Synonym,
    broker_key_of,
)
from .layers import NOTHING, SAME_THING, Config, GroupConfig, TopicConfig, unit_ms
from .values import Whole

UNKNOWN_TYPE: Final = 0


def describe_topic(config: TopicConfig, names: Collection[str] | None = None) -> list[Entry]:
    """A topic's keys; those of `names` only, if there are any."""
    entries = []
    for name in _told(TOPIC_KEYS, config.overrides, names):
        if (key := TOPIC_KEYS.get(name)) is None:
            entries.append(_unknown(name, (Synonym(name, None, Source.TOPIC),), read_only=False))
            continue
        value = _shown(key, config[key])
        own = (Synonym(name, value, Source.TOPIC),) if name in config.overrides else ()
        behind = _broker_synonyms(config.config, key.synonyms[0]) if key.synonyms else ()
        entries.append(_entry(key, value, (*own, *behind)))
    return entries


def describe_created_topic(config: TopicConfig) -> list[Entry]:
    """A new topic's keys as the answer to CreateTopics tells them: the texts as they were set, without synonyms."""
    entries = []
    for name in _told(TOPIC_KEYS, config.overrides, None):
        key = TOPIC_KEYS[name]
        value, source = _inherited_text(config.config, key)
        if name in config.overrides:
            value, source = config.overrides[name], Source.TOPIC
        entries.append(Entry(name, value, source, key.sensitive, False, (), key.type.number, key.doc))
    return entries


def describe_broker(config: Config, names: Collection[str] | None = None) -> list[Entry]:
    """The keys of this broker, those that are only in server.properties or only set at run time included."""
    texts = {**config.static, **config.cluster, **config.broker}
    entries = []
    for name in _told(BROKER_KEYS, texts, names):
        key = broker_key_of(name)
        if key is None:
            entries.append(_unknown(name, _synonyms(config, (name,), sensitive=True), read_only=True))
        elif key.name != name:
            synonyms = _synonyms(config, (name, key.name), key.sensitive)
            value = None if key.sensitive else texts[name]
            entries.append(_entry(key, value, synonyms, read_only=True)._replace(name=name, documentation=None))
        else:
            value = None if key.required and not config.is_set(key) else _shown(key, config[key])
            entries.append(_entry(key, value, _broker_synonyms(config, key), read_only=key.mode is Mode.READ_ONLY))
    return entries


def describe_all_brokers(config: Config, names: Collection[str] | None = None) -> list[Entry]:
    """What is set for all brokers: the resource without a name."""
    entries = []
    for name, text in sorted(config.cluster.items()):
        if names and name not in names:
            continue
        key = broker_key_of(name)
        value = None if key is None or key.sensitive else text
        synonyms = (Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER),)
        if key is None:
            entries.append(_unknown(name, synonyms, read_only=True))
        else:
            read_only = key.mode is Mode.READ_ONLY or key.name != name
            entries.append(_entry(key, value, synonyms, read_only=read_only)._replace(name=name))
    return entries


def describe_group(config: GroupConfig, names: Collection[str] | None = None) -> list[Entry]:
    """A group's keys. A group need not exist to have them."""
    entries = []
    for name in _told(GROUP_KEYS, config.overrides, names):
        if (key := GROUP_KEYS.get(name)) is None:
            entries.append(_unknown(name, (Synonym(name, None, Source.GROUP),), read_only=False))
            continue
        value = _shown(key, config[key])
        own = (Synonym(name, value, Source.GROUP),) if name in config.overrides else ()
        if key.synonyms:
            behind = _broker_synonyms(config.config, key.synonyms[0])
        else:
            behind = (Synonym(name, key.default_text, Source.DEFAULT),)
        entries.append(_entry(key, value, (*own, *behind)))
    return entries


def describe_client_metrics(
    overrides: Mapping[str, str] = NOTHING, names: Collection[str] | None = None
) -> list[Entry]:
    """The keys of a subscription. It need not exist to have them."""
    entries = []
    for name in _told(CLIENT_METRICS_KEYS, overrides, names):
        if (key := CLIENT_METRICS_KEYS.get(name)) is None:
            continue
        text = overrides.get(name)
        value = key.default_text if text is None else key.type.show(key.type.parse(text))
        entries.append(_entry(key, value, () if text is None else (Synonym(name, value, Source.CLIENT_METRICS),)))
    return entries


def describe_loggers(levels: Mapping[str, str], names: Collection[str] | None = None) -> list[Entry]:
    """The loggers and their levels, which the caller knows."""
    return [
        Entry(name, level, Source.BROKER_LOGGER, False, False, (), UNKNOWN_TYPE, None)
        for name, level in sorted(levels.items())
        if not names or name in names
    ]


def _told(keys: Mapping[str, Key[object]], texts: Mapping[str, str], names: Collection[str] | None) -> Iterable[str]:
    """The names to tell: all that are not hidden and all that are set, or those of them that were asked for."""
    if names:
        return sorted({name for name in names if name in texts or (name in keys and not keys[name].hidden)})
    return sorted({name for name, key in keys.items() if not key.hidden} | texts.keys())


def _shown(key: Key[object], value: object) -> str | None:
    return None if value is None or key.sensitive else key.type.show(value)


def _entry(key: Key[object], value: str | None, synonyms: tuple[Synonym, ...], *, read_only: bool = False) -> Entry:
    source = synonyms[0].source if synonyms else Source.DEFAULT
    return Entry(key.name, value, source, key.sensitive, read_only, synonyms, key.type.number, key.doc)


def _unknown(name: str, synonyms: tuple[Synonym, ...], *, read_only: bool) -> Entry:
    return Entry(name, None, synonyms[0].source, True, read_only, synonyms, UNKNOWN_TYPE, None)


def _broker_synonyms(config: Config, key: Key[object]) -> tuple[Synonym, ...]:
    """Where a broker key's value comes from, and what it hides; nothing before the key itself is first set."""
    synonyms = _synonyms(config, SAME_THING.get(key.name, (key.name,)), key.sensitive)
    return tuple(dropwhile(lambda synonym: synonym.name != key.name, synonyms))


def _synonyms(config: Config, names: tuple[str, ...], sensitive: bool) -> tuple[Synonym, ...]:
    """Every layer in turn, and in each layer the names in their order."""
    found = [
        Synonym(name, None if sensitive else texts[name], source)
        for source, texts in _layers(config)
        for name in names
        if name in texts
    ]
    for name in names:
        if (key := BROKER_KEYS.get(name)) is not None and (default := key.default_text) is not None:
            found.append(Synonym(name, None if sensitive else default, Source.DEFAULT))
    return tuple(found)


def _layers(config: Config) -> tuple[tuple[Source, Mapping[str, str]], ...]:
    return (
        (Source.DYNAMIC_BROKER, config.broker),
        (Source.DYNAMIC_DEFAULT_BROKER, config.cluster),
        (Source.STATIC_BROKER, config.static),
    )


def _inherited_text(config: Config, key: Key[object]) -> tuple[str | None, Source]:
    for source, texts in _layers(config):
        for synonym in key.synonyms:
            if (text := texts.get(synonym.name)) is not None:
                factor = unit_ms(synonym) if isinstance(key.type, Whole) else 1
                return text if factor == 1 else str(int(text) * factor), source
    return key.default_text, Source.DEFAULT
