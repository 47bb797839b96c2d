"""ListTransactions (66): the transactions that this broker coordinates.

v1 filter by duration · v2 by pattern of the id
"""

from ..primitives import Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+"):
    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: String | None = field("2+", default=None)


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    class TransactionState(Struct):
        transactional_id: String
        producer_id: Int64
        transaction_state: String

    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[String]
    transaction_states: list[TransactionState]
