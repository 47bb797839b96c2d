"""DescribeClientQuotas (48): returns the quotas whose entity matches a filter.

A component of the filter has an entity type (user, client-id, ip) and matches the entity with the given name, the
default entity of the type, or any entity that has the type. All components must match. A strict filter matches only
entities without further types; a strict filter without components matches nothing.

v1 flexible
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.image.quotas import CLIENT_ID, IP, USER, QuotaEntity
from trioka.protocol.errors import ClusterAuthorizationFailed, InvalidRequest, KafkaError, UnsupportedVersion
from trioka.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Component = DescribeClientQuotasRequest.Component
Entry = DescribeClientQuotasResponse.Entry

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2


def error_response(request: DescribeClientQuotasRequest, error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=error.code, error_message=str(error), entries=None
    )


@handles(DescribeClientQuotasRequest, error_response=error_response)
def describe_client_quotas(
    broker: "Broker", call: "Call", request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    if not broker.guard.may(call, AclOperation.DESCRIBE_CONFIGS):
        code = ClusterAuthorizationFailed.code
        return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=code, error_message=None, entries=None)
    _check(request.components)
    return DescribeClientQuotasResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message="",
        entries=[
            Entry(
                entity=[Entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[Entry.Value(key=key, value=value) for key, value in sorted(values.items())],
            )
            for entity, values in broker.metadata.quotas
            if _matches(request, entity)
        ],
    )


def _check(components: list[Component]) -> None:
    kinds: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise InvalidRequest("an entity type of the filter is empty")
        if kind in kinds:
            raise InvalidRequest(f"the filter has the entity type {kind} more than once")
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersion(f"unknown entity type {kind[:200]!r}")
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise InvalidRequest(f"unknown match type {component.match_type}")
        if (component.match is None) == (component.match_type == EXACT):
            raise InvalidRequest("an exact match requires a name, and other match types do not accept one")
        kinds.add(kind)
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequest(f"the entity type {IP} cannot be combined with other types")


def _matches(request: DescribeClientQuotasRequest, entity: QuotaEntity) -> bool:
    parts = dict(entity)
    if request.strict and len(parts) != len(request.components):
        return False
    return all(
        component.entity_type in parts
        and (component.match_type == SPECIFIED or parts[component.entity_type] == component.match)
        for component in request.components
    )
