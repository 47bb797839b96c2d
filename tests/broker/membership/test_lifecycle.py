"""How brokers join a cluster, stay in it and leave it (I14, I15, K9)."""

from pathlib import Path
from typing import Any

import pytest
import trio
from mutants.plant import planted
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.serving import ask

from trioka.broker.broker import Broker
from trioka.broker.controller.active import ActiveController
from trioka.broker.membership import lifecycle as membership
from trioka.broker.membership.lifecycle import JoinRefused, Membership
from trioka.cluster.brokers import Broker as Registered
from trioka.cluster.partition import NO_LEADER, Partition, RecoveryState
from trioka.protocol.errors import DuplicateBrokerRegistration, RequestTimedOut, StaleBrokerEpoch
from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest
from trioka.protocol.messages.unregister_broker import UnregisterBrokerRequest

SOON_S = 3.0  # for what a planted mistake keeps from happening


def registered(broker: Broker, node: int) -> Registered:
    found = broker.metadata.brokers.get(node)
    assert found is not None
    return found


async def all_there(cluster: Cluster) -> None:
    there = set(cluster.brokers)
    await cluster.until(lambda: all(broker.alive == there for broker in cluster.brokers.values()))


async def create(cluster: Cluster, name: str, *assignments: list[int]) -> None:
    wanted = CreateTopicsRequest.Topic
    topic = wanted(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[wanted.Assignment(partition_index=i, broker_ids=each) for i, each in enumerate(assignments)],
        configs=[],
    )
    any_node = next(iter(cluster.brokers.values()))
    (result,) = (await ask(any_node, CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)).topics
    assert result.error_code == 0, result
    await cluster.until(lambda: all(b.metadata.topics.by_name(name) for b in cluster.brokers.values()))


def partition(broker: Broker, name: str, index: int = 0) -> Partition:
    topic = broker.metadata.topics.by_name(name)
    assert topic is not None
    return topic.partitions[index]


