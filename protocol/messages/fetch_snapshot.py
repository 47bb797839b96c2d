"""FetchSnapshot (59): a snapshot of the metadata log, piece by piece.

v1 directories and endpoints
"""

from ..primitives import NULL_UUID, Int16, Int32, Int64, Records, String, Uint16, Uuid
from ..schema import EMPTY, Request, Response, Struct, field


class FetchSnapshotRequest(Request, key=59, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class SnapshotId(Struct):
                end_offset: Int64
                epoch: Int32

            partition: Int32
            current_leader_epoch: Int32
            snapshot_id: SnapshotId
            position: Int64
            replica_directory_id: Uuid = field("1+", default=NULL_UUID, tag=0, tagged="1+", ignorable=True)

        name: String
        partitions: list[Partition]

    cluster_id: String | None = field(default=None, tag=0, tagged="0+")
    replica_id: Int32 = field(default=-1)
    max_bytes: Int32 = field(default=0x7FFFFFFF)
    topics: list[Topic]


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class SnapshotId(Struct):
                end_offset: Int64
                epoch: Int32

            class CurrentLeader(Struct):
                leader_id: Int32
                leader_epoch: Int32

            index: Int32
            error_code: Int16
            snapshot_id: SnapshotId
            current_leader: CurrentLeader = field(default=EMPTY, tag=0, tagged="0+")
            size: Int64
            position: Int64
            unaligned_records: Records

        name: String
        partitions: list[Partition]

    class NodeEndpoint(Struct):
        node_id: Int32 = field("1+")
        host: String = field("1+")
        port: Uint16 = field("1+")

    throttle_time_ms: Int32 = field(ignorable=True)
    error_code: Int16
    topics: list[Topic]
    node_endpoints: list[NodeEndpoint] = field("1+", default=[], tag=0, tagged="1+")
