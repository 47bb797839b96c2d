"""What becomes of each partition and each committed offset, from what the object store has."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from support.archive_manifests import made_up_manifest

from trioka.archive.lineage import Hole, Slice
from trioka.broker.restore import plan as plan_module
from trioka.broker.restore.plan import ArchivedLog
from trioka.cluster.image.configs import ConfigResourceType
from trioka.cluster.image.metadata import Metadata
from trioka.cluster.image.partition import NO_LEADER
from trioka.cluster.image.topics import Topic
from trioka.coordinator.offsets import CommittedOffset, GroupTopicPartition
from trioka.protocol.internal_records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from trioka.protocol.remote_segment.indexes import LeaderEpoch

TOPIC_ID = b"t" * 16
DIRECTORY = b"d" * 16


@pytest.fixture
def module() -> ModuleType:
    return plan_module


def old_image(*more: PartitionRecord) -> Metadata:
    """A topic with a replica on three brokers, led in epoch 3."""
    image = Metadata()
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[4, 5, 6],
        isr=[4, 5],
        removing_replicas=[],
        adding_replicas=[],
        leader=5,
        leader_epoch=3,
        partition_epoch=9,
        directories=[bytes([n]) * 16 for n in (4, 5, 6)],
    )
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        RegisterBrokerRecord(
            broker_id=5,
            incarnation_id=b"i" * 16,
            broker_epoch=1,
            end_points=[],
            features=[],
            rack=None,
            log_dirs=[bytes([5]) * 16],
        ),
        TopicRecord(name="orders", topic_id=TOPIC_ID),
        partition,
        *more,
        ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="orders", name="retention.ms", value="7"),
        ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name="", name="log.cleaner.threads", value="2"),
        ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name="5", name="log.cleaner.threads", value="3"),
        ProducerIdsRecord(broker_id=5, broker_epoch=1, next_producer_id=4000),
    ]
    image.load(records, 99, 2)
    return image


def archived(*ends: int, uploader: int = 3, holes: tuple[Hole, ...] = ()) -> ArchivedLog:
    """Segments that end there; the first begins at offset 10."""
    epoch = LeaderEpoch(2, 10)
    starts = (10, *ends[:-1])
    slices = tuple(
        Slice(manifest=made_up_manifest(start, end, [epoch], uploader=uploader), start_offset=start, end_offset=end)
        for start, end in zip(starts, ends, strict=True)
    )
    return ArchivedLog(slices=slices, holes=holes, chain=(epoch,), producer_snapshot=None, open_transactions={})


def topic_of(image: Metadata) -> Topic:
    topic = image.topics.by_name("orders")
    assert topic is not None
    return topic


def test_a_partition_comes_back_up_to_the_end_of_its_last_segment(module: ModuleType) -> None:
    topic = topic_of(old_image())
    hole = Hole(start_offset=20, end_offset=30)
    plan = module.plan_partition(topic, topic.partitions[0], archived(20, 40, 50, holes=(hole,)))
    assert (plan.start_offset, plan.end_offset, plan.holes, plan.segments) == (10, 50, (hole,), 3)


def test_a_partition_without_a_segment_comes_back_empty(module: ModuleType) -> None:
    topic = topic_of(old_image())
    plan = module.plan_partition(topic, topic.partitions[0], None)
    assert (plan.start_offset, plan.end_offset, plan.log) == (0, 0, None)


def test_the_leader_epoch_is_far_above_all_that_is_known(module: ModuleType) -> None:
    topic = topic_of(old_image())
    plan = module.plan_partition(topic, topic.partitions[0], archived(20))
    assert plan.leader_epoch == 3 + 100
    later = module.plan_partition(topic, topic.partitions[0], archived(20, uploader=8))
    assert later.leader_epoch == 8 + 100  # elected after the copy of the metadata


def commit_of(offset: int, topic_id: bytes = TOPIC_ID) -> CommittedOffset:
    return CommittedOffset(offset, 3, "", 0, -1, topic_id, 0)


def test_committed_offsets_are_cut_to_the_end_of_the_log(module: ModuleType) -> None:
    topic = topic_of(old_image())
    plan = module.plan_partition(topic, topic.partitions[0], archived(20))
    at = {group: GroupTopicPartition(group, "orders", 0) for group in ("before", "end", "behind", "other")}
    gone = GroupTopicPartition("before", "gone", 0)
    offsets = module.plan_offsets(
        {
            at["before"]: commit_of(12),
            at["end"]: commit_of(20, bytes(16)),
            at["behind"]: commit_of(21),
            at["other"]: commit_of(12, b"o" * 16),  # of an earlier topic of that name
            gone: commit_of(1),
        },
        [plan],
    )
    assert {place: found.offset for place, found in offsets.kept.items()} == {
        at["before"]: 12,
        at["end"]: 20,
        at["behind"]: 20,
    }
    assert offsets.kept[at["behind"]].leader_epoch == -1  # that of a record that is lost
    assert offsets.kept[at["before"]].leader_epoch == 3
    assert offsets.cut == ((at["behind"], 21, 20),)
    assert set(offsets.dropped) == {at["other"], gone}


def test_the_metadata_keeps_what_is_the_clusters_and_drops_what_is_a_brokers(module: ModuleType) -> None:
    image = old_image()
    topic = topic_of(image)
    plan = module.plan_partition(topic, topic.partitions[0], archived(20))
    restored = Metadata()
    placed, directories = module.place(image, [1]), {1: DIRECTORY}
    restored.load(list(module.restored_records(image, [plan], placed=placed, directories=directories)), 1, 1)
    partition = topic_of(restored).partitions[0]
    assert topic_of(restored).topic_id == TOPIC_ID
    assert (partition.replicas, partition.isr, partition.directories) == ((1,), (1,), (DIRECTORY,))
    assert (partition.leader, partition.leader_epoch) == (NO_LEADER, 103)
    assert list(restored.brokers) == []
    assert [resource.name for resource in restored.configs] == ["orders", ""]
    assert restored.features == image.features
    assert restored.next_producer_id > image.next_producer_id + 1000  # handed out after the copy


def test_replicas_are_as_many_as_before_and_spread_over_the_nodes(module: ModuleType) -> None:
    others = [
        PartitionRecord(
            partition_id=index,
            topic_id=TOPIC_ID,
            replicas=[4, 5],
            isr=[4],
            removing_replicas=[],
            adding_replicas=[],
            leader=4,
            leader_epoch=1,
            partition_epoch=1,
            directories=[bytes([n]) * 16 for n in (4, 5)],
        )
        for index in (1, 2, 3)
    ]
    image = old_image(*others)
    assert list(module.place(image, [7, 8, 9]).values()) == [(7, 8, 9), (8, 9), (9, 7), (7, 8)]
    assert list(module.place(image, [7, 8]).values()) == [(7, 8), (8, 7), (7, 8), (8, 7)]


MISTAKES = [
    (
        "around[: len(partition.replicas)]",
        "nodes[: len(partition.replicas)]",
        test_replicas_are_as_many_as_before_and_spread_over_the_nodes,
    ),
    ("slices[-1].end_offset", "slices[0].end_offset", test_a_partition_comes_back_up_to_the_end_of_its_last_segment),
    ("max(known) + LEADER_EPOCH_GAP", "known[0] + 100", test_the_leader_epoch_is_far_above_all_that_is_known),
    ("found.offset > plan.end_offset", "False", test_committed_offsets_are_cut_to_the_end_of_the_log),
    ("plan is None or is_other", "plan is None", test_committed_offsets_are_cut_to_the_end_of_the_log),
    (
        "found._replace(offset=plan.end_offset, leader_epoch=NO_EPOCH)",
        "found._replace(offset=plan.end_offset)",
        test_committed_offsets_are_cut_to_the_end_of_the_log,
    ),
    (
        "image.next_producer_id + PRODUCER_ID_GAP",
        "image.next_producer_id",
        test_the_metadata_keeps_what_is_the_clusters_and_drops_what_is_a_brokers,
    ),
    (
        "not is_of_one_broker(record)",
        "True",
        test_the_metadata_keeps_what_is_the_clusters_and_drops_what_is_a_brokers,
    ),
    (
        "leader=NO_LEADER",
        "leader=partition.leader",
        test_the_metadata_keeps_what_is_the_clusters_and_drops_what_is_a_brokers,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(plan_module, right, wrong, rule)
