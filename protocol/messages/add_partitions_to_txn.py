"""AddPartitionsToTxn (24): partitions join a transaction before it writes to them.

Up to v3 a producer sends it for one transaction. From v4 on brokers send it, for many transactions at once, and may
only verify that a partition is in a transaction. v3 flexible · v4 batched · v5 the errors of KIP-890
"""

from ..primitives import Boolean, Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class Topic(Struct):
    name: String
    partitions: list[Int32]


class PartitionResult(Struct):
    partition_index: Int32
    partition_error_code: Int16


class TopicResult(Struct):
    name: String
    results_by_partition: list[PartitionResult]


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+"):
    class Transaction(Struct):
        transactional_id: String = field("4+")
        producer_id: Int64 = field("4+")
        producer_epoch: Int16 = field("4+")
        verify_only: Boolean = field("4+", default=False)
        topics: list[Topic] = field("4+")

    transactions: list[Transaction] = field("4+", default=[])
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: list[Topic] = field("0-3", default=[])


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    class Transaction(Struct):
        transactional_id: String = field("4+")
        topic_results: list[TopicResult] = field("4+")

    throttle_time_ms: Int32
    error_code: Int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[Transaction] = field("4+", default=[])
    results_by_topic_v3_and_below: list[TopicResult] = field("0-3", default=[])
