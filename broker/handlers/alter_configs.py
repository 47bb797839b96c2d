"""AlterConfigs (33): replaces the whole configuration of a resource; what is not named returns to its default.

A broker's configuration is changed by that broker: it looks whether it is the one that is meant, and passes on to the
active controller what is to be written, if that is another node. What each resource gets is its own affair: one that
cannot be changed does not hinder the others.

v2 flexible
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trioka.cluster.config_changes import check_request
from trioka.cluster.configs import Resource
from trioka.cluster.decision import Outcome
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

from ..api import handles
from ..config.network_keys import REQUEST_TIMEOUT_MS
from ..network.internal_call import asked_broker
from ..security.guard import denied_alterations

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


Wanted = AlterConfigsRequest.Resource
Told = AlterConfigsResponse.Resource


def refuse(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        throttle_time_ms=0, responses=[_told(resource, Outcome.of(error)) for resource in request.resources]
    )


@handles(AlterConfigsRequest, refuse=refuse)
async def alter_configs(broker: "Broker", call: "Call", request: AlterConfigsRequest) -> AlterConfigsResponse:
    asked = asked_broker(broker, call)
    is_passed_on = asked is not None and not broker.quorum.is_active
    refused = denied_alterations(broker, call, [(each.resource_type, each.resource_name) for each in request.resources])
    if is_passed_on:
        for number, wanted in enumerate(request.resources):
            refused[number] = refused[number] or _checked(wanted, broker.node_id)
    left = [wanted for wanted, error in zip(request.resources, refused, strict=True) if error is None]
    change = _pass_on if is_passed_on else _write
    answers = iter(await change(broker, left, request.validate_only, asked))
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            next(answers) if error is None else _told(wanted, Outcome.of(error))
            for wanted, error in zip(request.resources, refused, strict=True)
        ],
    )


def _checked(wanted: Wanted, broker_id: int) -> KafkaError | None:
    """What this broker can say by itself: it changes its own configuration, and no other broker's."""
    try:
        resource = Resource(wanted.resource_type, wanted.resource_name)
        check_request(resource, [config.name for config in wanted.configs], broker_id)
    except KafkaError as error:
        return error
    return None


async def _write(broker: "Broker", left: Sequence[Wanted], validate_only: bool, asked: int | None) -> list[Told]:
    decision = await broker.quorum.change(
        lambda controller: controller.alter_configs(left, validate_only=validate_only, broker_id=asked)
    )
    return [_told(wanted, reply.outcome) for wanted, reply in zip(left, decision.replies, strict=True)]


async def _pass_on(broker: "Broker", left: Sequence[Wanted], validate_only: bool, asked: int | None) -> list[Told]:
    """To the active controller, which is another node."""
    request = AlterConfigsRequest(resources=list(left), validate_only=validate_only)
    told: AlterConfigsResponse = await broker.controller.ask(
        request, timeout_s=broker.config[REQUEST_TIMEOUT_MS] / 1000
    )
    return told.responses


def _told(resource: Wanted, outcome: Outcome) -> Told:
    return Told(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
