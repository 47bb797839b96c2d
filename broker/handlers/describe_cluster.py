"""DescribeCluster (60): the brokers, and who to ask for changes.

This is a broker's listener, so that only brokers are told of, and whoever asks for controllers has come to the wrong
place.

v1 which kind of node is asked for · v2 brokers that are fenced, if they are asked for
"""

from typing import TYPE_CHECKING, Final

from trioka.protocol.errors import KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

from ..operations import CLUSTER_OPERATIONS
from ..topic_description import whom_to_ask
from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call

BROKERS: Final = 1
CONTROLLERS: Final = 2
NOT_ASKED: Final = -0x80000000


def refuse(request: DescribeClusterRequest, error: KafkaError) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=error.code, error_message=str(error), cluster_id="", brokers=[]
    )


@handles(DescribeClusterRequest, refuse=refuse)
def describe_cluster(broker: "Broker", call: "Call", request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        raise MismatchedEndpointType("this is a broker's listener; controllers are told of at theirs")
    if request.endpoint_type != BROKERS:
        raise UnsupportedEndpointType(f"{request.endpoint_type} is no kind of node")
    told = []
    for known in broker.metadata.brokers:
        address = known.listener(call.connection.listener)
        if address is not None and (request.include_fenced_brokers or not known.fenced):
            told.append(
                DescribeClusterResponse.Broker(
                    broker_id=known.broker_id,
                    host=address.host,
                    port=address.port,
                    rack=known.rack,
                    is_fenced=known.fenced,
                )
            )
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=whom_to_ask(broker.metadata, broker.node_id),
        brokers=told,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
