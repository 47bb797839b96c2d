"""BrokerHeartbeat (63): a broker is alive, and says how far it has come with the metadata and what it wants: to serve,
to be fenced, to shut down. It is told what it may.

v1 log directories that went offline · v2 directories that take no new replicas
"""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def refuse(request: BrokerHeartbeatRequest, error: KafkaError) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(throttle_time_ms=0, error_code=error.code, should_shut_down=False)


@handles(BrokerHeartbeatRequest, refuse=refuse, for_nodes=True)
async def broker_heartbeat(broker: "Broker", call: "Call", request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    reply = await broker.active_controller.heartbeat(request)
    return BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )
