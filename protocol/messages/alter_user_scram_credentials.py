"""AlterUserScramCredentials (51): sets and removes SCRAM credentials. Salted passwords travel, passwords never."""

from ..primitives import Bytes, Int8, Int16, Int32, String
from ..schema import Request, Response, Struct


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    class Deletion(Struct):
        name: String
        mechanism: Int8

    class Upsertion(Struct):
        name: String
        mechanism: Int8
        iterations: Int32
        salt: Bytes
        salted_password: Bytes

    deletions: list[Deletion]
    upsertions: list[Upsertion]


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    class Result(Struct):
        user: String
        error_code: Int16
        error_message: String | None

    throttle_time_ms: Int32
    results: list[Result]
