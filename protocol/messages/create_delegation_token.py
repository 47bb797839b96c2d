"""CreateDelegationToken (38): a token that stands for a user.

v2 flexible · v3 on behalf of another owner
"""

from ..primitives import Bytes, Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class CreateDelegationTokenRequest(Request, key=38, versions="1-3", flexible="2+"):
    class Renewer(Struct):
        principal_type: String
        principal_name: String

    owner_principal_type: String | None = field("3+", default="")
    owner_principal_name: String | None = field("3+", default="")
    renewers: list[Renewer]
    max_lifetime_ms: Int64


class CreateDelegationTokenResponse(Response, key=38, versions="1-3", flexible="2+"):
    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32
