"""RenewDelegationToken (39): lengthens a token's life.

v2 flexible
"""

from ..primitives import Bytes, Int16, Int32, Int64
from ..schema import Request, Response


class RenewDelegationTokenRequest(Request, key=39, versions="1-2", flexible="2+"):
    hmac: Bytes
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Response, key=39, versions="1-2", flexible="2+"):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
