"""A quorum whose voters stand in the configuration is raised to one whose log names them; and who may vote in that."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import trio
from mutants.plant import planted
from support.broker_cluster import CHECK_INTERVAL_S, PATIENCE_S, Cluster, on_cluster, running_cluster
from support.serving import HOST, ask

from trioka.broker.broker import Broker
from trioka.broker.quorum import voters as voter_changes
from trioka.cluster.image.brokers import FeatureRange
from trioka.cluster.quorum.quorum_state import decode_quorum_state
from trioka.cluster.quorum.raft import Leader
from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol.errors import (
    NONE,
    DuplicateVoter,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
)
from trioka.protocol.internal_records.control import VotersRecord
from trioka.protocol.messages.add_raft_voter import AddRaftVoterRequest
from trioka.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from trioka.protocol.messages.update_features import UpdateFeaturesRequest
from trioka.protocol.schema import Request

UPGRADE, SAFE_DOWNGRADE = 1, 2
ELSEWHERE = (NotController.code, NotLeaderOrFollower.code)


async def query(broker: Broker, request: Request, version: int, *, again: tuple[int, ...], done: int = NONE) -> int:
    """As a person would: again, as long as the answer says that it may be otherwise later."""
    with trio.fail_after(PATIENCE_S):
        while (code := int((await ask(broker, request, version)).error_code)) in again:
            await trio.sleep(CHECK_INTERVAL_S)
    return NONE if code == done else code


async def set_kraft_version(broker: Broker, level: int, how: int = UPGRADE, *, again: tuple[int, ...] = ()) -> int:
    update = UpdateFeaturesRequest.FeatureUpdate(feature="kraft.version", max_version_level=level, upgrade_type=how)
    request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update], validate_only=False)
    return await query(broker, request, 1, again=(*ELSEWHERE, *again))


async def add_voter(cluster: Cluster, by: Broker, node: int, *, again: tuple[int, ...] = ()) -> int:
    endpoint = cluster[node].quorum.endpoints[0]
    place = AddRaftVoterRequest.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=30_000,
        voter_id=node,
        voter_directory_id=cluster[node].quorum.raft.me.directory,
        listeners=[place],
    )
    return await query(by, request, 1, again=(*ELSEWHERE, *again), done=DuplicateVoter.code if again else NONE)


async def remove_voter(by: Broker, node: int) -> int:
    (voter,) = [voter for voter in by.quorum.raft.voters.latest if voter.id == node]
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=voter.directory)
    return await query(by, request, 0, again=(*ELSEWHERE, RequestTimedOut.code), done=VoterNotFound.code)


def is_observed(leader: Broker, node: int) -> bool:
    role = leader.quorum.raft.role
    return isinstance(role, Leader) and any(
        key.id == node and progress.offset >= leader.quorum.log.log_end_offset
        for key, progress in role.progress.items()
    )


def are_named(cluster: Cluster) -> bool:
    """Everywhere the log names the voters, each with its own directory."""
    own = {node: broker.quorum.raft.me.directory for node, broker in cluster.brokers.items()}
    return all(
        broker.quorum.kraft_version == 1
        and all(own.get(voter.id, voter.directory) == voter.directory != bytes(16) for voter in voters)
        for broker in cluster.up
        for voters in (broker.quorum.raft.voters.latest,)
    )


@on_cluster
async def test_a_quorum_of_the_configuration_is_raised_and_then_its_voters_may_change(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        active = await cluster.wait_active()
        assert await add_voter(cluster, active, 2) == UnsupportedVersion.code
        # Refused by every node until each voter has sent its versions to this leader.
        assert await set_kraft_version(cluster[2], 1, again=(InvalidUpdateVersion.code,)) == NONE
        await cluster.until(partial(are_named, cluster))
        assert await set_kraft_version(cluster[2], 0, SAFE_DOWNGRADE) == InvalidUpdateVersion.code
        # Another node comes and votes, and a former voter goes.
        cluster._is_dynamic = True
        cluster.add_node(4)
        await cluster.start(4)
        active = await cluster.wait_active()
        assert await add_voter(cluster, active, 4, again=(RequestTimedOut.code,)) == NONE
        assert await remove_voter(active, 1) == NONE
        await cluster.until(
            lambda: all([voter.id for voter in broker.quorum.raft.voters.latest] == [2, 3, 4] for broker in cluster.up)
        )
        # What the log says counts after a restart, and not the configuration, which still names others.
        for node in list(cluster.brokers):
            await cluster.kill(node)
        cluster._is_dynamic = False
        await cluster.start_all(2, 3)
        cluster._is_dynamic = True
        await cluster.start(4)
        active = await cluster.wait_active()
        assert [voter.id for voter in active.quorum.raft.voters.latest] == [2, 3, 4]
        state, version = decode_quorum_state((tmp_path / "2" / "__cluster_metadata-0" / "quorum-state").read_text())
        assert (version, state.current_voters or []) == (1, [])


@on_cluster
async def test_a_node_that_was_a_quorum_by_itself_has_peers_when_it_is_raised(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, nodes=1) as cluster:
        alone = await cluster.wait_active()
        assert await set_kraft_version(alone, 1) == NONE
        cluster._is_dynamic = True
        cluster.add_node(2)
        await cluster.start(2)
        assert await add_voter(cluster, alone, 2, again=(RequestTimedOut.code,)) == NONE
        await cluster.until(lambda: all(len(broker.quorum.raft.voters.latest) == 2 for broker in cluster.up))


def voter_range(first: int, last: int) -> VotersRecord.Voter.KRaftVersionFeature:
    return VotersRecord.Voter.KRaftVersionFeature(min_supported_version=first, max_supported_version=last)


def a_voter_must_listen_where_it_says_and_understand_what_is_spoken(module: ModuleType, folder: Path) -> None:
    async def test() -> None:
        async with running_cluster(folder, dynamic=True, nodes=1) as cluster:
            active = await cluster.wait_active()
            cluster.add_node(2)
            cluster.add_node(3)  # it is never started
            joining = await cluster.start(2)
            await cluster.until(partial(is_observed, active, 2))

            async def join(port: int) -> type[KafkaError] | None:
                place = VotersRecord.Voter.Endpoint(name="CONTROLLER", host=HOST, port=port)
                try:
                    await module.add_voter(active, joining.quorum.raft.me, [place], timeout_s=30, waits=True)
                except KafkaError as error:
                    return type(error)
                return None

            async def join_patiently() -> type[KafkaError] | None:
                with trio.fail_after(PATIENCE_S):
                    while (error := await join(cluster.ports[2][1].port)) is RequestTimedOut:
                        await trio.sleep(CHECK_INTERVAL_S)
                return error

            assert await join(cluster.ports[3][1].port) is RequestTimedOut
            known = joining.supported_features["kraft.version"]
            joining.supported_features["kraft.version"] = FeatureRange(name="kraft.version", first=0, last=0)
            assert await join_patiently() is InvalidRequest
            joining.supported_features["kraft.version"] = known
            active.quorum.is_voter_joining = True
            assert await join(cluster.ports[2][1].port) is RequestTimedOut, "one at a time"
            active.quorum.is_voter_joining = False
            assert len(active.quorum.raft.voters.latest) == 1
            assert await join_patiently() is None
            assert len(active.quorum.raft.voters.latest) == 2

    on_cluster(test)()


def what_a_voter_tells_of_itself_is_remembered_until_another_leads(module: ModuleType, folder: Path) -> None:
    async def test() -> None:
        async with running_cluster(folder, nodes=1) as cluster:
            quorum = (await cluster.wait_active()).quorum
            places = [VotersRecord.Voter.Endpoint(name="CONTROLLER", host=HOST, port=9)]
            with pytest.raises(VoterNotFound):
                await module.update_voter(quorum, ReplicaKey(2, b"2" * 16), places, voter_range(0, 1))
            with pytest.raises(InvalidRequest):  # it does not understand what is spoken now
                await module.update_voter(quorum, ReplicaKey(1, b"1" * 16), places, voter_range(1, 1))
            end = quorum.log.log_end_offset
            await module.update_voter(quorum, ReplicaKey(1, b"1" * 16), places, voter_range(0, 1))
            assert (quorum.voter_ranges[1].first, quorum.voter_ranges[1].last) == (0, 1)
            assert (quorum.kraft_version, quorum.log.log_end_offset) == (0, end), "nothing is written"

    on_cluster(test)()


RULES: list[Callable[[ModuleType, Path], None]] = [
    a_voter_must_listen_where_it_says_and_understand_what_is_spoken,
    what_a_voter_tells_of_itself_is_remembered_until_another_leads,
]
MISTAKES = [
    (0, "if not _is_understood(quorum, understood):", "if False:"),
    (0, "understood = await _fetch_kraft_version_range(broker, place, timeout_s)", "understood = OURS"),
    (0, "    if quorum.is_voter_joining:", "    if False:"),
    (1, "if ReplicaKey(voter.id) not in quorum.raft.voters.latest:", "if False:"),
    (1, "if not _is_understood(quorum, feature):", "if False:"),
    (1, "quorum.introduced[voter.id] = updated", "pass"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_is_kept(rule: Callable[[ModuleType, Path], None], tmp_path: Path) -> None:
    rule(voter_changes, tmp_path)


@pytest.mark.parametrize(("rule", "right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(rule: int, right: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises((Exception, BaseExceptionGroup)):
        RULES[rule](planted(voter_changes, right, wrong), tmp_path)
