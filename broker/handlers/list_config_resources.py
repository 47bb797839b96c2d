"""ListConfigResources (74): the names of what has, or can have, a configuration.

Topics and brokers are named whether anything is set for them or not; groups and client metrics only if something is.

v0 client metrics, and nothing else · v1 of the types that are asked for; of all, if none is
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.cluster.configs import ResourceType
from trioka.protocol.errors import KafkaError, UnsupportedVersion
from trioka.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

LISTED: Final = tuple(kind for kind in ResourceType if kind != ResourceType.UNKNOWN)


def refuse(request: ListConfigResourcesRequest, error: KafkaError) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=error.code, config_resources=[])


@handles(ListConfigResourcesRequest, refuse=refuse)
def list_config_resources(
    broker: "Broker", call: "Call", request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    broker.guard.must(call, Operation.DESCRIBE_CONFIGS)
    kinds: Iterable[int] = dict.fromkeys(request.resource_types) or LISTED
    if call.version == 0:
        kinds = (ResourceType.CLIENT_METRICS,)
    if any(kind not in LISTED for kind in kinds):
        raise UnsupportedVersion("there are no resources of such a type")
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
    if kind == ResourceType.TOPIC:
        return [topic.name for topic in metadata.topics]
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(each.broker_id) for each in metadata.brokers if not each.fenced]
    return [resource.name for resource in metadata.configs if resource.type == kind]
