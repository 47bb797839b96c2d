"""Whatever is decided: who replays it, who loads a snapshot of it and who reads it from bytes have the same image.

Decisions are drawn at random, sensible and not. After each, the partitions keep the rules that hold always (I12, I13,
I15), and in the end three ways lead to the same image: the log, a snapshot in the middle with the rest of the log, and
the bytes of both.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_cluster import SmallCluster, new_topic, quota

from trioka.cluster.image.metadata import Metadata
from trioka.cluster.image.partition import NO_LEADER, Partition
from trioka.cluster.placement.topic_overrides import min_insync_replicas
from trioka.cluster.quorum.metadata_log import build_batch, read_batch
from trioka.cluster.quorum.snapshot import build_snapshot, read_snapshot
from trioka.protocol import batch
from trioka.protocol.messages.alter_partition import AlterPartitionRequest
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from trioka.protocol.messages.update_features import UpdateFeaturesRequest
from trioka.protocol.primitives import NULL_UUID

BROKERS = 4
TOPICS = ("a", "b.c", "b_c", "d")


class Operator:
    """An operator that sends any request, in a cluster of four."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.cluster = SmallCluster(brokers=BROKERS, racks={1: "x", 2: "x", 3: "y"}, min_insync_replicas=2)
        self.life = dict.fromkeys(range(1, BROKERS + 1), 1)
        self.deeds = [
            self.create,
            self.create,
            self.delete,
            self.grow,
            self.configure,
            self.set_quota,
            self.fence,
            self.restart,
            self.beat,
            self.beat,
            self.shut_down,
            self.unregister,
            self.elect,
            self.move,
            self.propose,
            self.propose,
            self.allocate,
            self.toggle_feature,
        ]

    def act(self) -> None:
        self.random.choice(self.deeds)()

    def broker(self) -> int:
        return self.random.randint(1, BROKERS)

    def topic(self) -> str:
        return self.random.choice(TOPICS)

    def create(self) -> None:
        topic = new_topic(self.topic(), self.random.randint(0, 3), self.random.randint(1, BROKERS))
        if self.random.random() < 0.3:
            topic = new_topic(self.topic(), configs={"min.insync.replicas": "1", "retention.ms": "5"})
        self.cluster.do(self.cluster.controller.create_topics([topic]))

    def delete(self) -> None:
        topics = [DeleteTopicsRequest.Topic(name=self.topic(), topic_id=NULL_UUID)]
        self.cluster.do(self.cluster.controller.delete_topics(topics))

    def grow(self) -> None:
        wanted = CreatePartitionsRequest.Topic(name=self.topic(), count=self.random.randint(1, 5), assignments=None)
        self.cluster.do(self.cluster.controller.create_partitions([wanted]))

    def configure(self) -> None:
        wanted = IncrementalAlterConfigsRequest.Resource
        kind, name = self.random.choice([(2, self.topic()), (4, ""), (4, str(self.broker())), (32, "g")])
        key = self.random.choice(["min.insync.replicas", "unclean.leader.election.enable", "x"])
        value = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}.get(key, "5")
        config = wanted.Config(name=key, config_operation=self.random.randint(0, 1), value=value)
        resource = wanted(resource_type=kind, resource_name=name, configs=[config])
        self.cluster.do(self.cluster.controller.incremental_alter_configs([resource]))

    def set_quota(self) -> None:
        value = self.random.choice([None, 5.0, 7.0])
        entry = quota({"user": self.random.choice(["ann", "bob", None])}, {"producer_byte_rate": value})
        self.cluster.do(self.cluster.controller.alter_client_quotas([entry]))

    def fence(self) -> None:
        self.cluster.fence(self.broker())

    def restart(self) -> None:
        broker_id = self.broker()
        self.life[broker_id] += 1
        before = self.cluster.metadata.brokers.get(broker_id)
        is_clean = before is not None and self.random.random() < 0.5
        epoch = before.epoch if before is not None and is_clean else -1
        self.cluster.register(broker_id, life=self.life[broker_id], previous_epoch=epoch)

    def beat(self) -> None:
        broker_id = self.broker()
        if broker_id in self.cluster.metadata.brokers:
            self.cluster.heartbeat(broker_id)

    def shut_down(self) -> None:
        broker_id = self.broker()
        if broker_id in self.cluster.metadata.brokers:
            self.cluster.heartbeat(broker_id, want_shut_down=True)

    def unregister(self) -> None:
        if self.random.random() < 0.2:
            self.cluster.do(self.cluster.controller.unregister_broker(self.broker()))

    def elect(self) -> None:
        requested = [ElectLeadersRequest.TopicPartition(topic=self.topic(), partitions=[0, 1])]
        self.cluster.do(self.cluster.controller.elect_leaders(self.random.randint(0, 1), requested))

    def move(self) -> None:
        wanted = AlterPartitionReassignmentsRequest.Topic
        count = self.random.randint(1, BROKERS)
        replicas = self.random.choice([None, self.random.sample(range(1, BROKERS + 1), count)])
        requested = wanted(name=self.topic(), partitions=[wanted.Partition(partition_index=0, replicas=replicas)])
        self.cluster.do(self.cluster.controller.alter_partition_reassignments([requested]))

    def propose(self) -> None:
        led = [(topic, each) for topic, each in self.cluster.metadata.topics.partitions() if each.has_leader]
        if not led:
            return
        topic, partition = self.random.choice(led)
        leader = self.cluster.metadata.brokers.get(partition.leader)
        assert leader is not None
        others = self.random.sample(partition.replicas, self.random.randint(0, len(partition.replicas)))
        wanted = AlterPartitionRequest.Topic
        request = AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.epoch,
            topics=[
                wanted(
                    topic_id=topic.topic_id,
                    partitions=[
                        wanted.Partition(
                            partition_index=partition.index,
                            leader_epoch=partition.leader_epoch,
                            partition_epoch=partition.partition_epoch,
                            new_isr=list(dict.fromkeys([leader.broker_id, *others])),
                        )
                    ],
                )
            ],
        )
        self.cluster.do(self.cluster.controller.alter_partition(request))

    def allocate(self) -> None:
        broker = self.cluster.metadata.brokers.get(self.broker())
        if broker is not None:
            self.cluster.do(self.cluster.controller.allocate_producer_ids(broker.broker_id, broker.epoch))

    def toggle_feature(self) -> None:
        level, how = self.random.choice([(0, 2), (1, 1)])
        wanted = UpdateFeaturesRequest.FeatureUpdate(feature="group.version", max_version_level=level, upgrade_type=how)
        self.cluster.do(self.cluster.controller.update_features([wanted]))


