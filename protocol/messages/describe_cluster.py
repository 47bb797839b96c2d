"""DescribeCluster (60): the brokers, or the controllers, and the active controller.

v1 selects brokers or controllers · v2 fenced brokers too
"""

from ..primitives import Boolean, Int8, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: Boolean
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Boolean = field("2+", default=False)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    class Broker(Struct):
        broker_id: Int32
        host: String
        port: Int32
        rack: String | None = field(default=None)
        is_fenced: Boolean = field("2+", default=False)

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    brokers: list[Broker]
    cluster_authorized_operations: Int32 = field(default=-0x80000000)
