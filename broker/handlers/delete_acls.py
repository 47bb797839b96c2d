"""DeleteAcls (31): removes the ACLs that match the filters, and returns them; an ACL that two filters match twice.

v1 prefixed resource patterns · v2 flexible · v3 user resources
"""

from typing import TYPE_CHECKING

from trioka.cluster.controller.acl_changes import DeletedAcls
from trioka.cluster.image.acls import AclFilter, AclOperation
from trioka.protocol.errors import KafkaError, SecurityDisabled
from trioka.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

from ..api import handles
from ..security.audit import audited_change

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

FilterResult = DeleteAclsResponse.FilterResult


def error_response(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    results = [FilterResult(error_code=error.code, error_message=str(error), matching_acls=[]) for _ in request.filters]
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


@handles(DeleteAclsRequest, error_response=error_response, forwards=True)
async def delete_acls(broker: "Broker", call: "Call", request: DeleteAclsRequest) -> DeleteAclsResponse:
    broker.guard.must(call, AclOperation.ALTER)
    if not broker.guard.is_closed:
        raise SecurityDisabled("no authorizer is configured: authorizer.class.name is empty")
    filters = [_filter_of(requested) for requested in request.filters]
    decision = await audited_change(broker, call, lambda controller: controller.delete_acls(filters))
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=[_to_result(deleted) for deleted in decision.replies])


def _filter_of(requested: DeleteAclsRequest.Filter) -> AclFilter:
    return AclFilter(
        resource_type=requested.resource_type_filter,
        resource_name=requested.resource_name_filter,
        pattern_type=requested.pattern_type_filter,
        principal=requested.principal_filter,
        host=requested.host_filter,
        operation=requested.operation,
        permission_type=requested.permission_type,
    )


def _to_result(deleted: DeletedAcls) -> FilterResult:
    return FilterResult(
        error_code=deleted.outcome.code,
        error_message=deleted.outcome.message,
        matching_acls=[
            FilterResult.MatchingAcl(
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
