"""UnregisterBroker (64): removes the registration of a broker that will not return."""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: UnregisterBrokerRequest, error: KafkaError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=error.code, error_message=str(error))


@handles(UnregisterBrokerRequest, error_response=error_response, forwards=True)
async def unregister_broker(
    broker: "Broker", call: "Call", request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    broker.guard.must(call, AclOperation.ALTER)
    decision = await broker.quorum.change(lambda controller: controller.unregister_broker(request.broker_id))
    (outcome,) = decision.replies
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=outcome.code, error_message=outcome.message or "")
