"""The cached encoding of a topic is used until the topic changes."""

from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed
from support.small_cluster import SmallCluster, directory

from trioka.broker.metadata import response_cache as metadata_response_cache
from trioka.broker.metadata.topic_description import TopicDescription
from trioka.cluster.metadata import Metadata
from trioka.cluster.topics import Topic
from trioka.protocol.internal_records.metadata import FenceBrokerRecord, PartitionChangeRecord, PartitionRecord
from trioka.protocol.messages.metadata import MetadataResponse

VERSION = 12
LISTENER = "PLAINTEXT"
MANY_REPLICAS = 250_000  # a megabyte


@pytest.fixture
def module() -> ModuleType:
    return metadata_response_cache


def result(name: str = "t", *, code: int = 0, replicas: int = 1) -> MetadataResponse.Topic:
    partition = MetadataResponse.Topic.Partition(
        error_code=code, partition_index=0, leader_id=1, replica_nodes=[1] * replicas, isr_nodes=[1]
    )
    return MetadataResponse.Topic(error_code=0, name=name, partitions=[partition])


def seen(store: Any, metadata: Metadata, version: int = VERSION, listener: str = LISTENER) -> Any:
    return store.view_for(listener, version, TopicDescription(metadata, listener))


def known(metadata: Metadata, name: str = "t") -> Topic:
    topic = metadata.topics.by_name(name)
    assert topic is not None
    return topic


def told_once(module: ModuleType, brokers: int = 1) -> tuple[Any, SmallCluster]:
    """A cluster, and a store in which its topic is kept."""
    cluster, store = SmallCluster(brokers), module.MetadataResponseCache()
    topic = cluster.create("t", assignments=[tuple(range(1, brokers + 1))])
    assert seen(store, cluster.metadata).get(topic) is None
    kept = seen(store, cluster.metadata).put(topic, result())
    assert seen(store, cluster.metadata).get(topic) is kept
    return store, cluster


def test_a_topic_is_sent_again_when_one_of_its_partitions_has_changed(module: ModuleType) -> None:
    store, cluster = told_once(module, brokers=2)
    topic = cluster.topic("t")
    cluster.append([PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, isr=[1])])
    assert seen(store, cluster.metadata).get(topic) is None
    kept = seen(store, cluster.metadata).put(topic, result())
    assert seen(store, cluster.metadata).get(topic) is kept
    next_one = PartitionRecord(
        partition_id=1,
        topic_id=topic.topic_id,
        replicas=[1],
        isr=[1],
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory(1)],
    )
    cluster.append([next_one])
    assert seen(store, cluster.metadata).get(topic) is None


def test_topics_are_sent_again_when_a_broker_has_changed(module: ModuleType) -> None:
    store, cluster = told_once(module, brokers=2)
    broker = cluster.metadata.brokers.get(2)
    assert broker is not None
    cluster.append([FenceBrokerRecord(id=2, epoch=broker.epoch)])  # and nothing of the topic
    assert seen(store, cluster.metadata).get(cluster.topic("t")) is None


def test_an_image_that_was_reloaded_is_sent_again(module: ModuleType) -> None:
    store, cluster = told_once(module)
    loaded = Metadata()
    loaded.load(cluster.metadata.records(), cluster.metadata.offset, 1)
    assert known(loaded).revision == cluster.topic("t").revision, "that would not distinguish them"
    assert seen(store, loaded).get(known(loaded)) is None


def test_versions_and_listeners_are_cached_separately(module: ModuleType) -> None:
    store, cluster = told_once(module)
    assert seen(store, cluster.metadata, version=9).get(cluster.topic("t")) is None
    assert seen(store, cluster.metadata, listener="INSIDE").get(cluster.topic("t")) is None
    assert seen(store, cluster.metadata).get(cluster.topic("t")) is not None


def test_a_topic_with_an_error_is_not_kept(module: ModuleType) -> None:
    cluster, store = SmallCluster(), module.MetadataResponseCache()
    topic, wrong = cluster.create("t"), result(code=5)
    assert seen(store, cluster.metadata).put(topic, wrong) is wrong
    assert seen(store, cluster.metadata).get(topic) is None


def test_what_is_kept_has_a_limit(module: ModuleType) -> None:
    cluster, store = SmallCluster(), module.MetadataResponseCache()
    view = seen(store, cluster.metadata)
    for number in range(10):
        topic = cluster.create(f"t{number}")
        view.put(topic, result(topic.name, replicas=MANY_REPLICAS))
        assert view.get(topic) is not None, "the last one has a place"
        assert view.size_bytes <= module.MAX_VIEW_BYTES
    assert view.get(cluster.topic("t0")) is None
    small, huge = cluster.create("small"), cluster.create("huge")
    view.put(small, result("small"))
    view.put(huge, result("huge", replicas=5 * MANY_REPLICAS))
    assert view.get(small) is not None
    assert view.get(huge) is None


def test_a_topic_that_changes_takes_its_place_once(module: ModuleType) -> None:
    store, cluster = told_once(module)
    view, topic = seen(store, cluster.metadata), cluster.topic("t")
    before = view.size_bytes
    for _ in range(3):
        view.put(topic, result())
    assert view.size_bytes == before


def test_only_so_many_views_are_kept(module: ModuleType) -> None:
    store, cluster = told_once(module)
    for number in range(3 * module.MAX_VIEWS):
        seen(store, cluster.metadata, listener=f"L{number}")
        assert len(store) <= module.MAX_VIEWS


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        " or entry.revision != topic.revision",
        "",
        test_a_topic_is_sent_again_when_one_of_its_partitions_has_changed,
    ),
    (" or view.description != description", "", test_topics_are_sent_again_when_a_broker_has_changed),
    (" or entry.topic is not topic", "", test_an_image_that_was_reloaded_is_sent_again),
    (
        "view = self._views.get((listener, version))",
        "view = next((v for (l, _), v in self._views.items() if l == listener), None)",
        test_versions_and_listeners_are_cached_separately,
    ),
    (" or any(partition.error_code for partition in result.partitions)", "", test_a_topic_with_an_error_is_not_kept),
    (
        "if self.size_bytes + size_bytes > MAX_VIEW_BYTES:",
        "if False:",
        test_what_is_kept_has_a_limit,
    ),
    ("        if size_bytes > MAX_VIEW_BYTES:\n", "        if False:\n", test_what_is_kept_has_a_limit),
    ("(0 if previous is None else previous.size_bytes)", "0", test_a_topic_that_changes_takes_its_place_once),
    ("while len(self._views) >= MAX_VIEWS:", "while False:", test_only_so_many_views_are_kept),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(metadata_response_cache, right, wrong, rule)
