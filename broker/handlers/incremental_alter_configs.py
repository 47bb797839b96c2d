"""IncrementalAlterConfigs (44): sets, deletes, appends to and subtracts from single keys.

The levels of this broker's loggers are changed here too. They are not configuration: nothing is written, and a new
start has forgotten them.

v1 flexible
"""

from collections import Counter
from typing import TYPE_CHECKING

from trioka.cluster.configs import ResourceType
from trioka.cluster.decision import DONE, Outcome
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from ..config.alteration import Change, alter_loggers
from ..loggers import set_levels
from . import handles
from .describe_configs import must_be_this_broker

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call

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
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    outcomes: list[Outcome | None] = []
    for each in request.resources:
        # A resource that is named twice is refused with all the others, by the controller.
        is_ours = (
            each.resource_type == ResourceType.BROKER_LOGGER and times[each.resource_type, each.resource_name] == 1
        )
        outcomes.append(_alter_loggers(broker, each, request.validate_only) if is_ours else None)
    stored = [each for each, outcome in zip(request.resources, outcomes, strict=True) if outcome is None]
    decision = await broker.quorum.change(
        lambda controller: controller.incremental_alter_configs(
            stored, validate_only=request.validate_only, broker_id=broker.node_id
        )
    )
    replies = iter(decision.replies)
    responses = [
        _told(each, next(replies).outcome if outcome is None else outcome)
        for each, outcome in zip(request.resources, outcomes, strict=True)
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


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
