"""Requests about configuration, in few words."""

from typing import Any

from support.serving import ask

from trioka.broker.broker import Broker
from trioka.protocol.messages.describe_configs import DescribeConfigsRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def alter(
    broker: Broker, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> int:
    """Changes single keys of a resource; returns the error code."""
    configs = [
        IncrementalAlterConfigsRequest.Resource.Config(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (response,) = (await ask(broker, request, 1)).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    assert (response.error_message is None) == (response.error_code == 0)
    code: int = response.error_code
    return code


async def described(broker: Broker, kind: int, name: str, *keys: str) -> dict[str, Any]:
    """The result of DescribeConfigs for a resource, by the names of the keys."""
    resource = DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = (await ask(broker, request, 4)).results
    assert result.error_code == 0, result
    return {config.name: config for config in result.configs}


async def value(broker: Broker, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """A key's value, and its source."""
    config = (await described(broker, kind, name, key))[key]
    return config.value, config.config_source
