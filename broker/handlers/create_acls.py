"""CreateAcls (30): adds ACLs. An ACL that exists already is not added again.

v1 prefixed resource patterns · v2 flexible · v3 user resources
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import KafkaError, SecurityDisabled
from trioka.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse

from ..api import handles
from ..security.audit import audited_change

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

AclResult = CreateAclsResponse.Result


def error_response(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    results = [AclResult(error_code=error.code, error_message=str(error)) for _ in request.creations]
    return CreateAclsResponse(throttle_time_ms=0, results=results)


@handles(CreateAclsRequest, error_response=error_response, forwards=True)
async def create_acls(broker: "Broker", call: "Call", request: CreateAclsRequest) -> CreateAclsResponse:
    broker.guard.must(call, AclOperation.ALTER)
    if not broker.guard.is_closed:
        raise SecurityDisabled("no authorizer is configured: authorizer.class.name is empty")
    decision = await audited_change(broker, call, lambda controller: controller.create_acls(request.creations))
    return CreateAclsResponse(
        throttle_time_ms=0,
        results=[
            AclResult(error_code=outcome.code, error_message=outcome.message or "") for outcome in decision.replies
        ],
    )
