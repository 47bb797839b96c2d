"""DescribeAcls (29): returns the ACLs that match a filter.

v1 prefixed resource patterns · v2 flexible · v3 user resources
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclFilter, AclOperation
from trioka.protocol.errors import InvalidRequest, KafkaError, SecurityDisabled
from trioka.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

ResourceAcls = DescribeAclsResponse.Resource


def error_response(request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(throttle_time_ms=0, error_code=error.code, error_message=str(error), resources=[])


@handles(DescribeAclsRequest, error_response=error_response)
def describe_acls(broker: "Broker", call: "Call", request: DescribeAclsRequest) -> DescribeAclsResponse:
    broker.guard.must(call, AclOperation.DESCRIBE)
    if not broker.guard.is_closed:
        raise SecurityDisabled("no authorizer is configured: authorizer.class.name is empty")
    acl_filter = filter_of(request)
    resources: dict[tuple[int, str, int], list[ResourceAcls.Acl]] = {}
    for rule in broker.metadata.access.acls:
        if acl_filter.matches(rule):
            resources.setdefault((rule.resource_type, rule.resource_name, rule.pattern_type), []).append(
                ResourceAcls.Acl(
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission_type,
                )
            )
    return DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message="",
        resources=[
            ResourceAcls(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in resources.items()
        ],
    )


def filter_of(request: DescribeAclsRequest) -> AclFilter:
    """Unknown numbers match nothing. Zero is invalid; Kafka then closes the connection."""
    numbers = (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    if 0 in numbers:
        raise InvalidRequest(
            "a resource type, pattern type, operation or permission type of the filter is 0; use 1 for any"
        )
    return AclFilter(
        resource_type=request.resource_type_filter,
        resource_name=request.resource_name_filter,
        pattern_type=request.pattern_type_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        operation=request.operation,
        permission_type=request.permission_type,
    )
