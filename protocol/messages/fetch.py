"""Fetch (1): records from partitions, for consumers, followers, and the metadata quorum's observers.

v4 read_committed · v5 log start · v7 sessions (KIP-227) · v9 leader epochs · v11 rack · v12 flexible, divergence
instead of a separate request · v13 topics by id · v15 the follower's id is tagged · v16 leaders' endpoints · v17
directory ids · v18 the follower's high watermark
"""

from ..primitives import NULL_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid
from ..schema import EMPTY, Request, Response, Struct, field


class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
    class ReplicaState(Struct):
        replica_id: Int32 = field("15+", default=-1)
        replica_epoch: Int64 = field("15+", default=-1)

    class Topic(Struct):
        class Partition(Struct):
            partition: Int32
            current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
            fetch_offset: Int64
            last_fetched_epoch: Int32 = field("12+", default=-1)
            log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
            partition_max_bytes: Int32
            replica_directory_id: Uuid = field("17+", default=NULL_UUID, tag=0, tagged="17+", ignorable=True)
            high_watermark: Int64 = field("18+", default=0x7FFFFFFFFFFFFFFF, tag=1, tagged="18+", ignorable=True)

        topic: String = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=NULL_UUID, ignorable=True)
        partitions: list[Partition]

    class ForgottenTopicsData(Struct):
        topic: String = field("7-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=NULL_UUID, ignorable=True)
        partitions: list[Int32] = field("7+")

    cluster_id: String | None = field("12+", default=None, tag=0, tagged="12+", ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", default=EMPTY, tag=1, tagged="15+")
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: Int8 = field("4+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[Topic]
    forgotten_topics_data: list[ForgottenTopicsData] = field("7+", default=[])
    rack_id: String = field("11+", default="", ignorable=True)


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    class Topic(Struct):
        class Partition(Struct):
            class DivergingEpoch(Struct):
                epoch: Int32 = field("12+", default=-1)
                end_offset: Int64 = field("12+", default=-1)

            class CurrentLeader(Struct):
                leader_id: Int32 = field("12+", default=-1)
                leader_epoch: Int32 = field("12+", default=-1)

            class SnapshotId(Struct):
                end_offset: Int64 = field(default=-1)
                epoch: Int32 = field(default=-1)

            class AbortedTransaction(Struct):
                producer_id: Int64 = field("4+")
                first_offset: Int64 = field("4+")

            partition_index: Int32
            error_code: Int16
            high_watermark: Int64
            last_stable_offset: Int64 = field("4+", default=-1, ignorable=True)
            log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
            diverging_epoch: DivergingEpoch = field("12+", default=EMPTY, tag=0, tagged="12+")
            current_leader: CurrentLeader = field("12+", default=EMPTY, tag=1, tagged="12+")
            snapshot_id: SnapshotId = field("12+", default=EMPTY, tag=2, tagged="12+")
            aborted_transactions: list[AbortedTransaction] | None = field("4+", ignorable=True)
            preferred_read_replica: Int32 = field("11+", default=-1)
            records: Records | None

        topic: String = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=NULL_UUID, ignorable=True)
        partitions: list[Partition]

    class NodeEndpoint(Struct):
        node_id: Int32 = field("16+")
        host: String = field("16+")
        port: Int32 = field("16+")
        rack: String | None = field("16+", default=None)

    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[Topic]
    node_endpoints: list[NodeEndpoint] = field("16+", default=[], tag=0, tagged="16+")
