"""AllocateProducerIds (67): allocates a block of producer ids for a broker."""

from typing import TYPE_CHECKING

from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: AllocateProducerIdsRequest, error: KafkaError) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=error.code, producer_id_start=0, producer_id_len=0
    )


@handles(AllocateProducerIdsRequest, error_response=error_response, cluster_only=True)
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
