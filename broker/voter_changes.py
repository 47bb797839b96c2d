"""Who votes in the metadata quorum, changed while it works (KIP-853): one at a time, in the log, counting from there.

Raft says whether it may be (K7); here it is written down with what Raft does not look at: where a voter listens, and
what it understands. Only where the log says who votes, from kraft.version 1 on.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.features import KRAFT_VERSION, SUPPORTED
from trioka.cluster.voters import ReplicaKey
from trioka.protocol.errors import (
    InvalidRequest,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
)
from trioka.protocol.ledgers.control import VotersRecord

if TYPE_CHECKING:
    from .quorum import Quorum

Voter = VotersRecord.Voter
MAX_TIMEOUT_S: Final = 60.0
MAX_ENDPOINTS: Final = 100
KRAFT: Final = SUPPORTED[KRAFT_VERSION]


async def add_voter(
    quorum: "Quorum", voter: ReplicaKey, endpoints: Sequence[Voter.Endpoint], *, timeout_s: float, waits: bool
) -> None:
    record = _record(quorum)
    _check_endpoints(quorum, endpoints)
    quorum.raft.add_voter(voter, quorum.now_ms())
    added = Voter(
        voter_id=voter.id,
        voter_directory_id=voter.directory,
        endpoints=list(endpoints),
        kraft_version_feature=Voter.KRaftVersionFeature(
            min_supported_version=KRAFT.first, max_supported_version=KRAFT.last
        ),
    )
    await _append(quorum, [*record.voters, added], timeout_s if waits else 0)


async def remove_voter(quorum: "Quorum", voter: ReplicaKey, *, timeout_s: float) -> None:
    record = _record(quorum)
    quorum.raft.remove_voter(voter)
    left = [each for each in record.voters if (each.voter_id, each.voter_directory_id) != voter]
    await _append(quorum, left, timeout_s)


async def update_voter(
    quorum: "Quorum", voter: ReplicaKey, endpoints: Sequence[Voter.Endpoint], feature: Voter.KRaftVersionFeature
) -> None:
    """It listens elsewhere, or knows more. What is as it was is not written again."""
    record = _record(quorum)
    _check_endpoints(quorum, endpoints)
    if not feature.min_supported_version <= quorum.kraft_version <= feature.max_supported_version:
        raise InvalidRequest(f"this quorum speaks kraft.version {quorum.kraft_version}")
    updated = Voter(
        voter_id=voter.id,
        voter_directory_id=voter.directory,
        endpoints=list(endpoints),
        kraft_version_feature=feature,
    )
    known = [each for each in record.voters if (each.voter_id, each.voter_directory_id) == voter]
    if not known:
        raise VoterNotFound(f"node {voter.id} with that directory does not vote")
    if known[0] == updated:
        return
    quorum.raft.may_change_voters()
    await _append(quorum, [updated if each is known[0] else each for each in record.voters], 0)


def _record(quorum: "Quorum") -> VotersRecord:
    if not quorum.raft.is_leader:
        raise NotLeaderOrFollower()
    record = quorum.voters
    if record is None or not quorum.kraft_version:
        raise UnsupportedVersion("the configuration says who votes, and kraft.version is 0")
    return record


def _check_endpoints(quorum: "Quorum", endpoints: Sequence[Voter.Endpoint]) -> None:
    wanted = quorum.node.controller_names[0]
    if not any(endpoint.name == wanted for endpoint in endpoints) or len(endpoints) > MAX_ENDPOINTS:
        raise InvalidRequest(f"a voter must have a listener {wanted}")


async def _append(quorum: "Quorum", voters: Iterable[Voter], timeout_s: float) -> None:
    record = VotersRecord(version=0, voters=sorted(voters, key=lambda each: each.voter_id))
    end = quorum.append_control([record])
    if timeout_s <= 0:
        return
    with trio.move_on_after(min(timeout_s, MAX_TIMEOUT_S)):
        await quorum.wait_committed(end)
        return
    raise RequestTimedOut("the change is written, and not committed yet")
