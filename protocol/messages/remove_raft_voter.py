"""RemoveRaftVoter (81): a voter leaves the metadata quorum."""

from ..primitives import Int16, Int32, String, Uuid
from ..schema import Request, Response, field


class RemoveRaftVoterRequest(Request, key=81, versions="0", flexible="0+"):
    cluster_id: String | None
    voter_id: Int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(ignorable=True)
