"""ListConfigResources (74): lists the resources that have a configuration.

All topics and live brokers are listed; groups and client metrics subscriptions only if a key is set.

v0 client metrics only · v1 the requested types, or all types if none is requested
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.image.configs import ConfigResourceType
from trioka.protocol.errors import KafkaError, UnsupportedVersion
from trioka.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

LISTED: Final = tuple(kind for kind in ConfigResourceType if kind != ConfigResourceType.UNKNOWN)


def error_response(request: ListConfigResourcesRequest, error: KafkaError) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=error.code, config_resources=[])


@handles(ListConfigResourcesRequest, error_response=error_response)
def list_config_resources(
    broker: "Broker", call: "Call", request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    broker.guard.must(call, AclOperation.DESCRIBE_CONFIGS)
    kinds: Iterable[int] = dict.fromkeys(request.resource_types) or LISTED
    if call.version == 0:
        kinds = (ConfigResourceType.CLIENT_METRICS,)
    if any(kind not in LISTED for kind in kinds):
        raise UnsupportedVersion("unknown resource type")
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=0,
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in kinds
            for name in _names(broker, kind)
        ],
    )


def _names(broker: "Broker", kind: int) -> list[str]:
    metadata = broker.metadata
    if kind == ConfigResourceType.TOPIC:
        return [topic.name for topic in metadata.topics]
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(registration.broker_id) for registration in metadata.brokers if not registration.fenced]
    return [resource.name for resource in metadata.configs if resource.type == kind]
