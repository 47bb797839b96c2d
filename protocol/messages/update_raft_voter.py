"""UpdateRaftVoter (82): a voter of the metadata quorum has new endpoints or supported versions."""

from ..primitives import Int16, Int32, String, Uint16, Uuid
from ..schema import EMPTY, Request, Response, Struct, field


class UpdateRaftVoterRequest(Request, key=82, versions="0", flexible="0+"):
    class Listener(Struct):
        name: String
        host: String
        port: Uint16

    class KRaftVersionFeature(Struct):
        min_supported_version: Int16
        max_supported_version: Int16

    cluster_id: String | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    kraft_version_feature: KRaftVersionFeature


class UpdateRaftVoterResponse(Response, key=82, versions="0", flexible="0+"):
    class CurrentLeader(Struct):
        leader_id: Int32 = field(default=-1)
        leader_epoch: Int32 = field(default=-1)
        host: String
        port: Int32

    throttle_time_ms: Int32
    error_code: Int16
    current_leader: CurrentLeader = field(default=EMPTY, tag=0, tagged="0+")
