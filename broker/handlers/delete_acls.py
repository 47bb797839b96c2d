"""DeleteAcls (31): the access rules that match are removed, and told. One that two filters match is told twice.

v1 prefixes · v2 flexible · v3 a user resource
"""

from typing import TYPE_CHECKING

from trioka.cluster.acl_changes import DeletedAcls
from trioka.cluster.acls import AclFilter, Operation
from trioka.protocol.errors import KafkaError, SecurityDisabled
from trioka.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = DeleteAclsResponse.FilterResult


def refuse(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    told = [Told(error_code=error.code, error_message=str(error), matching_acls=[]) for _ in request.filters]
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=told)


@handles(DeleteAclsRequest, refuse=refuse, forwards=True)
async def delete_acls(broker: "Broker", call: "Call", request: DeleteAclsRequest) -> DeleteAclsResponse:
    broker.guard.must(call, Operation.ALTER)
    if not broker.guard.is_closed:
        raise SecurityDisabled("there is no authorizer here: authorizer.class.name is empty")
    filters = [_filter_of(asked) for asked in request.filters]
    decision = await broker.quorum.change(lambda controller: controller.delete_acls(filters))
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=[_told(deleted) for deleted in decision.replies])


def _filter_of(asked: DeleteAclsRequest.Filter) -> AclFilter:
    return AclFilter(
        resource_type=asked.resource_type_filter,
        resource_name=asked.resource_name_filter,
        pattern_type=asked.pattern_type_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission_type=asked.permission_type,
    )


def _told(deleted: DeletedAcls) -> Told:
    return Told(
        error_code=deleted.outcome.code,
        error_message=deleted.outcome.message,
        matching_acls=[
            Told.MatchingAcl(
                error_code=0,
                error_message=None,
                resource_type=rule.resource_type,
                resource_name=rule.resource_name,
                pattern_type=rule.pattern_type,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission_type,
            )
            for rule in deleted.rules
        ],
    )
