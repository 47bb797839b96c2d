"""BrokerRegistration (62): a broker joins the cluster or renews its registration. It is fenced until its heartbeats
unfence it.

While an earlier incarnation of the broker may be alive, the error is DUPLICATE_BROKER_REGISTRATION, and the broker
retries.

v2 log directories · v3 the broker epoch before a clean shutdown · v4 features whose first version is 0
"""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: BrokerRegistrationRequest, error: KafkaError) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=error.code)


@handles(BrokerRegistrationRequest, error_response=error_response, cluster_only=True)
async def broker_registration(
    broker: "Broker", call: "Call", request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    epoch = await broker.active_controller.register(request)
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=0, broker_epoch=epoch)
