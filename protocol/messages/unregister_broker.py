"""UnregisterBroker (64): removes the registration of a broker."""

from ..primitives import Int16, Int32, String
from ..schema import Request, Response


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+"):
    broker_id: Int32


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
