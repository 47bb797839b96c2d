"""EndQuorumEpoch (54): a leader of the metadata quorum resigns and names its preferred successors.

v1 flexible, candidates with their directory
"""

from ..primitives import Int16, Int32, String, Uint16, Uuid
from ..schema import Request, Response, Struct, field


class EndQuorumEpochRequest(Request, key=54, versions="0-1", flexible="1+"):
    class Topic(Struct):
        class Partition(Struct):
            class PreferredCandidate(Struct):
                candidate_id: Int32 = field("1+")
                candidate_directory_id: Uuid = field("1+")

            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32
            preferred_successors: list[Int32] = field("0", default=[], ignorable=True)
            preferred_candidates: list[PreferredCandidate] = field("1+", default=[], ignorable=True)

        topic_name: String
        partitions: list[Partition]

    class LeaderEndpoint(Struct):
        name: String = field("1+")
        host: String = field("1+")
        port: Uint16 = field("1+")

    cluster_id: String | None = field(default=None)
    topics: list[Topic]
    leader_endpoints: list[LeaderEndpoint] = field("1+", default=[], ignorable=True)


class EndQuorumEpochResponse(Response, key=54, versions="0-1", flexible="1+"):
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
