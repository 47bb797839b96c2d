"""DescribeAcls (29): the access rules that match.

v1 prefixes · v2 flexible · v3 a user resource
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import AclFilter, Operation
from trioka.protocol.errors import InvalidRequest, KafkaError, SecurityDisabled
from trioka.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = DescribeAclsResponse.Resource


def refuse(request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(throttle_time_ms=0, error_code=error.code, error_message=str(error), resources=[])


@handles(DescribeAclsRequest, refuse=refuse)
def describe_acls(broker: "Broker", call: "Call", request: DescribeAclsRequest) -> DescribeAclsResponse:
    broker.guard.must(call, Operation.DESCRIBE)
    if not broker.guard.is_closed:
        raise SecurityDisabled("there is no authorizer here: authorizer.class.name is empty")
    wanted = filter_of(request)
    resources: dict[tuple[int, str, int], list[Told.Acl]] = {}
    for rule in broker.metadata.access.acls:
        if wanted.matches(rule):
            resources.setdefault((rule.resource_type, rule.resource_name, rule.pattern_type), []).append(
                Told.Acl(
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
            Told(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in resources.items()
        ],
    )


def filter_of(request: DescribeAclsRequest) -> AclFilter:
    """A number of the future matches nothing. Zero is no number at all, and Kafka hangs up."""
    numbers = (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    if 0 in numbers:
        raise InvalidRequest("the filter says neither which rules are meant nor that any are")
    return AclFilter(
        resource_type=request.resource_type_filter,
        resource_name=request.resource_name_filter,
        pattern_type=request.pattern_type_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        operation=request.operation,
        permission_type=request.permission_type,
    )
