"""AllocateProducerIds (67): a broker requests the next block of producer ids from the controller."""

from ..primitives import Int16, Int32, Int64
from ..schema import Request, Response, field


class AllocateProducerIdsRequest(Request, key=67, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


class AllocateProducerIdsResponse(Response, key=67, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id_start: Int64
    producer_id_len: Int32
