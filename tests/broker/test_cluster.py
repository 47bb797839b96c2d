"""Several nodes, one quorum: who leads, what is agreed, and what becomes of it when nodes go."""

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from support.broker_cluster import CHECK_INTERVAL_S, PATIENCE_S, Cluster, on_cluster, running_cluster
from support.serving import HOST, ask
from support.small_cluster import quota

from trioka.broker.broker import Broker
from trioka.cli.client.connection import ReservedPort
from trioka.cluster.configs import topic_resource
from trioka.cluster.raft import Leader
from trioka.protocol.errors import (
    DuplicateVoter,
    InconsistentClusterId,
    InvalidRequest,
    InvalidVoterKey,
    KafkaError,
    NotController,
    NotLeaderOrFollower,
    PrincipalDeserializationFailure,
    RequestTimedOut,
    TopicAlreadyExists,
    VoterNotFound,
)
from trioka.protocol.messages.add_raft_voter import AddRaftVoterRequest
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.describe_cluster import DescribeClusterRequest
from trioka.protocol.messages.envelope import EnvelopeRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from trioka.protocol.messages.vote import VoteRequest

# Another leads, or none does, or the change before is not committed yet.
TRY_AGAIN = {NotController.code, RequestTimedOut.code, NotLeaderOrFollower.code}


