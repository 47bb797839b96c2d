"""AlterUserScramCredentials (51): sets and removes the SCRAM credentials of users. Clients send salted passwords."""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

from ..api import handles
from ..security.audit import audited_change

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Result = AlterUserScramCredentialsResponse.Result


def error_response(request: AlterUserScramCredentialsRequest, error: KafkaError) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    results = [Result(user=user, error_code=error.code, error_message=str(error)) for user in users]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


@handles(AlterUserScramCredentialsRequest, error_response=error_response, forwards=True)
async def alter_user_scram_credentials(
    broker: "Broker", call: "Call", request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    broker.guard.must(call, AclOperation.ALTER)
    decision = await audited_change(
        broker, call, lambda controller: controller.alter_user_scram_credentials(request.deletions, request.upsertions)
    )
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[
            Result(user=reply.user, error_code=reply.outcome.code, error_message=reply.outcome.message)
            for reply in decision.replies
        ],
    )
