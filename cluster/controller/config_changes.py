"""Changes configuration: AlterConfigs replaces all keys of a resource, IncrementalAlterConfigs changes single keys.

The checks, their order and their errors are those of Apache Kafka 4.3.1; `ConfigRules` decides which values are valid.
Only changed keys become records, but for brokers every key does: a broker may have to read a file again though its
name is the same.

While eligible leader replicas are kept (KIP-966), min.insync.replicas decides which replicas are eligible. So that all
brokers agree, that key is set for the cluster and for topics, never for one broker; and when it changes, the eligible
leaders that were found with the former value are removed.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from trioka.protocol.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from trioka.protocol.internal_records.metadata import ClearElrRecord, ConfigRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.alter_configs import AlterConfigsRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

from ..decision import DONE, Decision, ItemResult
from ..image.configs import ConfigOperation, ConfigResource, ConfigResourceType, topic_resource
from ..image.metadata import Metadata
from ..placement.memory_topics import check_changed_configs
from ..placement.topic_names import check_topic_name
from ..placement.topic_overrides import MIN_INSYNC_REPLICAS
from ..quorum.metadata_log import MAX_RECORDS_PER_BATCH, MetadataRecord
from ..settings import ControllerSettings

MAX_VALUE_BYTES: Final = 0x7FFF  # of a string in a record
STORED: Final = frozenset(
    {ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP}
)

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")

R = TypeVar("R", AlterConfigsRequest.Resource, IncrementalAlterConfigsRequest.Resource)


@frozen
class ConfigReply:
    resource: ConfigResource
    outcome: ItemResult


def alter_configs(
    metadata: Metadata,
    settings: ControllerSettings,
    resources: Sequence[AlterConfigsRequest.Resource],
    validate_only: bool,
    broker_id: int | None = None,
) -> Decision[ConfigReply]:
    def change(requested: AlterConfigsRequest.Resource, resource: ConfigResource) -> list[MetadataRecord]:
        check_request(resource, [config.name for config in requested.configs], broker_id)
        _check_values(config.name for config in requested.configs if config.value is None)
        values: dict[str, str | None] = {config.name: config.value for config in requested.configs}
        gone = sorted(key for key in metadata.configs.get(resource) if key not in values)
        return _records(metadata, settings, resource, values | dict.fromkeys(gone))

    return _decide(resources, change, validate_only)


def incremental_alter_configs(
    metadata: Metadata,
    settings: ControllerSettings,
    resources: Sequence[IncrementalAlterConfigsRequest.Resource],
    validate_only: bool,
    broker_id: int | None = None,
) -> Decision[ConfigReply]:
    def change(requested: IncrementalAlterConfigsRequest.Resource, resource: ConfigResource) -> list[MetadataRecord]:
        check_request(resource, [config.name for config in requested.configs], broker_id)
        _check_values(
            config.name
            for config in requested.configs
            if config.value is None and config.config_operation != ConfigOperation.DELETE
        )
        values = {config.name: _new_value(metadata, settings, resource, config) for config in requested.configs}
        return _records(metadata, settings, resource, values)

    return _decide(resources, change, validate_only)


def new_topic_configs(
    metadata: Metadata, settings: ControllerSettings, name: str, configs: Mapping[str, str]
) -> list[MetadataRecord]:
    """The records that give a topic its first configuration; the topic need not exist yet."""
    return _records(metadata, settings, topic_resource(name), configs, exists=True) if configs else []


def _decide(
    resources: Sequence[R], change: Callable[[R, ConfigResource], list[MetadataRecord]], validate_only: bool
) -> Decision[ConfigReply]:
    named = [ConfigResource(requested.resource_type, requested.resource_name) for requested in resources]
    times = Counter(named)
    records: list[MetadataRecord] = []
    replies = []
    for requested, resource in zip(resources, named, strict=True):
        outcome = DONE
        try:
            if times[resource] > 1:
                raise InvalidRequest("the request names this resource more than once")
            changed = change(requested, resource)
            if len(records) + len(changed) > MAX_RECORDS_PER_BATCH:
                raise PolicyViolation(f"a request can change {MAX_RECORDS_PER_BATCH} keys, not more")
            records += changed
        except KafkaError as error:
            outcome = ItemResult.of(error)
        replies.append(ConfigReply(resource=resource, outcome=outcome))
    return Decision(records=() if validate_only else tuple(records), replies=tuple(replies))


# Why there is no configuration for all resources of a type.
_DEFAULTS: Final[Mapping[int, str]] = {
    ConfigResourceType.TOPIC: "default topic resources are not allowed: a configuration is one topic's",
    ConfigResourceType.GROUP: "default group resources are not allowed: a configuration is one group's",
    ConfigResourceType.CLIENT_METRICS: "a subscription name cannot be empty",
}

# --- checks that do not need the current state


def check_request(resource: ConfigResource, keys: Sequence[str], broker_id: int | None) -> None:
    """The checks of the receiving broker: `broker_id` is its own id, and it answers for no other broker."""
    if len(set(keys)) != len(keys):
        raise InvalidRequest("the request names a key more than once")
    if resource.type not in STORED:
        raise InvalidRequest(f"unknown resource type {resource.type}: it has no configuration that could be kept")
    if resource.type == ConfigResourceType.BROKER and resource.name:
        number = int(resource.name) if _NUMBER.fullmatch(resource.name) else None
        if number is None:
            raise InvalidRequest(f"a node id must be an integer, and it is: {resource.name[:200]}")
        if number < 0 or (broker_id is not None and number != broker_id):
            expected = "one of 0 or above" if broker_id is None else broker_id
            raise InvalidRequest(f"unexpected broker id: expected {expected}, and received {number}")
    elif resource.type != ConfigResourceType.BROKER and not resource.name:
        raise InvalidRequest(_DEFAULTS[resource.type])


def _check_values(without: Iterable[str]) -> None:
    keys = list(without)
    if keys:
        raise InvalidRequest(f"a null value is not supported, and was given for {', '.join(keys)}")


# --- the change itself


def _new_value(
    metadata: Metadata,
    settings: ControllerSettings,
    resource: ConfigResource,
    config: IncrementalAlterConfigsRequest.Resource.Config,
) -> str | None:
    key, value, operation = config.name, config.value or "", config.config_operation
    if operation == ConfigOperation.SET:
        return value
    if operation == ConfigOperation.DELETE:
        return None
    if operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise InvalidRequest(f"{key}: operation {operation} is not known")
    if not settings.rules.is_list(resource.type, key):
        raise InvalidConfig(f"cannot {ConfigOperation(operation).name} to key {key}: its type is not LIST")
    current = metadata.configs.value(resource, key)
    if current is None:
        current = settings.rules.default(resource.type, key) or ""
    items = [item for item in current.split(",") if item]
    for item in value.split(","):
        if operation == ConfigOperation.SUBTRACT:
            if item in items:
                items.remove(item)
        elif item not in items:
            items.append(item)
    return ",".join(items)


def _records(
    metadata: Metadata,
    settings: ControllerSettings,
    resource: ConfigResource,
    values: Mapping[str, str | None],
    *,
    exists: bool = False,
) -> list[MetadataRecord]:
    """The records that set these keys of a resource to these values, None to remove a key."""
    before = metadata.configs.get(resource)
    for key, value in values.items():
        if value is not None and len(value.encode("utf-8", "surrogatepass")) > MAX_VALUE_BYTES:
            raise InvalidConfig(f"{key}: a value has at most {MAX_VALUE_BYTES} bytes")
    after = {key: value for key, value in {**before, **values}.items() if value is not None}
    if resource.type == ConfigResourceType.TOPIC:
        check_topic_name(resource.name)
    settings.rules.validate(resource, after, before)
    _check_safety(metadata, resource, values)
    if not exists:
        _check_existence(metadata, resource)
        topic = metadata.topics.by_name(resource.name) if resource.type == ConfigResourceType.TOPIC else None
        if topic is not None:
            check_changed_configs(topic, before, after)
    changed: list[MetadataRecord] = [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=key, value=value)
        for key, value in values.items()
        if value != before.get(key) or resource.type == ConfigResourceType.BROKER
    ]
    return [*changed, *_forgotten_leaders(metadata, changed)]


def _check_safety(metadata: Metadata, resource: ConfigResource, values: Mapping[str, str | None]) -> None:
    is_concerned = resource.type == ConfigResourceType.BROKER and MIN_INSYNC_REPLICAS in values
    if not is_concerned or not metadata.features.has_eligible_leader_replicas:
        return
    if resource.name:
        raise InvalidConfig(f"{MIN_INSYNC_REPLICAS} cannot be set for one broker while eligible leaders are kept")
    if values[MIN_INSYNC_REPLICAS] is None:
        raise InvalidConfig(f"{MIN_INSYNC_REPLICAS} of the cluster cannot be removed while eligible leaders are kept")


def _check_existence(metadata: Metadata, resource: ConfigResource) -> None:
    if resource.type == ConfigResourceType.TOPIC and metadata.topics.by_name(resource.name) is None:
        raise UnknownTopicOrPartition(f"topic {resource.name!r} does not exist")
    if resource.type == ConfigResourceType.BROKER and resource.name and int(resource.name) not in metadata.brokers:
        raise BrokerIdNotRegistered(f"broker {resource.name} is not registered")


def _forgotten_leaders(metadata: Metadata, changed: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
    if metadata.features.has_eligible_leader_replicas:
        for record in changed:
            if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS:
                is_topic = record.resource_type == ConfigResourceType.TOPIC
                yield ClearElrRecord(topic_name=record.resource_name if is_topic else "")
