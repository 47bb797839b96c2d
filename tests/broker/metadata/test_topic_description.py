"""Descriptions of partitions whose replicas, or whose directories, are offline."""

from dataclasses import replace
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.small_cluster import SmallCluster, directory

from trioka.broker.metadata import topic_description
from trioka.cluster.image.partition import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, Partition

ELSEWHERE = b"another directory"[:16]


@pytest.fixture
def module() -> ModuleType:
    return topic_description


def described(module: ModuleType, cluster: SmallCluster, partition: Partition) -> tuple[int, list[int]]:
    result = module.TopicDescription(cluster.metadata, "PLAINTEXT").partition(partition)
    return result.leader_id, result.offline


def test_a_replica_on_a_fenced_broker_is_offline(module: ModuleType) -> None:
    cluster = SmallCluster(brokers=3)
    cluster.create("t", assignments=[(1, 2, 3)])
    assert described(module, cluster, cluster.partition("t")) == (1, [])
    cluster.fence(2)
    assert described(module, cluster, cluster.partition("t")) == (1, [2])


def test_a_replica_in_a_directory_that_has_failed_is_offline(module: ModuleType) -> None:
    cluster = SmallCluster(brokers=3)
    cluster.create("t", assignments=[(1, 2, 3)])
    for where, offline in ((directory(2), []), (UNASSIGNED_DIRECTORY, []), (LOST_DIRECTORY, [2]), (ELSEWHERE, [2])):
        partition = replace(cluster.partition("t"), directories=(directory(1), where, directory(3)))
        assert described(module, cluster, partition) == (1, offline)


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "broker_id not in reach or self._is_lost(broker_id, directory)",
        "self._is_lost(broker_id, directory)",
        test_a_replica_on_a_fenced_broker_is_offline,
    ),
    ("directory == LOST_DIRECTORY or ", "", test_a_replica_in_a_directory_that_has_failed_is_offline),
    (" or not is_reserved_directory(directory)", "", test_a_replica_in_a_directory_that_has_failed_is_offline),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(topic_description, right, wrong, rule)
