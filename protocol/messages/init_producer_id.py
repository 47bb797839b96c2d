"""InitProducerId (22): a producer id and epoch; with a transactional id, it fences the previous producer.

v2 flexible · v3 keeps an id that it had (KIP-360) · v4 PRODUCER_FENCED · v5 KIP-890 · v6 two-phase commit
(unstable)
"""

from ..primitives import Boolean, Int16, Int32, Int64, String
from ..schema import Request, Response, field


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+"):
    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: Boolean = field("6+", default=False)
    keep_prepared_txn: Boolean = field("6+", default=False)


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32 = field(ignorable=True)
    error_code: Int16
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)
