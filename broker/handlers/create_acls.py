"""CreateAcls (30): access rules are added. One that is there already is not made twice.

v1 prefixes · v2 flexible · v3 a user resource
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import KafkaError, SecurityDisabled
from trioka.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = CreateAclsResponse.Result


def refuse(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    told = [Told(error_code=error.code, error_message=str(error)) for _ in request.creations]
    return CreateAclsResponse(throttle_time_ms=0, results=told)


@handles(CreateAclsRequest, refuse=refuse, forwards=True)
async def create_acls(broker: "Broker", call: "Call", request: CreateAclsRequest) -> CreateAclsResponse:
    broker.guard.must(call, Operation.ALTER)
    if not broker.guard.is_closed:
        raise SecurityDisabled("there is no authorizer here: authorizer.class.name is empty")
    decision = await broker.quorum.change(lambda controller: controller.create_acls(request.creations))
    return CreateAclsResponse(
        throttle_time_ms=0,
        results=[Told(error_code=outcome.code, error_message=outcome.message or "") for outcome in decision.replies],
    )