def create(name: str, *, partitions: int = 1, replicas: int = -1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.Topic(
        name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False)


async def create_once(broker: Broker, name: str, replicas: int = -1) -> int:
    response = await ask(broker, create(name, replicas=replicas), 7)
    return int(response.topics[0].error_code)


async def create_by(broker: Broker, name: str, replicas: int = -1) -> int:
    """As a client does it: on a slow machine another node may lead meanwhile, and it is tried again. What the first try
    has done is there already for the second."""
    return await patiently(partial(create_once, broker, name, replicas), done=TopicAlreadyExists)


async def patiently(attempt: Callable[[], Awaitable[int]], done: type[KafkaError]) -> int:
    with trio.fail_after(PATIENCE_S):
        while (code := await attempt()) in TRY_AGAIN:
            await trio.sleep(CHECK_INTERVAL_S)
    return 0 if code == done.code else code


def knows(broker: Broker, *names: str) -> bool:
    return all(broker.metadata.topics.by_name(name) is not None for name in names)


def others(cluster: Cluster, node: Broker) -> list[Broker]:
    return [broker for broker in cluster.up if broker is not node]


async def all_in(cluster: Cluster) -> None:
    """Every node that runs is let in, and every other knows that."""
    await cluster.until(lambda: all(broker.alive == set(cluster.brokers) for broker in cluster.up))


@on_cluster
async def test_three_nodes_agree_on_the_leader(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        active = await cluster.wait_active()
        await cluster.until(lambda: all(broker.quorum.leader_id == active.node_id for broker in cluster.up))
        await all_in(cluster)


@on_cluster
async def test_a_topic_that_any_node_is_asked_to_create_is_known_to_all(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        active = await cluster.wait_active()
        await all_in(cluster)
        assert await create_by(active, "a", replicas=3) == 0
        assert await create_by(others(cluster, active)[0], "b", replicas=3) == 0
        await cluster.until(lambda: all(knows(broker, "a", "b") for broker in cluster.up))


@on_cluster
async def test_when_the_active_controller_dies_another_goes_on_with_all_that_was_answered(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        first = await cluster.wait_active()
        assert await create_by(first, "before") == 0
        await cluster.kill(first.node_id)
        second = await cluster.wait_active()
        assert second.quorum.epoch > first.quorum.epoch
        assert knows(second, "before")
        assert await create_by(others(cluster, second)[0], "after") == 0
        await cluster.start(first.node_id)
        await cluster.until(lambda: all(knows(broker, "before", "after") for broker in cluster.up))
        await all_in(cluster)


@on_cluster
async def test_a_controller_without_a_majority_decides_nothing_and_learns_better_later(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cut_off = await cluster.wait_active()
        await all_in(cluster)
        cluster.isolate(cut_off.node_id)
        with pytest.raises(NotController):  # it appends the record, which is never committed
            await cut_off.quorum.change(lambda controller: controller.create_topics(create("lost").topics))
        assert not cut_off.quorum.is_active
        assert not knows(cut_off, "lost")
        second = await cluster.wait_active()
        await cluster.until(lambda: second.alive == set(cluster.brokers) - {cut_off.node_id})
        assert await create_by(second, "kept") == 0
        cluster.heal()
        await cluster.until(lambda: knows(cut_off, "kept"))
        await all_in(cluster)
        assert not any(knows(broker, "lost") for broker in cluster.up)


@on_cluster
async def test_all_nodes_may_be_killed_at_once_and_nothing_answered_is_lost(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        active = await cluster.wait_active()
        assert await create_by(active, "kept") == 0
        epoch = active.quorum.epoch
        for node in list(cluster.brokers):
            await cluster.kill(node)
        await cluster.start_all(*cluster.roles)
        again = await cluster.wait_active()
        assert again.quorum.epoch > epoch
        await cluster.until(lambda: all(knows(broker, "kept") for broker in cluster.up))


@on_cluster
async def test_a_leader_that_stops_says_so_and_another_leads_at_once(tmp_path: Path) -> None:
    long_ms = 20_000  # waiting would not show it
    async with running_cluster(tmp_path) as cluster:
        first = await cluster.wait_active()
        for broker in others(cluster, first):
            broker.quorum.raft._settings = type(broker.quorum.raft_settings)(
                election_timeout_ms=300, fetch_timeout_ms=long_ms, backoff_ms=200
            )
        epoch = first.quorum.epoch  # it may hear of the next one before it has stopped
        await cluster.stop(first.node_id)
        second = await cluster.wait_active()
        assert second.quorum.epoch > epoch


@on_cluster
async def test_a_node_that_was_away_for_long_begins_with_a_snapshot(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, metadata_log_max_record_bytes_between_snapshots=2_000) as cluster:
        active = await cluster.wait_active()
        late = others(cluster, active)[0].node_id
        await all_in(cluster)
        assert await create_by(active, "first") == 0
        await cluster.until(lambda: knows(cluster[late], "first"))
        end = cluster[late].quorum.log.log_end_offset
        await cluster.kill(late)
        names = [f"t{number}" for number in range(40)]
        for name in names:
            assert await create_by(active, name) == 0
        await cluster.until(lambda: active.quorum.log.log_start_offset > end)
        await cluster.start(late)
        await cluster.until(lambda: knows(cluster[late], "first", *names))
        assert cluster[late].quorum.log.log_start_offset > end
        await all_in(cluster)
        await cluster.until(lambda: cluster[late].metadata == active.metadata)


@on_cluster
async def test_roles_may_be_apart(tmp_path: Path) -> None:
    roles = {1: "controller", 2: "broker", 3: "broker"}
    async with running_cluster(tmp_path, roles=roles) as cluster:
        await cluster.until(lambda: all(broker.alive == {2, 3} for broker in cluster.up))
        assert cluster[1].quorum.is_active
        assert await create_by(cluster[2], "t", replicas=2) == 0
        await cluster.until(lambda: knows(cluster[3], "t"))
        assert not cluster[1].addresses


def is_observed(leader: Broker, node: int) -> bool:
    role = leader.quorum.raft.role
    return isinstance(role, Leader) and any(
        key.id == node and progress.offset >= leader.quorum.log.log_end_offset
        for key, progress in role.progress.items()
    )


async def add_voter(cluster: Cluster, requested: int, node: int) -> int:
    endpoint = cluster[node].quorum.endpoints[0]
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=30_000,
        voter_id=node,
        voter_directory_id=cluster[node].quorum.raft.me.directory,
        listeners=[AddRaftVoterRequest.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)],
    )

    async def attempt() -> int:
        return int((await ask(cluster[requested], request, 1)).error_code)

    return await patiently(attempt, done=DuplicateVoter)


async def remove_voter(broker: Broker, node: int) -> int:
    (voter,) = [voter for voter in broker.quorum.raft.voters.latest if voter.id == node]
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=voter.directory)

    async def attempt() -> int:
        return int((await ask(broker, request, 0)).error_code)

    return await patiently(attempt, done=VoterNotFound)


@on_cluster
async def test_voters_change_if_the_log_has_them(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, dynamic=True, nodes=1) as cluster:
        assert cluster[1].quorum.kraft_version == 1
        for node in (2, 3):
            cluster.add_node(node)
            await cluster.start(node)
            await cluster.until(partial(is_observed, cluster[1], node))
            assert await add_voter(cluster, 1, node) == 0
        await cluster.until(lambda: all(len(broker.quorum.raft.voters.latest) == 3 for broker in cluster.up))
        await cluster.kill(1)  # the two others are a majority now
        second = await cluster.wait_active()
        assert await remove_voter(second, 1) == 0
        assert [voter.id for voter in second.quorum.raft.voters.latest] == [2, 3]
        assert await remove_voter(second, second.node_id) == 0  # it resigns when that is committed
        await cluster.until(lambda: cluster.active not in (None, second))
        assert await create_by(second, "still") == 0


@on_cluster
async def test_a_controller_that_may_joins_the_voters_by_itself_and_is_known_to_all(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, dynamic=True, nodes=1, controller_quorum_auto_join_enable="true") as cluster:
        cluster.add_node(2)
        await cluster.start(2)
        await cluster.until(lambda: all(len(broker.quorum.raft.voters.latest) == 2 for broker in cluster.up))
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
        await cluster.until(lambda: all(len(broker.metadata.brokers.controllers) == 2 for broker in cluster.up))
        result = await ask(cluster[2], request, 1, "CONTROLLER")
        assert [(each.broker_id, each.port) for each in result.brokers] == [
            (node, cluster[node].quorum.endpoints[0].port) for node in (1, 2)
        ]
        assert result.controller_id == cluster[2].quorum.leader_id


@on_cluster
async def test_a_voter_that_moved_is_found_where_it_is_now(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, dynamic=True) as cluster:
        active = await cluster.wait_active()
        moved = others(cluster, active)[0].node_id
        await cluster.kill(moved)
        cluster.ports[moved][1].close()
        cluster.ports[moved] = (cluster.ports[moved][0], ReservedPort(HOST))
        await cluster.start(moved)
        port = cluster[moved].quorum.endpoints[0].port
        await cluster.until(lambda: all(broker.quorum.address_of(moved) == (HOST, port) for broker in cluster.up))


@on_cluster
async def test_what_is_asked_on_behalf_of_another_cluster_or_of_a_former_disk_changes_nothing(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, dynamic=True) as cluster:
        active = await cluster.wait_active()
        epoch = active.quorum.epoch

        def vote(**said: Any) -> VoteRequest:
            partition = VoteRequest.Topic.Partition(
                partition_index=said.get("partition", 0),
                replica_epoch=epoch + 100,
                replica_id=2,
                voter_directory_id=said.get("directory", active.quorum.raft.me.directory),
                last_offset_epoch=epoch + 100,
                last_offset=1_000_000,
            )
            topic = VoteRequest.Topic(topic_name="__cluster_metadata", partitions=[partition])
            cluster_id = said.get("cluster_id", cluster.cluster_id)
            return VoteRequest(cluster_id=cluster_id, voter_id=active.node_id, topics=[topic])

        for wrong, error in (
            ({"cluster_id": "another"}, InconsistentClusterId),
            ({"partition": 1}, InvalidRequest),
            ({"directory": b"x" * 16}, InvalidVoterKey),
        ):
            assert (await ask(active, vote(**wrong), 2, "CONTROLLER")).error_code == error.code
        assert active.quorum.epoch < epoch + 100, "the epoch that it spoke of is not believed either"


def set_config(resource_type: int, name: str, key: str, value: str) -> IncrementalAlterConfigsRequest:
    wanted = IncrementalAlterConfigsRequest.Resource
    config = wanted.Config(name=key, config_operation=0, value=value)
    resource = wanted(resource_type=resource_type, resource_name=name, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


async def enveloped(cluster: Cluster, request: EnvelopeRequest) -> int:
    """What the active controller says of it; any other node says that it is not."""

    async def attempt() -> int:
        active = await cluster.wait_active()
        return int((await ask(active, request, 0, "CONTROLLER")).error_code)

    return await patiently(attempt, done=NotController)


@on_cluster
async def test_what_only_the_controller_can_do_is_passed_on_to_it_or_answered_in_time(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        active = await cluster.wait_active()
        await all_in(cluster)
        other, third = others(cluster, active)
        # A topic's configuration, and its own; another broker's is none of its business.
        assert await create_by(other, "t") == 0
        for resource_type, name, code in (
            (2, "t", 0),
            (4, str(other.node_id), 0),
            (4, str(active.node_id), InvalidRequest.code),
        ):
            key = "retention.ms" if resource_type == 2 else "log.cleaner.threads"
            result = await ask(other, set_config(resource_type, name, key, "1"), 1)
            assert [each.error_code for each in result.responses] == [code], (resource_type, name)
        await cluster.until(lambda: third.metadata.configs.get(topic_resource("t")) == {"retention.ms": "1"})
        # What is in an envelope is looked at like anything that comes from outside.
        for data, address in ((b"", b"\x7f\0\0\1"), (b"\0" * 40, b"\x7f\0\0\1"), (b"\0" * 40, b"?")):
            requested = EnvelopeRequest(
                request_data=data, request_principal=b"\0\0\5User\2x\0\0", client_host_address=address
            )
            assert await enveloped(cluster, requested) == InvalidRequest.code
        requested = EnvelopeRequest(request_data=b"\0" * 40, request_principal=None, client_host_address=b"\x7f\0\0\1")
        assert await enveloped(cluster, requested) == PrincipalDeserializationFailure.code
        # No controller to forward it to.
        cluster.isolate(other.node_id)
        request = CreateTopicsRequest(topics=create("never").topics, timeout_ms=1_000, validate_only=False)
        assert (await ask(other, request, 7)).topics[0].error_code == RequestTimedOut.code


@on_cluster
async def test_a_controller_that_ceases_to_lead_passes_on_what_it_has_not_done(tmp_path: Path) -> None:
    """Some of Kafka's tools would take NOT_CONTROLLER for the answer: its brokers never tell a client so."""
    async with running_cluster(tmp_path) as cluster:
        active = await cluster.wait_active()
        await all_in(cluster)
        request = AlterClientQuotasRequest(
            entries=[quota({"user": "ann"}, {"producer_byte_rate": 5.0})], validate_only=False
        )
        codes: list[int] = []

        async def ask_it() -> None:
            response = await ask(active, request, 1)
            codes.extend(entry.error_code for entry in response.entries)

        async with trio.open_nursery() as nursery:
            cluster.isolate(active.node_id)
            nursery.start_soon(ask_it)  # it decides, and the decision is never committed
            await cluster.until(lambda: not active.quorum.is_active)
            cluster.heal()
        assert codes == [0]
        await cluster.until(lambda: all(list(broker.metadata.quotas) for broker in cluster.up))


@on_cluster
async def test_a_node_whose_disk_fails_before_it_applies_a_committed_record_ends_cleanly(tmp_path: Path) -> None:
    """The records are read from the log again when they are applied, and that read may be the first to fail."""
    async with running_cluster(tmp_path) as cluster:
        active = await cluster.wait_active()
        await all_in(cluster)
        failed = next(broker for broker in cluster.up if broker is not active)
        async with failed.quorum.applying:
            end = failed.quorum.log.high_watermark
            assert await create_by(active, "unapplied") == 0
            await cluster.until(lambda: failed.quorum.log.high_watermark > end)
            failed.identity.metadata_directory.volume.fail(OSError(errno.EIO, "the disk is gone"))
        del cluster.brokers[failed.node_id]
        with trio.fail_after(PATIENCE_S):
            await failed.stopped.wait()
        assert await create_by(await cluster.wait_active(), "after") == 0


@on_cluster
async def test_a_node_whose_metadata_cannot_be_written_any_more_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        active = await cluster.wait_active()
        await all_in(cluster)
        failed = cluster.brokers.pop(active.node_id)
        failed.identity.metadata_directory.volume.fail(OSError(errno.EIO, "the disk is gone"))
        with suppress(OSError, trio.BrokenResourceError):  # it may be gone before it can say so
            refused = await ask(failed, create("never"), 7)
            assert refused is None or refused.topics[0].error_code != 0
        second = await cluster.wait_active()
        with trio.fail_after(PATIENCE_S):
            await failed.stopped.wait()
        assert await create_by(second, "after") == 0
