"""The difference of two images is exactly the changes that a replay from one to the other reports."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.small_cluster import SmallCluster

from trioka.cluster import image_diff as the_real_one
from trioka.cluster.configs import topic_resource
from trioka.cluster.image_delta import BrokerChanged, ConfigChanged, PartitionChanged, TopicCreated, TopicDeleted
from trioka.protocol.internal_records.metadata import ConfigRecord, RemoveTopicRecord


@pytest.fixture
def module() -> ModuleType:
    return the_real_one


def test_the_same_image_has_no_differences(module: ModuleType) -> None:
    cluster = SmallCluster(3)
    cluster.create("a", partitions=2, replicas=3)
    assert module.differences(cluster.metadata, cluster.metadata.copy()) == []


def test_a_topic_that_is_new_comes_with_its_partitions(module: ModuleType) -> None:
    cluster = SmallCluster(3)
    before = cluster.metadata.copy()
    cluster.create("a", partitions=2, replicas=3)
    changes = module.differences(before, cluster.metadata)
    assert [type(change) for change in changes] == [TopicCreated, PartitionChanged, PartitionChanged]
    assert all(change.before is None for change in changes[1:])


def test_a_topic_made_again_is_deleted_first(module: ModuleType) -> None:
    cluster = SmallCluster(1)
    old = cluster.create("a")
    before = cluster.metadata.copy()
    cluster.append([RemoveTopicRecord(topic_id=old.topic_id)])
    cluster.create("a")
    changes = module.differences(before, cluster.metadata)
    assert [type(change) for change in changes] == [TopicDeleted, TopicCreated, PartitionChanged]
    assert changes[0].topic_id == old.topic_id
    assert changes[2].before is None, "it has nothing in common with the former one"


def test_a_partition_that_changed_says_what_it_was(module: ModuleType) -> None:
    cluster = SmallCluster(3)
    cluster.create("a", replicas=3)
    before = cluster.metadata.copy()
    leader = before.topics.by_name("a").partitions[0].leader  # type: ignore[union-attr]
    cluster.do(cluster.controller.fence_broker(leader))
    changes = module.differences(before, cluster.metadata)
    (moved,) = [change for change in changes if isinstance(change, PartitionChanged)]
    assert moved.before is not None and moved.before.leader == leader != moved.after.leader
    (fenced,) = [change for change in changes if isinstance(change, BrokerChanged)]
    assert fenced.before is not None and fenced.after is not None
    assert fenced.after.fenced and not fenced.before.fenced


def test_a_removed_config_is_reported_as_removed(module: ModuleType) -> None:
    cluster = SmallCluster(1)
    cluster.create("a")

    def say(value: str | None) -> None:
        cluster.append([ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value=value)])

    say("5")
    before = cluster.metadata.copy()
    say(None)
    gone = ConfigChanged(resource=topic_resource("a"), key="retention.ms", value=None)
    assert module.differences(before, cluster.metadata) == [gone]


MISTAKES = [
    ("if was != partition:", "if True:", test_the_same_image_has_no_differences),
    ("if after.topics.by_id(topic.topic_id) is None:", "if False:", test_a_topic_made_again_is_deleted_first),
    (
        "was = None if known is None else known.partitions.get(index)",
        "was = None",
        test_a_partition_that_changed_says_what_it_was,
    ),
    ("if key not in after:", "if False:", test_a_removed_config_is_reported_as_removed),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(the_real_one, right, wrong, rule)
