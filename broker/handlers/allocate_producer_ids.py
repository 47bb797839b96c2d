"""AllocateProducerIds (67): a broker asks for the next block of producer ids."""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def refuse(request: AllocateProducerIdsRequest, error: KafkaError) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=error.code, producer_id_start=0, producer_id_len=0
    )


@handles(AllocateProducerIdsRequest, refuse=refuse, for_nodes=True)
async def allocate_producer_ids(
    broker: "Broker", call: "Call", request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    decision = await broker.quorum.change(
        lambda controller: controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    )
    (block,) = decision.replies
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=0, producer_id_start=block.first, producer_id_len=block.size
    )
