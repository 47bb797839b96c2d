"""What the nodes of the metadata quorum say to each other, without the wire around it, and what a node is to do.

Everything a node does is data: `Raft` returns a list of these, and the order counts. What was saved must be durable
before what follows it is sent.
"""

from typing import NamedTuple, TypeAlias

from trioka.protocol.lazy_dataclass import frozen

from .voters import ReplicaKey, VoterSet


class LogEnd(NamedTuple):
    """The epoch of the last record, and the offset behind it. The larger one is the log that knows more."""

    epoch: int
    offset: int


@frozen
class Standing:
    """What a node must not forget, or it might vote twice: the file `quorum-state`."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None


# -- requests and their answers --------------------------------------------------------------------------------------


@frozen
class VoteAsked:
    candidate: ReplicaKey
    epoch: int
    end: LogEnd
    is_pre_vote: bool


@frozen
class VoteTold:
    voter: ReplicaKey
    epoch: int
    leader_id: int | None
    is_granted: bool
    asked_epoch: int  # in answer to what
    is_pre_vote: bool


@frozen
class EpochBegun:
    leader: ReplicaKey
    epoch: int


@frozen
class EpochEnded:
    """A leader resigns. Those whose logs know most come first, and wait least before they ask for votes."""

    leader_id: int
    epoch: int
    successors: tuple[ReplicaKey, ...]


@frozen
class FetchAsked:
    replica: ReplicaKey
    epoch: int
    end: LogEnd  # of the asker's log, all of it durable


@frozen
class FetchTold:
    """Either records from `end` on (the shell has them), or where the logs part, or a snapshot to begin with; or, with
    another epoch or leader than was asked for, where to go instead."""

    leader_id: int | None
    epoch: int
    high_watermark: int = 0
    diverging: LogEnd | None = None
    snapshot: LogEnd | None = None
    is_refused: bool = False


Question: TypeAlias = VoteAsked | EpochBegun | EpochEnded


# -- what a node is to do --------------------------------------------------------------------------------------------


@frozen
class Save:
    standing: Standing


@frozen
class Ask:
    to: ReplicaKey
    question: Question


@frozen
class Lead:
    """Append the first record of the epoch, who leads and who voted for it, and begin to decide."""

    epoch: int
    granted: tuple[ReplicaKey, ...]


@frozen
class Cease:
    """This node does not lead any more: whoever waits for a decision must ask elsewhere."""

    epoch: int


@frozen
class Truncate:
    """The log ends here: what it has behind this was never committed."""

    offset: int


@frozen
class LoadSnapshot:
    """The log begins behind what this node has: fetch this snapshot from the leader."""

    snapshot: LogEnd


@frozen
class Commit:
    """Everything before this offset is there for good."""

    high_watermark: int


@frozen
class AppendVoters:
    """A change of who votes: append it; it counts at once."""

    voters: VoterSet


Action: TypeAlias = Save | Ask | Lead | Cease | Truncate | LoadSnapshot | Commit | AppendVoters
