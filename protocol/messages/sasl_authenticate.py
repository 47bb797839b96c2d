"""SaslAuthenticate (36): one step of a SASL exchange, once the mechanism is agreed on.

v1 how long the session lives · v2 flexible
"""

from ..primitives import Bytes, Int16, Int64, String
from ..schema import Request, Response, field


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)
