"""BrokerRegistration (62): a broker joins the cluster, or says anew who and where it is. It is fenced at first, and its
heartbeats let it in.

While an earlier life of the same id may be alive: DUPLICATE_BROKER_REGISTRATION, and the broker tries again.

v2 log directories · v3 the epoch before a clean stop · v4 a feature may start at 0
"""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def refuse(request: BrokerRegistrationRequest, error: KafkaError) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=error.code)


@handles(BrokerRegistrationRequest, refuse=refuse, for_nodes=True)
async def broker_registration(
    broker: "Broker", call: "Call", request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    epoch = await broker.active_controller.register(request)
    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=0, broker_epoch=epoch)