@on_cluster
async def test_a_killed_broker_is_fenced_and_begins_a_new_life(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await all_there(cluster)
        before = registered(cluster[1], 3).epoch
        await cluster.kill(3)
        await cluster.until(lambda: cluster[1].alive == cluster[2].alive == {1, 2})
        assert registered(cluster[1], 3).fenced
        await cluster.start(3)
        await all_there(cluster)
        assert registered(cluster[1], 3).epoch == cluster[3].broker_epoch > before


@on_cluster
async def test_a_broker_that_stops_hands_over_what_it_leads_and_need_not_wait_to_come_back(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, broker_session_timeout_ms=60_000) as cluster:
        await all_there(cluster)
        await create(cluster, "orders", [3, 1, 2])
        others = [cluster[1], cluster[2]]
        await cluster.stop(3)
        await cluster.until(lambda: all(partition(broker, "orders").leader in (1, 2) for broker in others))
        assert partition(others[0], "orders").isr == (1, 2)
        await cluster.until(lambda: all(registered(broker, 3).fenced for broker in others))  # far within its session
        await cluster.start(3)  # within its patience, which is that of one session
        await all_there(cluster)


async def stop_without_a_controller(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits until there is one again, and then hands over what it leads."""
    in_vain, close_handles = trio.Event(), trio.Event()
    heartbeat = Membership._heartbeat

    async def noted(self: Membership, **how: Any) -> Any:
        try:
            result = await heartbeat(self, **how)
        except RequestTimedOut:
            if how.get("wants_to_stop"):
                in_vain.set()
            raise
        if result.should_shut_down:
            close_handles.set()
        return result

    monkeypatch.setattr(Membership, "_heartbeat", noted)
    monkeypatch.setattr(membership, "UNREACHABLE_S", 0.2)
    async with running_cluster(directory, broker_session_timeout_ms=60_000) as cluster:
        await all_there(cluster)
        lonely = next(node for node in cluster.brokers if not cluster[node].quorum.is_active)
        others = [cluster[node] for node in cluster.brokers if node != lonely]
        await create(cluster, "orders", [lonely, *(broker.node_id for broker in others)])
        cluster.isolate(lonely)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.stop, lonely)
            await in_vain.wait()
            cluster.heal()
        assert close_handles.is_set(), "it stops only after a controller has let it go"
        await cluster.until(lambda: all(partition(broker, "orders").leader != lonely for broker in others))
        await cluster.until(lambda: all(registered(broker, lonely).fenced for broker in others))


@on_cluster
async def test_a_broker_that_stops_without_a_controller_waits_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stop_without_a_controller(tmp_path, monkeypatch)


@on_cluster
async def test_a_broker_that_does_not_wait_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mistaken = planted(membership, "if not broker.alive - {broker.node_id}:", "if True:")
    monkeypatch.setattr(Membership, "_may_shut_down", mistaken.Membership._may_shut_down)
    monkeypatch.setattr(mistaken, "UNREACHABLE_S", 0.2)
    with pytest.raises(AssertionError):
        await stop_without_a_controller(tmp_path, monkeypatch)


@on_cluster
async def test_a_broker_that_stops_waits_no_longer_than_configured(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, trioka_controlled_shutdown_timeout_ms=100) as cluster:
        await all_there(cluster)
        lonely = next(node for node in cluster.brokers if not cluster[node].quorum.is_active)
        cluster.isolate(lonely)
        await cluster.stop(lonely)
        cluster.heal()
        await cluster.start(lonely)
        await all_there(cluster)


@on_cluster
async def test_a_broker_without_a_controller_loses_nothing_but_time(tmp_path: Path) -> None:
    """I15: it is fenced for its silence, and let in again with the epoch that it has."""
    async with running_cluster(tmp_path) as cluster:
        await all_there(cluster)
        lonely = next(node for node in cluster.brokers if not cluster[node].quorum.is_active)
        others = [cluster[node] for node in cluster.brokers if node != lonely]
        epoch = cluster[lonely].broker_epoch
        cluster.isolate(lonely)
        await cluster.until(lambda: all(lonely not in broker.alive for broker in others))
        cluster.heal()
        await all_there(cluster)
        assert cluster[lonely].broker_epoch == epoch == registered(others[0], lonely).epoch


@on_cluster
async def test_a_new_active_controller_fences_no_broker_without_a_full_session(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await all_there(cluster)
        active = await cluster.wait_active()
        staying = set(cluster.brokers) - {active.node_id}
        fenced = []
        await cluster.kill(active.node_id)
        await cluster.until(lambda: cluster.active is not None)
        while cluster[min(staying)].alive != staying:
            fenced += [node for node in staying if registered(cluster[min(staying)], node).fenced]
            await trio.sleep(0.01)
        assert fenced == []


def test_a_broker_that_was_forgotten_registers_again(tmp_path: Path) -> None:
    forgotten_broker_comes_back(tmp_path, 60.0)


def forgotten_broker_comes_back(directory: Path, patience_s: float) -> None:
    @on_cluster
    async def test() -> None:
        async with running_cluster(directory) as cluster:
            await all_there(cluster)
            before = cluster[3].broker_epoch
            result = await ask(cluster[1], UnregisterBrokerRequest(broker_id=3), 0)
            assert result.error_code == 0
            await cluster.until(lambda: cluster[3].broker_epoch > before, patience_s)
            await all_there(cluster)

    test()


def test_a_broker_that_does_not_register_again_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Membership) -> None:
        pass

    monkeypatch.setattr(Membership, "_register_again", nothing)
    with pytest.raises(trio.TooSlowError):
        forgotten_broker_comes_back(tmp_path, SOON_S)


@on_cluster
async def test_another_life_of_a_broker_that_is_alive_is_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await all_there(cluster)
        other = Membership(cluster[3])
        other._advertised = cluster[3].membership._advertised
        assert other.incarnation_id != cluster[3].membership.incarnation_id
        response = await cluster[1].controller.send_request(other._about_this_broker(-1), timeout_s=30)
        assert response.error_code == DuplicateBrokerRegistration.code
        same = await cluster[1].controller.send_request(cluster[3].membership._about_this_broker(-1), timeout_s=30)
        assert (same.error_code, same.broker_epoch) == (0, cluster[3].broker_epoch)


@on_cluster
async def test_a_heartbeat_of_an_earlier_life_is_stale(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await all_there(cluster)

        async def beat(**fields: Any) -> Any:
            known = {"broker_id": 3, "broker_epoch": cluster[3].broker_epoch, "current_metadata_offset": 10**9}
            request = BrokerHeartbeatRequest(**{**known, "want_fence": False, "want_shut_down": False, **fields})
            return await cluster[1].controller.send_request(request, timeout_s=30)

        assert (await beat(broker_epoch=cluster[3].broker_epoch - 1)).error_code == StaleBrokerEpoch.code
        assert (await beat(broker_id=9)).error_code == StaleBrokerEpoch.code
        assert not (await beat()).is_fenced
        assert cluster[1].alive == {1, 2, 3}


@on_cluster
async def test_a_broker_whose_id_is_taken_gives_up_with_one_sentence(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, roles={1: "broker,controller", 2: "broker"}) as cluster:
        await all_there(cluster)
        other = Membership(cluster[2])
        with pytest.raises(JoinRefused, match="another broker 2 is alive"):
            await other._register(-1, 0.5)
        assert cluster[1].alive == {1, 2}


async def leads_once(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, nodes=1) as cluster:
        await all_there(cluster)
        await create(cluster, "t", [1])
        await cluster.kill(1)
        broker = await cluster.start(1)
        await cluster.until(lambda: partition(broker, "t").leader == 1 and broker.partitions.get("t", 0).leads)
        term = broker.partitions.get("t", 0).term
    assert term == 1


def test_a_broker_leads_nothing_of_its_former_life_before_it_is_registered(tmp_path: Path) -> None:
    """In that epoch it may have lost records: to begin it again, where its log ends now, would contradict others."""
    on_cluster(leads_once)(tmp_path)


def test_a_broker_that_takes_up_its_replicas_too_soon_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register, join = Membership.register, Membership.join

    async def too_late(membership: Membership) -> None:
        await register(membership, membership._advertised)
        await join(membership)

    async def not_yet(membership: Membership, advertised: Any) -> None:
        membership._advertised = tuple(advertised)

    monkeypatch.setattr(Membership, "register", not_yet)
    monkeypatch.setattr(Membership, "join", too_late)
    with pytest.raises(AssertionError):
        on_cluster(leads_once)(tmp_path)


@on_cluster
async def test_a_lone_leader_that_crashed_says_that_it_has_recovered(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, nodes=1) as cluster:
        await create(cluster, "orders", [1])
        await cluster.kill(1)
        await cluster.start(1)
        assert partition(cluster[1], "orders").leader == 1
        assert partition(cluster[1], "orders").leader_recovery_state is RecoveryState.RECOVERED


@on_cluster
async def test_no_two_producers_of_a_cluster_have_the_same_id(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await all_there(cluster)
        ids = [
            (await ask(cluster[node], InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4))
            for node in (1, 2, 3, 1, 2, 3)
        ]
        assert {result.error_code for result in ids} == {0}
        assert len({result.producer_id for result in ids}) == 6


@on_cluster
async def test_leadership_goes_back_to_the_first_replicas_by_itself(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, leader_imbalance_check_interval_seconds=1) as cluster:
        await all_there(cluster)
        await create(cluster, "orders", [3, 1], [1, 3])
        await cluster.stop(3)
        await cluster.until(lambda: partition(cluster[1], "orders").leader == 1)
        await cluster.start(3)
        await cluster.until(lambda: partition(cluster[1], "orders").leader == 3)
        assert partition(cluster[1], "orders", 1).leader == 1


def test_partitions_are_led_by_the_living(tmp_path: Path) -> None:
    the_living_lead(tmp_path, 60.0)


def the_living_lead(directory: Path, patience_s: float) -> None:
    @on_cluster
    async def test() -> None:
        async with running_cluster(directory) as cluster:
            await all_there(cluster)
            await create(cluster, "orders", [3, 1], [3, 2])
            await cluster.kill(3)
            await cluster.until(
                lambda: [partition(cluster[1], "orders", index).leader for index in (0, 1)] == [1, 2], patience_s
            )
            assert all(partition(cluster[1], "orders", index).leader != NO_LEADER for index in (0, 1))

    test()


def test_a_controller_that_fences_no_broker_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(self: ActiveController, sessions: object) -> bool:
        return False

    monkeypatch.setattr(ActiveController, "_fence_one", nobody)
    with pytest.raises(trio.TooSlowError):
        the_living_lead(tmp_path, SOON_S)
