"""Who votes in the metadata quorum, changed while it works (KIP-853): one at a time, in the log, counting from there.

Raft says whether it may be (K7); here it is written down with what Raft does not look at: where a voter listens, and
what it understands. Only where the log says who votes, from kraft.version 1 on.

A quorum whose voters stand in the configuration is raised to that: each voter tells every new leader about itself; that
one keeps it in memory, and when kraft.version is raised it is written into the log, for all voters at once. They are
the same nodes as before, now with their directories.

A node that is to vote is asked first, at the place where it says that it listens, what it understands. Meanwhile nobody
else can join.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from trioka import __version__
from trioka.cluster.features import KRAFT_VERSION, SUPPORTED
from trioka.cluster.voters import ReplicaKey, VoterSet
from trioka.protocol.errors import (
    NONE,
    InvalidRequest,
    NetworkException,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
    error_class,
)
from trioka.protocol.internal_records.control import KRaftVersionRecord, VotersRecord
from trioka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

from ..config.node_keys import CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS
from .startup import keep_company

if TYPE_CHECKING:
    from ..broker import Broker
    from .driver import Quorum

Voter = VotersRecord.Voter
Range = Voter.KRaftVersionFeature
MAX_TIMEOUT_S: Final = 60.0
MAX_ENDPOINTS: Final = 100
KRAFT: Final = SUPPORTED[KRAFT_VERSION]
OURS: Final = Range(min_supported_version=KRAFT.first, max_supported_version=KRAFT.last)


async def add_voter(
    broker: "Broker", voter: ReplicaKey, endpoints: Sequence[Voter.Endpoint], *, timeout_s: float, waits: bool
) -> None:
    quorum = broker.quorum
    _record(quorum)
    place = _check_endpoints(quorum, endpoints)
    quorum.raft.may_add_voter(voter)
    if quorum.is_voter_joining:
        raise RequestTimedOut("another node is about to join")
    quorum.is_voter_joining = True
    try:
        understood = await _ask_range(broker, place, timeout_s)
    finally:
        quorum.is_voter_joining = False
    record = _record(quorum)  # much may have happened meanwhile
    if not _is_understood(quorum, understood):
        raise InvalidRequest(f"node {voter.id} does not understand kraft.version {quorum.kraft_version}")
    quorum.raft.add_voter(voter, quorum.now_ms())
    added = Voter(
        voter_id=voter.id,
        voter_directory_id=voter.directory,
        endpoints=list(endpoints),
        kraft_version_feature=understood,
    )
    await _append(quorum, [*record.voters, added], timeout_s if waits else 0)


async def remove_voter(quorum: "Quorum", voter: ReplicaKey, *, timeout_s: float) -> None:
    record = _record(quorum)
    quorum.raft.remove_voter(voter)
    left = [each for each in record.voters if (each.voter_id, each.voter_directory_id) != voter]
    await _append(quorum, left, timeout_s)


async def update_voter(
    quorum: "Quorum", voter: ReplicaKey, endpoints: Sequence[Voter.Endpoint], feature: Range
) -> None:
    """It listens elsewhere, or knows more. What is as it was is not written again; where the configuration says who
    votes, nothing is written, but it is remembered until another leads."""
    record = _lead(quorum)
    _check_endpoints(quorum, endpoints)
    if not _is_understood(quorum, feature):
        raise InvalidRequest(f"this quorum speaks kraft.version {quorum.kraft_version}")
    updated = Voter(
        voter_id=voter.id,
        voter_directory_id=voter.directory,
        endpoints=list(endpoints),
        kraft_version_feature=feature,
    )
    if record is None:
        if ReplicaKey(voter.id) not in quorum.raft.voters.latest:
            raise VoterNotFound(f"node {voter.id} does not vote")
        quorum.raft.may_change_voters()
        quorum.introduced[voter.id] = updated
        return
    known = [each for each in record.voters if (each.voter_id, each.voter_directory_id) == voter]
    if not known:
        raise VoterNotFound(f"node {voter.id} with that directory does not vote")
    if known[0] == updated:
        return
    quorum.raft.may_change_voters()
    await _append(quorum, [updated if each is known[0] else each for each in record.voters], 0)


def name_voters(broker: "Broker") -> None:
    """From here on the log says who votes (kraft.version 1). That all of them understand it was found out before. A
    quorum of one may have company now."""
    quorum = broker.quorum
    own = Voter(
        voter_id=quorum.node_id,
        voter_directory_id=quorum.raft.me.directory,
        endpoints=[Voter.Endpoint(name=each.name, host=each.host, port=each.port) for each in quorum.endpoints],
        kraft_version_feature=OURS,
    )
    named = sorted({**quorum.introduced, own.voter_id: own}.values(), key=lambda each: each.voter_id)
    quorum.raft.name_voters(VoterSet.of(ReplicaKey(each.voter_id, each.voter_directory_id) for each in named))
    quorum.append_control(
        [KRaftVersionRecord(version=0, kraft_version=KRAFT.last), VotersRecord(version=0, voters=named)]
    )
    quorum.introduced.clear()
    broker.nursery.start_soon(keep_company, broker)


def _lead(quorum: "Quorum") -> VotersRecord | None:
    """Who votes, as the log of this leader says; None where the configuration does."""
    if not quorum.raft.is_leader:
        raise NotLeaderOrFollower()
    return quorum.voters if quorum.kraft_version else None


def _record(quorum: "Quorum") -> VotersRecord:
    record = _lead(quorum)
    if record is None:
        raise UnsupportedVersion("the configuration says who votes, and kraft.version is 0")
    return record


def _is_understood(quorum: "Quorum", feature: Range) -> bool:
    return feature.min_supported_version <= quorum.kraft_version <= feature.max_supported_version


def _check_endpoints(quorum: "Quorum", endpoints: Sequence[Voter.Endpoint]) -> Voter.Endpoint:
    """Where a voter is asked."""
    wanted = quorum.node.controller_names[0]
    found = [endpoint for endpoint in endpoints if endpoint.name == wanted]
    if not found or len(endpoints) > MAX_ENDPOINTS:
        raise InvalidRequest(f"a voter must have a listener {wanted}")
    return found[0]


async def _ask_range(broker: "Broker", place: Voter.Endpoint, timeout_s: float) -> Range:
    """What a node understands of kraft.version. RequestTimedOut if it does not answer, or not with that."""
    timeout_s = min(timeout_s, broker.config[CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS] / 1000)
    address = (place.host, place.port, "its versions")
    request = ApiVersionsRequest(client_software_name="trioka", client_software_version=__version__)
    try:
        told: ApiVersionsResponse = await broker.peers.peer(*address).ask(request, timeout_s=max(timeout_s, 0))
    except NetworkException as error:
        raise RequestTimedOut(f"the new voter does not answer: {error}") from None
    finally:
        with trio.CancelScope(shield=True):
            await broker.peers.forget(*address)
    if told.error_code != NONE:
        raise RequestTimedOut(f"the new voter does not say what it understands: {error_class(told.error_code).name}")
    for feature in told.supported_features:
        if feature.name == KRAFT_VERSION:
            return Range(min_supported_version=feature.min_version, max_supported_version=feature.max_version)
    return Range(min_supported_version=0, max_supported_version=0)  # a node that has never heard of it


async def _append(quorum: "Quorum", voters: Iterable[Voter], timeout_s: float) -> None:
    record = VotersRecord(version=0, voters=sorted(voters, key=lambda each: each.voter_id))
    end = quorum.append_control([record])
    if timeout_s <= 0:
        return
    with trio.move_on_after(min(timeout_s, MAX_TIMEOUT_S)):
        await quorum.wait_committed(end)
        return
    raise RequestTimedOut("the change is written, and not committed yet")
