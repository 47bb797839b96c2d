"""AddRaftVoter (80): a new voter for the metadata quorum.

v1 a flag: whether to wait until the change is committed
"""

from ..primitives import Boolean, Int16, Int32, String, Uint16, Uuid
from ..schema import Request, Response, Struct, field


class AddRaftVoterRequest(Request, key=80, versions="0-1", flexible="0+"):
    class Listener(Struct):
        name: String
        host: String
        port: Uint16

    cluster_id: String | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: Boolean = field("1+", default=True)


class AddRaftVoterResponse(Response, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(ignorable=True)
