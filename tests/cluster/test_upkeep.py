"""Elections without a request: leadership goes back to the first replicas, and partitions that may lose records
rather than wait are led by any live replica (I12)."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.small_cluster import SmallCluster

from trioka.cluster.controller import elections
from trioka.cluster.image.partition import NO_LEADER, RecoveryState
from trioka.protocol.messages.alter_partition import AlterPartitionRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

LIMIT = 1000
UNCLEAN = {"unclean.leader.election.enable": "true"}


@pytest.fixture
def module() -> ModuleType:
    return elections


def restarted(*assignments: list[int]) -> SmallCluster:
    """Broker 1 was away, and is in sync again; it leads nothing."""
    cluster = SmallCluster(brokers=3)
    cluster.create("orders", assignments=list(assignments))
    cluster.fence(1)
    cluster.heartbeat(1)
    for index in range(len(assignments)):
        rejoin(cluster, index)
    return cluster


def rejoin(cluster: SmallCluster, index: int) -> None:
    topic, partition = cluster.topic("orders"), cluster.partition("orders", index)
    leader = cluster.metadata.brokers.get(partition.leader)
    assert leader is not None
    result = AlterPartitionRequest.Topic
    proposal = result.Partition(
        partition_index=index,
        leader_epoch=partition.leader_epoch,
        new_isr=list(partition.replicas),
        partition_epoch=partition.partition_epoch,
        leader_recovery_state=int(partition.leader_recovery_state),
    )
    request = AlterPartitionRequest(
        broker_id=leader.broker_id,
        broker_epoch=leader.epoch,
        topics=[result(topic_id=topic.topic_id, partitions=[proposal])],
    )
    (reply,) = cluster.do(cluster.controller.alter_partition(request))
    assert reply.outcome.error is None


def balance(module: ModuleType, cluster: SmallCluster, limit: int = LIMIT) -> bool:
    (has_more,) = cluster.do(module.balance(cluster.metadata, cluster.settings, limit))
    return bool(has_more)


def leaders(cluster: SmallCluster) -> list[int]:
    return [partition.leader for partition in cluster.topic("orders").partitions.values()]


def test_leadership_goes_back_to_the_first_replicas(module: ModuleType) -> None:
    cluster = restarted([1, 2], [2, 1], [1, 3])
    assert leaders(cluster) == [2, 2, 3]
    assert not balance(module, cluster)
    assert leaders(cluster) == [1, 2, 1]
    end = cluster.next_offset
    balance(module, cluster)
    assert cluster.next_offset == end  # nothing to do


def test_the_first_replica_does_not_lead_out_of_sync(module: ModuleType) -> None:
    cluster = SmallCluster(brokers=2)
    cluster.create("orders", assignments=[[1, 2]])
    cluster.fence(1)
    cluster.heartbeat(1)
    epoch = cluster.partition("orders").leader_epoch
    balance(module, cluster)
    assert leaders(cluster) == [2] and cluster.partition("orders").leader_epoch == epoch


def test_only_so_many_at_once(module: ModuleType) -> None:
    cluster = restarted([1, 2], [1, 2], [1, 2])
    assert balance(module, cluster, 2)
    assert leaders(cluster) == [1, 1, 2]
    assert not balance(module, cluster, 2)
    assert leaders(cluster) == [1, 1, 1]


def without_leaders() -> SmallCluster:
    """All were fenced, 3 as the last; 1 is back, which was not in sync at the end."""
    cluster = SmallCluster(brokers=3)
    cluster.create("orders", assignments=[[1, 2, 3]])
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    cluster.heartbeat(1)
    return cluster


def test_a_partition_that_may_lose_records_is_led_by_any_live_replica(module: ModuleType) -> None:
    cluster = without_leaders()
    assert leaders(cluster) == [NO_LEADER]
    cluster.do(module.elect_unclean(cluster.metadata, cluster.settings, LIMIT))
    assert leaders(cluster) == [NO_LEADER]  # not allowed

    allow(cluster)
    (has_more,) = cluster.do(module.elect_unclean(cluster.metadata, cluster.settings, LIMIT))
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, has_more) == (1, (1,), False)
    assert partition.leader_recovery_state is RecoveryState.RECOVERING


def test_a_partition_that_has_a_leader_keeps_it(module: ModuleType) -> None:
    cluster = SmallCluster(brokers=2)
    cluster.create("orders", assignments=[[1, 2]], configs=UNCLEAN)
    cluster.fence(1)
    cluster.heartbeat(1)
    end = cluster.next_offset
    cluster.do(module.elect_unclean(cluster.metadata, cluster.settings, LIMIT))
    assert cluster.next_offset == end


def allow(cluster: SmallCluster) -> None:
    wanted = IncrementalAlterConfigsRequest.Resource
    configs = [wanted.Config(name=key, config_operation=0, value=value) for key, value in UNCLEAN.items()]
    cluster.do(
        cluster.controller.incremental_alter_configs([wanted(resource_type=2, resource_name="orders", configs=configs)])
    )


MISTAKES = [
    (
        "PartitionTarget(election=Election.PREFERRED)",
        "PartitionTarget()",
        test_leadership_goes_back_to_the_first_replicas,
    ),
    (
        "if not partition.has_leader and default_election(metadata, settings, topic, partition) is Election.UNCLEAN:",
        "if not partition.has_leader:",
        test_a_partition_that_may_lose_records_is_led_by_any_live_replica,
    ),
    (
        "PartitionTarget(election=Election.UNCLEAN)",
        "PartitionTarget()",
        test_a_partition_that_may_lose_records_is_led_by_any_live_replica,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(elections, right, wrong, rule)
