"""Vote (52): a candidate requests a vote, or first, in a pre-vote, whether it would get one.

v1 directories · v2 pre-vote
"""

from ..primitives import NULL_UUID, Boolean, Int16, Int32, Int64, String, Uint16, Uuid
from ..schema import Request, Response, Struct, field


class VoteRequest(Request, key=52, versions="0-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            replica_epoch: Int32
            replica_id: Int32
            replica_directory_id: Uuid = field("1+", default=NULL_UUID, ignorable=True)
            voter_directory_id: Uuid = field("1+", default=NULL_UUID, ignorable=True)
            last_offset_epoch: Int32
            last_offset: Int64
            pre_vote: Boolean = field("2+", default=False)

        topic_name: String
        partitions: list[Partition]

    cluster_id: String | None = field(default=None)
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[Topic]


class VoteResponse(Response, key=52, versions="0-2", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16
            leader_id: Int32
            leader_epoch: Int32
            vote_granted: Boolean

        topic_name: String
        partitions: list[Partition]

    class NodeEndpoint(Struct):
        node_id: Int32 = field("1+")
        host: String = field("1+")
        port: Uint16 = field("1+")

    error_code: Int16
    topics: list[Topic]
    node_endpoints: list[NodeEndpoint] = field("1+", default=[], tag=0, tagged="1+")
