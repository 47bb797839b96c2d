"""DescribeTransactions (65): the state of transactions."""

from ..primitives import Int16, Int32, Int64, String
from ..schema import Request, Response, Struct


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    transactional_ids: list[String]


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    class TransactionState(Struct):
        class Topic(Struct):
            topic: String
            partitions: list[Int32]

        error_code: Int16
        transactional_id: String
        transaction_state: String
        transaction_timeout_ms: Int32
        transaction_start_time_ms: Int64
        producer_id: Int64
        producer_epoch: Int16
        topics: list[Topic]

    throttle_time_ms: Int32
    transaction_states: list[TransactionState]
