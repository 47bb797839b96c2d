"""ExpireDelegationToken (40): ends a token's life, now or soon.

v2 flexible
"""

from ..primitives import Bytes, Int16, Int32, Int64
from ..schema import Request, Response


class ExpireDelegationTokenRequest(Request, key=40, versions="1-2", flexible="2+"):
    hmac: Bytes
    expiry_time_period_ms: Int64


class ExpireDelegationTokenResponse(Response, key=40, versions="1-2", flexible="2+"):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
