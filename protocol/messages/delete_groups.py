"""DeleteGroups (42): forgets groups that have no members.

v2 flexible
"""

from ..primitives import Int16, Int32, String
from ..schema import Request, Response, Struct


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    groups_names: list[String]


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    class Result(Struct):
        group_id: String
        error_code: Int16

    throttle_time_ms: Int32
    results: list[Result]
