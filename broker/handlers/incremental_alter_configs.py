"""IncrementalAlterConfigs (44): sets and deletes single keys, and appends to and subtracts from lists.

It also changes the levels of this broker's loggers. They are not persisted, and reset by a restart.

v1 flexible
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trioka.cluster.config_changes import check_request
from trioka.cluster.configs import ConfigOperation, ConfigResource, ConfigResourceType
from trioka.cluster.decision import DONE, ItemResult
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from ..api import handles
from ..config.alteration import Change, alter_loggers
from ..config.network_keys import REQUEST_TIMEOUT_MS
from ..logs.levels import set_levels
from ..network.internal_call import target_broker
from ..security.audit import audit_forwarded_configs, audited_change
from ..security.guard import denied_alterations
from .describe_configs import check_this_broker

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

ResourceRequest = IncrementalAlterConfigsRequest.Resource


def error_response(request: IncrementalAlterConfigsRequest, error: KafkaError) -> IncrementalAlterConfigsResponse:
    outcome = ItemResult(error=type(error), message=str(error))
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0, responses=[_to_result(resource, outcome) for resource in request.resources]
    )


@handles(IncrementalAlterConfigsRequest, error_response=error_response)
async def incremental_alter_configs(
    broker: "Broker", call: "Call", request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    broker_id = target_broker(broker, call)
    is_forwarded = broker_id is not None and not broker.quorum.is_active
    names = [(resource.resource_type, resource.resource_name) for resource in request.resources]
    times = Counter(names)
    outcomes: list[ItemResult | None] = []
    for resource, error in zip(request.resources, denied_alterations(broker, call, names), strict=True):
        if error is not None:
            outcomes.append(ItemResult(error=type(error), message=str(error)))
            continue
        # The controller rejects resources that are listed twice, including loggers.
        is_logger = (
            resource.resource_type == ConfigResourceType.BROKER_LOGGER
            and times[resource.resource_type, resource.resource_name] == 1
        )
        if is_logger:
            outcomes.append(_alter_loggers(broker, resource, request.validate_only))
        else:
            outcomes.append((_error_of(resource, broker_id) if is_forwarded else None) or _tls_error(broker, resource))
    stored = [resource for resource, outcome in zip(request.resources, outcomes, strict=True) if outcome is None]
    written = iter(
        await _forward(broker, call, stored, request.validate_only)
        if is_forwarded
        else await _write(broker, call, stored, request.validate_only)
    )
    responses = [
        next(written) if outcome is None else _to_result(resource, outcome)
        for resource, outcome in zip(request.resources, outcomes, strict=True)
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def _write(
    broker: "Broker", call: "Call", stored: Sequence[ResourceRequest], validate_only: bool
) -> list[IncrementalAlterConfigsResponse.Resource]:
    broker_id = target_broker(broker, call)
    decision = await audited_change(
        broker,
        call,
        lambda controller: controller.incremental_alter_configs(
            stored, validate_only=validate_only, broker_id=broker_id
        ),
    )
    return [_to_result(resource, reply.outcome) for resource, reply in zip(stored, decision.replies, strict=True)]


async def _forward(
    broker: "Broker", call: "Call", stored: Sequence[ResourceRequest], validate_only: bool
) -> list[IncrementalAlterConfigsResponse.Resource]:
    """Send the change to the active controller on another node."""
    request = IncrementalAlterConfigsRequest(resources=list(stored), validate_only=validate_only)
    timeout_s = broker.config[REQUEST_TIMEOUT_MS] / 1000
    response: IncrementalAlterConfigsResponse = await broker.controller.send_request(request, timeout_s=timeout_s)
    if not validate_only:
        audit_forwarded_configs(call, response.responses)
    return response.responses


def _error_of(resource: ResourceRequest, broker_id: int | None) -> ItemResult | None:
    """The errors that this broker detects itself, such as a request for another broker's configuration."""
    try:
        target = ConfigResource(resource.resource_type, resource.resource_name)
        check_request(target, [config.name for config in resource.configs], broker_id)
    except KafkaError as error:
        return ItemResult.of(error)
    return None


def _tls_error(broker: "Broker", resource: ResourceRequest) -> ItemResult | None:
    """Whether the TLS listeners of this broker can use the stores that a request names: only this broker sees them."""
    if (resource.resource_type, resource.resource_name) != (ConfigResourceType.BROKER, str(broker.node_id)):
        return None
    after = dict(broker.config.broker)
    for config in resource.configs:
        if config.config_operation == ConfigOperation.DELETE:
            after.pop(config.name, None)
        elif config.config_operation == ConfigOperation.SET and config.value is not None:
            after[config.name] = config.value
    try:
        broker.listener_manager.check_tls(broker.config.changed(broker=after))
    except KafkaError as error:
        return ItemResult.of(error)
    return None


def _alter_loggers(broker: "Broker", resource: ResourceRequest, validate_only: bool) -> ItemResult:
    changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
    try:
        check_this_broker(broker, resource.resource_name)
        levels = alter_loggers(changes)
    except KafkaError as error:
        return ItemResult.of(error)
    if not validate_only:
        set_levels(levels)
    return DONE


def _to_result(resource: ResourceRequest, outcome: ItemResult) -> IncrementalAlterConfigsResponse.Resource:
    return IncrementalAlterConfigsResponse.Resource(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
