"""Brokers come and go, and partitions with them (I12–I15)."""

from typing import Any

import pytest
from mutants.plant import planted
from support.small_cluster import SmallCluster, directory, registration

from trioka.cluster import broker_changes
from trioka.cluster.brokers import FeatureRange
from trioka.cluster.features import SUPPORTED
from trioka.cluster.partition import LOST_DIRECTORY, NO_LEADER, RecoveryState
from trioka.protocol.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    KafkaError,
    StaleBrokerEpoch,
    UnsupportedVersion,
)
from trioka.protocol.internal_records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from trioka.protocol.messages.broker_registration import BrokerRegistrationRequest
from trioka.protocol.messages.controller_registration import ControllerRegistrationRequest


def three_brokers(**settings: Any) -> SmallCluster:
    """A topic with replicas on all three; 1 leads. The min ISR is 2."""
    cluster = SmallCluster(brokers=3, min_insync_replicas=2, **settings)
    cluster.create("orders", assignments=[[1, 2, 3]])
    return cluster


def seen(cluster: SmallCluster, name: str = "orders") -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """ISR, leader, eligible leaders."""
    partition = cluster.partition(name)
    return partition.isr, partition.leader, partition.eligible_leader_replicas


# --- registration


def test_a_broker_epoch_is_the_offset_of_its_registration() -> None:
    cluster = SmallCluster(brokers=0)
    epoch = cluster.register(7)
    assert isinstance(cluster.log[epoch], RegisterBrokerRecord)
    cluster.heartbeat(7)
    cluster.create("orders", partitions=3)
    epoch = cluster.register(7, life=2)  # behind records that take its partitions away
    record = cluster.log[epoch]
    assert isinstance(record, RegisterBrokerRecord) and record.broker_epoch == epoch
    assert isinstance(cluster.log[epoch - 1], PartitionChangeRecord)


def test_a_broker_begins_fenced_and_is_let_in_once_it_knows_its_own_registration() -> None:
    cluster = SmallCluster(brokers=0)
    epoch = cluster.register(1)
    assert not cluster.metadata.brokers.is_active(1)
    reply = cluster.heartbeat(1, at=epoch - 1)
    assert (reply.is_caught_up, reply.is_fenced, reply.should_shut_down) == (False, True, False)
    reply = cluster.heartbeat(1, at=epoch)
    assert (reply.is_caught_up, reply.is_fenced, reply.should_shut_down) == (True, False, False)
    assert cluster.metadata.brokers.is_active(1)


def test_a_broker_that_wants_to_stay_fenced_stays_fenced() -> None:
    cluster = SmallCluster(brokers=0)
    cluster.register(1)
    assert cluster.heartbeat(1, want_fence=True).is_fenced
    assert not cluster.metadata.brokers.is_active(1)


def test_another_broker_of_the_same_id_waits_until_the_first_is_gone() -> None:
    cluster = SmallCluster(brokers=1)
    request = registration(1, life=2)
    with pytest.raises(DuplicateBrokerRegistration):
        cluster.controller.register_broker(request, next_offset=cluster.next_offset, has_session=True)
    cluster.controller.register_broker(request, next_offset=cluster.next_offset, has_session=False)


def test_a_broker_that_registers_again_in_the_same_life_keeps_its_epoch_and_its_work() -> None:
    cluster = SmallCluster(brokers=1)
    cluster.create("orders")
    before = cluster.metadata.brokers.get(1)
    assert before is not None
    decision = cluster.controller.register_broker(registration(1), next_offset=cluster.next_offset, has_session=True)
    assert cluster.do(decision) == (before.epoch,)
    assert cluster.metadata.brokers.is_active(1) and cluster.partition("orders").leader == 1


def refused(request: BrokerRegistrationRequest) -> type[KafkaError]:
    cluster = SmallCluster(brokers=1)
    with pytest.raises(KafkaError) as caught:
        cluster.controller.register_broker(request, next_offset=cluster.next_offset, has_session=False)
    return caught.type


