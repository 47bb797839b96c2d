"""DescribeConfigs (32): returns the keys of a resource with their values, sources and synonyms, sorted by name.

A broker describes itself and, for the empty name, the cluster-wide defaults, but not other brokers. Groups and client
metrics subscriptions need not exist.

v1 synonyms · v3 types and documentation · v4 flexible
"""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import AclOperation
from trioka.cluster.configs import ConfigResource, ConfigResourceType
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
from ..config.key import ConfigEntry, ConfigSource
from ..logs.levels import levels
from ..security.guard import must_with_config

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Result = DescribeConfigsResponse.Result
NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")


def error_response(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        throttle_time_ms=0, results=[_error_result(resource, error) for resource in request.resources]
    )


@handles(DescribeConfigsRequest, error_response=error_response)
def describe_configs(broker: "Broker", call: "Call", request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    for resource in request.resources:
        if resource.resource_type not in set(ConfigResourceType) - {ConfigResourceType.UNKNOWN}:
            raise InvalidRequest(f"unknown resource type {resource.resource_type}")
    results = []
    for resource in request.resources:
        try:
            must_with_config(
                broker, call, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
            )
            entries = _entries(broker, resource)
        except KafkaError as error:
            results.append(_error_result(resource, error))
        else:
            results.append(_result(request, resource, entries))
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _entries(broker: "Broker", resource: DescribeConfigsRequest.Resource) -> list[ConfigEntry]:
    name, names = resource.resource_name, resource.configuration_keys
    overrides = broker.metadata.configs.get(ConfigResource(resource.resource_type, name))
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            check_topic_name(name)
            if broker.metadata.topics.by_name(name) is None:
                raise UnknownTopicOrPartition()
            return describe_topic(broker.config.topic(overrides), names)
        case ConfigResourceType.BROKER:
            return _broker_entries(broker, name, names)
        case ConfigResourceType.BROKER_LOGGER:
            check_this_broker(broker, name)
            return describe_loggers(levels(), names)
        case _ if not name:
            raise InvalidRequest("the name of the resource is empty")
        case ConfigResourceType.GROUP:
            return describe_group(broker.config.group(overrides), names)
        case _:
            return describe_client_metrics(overrides, names)


def _broker_entries(broker: "Broker", name: str, names: Collection[str] | None) -> list[ConfigEntry]:
    if not name:
        return describe_all_brokers(broker.config, names)
    check_this_broker(broker, name)
    return describe_broker(broker.config, names)


def check_this_broker(broker: "Broker", name: str) -> None:
    """Reject a request for another broker: only the broker itself can answer it."""
    if not NUMBER.fullmatch(name):
        raise InvalidRequest(f"the broker id must be an integer, but it is: {name[:200]}")
    if int(name) != broker.node_id:
        raise InvalidRequest(f"unexpected broker id: expected {broker.node_id}, but received {name}")


def _result(
    request: DescribeConfigsRequest, resource: DescribeConfigsRequest.Resource, entries: list[ConfigEntry]
) -> Result:
    return Result(
        error_code=0,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_config(request, entry) for entry in entries],
    )


def _config(request: DescribeConfigsRequest, entry: ConfigEntry) -> Result.Config:
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


def _documentation(request: DescribeConfigsRequest, entry: ConfigEntry) -> str | None:
    """Null if not requested or the key is undeclared; always empty for loggers, as in Kafka."""
    if entry.source == ConfigSource.BROKER_LOGGER:
        return ""
    return entry.documentation if request.include_documentation else None


def _error_result(resource: DescribeConfigsRequest.Resource, error: KafkaError) -> Result:
    return Result(
        error_code=error.code,
        error_message=str(error) if error.args else "",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
