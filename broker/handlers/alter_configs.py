"""AlterConfigs (33): replaces the whole configuration of a resource; keys that are not listed return to their defaults.

A request for a broker's configuration goes to that broker. The broker validates it and sends the change to the active
controller if that is another node. Each resource succeeds or fails on its own.

v2 flexible
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trioka.cluster.config_changes import check_request
from trioka.cluster.configs import ConfigResource, ConfigResourceType
from trioka.cluster.decision import ItemResult
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

from ..api import handles
from ..config.network_keys import REQUEST_TIMEOUT_MS
from ..network.internal_call import target_broker
from ..security.audit import audit_forwarded_configs, audited_change
from ..security.guard import denied_alterations

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


ResourceRequest = AlterConfigsRequest.Resource
ResourceResult = AlterConfigsResponse.Resource


def error_response(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        throttle_time_ms=0, responses=[_to_result(resource, ItemResult.of(error)) for resource in request.resources]
    )


@handles(AlterConfigsRequest, error_response=error_response)
async def alter_configs(broker: "Broker", call: "Call", request: AlterConfigsRequest) -> AlterConfigsResponse:
    broker_id = target_broker(broker, call)
    is_forwarded = broker_id is not None and not broker.quorum.is_active
    names = [(resource.resource_type, resource.resource_name) for resource in request.resources]
    errors = denied_alterations(broker, call, names)
    if is_forwarded:
        for number, resource in enumerate(request.resources):
            errors[number] = errors[number] or _error_of(resource, broker.node_id)
    for number, resource in enumerate(request.resources):
        errors[number] = errors[number] or _tls_error(broker, resource)
    valid = [resource for resource, error in zip(request.resources, errors, strict=True) if error is None]
    change = _forward if is_forwarded else _write
    results = iter(await change(broker, call, valid, request.validate_only))
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            next(results) if error is None else _to_result(resource, ItemResult.of(error))
            for resource, error in zip(request.resources, errors, strict=True)
        ],
    )


def _error_of(resource: ResourceRequest, broker_id: int) -> KafkaError | None:
    """The errors that this broker detects itself, such as a request for another broker's configuration."""
    try:
        target = ConfigResource(resource.resource_type, resource.resource_name)
        check_request(target, [config.name for config in resource.configs], broker_id)
    except KafkaError as error:
        return error
    return None


def _tls_error(broker: "Broker", resource: ResourceRequest) -> KafkaError | None:
    """Whether the TLS listeners of this broker can use the stores that a request names: only this broker sees them."""
    is_own = (resource.resource_type, resource.resource_name) == (ConfigResourceType.BROKER, str(broker.node_id))
    if is_own:
        after = {each.name: each.value or "" for each in resource.configs}
        try:
            broker.listener_manager.check_tls(broker.config.changed(broker=after))
        except KafkaError as error:
            return error
    return None


async def _write(
    broker: "Broker", call: "Call", resources: Sequence[ResourceRequest], validate_only: bool
) -> list[ResourceResult]:
    broker_id = target_broker(broker, call)
    decision = await audited_change(
        broker,
        call,
        lambda controller: controller.alter_configs(resources, validate_only=validate_only, broker_id=broker_id),
    )
    return [_to_result(resource, reply.outcome) for resource, reply in zip(resources, decision.replies, strict=True)]


async def _forward(
    broker: "Broker", call: "Call", resources: Sequence[ResourceRequest], validate_only: bool
) -> list[ResourceResult]:
    """Send the change to the active controller on another node."""
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response: AlterConfigsResponse = await broker.controller.send_request(
        request, timeout_s=broker.config[REQUEST_TIMEOUT_MS] / 1000
    )
    if not validate_only:
        audit_forwarded_configs(call, response.responses)
    return response.responses


def _to_result(resource: ResourceRequest, outcome: ItemResult) -> ResourceResult:
    return ResourceResult(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
