"""The messages between nodes of the metadata quorum, without their wire format, and the actions of a node.

Every action of a node is data: `Raft` returns a list of actions, and their order counts. What was saved must be durable
before the messages after it are sent.
"""

from typing import NamedTuple, TypeAlias

from trioka.protocol.lazy_dataclass import frozen

from .voters import ReplicaKey, VoterSet


class EpochAndOffset(NamedTuple):
    """The epoch of the last record, and the offset behind it. The log with the larger pair is more complete."""

    epoch: int
    offset: int


@frozen
class PersistentState:
    """The state that a node must not lose, or it might vote twice: the file `quorum-state`."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None


# -- requests and their answers --------------------------------------------------------------------------------------


@frozen
class RaftVoteRequest:
    candidate: ReplicaKey
    epoch: int
    end: EpochAndOffset
    is_pre_vote: bool


@frozen
class RaftVoteResponse:
    voter: ReplicaKey
    epoch: int
    leader_id: int | None
    is_granted: bool
    request_epoch: int  # the epoch of the request that this answers
    is_pre_vote: bool


@frozen
class BeginEpoch:
    leader: ReplicaKey
    epoch: int


@frozen
class EndEpoch:
    """A leader resigns. The voters with the most complete logs come first, and wait least before they request votes."""

    leader_id: int
    epoch: int
    successors: tuple[ReplicaKey, ...]


@frozen
class RaftFetchRequest:
    replica: ReplicaKey
    epoch: int
    end: EpochAndOffset  # of the asker's log, all of it durable


@frozen
class RaftFetchResponse:
    """Either records from `end` on (the shell has them), or the point of divergence, or a snapshot to load; or, if
    epoch or leader differ from those of the request, the current ones."""

    leader_id: int | None
    epoch: int
    high_watermark: int = 0
    diverging: EpochAndOffset | None = None
    snapshot: EpochAndOffset | None = None
    is_refused: bool = False


RaftRequest: TypeAlias = RaftVoteRequest | BeginEpoch | EndEpoch


# -- actions of a node -------------------------------------------------------------------------------------------------


@frozen
class Persist:
    persisted: PersistentState


@frozen
class SendRequest:
    to: ReplicaKey
    question: RaftRequest


@frozen
class BecomeLeader:
    """Append the LeaderChange record, the first of the epoch, and start to decide."""

    epoch: int
    granted: tuple[ReplicaKey, ...]


@frozen
class StepDown:
    """This node is no longer the leader: pending decisions fail with NOT_CONTROLLER."""

    epoch: int


@frozen
class Truncate:
    """Truncates the log here: the records behind were never committed."""

    offset: int


@frozen
class LoadSnapshot:
    """The leader's log starts behind the end of this node's: fetch this snapshot from the leader."""

    snapshot: EpochAndOffset


@frozen
class Commit:
    """Everything before this offset is there for good."""

    high_watermark: int


@frozen
class AppendVoters:
    """Append a change of the voters; it is effective at once."""

    voters: VoterSet


Action: TypeAlias = Persist | SendRequest | BecomeLeader | StepDown | Truncate | LoadSnapshot | Commit | AppendVoters
