"""AddOffsetsToTxn (25): a transaction is going to commit offsets of a group, so that group's offsets partition joins
it.

v3 flexible · v4 may be answered with the retriable errors of KIP-890
"""

from ..primitives import Int16, Int32, Int64, String
from ..schema import Request, Response


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16