def test_a_registration_that_cannot_be_is_refused() -> None:
    assert refused(registration(2, cluster_id="another")) is InconsistentClusterId
    assert refused(registration(2, directories=[])) is InvalidRegistration
    assert refused(registration(2, directories=[bytes(16)])) is InvalidRegistration
    assert refused(registration(2, directories=[LOST_DIRECTORY])) is InvalidRegistration
    assert refused(registration(2, directories=[directory(2)] * 2)) is InvalidRegistration
    assert refused(registration(2, directories=[directory(1)])) is InvalidRegistration
    assert refused(registration(2, features=[])) is InvalidRegistration


@pytest.mark.parametrize(("first", "last"), [(7, 29), (31, 40)])
def test_a_broker_that_does_not_understand_the_cluster_cannot_join(first: int, last: int) -> None:
    others = {**SUPPORTED, "metadata.version": FeatureRange(name="metadata.version", first=first, last=last)}
    assert refused(registration(2, features=others.values())) is UnsupportedVersion
    missing = {name: feature for name, feature in SUPPORTED.items() if name != "group.version"}
    assert refused(registration(2, features=missing.values())) is UnsupportedVersion


def test_a_controller_makes_itself_known() -> None:
    cluster = SmallCluster()
    request = ControllerRegistrationRequest(
        controller_id=5, incarnation_id=bytes(16), zk_migration_ready=False, listeners=[], features=[]
    )
    cluster.do(cluster.controller.register_controller(request))
    assert [controller.controller_id for controller in cluster.metadata.brokers.controllers] == [5]


def test_a_broker_of_an_earlier_life_is_not_listened_to() -> None:
    cluster = SmallCluster(brokers=1)
    epoch = cluster.register(1, life=2)
    with pytest.raises(StaleBrokerEpoch):
        cluster.controller.allocate_producer_ids(1, epoch - 1)
    with pytest.raises(StaleBrokerEpoch):
        cluster.controller.allocate_producer_ids(9, epoch)


# --- fencing, elections, eligible leaders


def test_a_fenced_broker_is_in_no_isr_and_leads_nothing() -> None:
    cluster = three_brokers()
    before = cluster.partition("orders")
    cluster.fence(1)
    after = cluster.partition("orders")
    assert seen(cluster) == ((2, 3), 2, ())
    assert after.leader_epoch == before.leader_epoch + 1
    change = cluster.log[-1]
    assert isinstance(change, BrokerRegistrationChangeRecord) and change.fenced == 1
    assert cluster.controller.fence_broker(1).records == ()  # once is enough


def test_a_replica_that_leaves_a_small_isr_stays_eligible() -> None:
    """While two are in sync no other replica is eligible. The one that leaves last has all acknowledged records."""
    cluster = three_brokers()
    cluster.fence(1)
    assert seen(cluster) == ((2, 3), 2, ())
    cluster.fence(2)
    assert seen(cluster) == ((3,), 3, (2,))
    cluster.fence(3)
    assert seen(cluster) == ((), NO_LEADER, (2, 3))
    assert cluster.partition("orders").last_known_elr == (3,)


def test_an_eligible_leader_that_comes_back_leads_and_is_the_isr() -> None:
    cluster = three_brokers()
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    cluster.heartbeat(1)
    assert seen(cluster) == ((), NO_LEADER, (2, 3))  # 1 was not in sync, it has to wait
    cluster.heartbeat(2)
    assert seen(cluster) == ((2,), 2, (3,))
    assert cluster.partition("orders").leader_recovery_state is RecoveryState.RECOVERED
    assert cluster.partition("orders").last_known_elr == ()


def test_a_replica_that_has_crashed_is_not_fit_to_lead() -> None:
    cluster = three_brokers()
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    cluster.register(3, life=2)  # without the epoch of its former life: it did not stop cleanly
    assert seen(cluster) == ((), NO_LEADER, (2,))
    cluster.heartbeat(3)
    assert seen(cluster) == ((), NO_LEADER, (2,))


def test_a_replica_that_has_stopped_cleanly_is_still_fit_to_lead() -> None:
    cluster = three_brokers()
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    stopped = cluster.metadata.brokers.get(3)
    assert stopped is not None
    cluster.start(3, life=2, previous_epoch=stopped.epoch)
    assert seen(cluster) == ((3,), 3, (2,))


