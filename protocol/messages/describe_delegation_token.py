"""DescribeDelegationToken (41): the tokens of owners.

v2 flexible · v3 the principal that requested the token
"""

from ..primitives import Bytes, Int16, Int32, Int64, String
from ..schema import Request, Response, Struct, field


class DescribeDelegationTokenRequest(Request, key=41, versions="1-3", flexible="2+"):
    class Owner(Struct):
        principal_type: String
        principal_name: String

    owners: list[Owner] | None


class DescribeDelegationTokenResponse(Response, key=41, versions="1-3", flexible="2+"):
    class Token(Struct):
        class Renewer(Struct):
            principal_type: String
            principal_name: String

        principal_type: String
        principal_name: String
        token_requester_principal_type: String = field("3+", default="")
        token_requester_principal_name: String = field("3+", default="")
        issue_timestamp: Int64
        expiry_timestamp: Int64
        max_timestamp: Int64
        token_id: String
        hmac: Bytes
        renewers: list[Renewer]

    error_code: Int16
    tokens: list[Token]
    throttle_time_ms: Int32
