"""What cannot be is refused when a node starts, with one sentence, and what is in its directories stays as it is."""

from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
import trio
from mutants.plant import planted
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.serving import new_broker, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.broker.clock import SystemClock
from trioka.broker.config.server import load
from trioka.broker.membership import identity as the_real_identity
from trioka.broker.membership.lifecycle import JoinRefused
from trioka.broker.quorum import remote as the_real_following
from trioka.broker.quorum.store import VotersDisagree
from trioka.cli.client.connection import ReservedPort
from trioka.storage.directory import ForeignDirectory
from trioka.storage.files.disk import OsDisk


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def is_untouched(folder: Path, before: dict[str, bytes]) -> bool:
    """All that was there is there, as it was. A node that has looked for its cluster may have begun more."""
    after = files(folder)
    return all(after.get(name) == data for name, data in before.items())


async def why_not(broker: Broker) -> BaseException:
    """It is started, and says why it cannot be."""
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            nursery.cancel_scope.cancel()
    except BaseException as error:
        failure = error
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    assert failure is not None, "it has started"
    return failure


def node_of(cluster: Cluster, node: int, **changed: str) -> Broker:
    settings = {key.replace("_", "."): value for key, value in changed.items()}
    loaded = load({**cluster._properties(node), **settings})
    return Broker(loaded.config, loaded.node, disk=OsDisk(), clock=SystemClock(), random=Random())


# -- the directories ---------------------------------------------------------------------------------------------------


@on_trio
async def test_a_directory_of_another_node_or_of_two_clusters_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        async with running_broker(tmp_path / name):
            pass
    before = files(tmp_path)
    other: Any = {"node_id": 2, "controller_quorum_voters": "2@127.0.0.1:9093"}
    error = await why_not(new_broker(tmp_path / "a", **other))
    assert isinstance(error, ForeignDirectory) and "belongs to node 1, and this is node 2" in str(error)
    error = await why_not(new_broker("unused", log_dirs=f"{tmp_path}/a,{tmp_path}/b"))
    assert isinstance(error, ForeignDirectory) and "belong to different clusters" in str(error)
    assert is_untouched(tmp_path, before)


@on_trio
async def test_a_start_that_fails_does_not_make_the_last_stop_an_unclean_one(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        epoch = broker.broker_epoch
    before = files(tmp_path)
    error = await why_not(new_broker(tmp_path, controller_quorum_voters="1@127.0.0.1:9093,2@127.0.0.1:1"))
    assert isinstance(error, VotersDisagree) and "names [1, 2]" in str(error)
    assert is_untouched(tmp_path, before)
    async with running_broker(tmp_path) as broker:
        assert broker.identity.previous_broker_epoch == epoch


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("if meta.node_id != node_id:", "if False:"), ("if len(clusters) > 1:", "if False:")],
)
def test_an_identity_that_takes_any_directory_is_noticed(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistaken = planted(the_real_identity, right, wrong)
    monkeypatch.setattr(
        "trioka.broker.membership.log_directories.check_directory_owner", mistaken.check_directory_owner
    )
    with pytest.raises((Exception, BaseExceptionGroup)):
        test_a_directory_of_another_node_or_of_two_clusters_is_refused(tmp_path)


# -- the cluster -------------------------------------------------------------------------------------------------------


def a_node_of_another_cluster_gives_up(following: ModuleType, folder: Path) -> None:
    async def test() -> None:
        roles = {1: "broker,controller", 2: "broker,controller", 3: "broker,controller"}
        async with running_cluster(folder, roles=roles) as cluster:
            await cluster.wait_active()
            cluster.cluster_id = "of-somebody-else-00000"
            cluster.add_node(4, "broker")
            before = files(folder / "4")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(the_real_following, "QuorumClient", following.QuorumClient)
                with trio.fail_after(60 if following is the_real_following else 2):
                    error = await why_not(node_of(cluster, 4))
            assert isinstance(error, ForeignDirectory) and "belong to cluster of-somebody-else-00000" in str(error)
            assert is_untouched(folder / "4", before)
            assert all(broker.alive <= {1, 2, 3} for broker in cluster.up)

    on_cluster(test)()


def test_a_node_of_another_cluster_gives_up(tmp_path: Path) -> None:
    a_node_of_another_cluster_gives_up(the_real_following, tmp_path)


def test_a_node_that_waits_for_another_cluster_for_ever_is_noticed(tmp_path: Path) -> None:
    wrong = planted(the_real_following, "        self._foreign.add(address)\n", "")
    with pytest.raises((Exception, BaseExceptionGroup)):
        a_node_of_another_cluster_gives_up(wrong, tmp_path)


@on_cluster
async def test_a_second_node_with_the_same_number_is_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, roles={1: "controller", 2: "broker"}) as cluster:
        await cluster.until(lambda: cluster[1].metadata.brokers.is_active(2))
        # The same number, with a directory and a port of its own.
        first, cluster.ports[2] = cluster.ports[2], (ReservedPort("127.0.0.1"), ReservedPort("127.0.0.1"))
        cluster.directory = tmp_path / "second"
        cluster.format(2)
        before = files(tmp_path / "second")
        error = await why_not(node_of(cluster, 2, initial_broker_registration_timeout_ms="300"))
        assert isinstance(error, JoinRefused) and "another broker 2 is alive in this cluster" in str(error)
        assert is_untouched(tmp_path / "second", before)
        for reserved in cluster.ports[2]:
            reserved.close()
        cluster.directory, cluster.ports[2] = tmp_path, first
