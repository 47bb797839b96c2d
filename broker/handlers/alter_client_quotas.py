"""AlterClientQuotas (49): sets and removes quotas of users, client ids and IP addresses. Brokers follow when the change
is replayed (security/client_quotas.py, network/limits/connection_quotas.py).

v1 flexible
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

from ..api import handles
from ..security.audit import audited_change

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

EntryResult = AlterClientQuotasResponse.Entry


def error_response(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[
            EntryResult(
                error_code=error.code,
                error_message=str(error),
                entity=[
                    EntryResult.Entity(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ],
    )


@handles(AlterClientQuotasRequest, error_response=error_response, forwards=True)
async def alter_client_quotas(
    broker: "Broker", call: "Call", request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    broker.guard.must(call, AclOperation.ALTER_CONFIGS)
    decision = await audited_change(
        broker,
        call,
        lambda controller: controller.alter_client_quotas(request.entries, validate_only=request.validate_only),
    )
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[
            EntryResult(
                error_code=reply.outcome.code,
                error_message=reply.outcome.message,
                entity=[EntryResult.Entity(entity_type=kind, entity_name=name) for kind, name in reply.entity],
            )
            for reply in decision.replies
        ],
    )
