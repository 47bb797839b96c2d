"""DescribeProducers (61): the producers that are active in partitions."""

from ..primitives import Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    class Topic(Struct):
        name: String
        partition_indexes: list[Int32]

    topics: list[Topic]


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    class Topic(Struct):
        class Partition(Struct):
            class ActiveProducer(Struct):
                producer_id: Int64
                producer_epoch: Int32
                last_sequence: Int32 = field(default=-1)
                last_timestamp: Int64 = field(default=-1)
                coordinator_epoch: Int32
                current_txn_start_offset: Int64 = field(default=-1)

            partition_index: Int32
            error_code: Int16
            error_message: String | None = field(default=None)
            active_producers: list[ActiveProducer]

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32
    topics: list[Topic]
