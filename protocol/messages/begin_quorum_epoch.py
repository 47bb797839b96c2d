"""BeginQuorumEpoch (53): a new leader of the metadata quorum makes itself known.

v1 flexible, voters with their directory, and the leader's endpoints
"""

from ..primitives import NULL_UUID, Int16, Int32, String, Uint16, Uuid
from ..schema import Request, Response, Struct, field


class BeginQuorumEpochRequest(Request, key=53, versions="0-1", flexible="1+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            voter_directory_id: Uuid = field("1+", default=NULL_UUID, ignorable=True)
            leader_id: Int32
            leader_epoch: Int32

        topic_name: String
        partitions: list[Partition]

    class LeaderEndpoint(Struct):
        name: String = field("1+")
        host: String = field("1+")
        port: Uint16 = field("1+")

    cluster_id: String | None = field(default=None)
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[Topic]
    leader_endpoints: list[LeaderEndpoint] = field("1+", default=[], ignorable=True)


class BeginQuorumEpochResponse(Response, key=53, versions="0-1", flexible="1+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16
            leader_id: Int32
            leader_epoch: Int32

        topic_name: String
        partitions: list[Partition]

    class NodeEndpoint(Struct):
        node_id: Int32 = field("1+")
        host: String = field("1+")
        port: Uint16 = field("1+")

    error_code: Int16
    topics: list[Topic]
    node_endpoints: list[NodeEndpoint] = field("1+", default=[], tag=0, tagged="1+")
