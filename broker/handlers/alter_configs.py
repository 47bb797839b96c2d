"""AlterConfigs (33): replaces the whole configuration of a resource; what is not named returns to its default.

A broker's configuration is changed by that broker. What each resource gets is its own affair: one that cannot be
changed does not hinder the others.

v2 flexible
"""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call


def refuse(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            AlterConfigsResponse.Resource(
                error_code=error.code,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ],
    )


@handles(AlterConfigsRequest, refuse=refuse)
async def alter_configs(broker: "Broker", call: "Call", request: AlterConfigsRequest) -> AlterConfigsResponse:
    decision = await broker.quorum.change(
        lambda controller: controller.alter_configs(
            request.resources, validate_only=request.validate_only, broker_id=broker.node_id
        )
    )
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            AlterConfigsResponse.Resource(
                error_code=reply.outcome.code,
                error_message=reply.outcome.message,
                resource_type=reply.resource.type,
                resource_name=reply.resource.name,
            )
            for reply in decision.replies
        ],
    )
