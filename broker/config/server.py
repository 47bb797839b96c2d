"""Builds the configuration of a node from server.properties, the environment and overrides.

    file  <  KAFKA_… in the environment  <  --override

References such as `${file:/run/secrets/kafka:password}` are replaced first (`providers.py`). An invalid value is an
error. An unknown key is most likely a typing error, and only causes a warning with a suggestion.
Keys of ZooKeeper, of Java and of earlier versions of Kafka, and keys that trioka ignores, are summarized in notes.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from . import node_keys as node
from .key import AUTHORIZER_KEYS, BROKER_KEYS, JAVA, TOPIC_KEYS, broker_key_of
from .layers import EMPTY, Config, ConfigError
from .listeners import Node, node_of
from .providers import PROVIDER_PREFIX, resolve_references
from .validation import did_you_mean, validate_broker

# Broker keys of Kafka 4.3 that trioka does not declare: DescribeConfigs does not return them, and they are ignored.
UNDECLARED: Final[Mapping[str, str]] = {
    "controller.performance.always.log.threshold.ms": "sets the duration at which Kafka's controller logs a slow event",
    "controller.performance.sample.period.ms": "sets the period of the log about slow events in Kafka's controller",
    "group.share.persister.class.name": "names a Java class",
    "internal.metadata.delete.delay.millis": "is for Kafka's own tests of its metadata log",
    "internal.metadata.max.batch.size.in.bytes": "is for Kafka's own tests of its metadata log",
    "server.max.startup.time.ms": "limits the time that threads wait for each other while Kafka starts",
}
# Keys of earlier versions of Kafka, which many files still contain.
FORMER: Final = frozenset(
    {
        "alter.config.policy.kraft.enable",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "group.coordinator.new.enable",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "quota.consumer.default",
        "quota.producer.default",
        "reserved.broker.max.id",
    }
)
FOREIGN_PREFIXES: Final = ("zookeeper.", "password.encoder.", "log4j.", "jmx.", "java.", "confluent.")
PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.", PROVIDER_PREFIX)


class LoadedConfig(NamedTuple):
    """A valid configuration, and remarks about its keys for the log."""

    config: Config
    node: Node
    warnings: tuple[str, ...]  # about keys that are probably mistyped
    notes: tuple[str, ...]  # about keys that are ignored


def load(
    file: Mapping[str, str], *, environment: Mapping[str, str] = EMPTY, overrides: Mapping[str, str] = EMPTY
) -> LoadedConfig:
    """Build the configuration of a node; raise ConfigError if it is invalid: with a sentence for each invalid value."""
    given = resolve_references({**file, **environment, **overrides})
    static = with_node_id(given)
    config = Config(static)
    copied = [f"configuration {name}:" for name in static.keys() - given.keys()]  # an error of these is there already
    errors = [each for each in config.rejected if not any(name in each for name in copied)]
    for name, text in static.items():
        if name not in BROKER_KEYS and (key := broker_key_of(name)) is not None:
            try:
                key.parse(text)
            except ValueError as error:
                errors.append(str(error).replace(key.name, name, 1))
    warnings, notes = remarks(static)
    if errors:
        try:
            node_of(config)
        except ConfigError as error:
            key_name = str(error).partition(" ")[0]  # a key with an invalid value counts as not set here
            if not any(f"configuration {key_name}:" in each for each in errors):
                errors.append(str(error))
        raise ConfigError(errors[0], errors[1:], [*warnings, *notes])
    try:
        described = node_of(config)
        validate_broker(config)
    except ConfigError as error:
        raise ConfigError(str(error), error.others, [*warnings, *notes]) from None
    return LoadedConfig(config=config, node=described, warnings=tuple(warnings), notes=tuple(notes))


def with_node_id(static: Mapping[str, str]) -> dict[str, str]:
    """Copy node.id to its former name broker.id and vice versa: DescribeConfigs returns both."""
    texts = dict(static)
    for name, other in ((node.NODE_ID.name, node.BROKER_ID.name), (node.BROKER_ID.name, node.NODE_ID.name)):
        if name in texts:
            texts.setdefault(other, texts[name])
    return texts


def remarks(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return warnings and notes about the keys that are set."""
    warnings: list[str] = []
    foreign: list[str] = []
    ignored: dict[str, list[str]] = {}
    for name in sorted(names):
        key = broker_key_of(name)
        if key is None:
            if is_foreign(name):
                foreign.append(name)
            elif name not in AUTHORIZER_KEYS and not name.startswith(PLUGIN_PREFIXES):
                warnings.append(f"Unknown configuration key {name[:200]}{_suggestion(name)}")
        elif key.effect == JAVA:
            foreign.append(name)
        elif key.effect:
            ignored.setdefault(key.effect, []).append(name)
    notes = []
    if foreign:
        notes.append(f"Ignored keys of Java, ZooKeeper or earlier versions of Kafka: {', '.join(foreign)}.")
    for reason, keys in sorted(ignored.items()):
        notes.append(f"Ignored because {reason}: {', '.join(keys)}.")
    return warnings, notes


def is_foreign(name: str) -> bool:
    return name.startswith(FOREIGN_PREFIXES) or name in FORMER or name in UNDECLARED


def _suggestion(name: str) -> str:
    """For a topic key, suggest the broker key with the same meaning; for other keys, a similar name."""
    if (topic_key := TOPIC_KEYS.get(name)) is not None and topic_key.synonyms:
        return f"; the broker key is {topic_key.synonyms[0].name}."
    return did_you_mean(name, [*BROKER_KEYS, *AUTHORIZER_KEYS])
