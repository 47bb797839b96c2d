"""DescribeCluster (60): returns the brokers, or the controllers, with their addresses and the controller's id.

Listeners of brokers describe brokers only, and listeners of controllers describe controllers only, with the active one;
a request for the other kind gets MISMATCHED_ENDPOINT_TYPE.

v1 the kind of endpoint · v2 fenced brokers, on request
"""

from typing import TYPE_CHECKING, Final

from trioka.protocol.errors import KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

from ..api import handles
from ..metadata.topic_description import advertised_controller
from ..quorum.rpc import number
from ..security.guard import cluster_operations

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

BROKERS: Final = 1
CONTROLLERS: Final = 2
NOT_REQUESTED: Final = -0x80000000


def error_response(request: DescribeClusterRequest, error: KafkaError) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=error.code, error_message=str(error), cluster_id="", brokers=[]
    )


@handles(DescribeClusterRequest, error_response=error_response)
def describe_cluster(broker: "Broker", call: "Call", request: DescribeClusterRequest) -> DescribeClusterResponse:
    if call.connection.listener in broker.node.controller_names:
        return _controllers(broker, call, request)
    if request.endpoint_type == CONTROLLERS:
        raise MismatchedEndpointType("not a controller listener: connect to a controller to describe controllers")
    if request.endpoint_type != BROKERS:
        raise UnsupportedEndpointType(f"unknown endpoint type {request.endpoint_type}")
    nodes = []
    for node in broker.metadata.brokers:
        address = node.listener(call.connection.listener)
        if address is not None and (request.include_fenced_brokers or not node.fenced):
            nodes.append(
                DescribeClusterResponse.Broker(
                    broker_id=node.broker_id,
                    host=address.host,
                    port=address.port,
                    rack=node.rack,
                    is_fenced=node.fenced,
                )
            )
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=advertised_controller(broker.metadata, broker.node_id),
        brokers=nodes,
        cluster_authorized_operations=(
            cluster_operations(broker, call) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _controllers(broker: "Broker", call: "Call", request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == BROKERS:
        raise MismatchedEndpointType("not a broker listener: connect to a broker to describe brokers")
    if request.endpoint_type != CONTROLLERS:
        raise UnsupportedEndpointType(f"unknown endpoint type {request.endpoint_type}")
    nodes = [
        DescribeClusterResponse.Broker(broker_id=node.controller_id, host=address.host, port=address.port, rack=None)
        for node in broker.metadata.brokers.controllers
        for address in node.listeners
        if address.name == call.connection.listener
    ]
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        endpoint_type=CONTROLLERS,
        cluster_id=broker.cluster_id,
        controller_id=number(broker.quorum.leader_id),
        brokers=sorted(nodes, key=lambda node: node.broker_id),
        cluster_authorized_operations=(
            cluster_operations(broker, call) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )
