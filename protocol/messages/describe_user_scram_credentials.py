"""DescribeUserScramCredentials (50): which users have SCRAM credentials, and for which mechanisms."""

from ..primitives import Int8, Int16, Int32, String
from ..schema import Request, Response, Struct


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible="0+"):
    class User(Struct):
        name: String

    users: list[User] | None


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    class Result(Struct):
        class CredentialInfo(Struct):
            mechanism: Int8
            iterations: Int32

        user: String
        error_code: Int16
        error_message: String | None
        credential_infos: list[CredentialInfo]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[Result]
