"""AlterClientQuotas (49): sets and removes quotas of users, client ids and addresses. They are stored and described;
nobody is slowed down by them yet.

v1 flexible
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = AlterClientQuotasResponse.Entry


def refuse(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[
            Told(
                error_code=error.code,
                error_message=str(error),
                entity=[
                    Told.Entity(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
                ],
            )
            for entry in request.entries
        ],
    )


@handles(AlterClientQuotasRequest, refuse=refuse, forwards=True)
async def alter_client_quotas(
    broker: "Broker", call: "Call", request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    broker.guard.must(call, Operation.ALTER_CONFIGS)
    decision = await broker.quorum.change(
        lambda controller: controller.alter_client_quotas(request.entries, validate_only=request.validate_only)
    )
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[
            Told(
                error_code=reply.outcome.code,
                error_message=reply.outcome.message,
                entity=[Told.Entity(entity_type=kind, entity_name=name) for kind, name in reply.entity],
            )
            for reply in decision.replies
        ],
    )
