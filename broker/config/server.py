"""From server.properties, environment and overrides to a configuration that a node can start with.

    file  <  KAFKA_… in the environment  <  --override

A value that makes no sense stops the start, with one sentence. A key that nobody knows does not: it is most likely a
slip of the pen, so it is a warning with a suggestion. Keys of ZooKeeper, of Java, and of Kafka's past are one line, and
so is everything that is understood and has no effect here.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from . import node_keys as node
from .key import AUTHORIZER_KEYS, BROKER_KEYS, JAVA, TOPIC_KEYS, broker_key_of
from .layers import NOTHING, Config, ConfigError
from .listeners import Node, node_of
from .validation import did_you_mean, validate_broker

# Broker keys of Kafka 4.3 that are declared nowhere: no client sees them, and they mean nothing here.
UNDECLARED: Final[Mapping[str, str]] = {
    "controller.performance.always.log.threshold.ms": "says when Kafka's controller logs that an event was slow",
    "controller.performance.sample.period.ms": "says how often Kafka's controller logs how slow events were",
    "group.share.persister.class.name": "names a Java class",
    "internal.metadata.delete.delay.millis": "is for Kafka's own tests of its metadata log",
    "internal.metadata.max.batch.size.in.bytes": "is for Kafka's own tests of its metadata log",
    "server.max.startup.time.ms": "limits how long the threads of Kafka's start wait for each other",
}
# Keys of earlier versions, which still stand in many a file.
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
PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.")


class Loaded(NamedTuple):
    """A configuration to start with, and what is to be said about it."""

    config: Config
    node: Node
    warnings: tuple[str, ...]  # what is probably a mistake
    notes: tuple[str, ...]  # what is understood and ignored


def load(
    file: Mapping[str, str], *, environment: Mapping[str, str] = NOTHING, overrides: Mapping[str, str] = NOTHING
) -> Loaded:
    """The configuration of a node, or a ConfigError that says in one sentence what is wrong with it."""
    static = with_node_id({**file, **environment, **overrides})
    config = Config(static)
    if config.rejected:
        raise ConfigError(config.rejected[0])
    for name, text in static.items():
        if name not in BROKER_KEYS and (key := broker_key_of(name)) is not None:
            try:
                key.parse(text)
            except ValueError as error:
                raise ConfigError(str(error).replace(key.name, name, 1)) from None
    found = node_of(config)
    validate_broker(config)
    warnings, notes = remarks(static)
    return Loaded(config=config, node=found, warnings=tuple(warnings), notes=tuple(notes))


def with_node_id(static: Mapping[str, str]) -> dict[str, str]:
    """node.id and its older name broker.id stand for each other; DescribeConfigs shows both."""
    texts = dict(static)
    for name, other in ((node.NODE_ID.name, node.BROKER_ID.name), (node.BROKER_ID.name, node.NODE_ID.name)):
        if name in texts:
            texts.setdefault(other, texts[name])
    return texts


def remarks(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Warnings and notes about the keys that are set."""
    warnings: list[str] = []
    foreign: list[str] = []
    without_effect: dict[str, list[str]] = {}
    for name in sorted(names):
        key = broker_key_of(name)
        if key is None:
            if is_foreign(name):
                foreign.append(name)
            elif name not in AUTHORIZER_KEYS and not name.startswith(PLUGIN_PREFIXES):
                warnings.append(f"There is no config {name[:200]}{_suggestion(name)}")
        elif key.effect == JAVA:
            foreign.append(name)
        elif key.effect:
            without_effect.setdefault(key.effect, []).append(name)
    notes = []
    if foreign:
        notes.append(f"Ignored, for they belong to Java, to ZooKeeper or to Kafka's past: {', '.join(foreign)}.")
    for reason, keys in sorted(without_effect.items()):
        notes.append(f"Without effect, for {reason}: {', '.join(keys)}.")
    return warnings, notes


def is_foreign(name: str) -> bool:
    return name.startswith(FOREIGN_PREFIXES) or name in FORMER or name in UNDECLARED


def _suggestion(name: str) -> str:
    """A topic's key in a broker's file is meant for the broker's own name of it."""
    if (of_topics := TOPIC_KEYS.get(name)) is not None and of_topics.synonyms:
        return f"; of brokers it is {of_topics.synonyms[0].name}."
    return did_you_mean(name, [*BROKER_KEYS, *AUTHORIZER_KEYS])
