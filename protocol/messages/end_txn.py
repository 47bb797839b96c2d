"""EndTxn (26): commits or aborts a transaction.

v3 flexible · v4 the retriable errors of KIP-890 · v5 the answer bumps the producer's epoch
"""

from ..primitives import Boolean, Int16, Int32, Int64, String
from ..schema import Request, Response, field


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Boolean


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)