def check_partitions(cluster: SmallCluster) -> None:
    for topic, partition in cluster.metadata.topics.partitions():
        check_partition(cluster, partition, min_insync_replicas(cluster.metadata, cluster.settings, topic))


def check_partition(cluster: SmallCluster, partition: Partition, min_isr: int) -> None:
    isr, elr, replicas = set(partition.isr), set(partition.eligible_leader_replicas), set(partition.replicas)
    assert len(partition.replicas) == len(replicas) == len(partition.directories)
    assert isr <= replicas and len(isr) == len(partition.isr)
    assert elr <= replicas and not elr & isr
    assert not elr or len(isr) < min(min_isr, len(replicas)), (
        "eligible leaders are kept only while the ISR is too small"
    )
    assert len(partition.last_known_elr) <= 1
    assert partition.leader == NO_LEADER or partition.leader in isr
    for replica in isr:
        assert cluster.metadata.brokers.is_active(replica), f"{replica} is not there, and in sync"
    adding, removing = set(partition.adding_replicas), set(partition.removing_replicas)
    assert adding | removing <= replicas and not adding & removing


def from_bytes(cluster: SmallCluster, start: int, metadata: Metadata) -> Metadata:
    """What a node has that reads the log from an offset on."""
    for first in range(start, len(cluster.log), 7):
        data = build_batch(cluster.log[first : first + 7], base_offset=first, epoch=1, now_ms=0)
        for header in batch.headers(data):
            for entry in read_batch(data, header):
                assert entry.record is not None
                metadata.replay(entry.record, entry.offset, entry.epoch)
    return metadata


def snapshot_of(metadata: Metadata) -> bytes:
    pieces = build_snapshot(metadata.records(), epoch=metadata.epoch, now_ms=0, last_contained_log_timestamp_ms=0)
    return b"".join(pieces)


def three_ways(seed: int, deeds: int) -> None:
    operator = Operator(Random(seed))
    cluster = operator.cluster
    middle, copy = snapshot_of(cluster.metadata), cluster.metadata.copy()
    halfway = cluster.metadata.offset
    for number in range(deeds):
        operator.act()
        check_partitions(cluster)
        if number == deeds // 2:
            middle, halfway, copy = snapshot_of(cluster.metadata), cluster.metadata.offset, cluster.metadata.copy()

    assert from_bytes(cluster, 0, Metadata()) == cluster.metadata
    loaded = Metadata()
    loaded.load(read_snapshot(middle).records, halfway, 1)
    assert loaded == copy and snapshot_of(loaded) == middle
    assert from_bytes(cluster, halfway + 1, loaded) == cluster.metadata
    assert snapshot_of(loaded) == snapshot_of(cluster.metadata)


def run_seeds(count: int) -> None:
    for seed in range(count):
        three_ways(seed, 60)


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32), deeds=st.integers(1, 60))
def test_three_ways_lead_to_the_same_image(seed: int, deeds: int) -> None:
    three_ways(seed, deeds)


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        ("controller.broker_changes.on_broker_fenced", lambda *_: ()),
        ("placement.partition_change._eligible_leaders", lambda partition, *_: partition.replicas),
        ("controller.isr_changes._check_eligibility", lambda *_: None),
        ("image.topics.Topics.records", lambda self: ()),
        ("image.features.Features.replay", lambda self, record: None),
    ],
)
def test_a_planted_mistake_is_noticed(where: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"trioka.cluster.{where}", wrong)
    with pytest.raises(AssertionError):
        run_seeds(40)
