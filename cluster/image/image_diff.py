"""The difference between two images, for a node that has loaded a snapshot and must act as if it had replayed the
records in between.

The changes are those that replay would have made, without intermediate states. Removals come first: a topic that was
deleted and created again has another id, and its name is free when the new topic comes.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from .configs import Configs
from .image_delta import (
    AccessRuleChanged,
    BrokerChanged,
    Change,
    ConfigChanged,
    ControllerChanged,
    FeatureChanged,
    PartitionChanged,
    ProducerIdsChanged,
    QuotaChanged,
    ScramChanged,
    TokenChanged,
    TopicCreated,
    TopicDeleted,
)
from .metadata import Metadata
from .quotas import QuotaEntity, Quotas

K = TypeVar("K")
V = TypeVar("V")


def differences(before: Metadata, after: Metadata) -> list[Change]:
    changes = list(_features(before.features.levels, after.features.levels))
    changes += _brokers(before, after)
    changes += _topics(before, after)
    changes += _configs(before.configs, after.configs)
    changes += _quotas(before.quotas, after.quotas)
    changes += _access(before, after)
    if before.next_producer_id != after.next_producer_id:
        changes.append(ProducerIdsChanged(next_producer_id=after.next_producer_id))
    return changes


def _changed(before: Mapping[K, V], after: Mapping[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
    """Keys with their values before and after, as far as these differ."""
    for key, value in before.items():
        if key not in after:
            yield key, value, None
    for key, value in after.items():
        if before.get(key) != value:
            yield key, before.get(key), value


def _features(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Change]:
    for name, _, level in _changed(before, after):
        yield FeatureChanged(name=name, level=level or 0)


def _brokers(before: Metadata, after: Metadata) -> Iterator[Change]:
    were = {broker.broker_id: broker for broker in before.brokers}
    are = {broker.broker_id: broker for broker in after.brokers}
    for broker_id, was, broker in _changed(were, are):
        yield BrokerChanged(broker_id=broker_id, before=was, after=broker)
    for controller in after.brokers.controllers:
        known = before.brokers.controller(controller.controller_id)
        if known != controller:
            yield ControllerChanged(before=known, after=controller)


def _topics(before: Metadata, after: Metadata) -> Iterator[Change]:
    for topic in before.topics:
        if after.topics.by_id(topic.topic_id) is None:
            gone = tuple(topic.partitions.values())
            yield TopicDeleted(topic_id=topic.topic_id, name=topic.name, partitions=gone)
    for topic in after.topics:
        known = before.topics.by_id(topic.topic_id)
        if known is None:
            yield TopicCreated(topic_id=topic.topic_id, name=topic.name)
        for index, partition in topic.partitions.items():
            was = None if known is None else known.partitions.get(index)
            if was != partition:
                yield PartitionChanged(
                    topic_id=topic.topic_id, name=topic.name, index=index, before=was, after=partition
                )


def _configs(before: Configs, after: Configs) -> Iterator[Change]:
    for resource in _either(before, after):
        for key, _, value in _changed(before.get(resource), after.get(resource)):
            yield ConfigChanged(resource=resource, key=key, value=value)


def _quotas(before: Quotas, after: Quotas) -> Iterator[Change]:
    entities: list[QuotaEntity] = _either((entity for entity, _ in before), (entity for entity, _ in after))
    for entity in entities:
        for key, _, value in _changed(before.get(entity), after.get(entity)):
            yield QuotaChanged(entity=entity, key=key, value=value)


def _access(before: Metadata, after: Metadata) -> Iterator[Change]:
    for _, was, rule in _changed(before.access.acls.rules, after.access.acls.rules):
        if was is not None:
            yield AccessRuleChanged(before=was, after=None)
        if rule is not None:
            yield AccessRuleChanged(before=None, after=rule)
    scram_before = {(name, mechanism): found for name, mechanism, found in before.access.scram_users()}
    scram_after = {(name, mechanism): found for name, mechanism, found in after.access.scram_users()}
    for (name, mechanism), _, credential in _changed(scram_before, scram_after):
        yield ScramChanged(name=name, mechanism=mechanism, after=credential)
    for token_id, _, token in _changed(before.access.tokens, after.access.tokens):
        yield TokenChanged(token_id=token_id, after=token)


def _either(before: Iterable[K], after: Iterable[K]) -> list[K]:
    """All of both, once, in an order that does not depend on chance."""
    return list(dict.fromkeys([*before, *after]))