def test_without_an_eligible_replica_the_last_leader_leads_and_recovers() -> None:
    """One node that is killed and starts again: it lost nothing that others could know better."""
    cluster = SmallCluster(brokers=1)
    cluster.create("orders")
    epoch = cluster.partition("orders").leader_epoch
    cluster.register(1, life=2)
    partition = cluster.partition("orders")
    assert (partition.isr, partition.leader, partition.last_known_elr) == ((), NO_LEADER, (1,))
    cluster.heartbeat(1)
    partition = cluster.partition("orders")
    assert (partition.isr, partition.leader, partition.last_known_elr) == ((1,), 1, ())
    assert partition.leader_recovery_state is RecoveryState.RECOVERING
    assert partition.leader_epoch == epoch + 2


def test_one_node_that_stops_cleanly_and_starts_again_has_nothing_to_recover() -> None:
    cluster = SmallCluster(brokers=1)
    cluster.create("orders")
    epoch = cluster.metadata.brokers.get(1).epoch  # type: ignore[union-attr]
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.partition("orders").leader == NO_LEADER
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.start(1, life=2, previous_epoch=epoch)
    partition = cluster.partition("orders")
    assert (partition.isr, partition.leader) == ((1,), 1)
    assert partition.leader_recovery_state is RecoveryState.RECOVERED


def test_an_unclean_leader_needs_permission() -> None:
    def cluster_after_crashes(**settings: Any) -> SmallCluster:
        cluster = three_brokers(**settings)
        for broker_id in (1, 2, 3):
            cluster.fence(broker_id)
        for broker_id in (2, 3):
            cluster.register(broker_id, life=2)
        return cluster

    careful = cluster_after_crashes()
    careful.heartbeat(1)
    assert careful.partition("orders").leader == NO_LEADER
    bold = cluster_after_crashes(unclean_leader_election_enable=True)
    bold.heartbeat(1)
    partition = bold.partition("orders")
    assert (partition.isr, partition.leader) == ((1,), 1)
    assert partition.leader_recovery_state is RecoveryState.RECOVERING


def test_a_topic_may_allow_for_itself_what_the_cluster_does_not() -> None:
    cluster = SmallCluster(brokers=2)
    cluster.create("orders", assignments=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
    cluster.fence(2)
    cluster.fence(1)
    cluster.register(1, life=2)
    cluster.heartbeat(2)
    assert cluster.partition("orders").leader == 2


# --- shutdown, directories, removal


def test_a_broker_that_shuts_down_gives_away_what_it_leads_before_it_goes() -> None:
    cluster = three_brokers()
    reply = cluster.heartbeat(1, want_shut_down=True)
    assert (reply.is_fenced, reply.should_shut_down) == (False, False)
    assert seen(cluster) == ((2, 3), 2, ())
    broker = cluster.metadata.brokers.get(1)
    assert broker is not None and broker.in_controlled_shutdown and not broker.fenced
    reply = cluster.heartbeat(1, want_shut_down=True)
    assert (reply.is_fenced, reply.should_shut_down) == (True, True)
    broker = cluster.metadata.brokers.get(1)
    assert broker is not None and broker.fenced


def test_a_broker_that_leads_nothing_may_go_at_once() -> None:
    cluster = three_brokers()
    assert cluster.heartbeat(3, want_shut_down=True).should_shut_down
    assert seen(cluster) == ((1, 2), 1, ())


def test_a_broker_waits_with_its_shutdown_until_the_others_know() -> None:
    cluster = three_brokers()
    cluster.heartbeat(1, want_shut_down=True)
    broker = cluster.metadata.brokers.get(1)
    assert broker is not None
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=broker.epoch, current_metadata_offset=0, want_fence=False, want_shut_down=True
    )
    (reply,) = cluster.controller.heartbeat(request, others_caught_up=False).replies
    assert not reply.should_shut_down


