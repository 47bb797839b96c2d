"""ControllerRegistration (70): a controller registers its endpoints and its supported features."""

from typing import TYPE_CHECKING

from trioka.protocol.errors import NONE, KafkaError
from trioka.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: ControllerRegistrationRequest, error: KafkaError) -> ControllerRegistrationResponse:
    return ControllerRegistrationResponse(throttle_time_ms=0, error_code=error.code, error_message=str(error))


@handles(ControllerRegistrationRequest, error_response=error_response, cluster_only=True)
async def controller_registration(
    broker: "Broker", call: "Call", request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    await broker.quorum.change(lambda controller: controller.register_controller(request))
    return ControllerRegistrationResponse(throttle_time_ms=0, error_code=NONE, error_message=None)
