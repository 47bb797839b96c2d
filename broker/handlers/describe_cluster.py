"""DescribeCluster (60): the brokers, and who to ask for changes.

At a broker's listener only brokers are told of, and at a controller's only controllers, with the one that is active;
whoever asks for the others has come to the wrong place.

v1 which kind of node is asked for · v2 brokers that are fenced, if they are asked for
"""

from typing import TYPE_CHECKING, Final

from trioka.protocol.errors import KafkaError, MismatchedEndpointType, UnsupportedEndpointType
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

from ..api import handles
from ..metadata.topic_description import whom_to_ask
from ..quorum.rpc import number
from ..security.guard import cluster_operations

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

BROKERS: Final = 1
CONTROLLERS: Final = 2
NOT_ASKED: Final = -0x80000000


def refuse(request: DescribeClusterRequest, error: KafkaError) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=error.code, error_message=str(error), cluster_id="", brokers=[]
    )


@handles(DescribeClusterRequest, refuse=refuse)
def describe_cluster(broker: "Broker", call: "Call", request: DescribeClusterRequest) -> DescribeClusterResponse:
    if call.connection.listener in broker.node.controller_names:
        return _controllers(broker, call, request)
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
            cluster_operations(broker, call) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _controllers(broker: "Broker", call: "Call", request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == BROKERS:
        raise MismatchedEndpointType("this is a controller's listener; brokers are told of at theirs")
    if request.endpoint_type != CONTROLLERS:
        raise UnsupportedEndpointType(f"{request.endpoint_type} is no kind of node")
    told = [
        DescribeClusterResponse.Broker(broker_id=known.controller_id, host=address.host, port=address.port, rack=None)
        for known in broker.metadata.brokers.controllers
        for address in known.listeners
        if address.name == call.connection.listener
    ]
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        endpoint_type=CONTROLLERS,
        cluster_id=broker.cluster_id,
        controller_id=number(broker.quorum.leader_id),
        brokers=sorted(told, key=lambda each: each.broker_id),
        cluster_authorized_operations=(
            cluster_operations(broker, call) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