def test_what_lies_in_a_directory_that_is_offline_is_not_in_sync() -> None:
    cluster = three_brokers()
    request = registration(1, life=2, directories=[directory(1), directory(1, 1)])
    cluster.do(cluster.controller.register_broker(request, next_offset=cluster.next_offset, has_session=False))
    cluster.heartbeat(1)
    cluster.create("events", assignments=[[1, 2]])
    cluster.append(
        [
            PartitionChangeRecord(
                partition_id=0,
                topic_id=cluster.topic("events").topic_id,
                directories=[directory(1, 1), directory(2)],
            )
        ]
    )
    cluster.heartbeat(1, offline_log_dirs=[directory(1, 1)])
    assert seen(cluster, "events")[:2] == ((2,), 2)
    broker = cluster.metadata.brokers.get(1)
    assert broker is not None and broker.directories == (directory(1),) and broker.is_active
    assert cluster.controller.metadata.brokers.is_active(1)


def test_a_broker_that_is_unregistered_is_gone_from_every_isr() -> None:
    cluster = three_brokers()
    cluster.fence(1)
    cluster.fence(2)
    (outcome,) = cluster.do(cluster.controller.unregister_broker(2))
    assert outcome.error is None and cluster.metadata.brokers.get(2) is None
    assert seen(cluster) == ((3,), 3, ())
    (outcome,) = cluster.do(cluster.controller.unregister_broker(2))
    assert outcome.error is BrokerIdNotRegistered


# --- producer ids


def test_no_producer_id_is_given_twice() -> None:
    cluster = SmallCluster(brokers=2)
    blocks = []
    for broker_id in (1, 2, 1):
        broker = cluster.metadata.brokers.get(broker_id)
        assert broker is not None
        (block,) = cluster.do(cluster.controller.allocate_producer_ids(broker_id, broker.epoch))
        blocks.append((block.first, block.size))
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]


# --- planted mistakes: the rules are run with one function of another mind


@pytest.mark.parametrize(
    ("module", "name", "wrong", "rule"),
    [
        (
            "partition_change",
            "_eligible_leaders",
            lambda *_: (),
            test_a_replica_that_leaves_a_small_isr_stays_eligible,
        ),
        (
            "partition_change",
            "_remember_last_leader",
            lambda *_: None,
            test_without_an_eligible_replica_the_last_leader_leads_and_recovers,
        ),
        (
            "broker_changes",
            "on_broker_removed",
            lambda *_: (),
            test_a_replica_that_has_crashed_is_not_fit_to_lead,
        ),
        ("broker_changes", "on_broker_fenced", lambda *_: (), test_a_fenced_broker_is_in_no_isr_and_leads_nothing),
        (
            "broker_changes",
            "on_directories_offline",
            lambda *_: (),
            test_what_lies_in_a_directory_that_is_offline_is_not_in_sync,
        ),
        ("elections", "is_unclean_election_allowed", lambda *_: True, test_an_unclean_leader_needs_permission),
    ],
)
def test_a_planted_mistake_is_noticed(
    module: str, name: str, wrong: Any, rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule()
    monkeypatch.setattr(f"trioka.cluster.{module}.{name}", wrong)
    with pytest.raises(AssertionError):
        rule()


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        (
            "if before is not None and not is_same and has_session:",
            "if False:",
            test_another_broker_of_the_same_id_waits_until_the_first_is_gone,
        ),
        (
            "next_offset + len(records)",
            "next_offset",
            test_a_broker_epoch_is_the_offset_of_its_registration,
        ),
        (
            "is_clean = request.previous_broker_epoch == before.epoch",
            "is_clean = True",
            test_a_replica_that_has_crashed_is_not_fit_to_lead,
        ),
        (
            "is_caught_up = request.current_metadata_offset >= broker.epoch",
            "is_caught_up = True",
            test_a_broker_begins_fenced_and_is_let_in_once_it_knows_its_own_registration,
        ),
    ],
)
def test_a_planted_mistake_about_brokers_is_noticed(
    right: str, wrong: str, rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule()
    monkeypatch.setattr("trioka.cluster.controller.broker_changes", planted(broker_changes, right, wrong))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        rule()
