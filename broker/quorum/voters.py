"""Changes of the voters while the quorum runs (KIP-853): one at a time, in the log, effective when appended.

Raft decides whether a change is safe (K7); this module handles what Raft does not: the endpoints of a voter and its
supported versions. Requires voters in the log, that is kraft.version 1.

A quorum with configured voters is upgraded as follows: each voter reports itself to every new leader, which keeps that
in memory; when kraft.version is raised, all voters are written to the log at once, now with directories.

Before a node becomes a voter, its supported versions are requested at its endpoint. Meanwhile no other node can join.
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
from .startup import start_multi_node

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
        understood = await _fetch_kraft_version_range(broker, place, timeout_s)
    finally:
        quorum.is_voter_joining = False
    record = _record(quorum)  # the voters may have changed meanwhile
    if not _is_understood(quorum, understood):
        raise InvalidRequest(f"node {voter.id} does not support kraft.version {quorum.kraft_version}")
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
    """Updates a voter's endpoints or supported versions. An unchanged voter is not written again; with configured
    voters nothing is written, but the leader keeps it in memory."""
    record = _lead(quorum)
    _check_endpoints(quorum, endpoints)
    if not _is_understood(quorum, feature):
        raise InvalidRequest(f"this quorum is at kraft.version {quorum.kraft_version}")
    updated = Voter(
        voter_id=voter.id,
        voter_directory_id=voter.directory,
        endpoints=list(endpoints),
        kraft_version_feature=feature,
    )
    if record is None:
        if ReplicaKey(voter.id) not in quorum.raft.voters.latest:
            raise VoterNotFound(f"node {voter.id} is not a voter")
        quorum.raft.may_change_voters()
        quorum.introduced[voter.id] = updated
        return
    known = [each for each in record.voters if (each.voter_id, each.voter_directory_id) == voter]
    if not known:
        raise VoterNotFound(f"node {voter.id} with that directory is not a voter")
    if known[0] == updated:
        return
    quorum.raft.may_change_voters()
    await _append(quorum, [updated if each is known[0] else each for each in record.voters], 0)


def name_voters(broker: "Broker") -> None:
    """Writes the voters to the log (kraft.version 1), after a check that all of them support it. A single-node quorum
    may get further voters from now on."""
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
    broker.nursery.start_soon(start_multi_node, broker)


def _lead(quorum: "Quorum") -> VotersRecord | None:
    """The voters in the log of this leader; None if they are in the configuration."""
    if not quorum.raft.is_leader:
        raise NotLeaderOrFollower()
    return quorum.voters if quorum.kraft_version else None


def _record(quorum: "Quorum") -> VotersRecord:
    record = _lead(quorum)
    if record is None:
        raise UnsupportedVersion("the voters are set in the configuration, because kraft.version is 0")
    return record


def _is_understood(quorum: "Quorum", feature: Range) -> bool:
    return feature.min_supported_version <= quorum.kraft_version <= feature.max_supported_version


def _check_endpoints(quorum: "Quorum", endpoints: Sequence[Voter.Endpoint]) -> Voter.Endpoint:
    """The endpoint of a voter's controller listener."""
    listener_name = quorum.node.controller_names[0]
    found = [endpoint for endpoint in endpoints if endpoint.name == listener_name]
    if not found or len(endpoints) > MAX_ENDPOINTS:
        raise InvalidRequest(f"a voter must have a listener {listener_name}")
    return found[0]


async def _fetch_kraft_version_range(broker: "Broker", place: Voter.Endpoint, timeout_s: float) -> Range:
    """The kraft.version range of a node. RequestTimedOut if it does not respond, or without that range."""
    timeout_s = min(timeout_s, broker.config[CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS] / 1000)
    address = (place.host, place.port, "its versions")
    request = ApiVersionsRequest(client_software_name="trioka", client_software_version=__version__)
    try:
        peer = broker.peers.peer(*address, is_controller=True)
        response: ApiVersionsResponse = await peer.send_request(request, timeout_s=max(timeout_s, 0))
    except NetworkException as error:
        raise RequestTimedOut(f"the new voter did not respond: {error}") from None
    finally:
        with trio.CancelScope(shield=True):
            await broker.peers.forget(*address)
    if response.error_code != NONE:
        raise RequestTimedOut(
            f"the new voter did not report its supported versions: {error_class(response.error_code).name}"
        )
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            return Range(min_supported_version=feature.min_version, max_supported_version=feature.max_version)
    return Range(min_supported_version=0, max_supported_version=0)  # a node without this feature


async def _append(quorum: "Quorum", voters: Iterable[Voter], timeout_s: float) -> None:
    record = VotersRecord(version=0, voters=sorted(voters, key=lambda each: each.voter_id))
    end = quorum.append_control([record])
    if timeout_s <= 0:
        return
    with trio.move_on_after(min(timeout_s, MAX_TIMEOUT_S)):
        await quorum.wait_committed(end)
        return
    raise RequestTimedOut("the change is appended but not committed yet")
