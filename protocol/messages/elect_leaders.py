"""ElectLeaders (43): elects the preferred leader, or any replica at all, of partitions.

v1 the kind of election · v2 flexible
"""

from ..primitives import Int8, Int16, Int32, String
from ..schema import Request, Response, Struct, field


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    class TopicPartition(Struct):
        topic: String
        partitions: list[Int32]

    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[TopicPartition] | None
    timeout_ms: Int32 = field(default=60000)


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    class ReplicaElectionResult(Struct):
        class PartitionResult(Struct):
            partition_id: Int32
            error_code: Int16
            error_message: String | None

        topic: String
        partition_result: list[PartitionResult]

    throttle_time_ms: Int32
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]
