"""DescribeConfigs (32): every key of a resource, with its value, where that comes from, and what it hides.

A broker tells of itself and, under the empty name, of what is set for all brokers; of another broker it knows nothing.
Groups and client metrics need not exist to have a configuration. The entries are sorted by name.

v1 synonyms · v3 types and documentation · v4 flexible
"""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.cluster.configs import Resource, ResourceType
from trioka.cluster.topic_names import check_topic_name
from trioka.protocol.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

from ..api import handles
from ..config.description import (
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_loggers,
    describe_topic,
)
from ..config.key import Entry, Source
from ..logs.levels import levels
from ..security.guard import must_with_config

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Result = DescribeConfigsResponse.Result
NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")


def refuse(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(throttle_time_ms=0, results=[_refused(each, error) for each in request.resources])


@handles(DescribeConfigsRequest, refuse=refuse)
def describe_configs(broker: "Broker", call: "Call", request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    for resource in request.resources:
        if resource.resource_type not in set(ResourceType) - {ResourceType.UNKNOWN}:
            raise InvalidRequest(f"resource type {resource.resource_type} is not known")
    results = []
    for resource in request.resources:
        try:
            must_with_config(broker, call, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
            entries = _entries(broker, resource)
        except KafkaError as error:
            results.append(_refused(resource, error))
        else:
            results.append(_result(request, resource, entries))
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _entries(broker: "Broker", resource: DescribeConfigsRequest.Resource) -> list[Entry]:
    name, names = resource.resource_name, resource.configuration_keys
    overrides = broker.metadata.configs.get(Resource(resource.resource_type, name))
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            if broker.metadata.topics.by_name(name) is None:
                raise UnknownTopicOrPartition()
            return describe_topic(broker.config.topic(overrides), names)
        case ResourceType.BROKER:
            return _broker_entries(broker, name, names)
        case ResourceType.BROKER_LOGGER:
            must_be_this_broker(broker, name)
            return describe_loggers(levels(), names)
        case _ if not name:
            raise InvalidRequest("a resource of this type has a name")
        case ResourceType.GROUP:
            return describe_group(broker.config.group(overrides), names)
        case _:
            return describe_client_metrics(overrides, names)


def _broker_entries(broker: "Broker", name: str, names: Collection[str] | None) -> list[Entry]:
    if not name:
        return describe_all_brokers(broker.config, names)
    must_be_this_broker(broker, name)
    return describe_broker(broker.config, names)


def must_be_this_broker(broker: "Broker", name: str) -> None:
    """What only the broker itself knows is asked of that broker."""
    if not NUMBER.fullmatch(name):
        raise InvalidRequest(f"a broker id must be an integer, and it is: {name[:200]}")
    if int(name) != broker.node_id:
        raise InvalidRequest(f"unexpected broker id: expected {broker.node_id}, and received {name}")


def _result(request: DescribeConfigsRequest, resource: DescribeConfigsRequest.Resource, entries: list[Entry]) -> Result:
    return Result(
        error_code=0,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_config(request, entry) for entry in entries],
    )


def _config(request: DescribeConfigsRequest, entry: Entry) -> Result.Config:
    return Result.Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            Result.Config.Synonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=_documentation(request, entry),
    )


def _documentation(request: DescribeConfigsRequest, entry: Entry) -> str | None:
    """Null is "not asked for, or nobody knows"; of loggers, Kafka says the empty text in any case."""
    if entry.source == Source.BROKER_LOGGER:
        return ""
    return entry.documentation if request.include_documentation else None


def _refused(resource: DescribeConfigsRequest.Resource, error: KafkaError) -> Result:
    return Result(
        error_code=error.code,
        error_message=str(error) if error.args else "",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
