"""The JSON content of the file `quorum-state`: the epoch, and the candidate that this node voted for."""

from ..primitives import NULL_UUID, Int32, Int64, String, Uuid
from ..schema import Message, Struct, field


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    class CurrentVoter(Struct):
        voter_id: Int32 = field("0")

    cluster_id: String = field("0", default="")
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    voted_id: Int32 = field(default=-1)
    voted_directory_id: Uuid = field("1+", default=NULL_UUID)
    applied_offset: Int64 = field("0", default=0)
    current_voters: list[CurrentVoter] | None = field("0", default=[])
