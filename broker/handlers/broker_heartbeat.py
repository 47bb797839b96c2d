"""BrokerHeartbeat (63): a broker reports that it is alive, its metadata offset, and whether it wants to be fenced or to
shut down. The response grants or denies that.

v1 offline log directories · v2 cordoned log directories
"""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: BrokerHeartbeatRequest, error: KafkaError) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(throttle_time_ms=0, error_code=error.code, should_shut_down=False)


@handles(BrokerHeartbeatRequest, error_response=error_response, cluster_only=True)
async def broker_heartbeat(broker: "Broker", call: "Call", request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    reply = await broker.active_controller.heartbeat(request)
    return BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )
