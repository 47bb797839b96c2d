"""WriteTxnMarkers (27): a coordinator ends transactions in partitions. Between brokers.

v2 which protocol of transactions it was
"""

from ..primitives import Boolean, Int8, Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible="1+"):
    class Marker(Struct):
        class Topic(Struct):
            name: String
            partition_indexes: list[Int32]

        producer_id: Int64
        producer_epoch: Int16
        transaction_result: Boolean
        topics: list[Topic]
        coordinator_epoch: Int32
        transaction_version: Int8 = field("2+", default=0, ignorable=True)

    markers: list[Marker]


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible="1+"):
    class Marker(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: Int32
                error_code: Int16

            name: String
            partitions: list[Partition]

        producer_id: Int64
        topics: list[Topic]

    markers: list[Marker]
