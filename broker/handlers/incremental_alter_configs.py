"""IncrementalAlterConfigs (44): sets, deletes, appends to and subtracts from single keys.

The levels of this broker's loggers are changed here too. They are not configuration: nothing is written, and a new
start has forgotten them.

v1 flexible
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trioka.cluster.config_changes import check_request
from trioka.cluster.configs import Resource, ResourceType
from trioka.cluster.decision import DONE, Outcome
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from ..api import handles
from ..config.alteration import Change, alter_loggers
from ..config.network_keys import REQUEST_TIMEOUT_MS
from ..logs.levels import set_levels
from ..network.internal_call import asked_broker
from ..security.guard import denied_alterations
from .describe_configs import must_be_this_broker

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Wanted = IncrementalAlterConfigsRequest.Resource


def refuse(request: IncrementalAlterConfigsRequest, error: KafkaError) -> IncrementalAlterConfigsResponse:
    outcome = Outcome(error=type(error), message=str(error))
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0, responses=[_told(resource, outcome) for resource in request.resources]
    )


@handles(IncrementalAlterConfigsRequest, refuse=refuse)
async def incremental_alter_configs(
    broker: "Broker", call: "Call", request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    asked = asked_broker(broker, call)
    is_passed_on = asked is not None and not broker.quorum.is_active
    names = [(each.resource_type, each.resource_name) for each in request.resources]
    times = Counter(names)
    outcomes: list[Outcome | None] = []
    for each, error in zip(request.resources, denied_alterations(broker, call, names), strict=True):
        if error is not None:
            outcomes.append(Outcome(error=type(error), message=str(error)))
            continue
        # A resource that is named twice is refused with all the others, by the controller.
        is_ours = (
            each.resource_type == ResourceType.BROKER_LOGGER and times[each.resource_type, each.resource_name] == 1
        )
        if is_ours:
            outcomes.append(_alter_loggers(broker, each, request.validate_only))
        else:
            outcomes.append(_checked(each, asked) if is_passed_on else None)
    stored = [each for each, outcome in zip(request.resources, outcomes, strict=True) if outcome is None]
    written = iter(
        await _pass_on(broker, stored, request.validate_only)
        if is_passed_on
        else await _write(broker, stored, request.validate_only, asked)
    )
    responses = [
        next(written) if outcome is None else _told(each, outcome)
        for each, outcome in zip(request.resources, outcomes, strict=True)
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def _write(
    broker: "Broker", stored: Sequence[Wanted], validate_only: bool, asked: int | None
) -> list[IncrementalAlterConfigsResponse.Resource]:
    decision = await broker.quorum.change(
        lambda controller: controller.incremental_alter_configs(stored, validate_only=validate_only, broker_id=asked)
    )
    return [_told(each, reply.outcome) for each, reply in zip(stored, decision.replies, strict=True)]


async def _pass_on(
    broker: "Broker", stored: Sequence[Wanted], validate_only: bool
) -> list[IncrementalAlterConfigsResponse.Resource]:
    """To the active controller, which is another node."""
    request = IncrementalAlterConfigsRequest(resources=list(stored), validate_only=validate_only)
    timeout_s = broker.config[REQUEST_TIMEOUT_MS] / 1000
    told: IncrementalAlterConfigsResponse = await broker.controller.ask(request, timeout_s=timeout_s)
    return told.responses


def _checked(wanted: Wanted, asked: int | None) -> Outcome | None:
    """What this broker can say by itself: it changes its own configuration, and no other broker's."""
    try:
        resource = Resource(wanted.resource_type, wanted.resource_name)
        check_request(resource, [config.name for config in wanted.configs], asked)
    except KafkaError as error:
        return Outcome.of(error)
    return None


def _alter_loggers(broker: "Broker", wanted: Wanted, validate_only: bool) -> Outcome:
    changes = [Change(config.name, config.config_operation, config.value) for config in wanted.configs]
    try:
        must_be_this_broker(broker, wanted.resource_name)
        levels = alter_loggers(changes)
    except KafkaError as error:
        return Outcome.of(error)
    if not validate_only:
        set_levels(levels)
    return DONE


def _told(resource: Wanted, outcome: Outcome) -> IncrementalAlterConfigsResponse.Resource:
    return IncrementalAlterConfigsResponse.Resource(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
