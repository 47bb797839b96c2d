"""Memory topics: which the controller creates and changes, and what it makes of a broker whose memory is empty."""

from collections.abc import Callable, Mapping
from random import Random
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import planted
from support.small_cluster import SmallCluster, directory, errors, new_topic, registration

from trioka.cluster.controller import broker_changes, elections
from trioka.cluster.image.features import LOG_DIR_CLASS_FEATURE, SUPPORTED
from trioka.cluster.image.partition import NO_LEADER, Partition, RecoveryState
from trioka.cluster.placement import memory_topics, partition_change, topic_overrides
from trioka.protocol.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KafkaError,
)
from trioka.protocol.internal_records.metadata import FeatureLevelRecord
from trioka.protocol.messages.alter_partition import AlterPartitionRequest
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from trioka.protocol.messages.create_partitions import CreatePartitionsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest
from trioka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

MEMORY = {"trioka.log.dir.class": "memory", "min.insync.replicas": "2"}
ON_DISK = 0
UNCLEAN = 1
FEATURES = (*SUPPORTED.values(), LOG_DIR_CLASS_FEATURE)


class MemoryCluster(SmallCluster):
    """Every broker has a directory on a disk, and, unless it is one of `without`, one in memory."""

    def __init__(self, brokers: int = 3, without: tuple[int, ...] = ()) -> None:
        self.memory = dict.fromkeys((set(range(1, brokers + 1)) - set(without)), 1)  # the number of its directory
        self.lives: dict[int, int] = {}
        super().__init__()
        for broker_id in range(1, brokers + 1):
            self.restart(broker_id)
            self.heartbeat(broker_id)

    def directories(self, broker_id: int) -> list[bytes]:
        in_memory = [self.memory_directory(broker_id)] if broker_id in self.memory else []
        return [directory(broker_id, ON_DISK), *in_memory]

    def memory_directory(self, broker_id: int) -> bytes:
        return directory(broker_id, self.memory[broker_id])

    def restart(self, broker_id: int, *, loses: bool = False, clean: bool = False) -> None:
        """The broker registers in a new life, and is fenced."""
        before = self.metadata.brokers.get(broker_id)
        if broker_id in self.memory:
            self.memory[broker_id] += loses
        self.lives[broker_id] = self.lives.get(broker_id, 0) + 1
        request = registration(
            broker_id,
            life=self.lives[broker_id],
            previous_epoch=before.epoch if before is not None and clean else -1,
            directories=self.directories(broker_id),
            features=FEATURES if broker_id in self.memory else SUPPORTED.values(),
        )
        decision = self.controller.register_broker(request, next_offset=self.next_offset, has_session=False)
        self.do(decision)

    def report(self, broker_id: int, name: str = "t") -> None:
        """The broker reports that its replica is in its memory directory."""
        broker = self.metadata.brokers.get(broker_id)
        assert broker is not None
        result = AssignReplicasToDirsRequest.Directory
        partitions = [result.Topic.Partition(partition_index=0)]
        topics = [result.Topic(topic_id=self.topic(name).topic_id, partitions=partitions)]
        request = AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=broker.epoch,
            directories=[result(id=self.memory_directory(broker_id), topics=topics)],
        )
        self.do(self.controller.assign_replicas_to_directories(request))

    def report_all(self) -> None:
        for broker_id in self.memory:
            self.report(broker_id)

    def join(self, broker_id: int, name: str = "t") -> bool:
        """The leader proposes an ISR with a follower that has caught up."""
        topic, partition = self.topic(name), self.partition(name)
        leader = self.metadata.brokers.get(partition.leader)
        if leader is None or broker_id in partition.isr:
            return False
        result = AlterPartitionRequest.Topic.Partition
        epochs = {each: self.metadata.brokers.get(each) for each in (*partition.isr, broker_id)}
        proposal = result(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[
                result.NewIsrWithEpoch(broker_id=each, broker_epoch=broker.epoch)
                for each, broker in epochs.items()
                if broker is not None
            ],
            leader_recovery_state=0,
            partition_epoch=partition.partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=leader.epoch,
            topics=[AlterPartitionRequest.Topic(topic_id=topic.topic_id, partitions=[proposal])],
        )
        (reply,) = self.do(self.controller.alter_partition(request))
        return reply.outcome.error is None


def memory_cluster(**how: Any) -> MemoryCluster:
    """With a topic on three brokers, in memory."""
    cluster = MemoryCluster(**how)
    cluster.create("t", assignments=[[1, 2, 3]], configs=MEMORY)
    return cluster


def creation(cluster: SmallCluster, **how: Any) -> type[KafkaError] | None:
    how = {"configs": MEMORY, **how}
    (reply,) = cluster.controller.create_topics([new_topic("new", **how)]).replies
    error: type[KafkaError] | None = reply.outcome.error
    return error


def altered(cluster: SmallCluster, key: str, value: str | None, name: str = "t") -> type[KafkaError] | None:
    result = IncrementalAlterConfigsRequest.Resource
    config = result.Config(name=key, config_operation=0 if value is not None else 1, value=value)
    resource = result(resource_type=2, resource_name=name, configs=[config])
    (error,) = errors(cluster.do(cluster.controller.incremental_alter_configs([resource])))
    return error


def counting(partition: Partition) -> set[int]:
    """The replicas that the controller takes for complete."""
    return {each for each in partition.replicas if partition.may_lead_without_fetching(each)}


# --- creating and changing


def test_replicas_are_placed_only_on_brokers_with_a_memory_directory() -> None:
    cluster = MemoryCluster(brokers=5, without=(2, 4))
    topic = cluster.create("t", partitions=6, replicas=2, configs=MEMORY)
    assert {each for partition in topic.partitions.values() for each in partition.replicas} == {1, 3, 5}
    assert creation(cluster, replicas=4) is InvalidReplicationFactor
    assert creation(cluster, assignments=[[1, 2]]) is InvalidReplicaAssignment
    more = CreatePartitionsRequest.Topic(name="t", count=9, assignments=None)
    cluster.do(cluster.controller.create_partitions([more]))
    assert {each for partition in topic.partitions.values() for each in partition.replicas} <= {1, 3, 5}
    assignment = CreatePartitionsRequest.Topic.Assignment(broker_ids=[1, 4])
    more = CreatePartitionsRequest.Topic(name="t", count=10, assignments=[assignment])
    assert errors(cluster.controller.create_partitions([more]).replies) == [InvalidReplicaAssignment]


def test_a_cluster_without_memory_directories_has_no_memory_topics() -> None:
    cluster = MemoryCluster(brokers=1, without=(1,))
    assert creation(cluster) is InvalidReplicationFactor
    assert creation(cluster, configs={"trioka.log.dir.class": "disk"}) is None


def test_a_broker_whose_memory_directory_is_offline_gets_no_replicas() -> None:
    """Its replica would be recorded in the only directory that is left, and its loss would not be seen."""
    cluster = MemoryCluster()
    cluster.heartbeat(3, offline_log_dirs=[cluster.memory_directory(3)])
    assert creation(cluster, replicas=3) is InvalidReplicationFactor
    assert creation(cluster, assignments=[[1, 3]]) is InvalidReplicaAssignment
    assert creation(cluster, replicas=2) is None


def test_several_replicas_need_two_in_sync_and_the_topic_says_so_itself() -> None:
    cluster = MemoryCluster()
    assert creation(cluster, replicas=3, configs={"trioka.log.dir.class": "memory"}) is InvalidConfig
    assert creation(cluster, replicas=3, configs={**MEMORY, "min.insync.replicas": "1"}) is InvalidConfig
    cluster.create("t", replicas=3, configs=MEMORY)
    assert altered(cluster, "min.insync.replicas", "1") is InvalidConfig
    assert altered(cluster, "min.insync.replicas", None) is InvalidConfig
    assert altered(cluster, "min.insync.replicas", "3") is None


def test_one_replica_is_possible_only_if_the_request_names_it() -> None:
    cluster = MemoryCluster()
    configs = {"trioka.log.dir.class": "memory"}
    assert creation(cluster, replicas=1, configs=configs) is None
    assert creation(cluster, assignments=[[1]], configs=configs) is None
    default = CreateTopicsRequest.Topic(
        name="new",
        num_partitions=1,
        replication_factor=-1,
        assignments=[],
        configs=[CreateTopicsRequest.Topic.Config(name=key, value=value) for key, value in configs.items()],
    )
    assert errors(cluster.controller.create_topics([default]).replies) == [InvalidReplicationFactor]


def test_the_class_of_a_topic_does_not_change() -> None:
    cluster = memory_cluster()
    cluster.create("on-disk")
    assert altered(cluster, "trioka.log.dir.class", None) is InvalidConfig
    assert altered(cluster, "trioka.log.dir.class", "disk") is InvalidConfig
    assert altered(cluster, "trioka.log.dir.class", "memory", "on-disk") is InvalidConfig
    assert altered(cluster, "trioka.log.dir.class", "disk", "on-disk") is None
    assert altered(cluster, "retention.ms", "1000") is None


def test_a_replica_moves_only_to_a_broker_with_a_memory_directory() -> None:
    cluster = MemoryCluster(brokers=4, without=(4,))
    cluster.create("t", assignments=[[1, 2]], configs=MEMORY)
    cluster.create("single", assignments=[[1]], configs={"trioka.log.dir.class": "memory"})

    def moved(name: str, *replicas: int) -> type[KafkaError] | None:
        result = AlterPartitionReassignmentsRequest.Topic
        partition = result.Partition(partition_index=0, replicas=list(replicas))
        topics = [result(name=name, partitions=[partition])]
        (error,) = errors(cluster.do(cluster.controller.alter_partition_reassignments(topics)))
        return error

    assert moved("t", 1, 4) is InvalidReplicaAssignment
    assert moved("t", 1, 3) is None
    assert moved("single", 1, 2) is InvalidConfig
    assert altered(cluster, "min.insync.replicas", "2", "single") is None
    assert moved("single", 1, 2) is None


def test_without_eligible_leaders_there_are_no_memory_topics() -> None:
    """The last replica stays in the ISR then, though it may have lost its memory."""
    cluster = MemoryCluster()
    cluster.append([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)])
    assert creation(cluster, replicas=3) is InvalidConfig


# --- TM1


def test_a_replica_that_lost_its_memory_counts_for_nothing_even_after_a_clean_stop() -> None:
    cluster = memory_cluster()
    cluster.create("on-disk", assignments=[[1, 2, 3]], configs={"min.insync.replicas": "2"})
    cluster.report_all()
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    assert counting(cluster.partition("t")) == {2, 3}
    cluster.restart(3, loses=True, clean=True)
    cluster.heartbeat(3)
    cluster.report(3)
    assert counting(cluster.partition("t")) == {2}
    assert cluster.partition("t").leader == NO_LEADER
    assert cluster.partition("on-disk").leader == 3, "the disks are as complete as the clean stop says"
    cluster.restart(2, clean=True)
    cluster.heartbeat(2)
    assert cluster.partition("t").leader == 2
    assert cluster.join(3)
    assert counting(cluster.partition("t")) == {2, 3}


def test_the_last_known_leader_does_not_lead_with_an_empty_memory() -> None:
    cluster = memory_cluster()
    cluster.report_all()
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    assert cluster.partition("t").last_known_elr == (3,)
    for broker_id in (1, 2, 3):
        cluster.restart(broker_id, loses=True)
    for broker_id in (1, 2, 3):
        cluster.heartbeat(broker_id)
        cluster.report(broker_id)
    assert counting(cluster.partition("t")) == set()
    assert cluster.partition("t").leader == NO_LEADER


def test_a_process_that_restarts_without_loss_leads_again() -> None:
    cluster = memory_cluster()
    cluster.report_all()
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    cluster.restart(3)
    cluster.heartbeat(3)
    for broker_id in (1, 2):
        cluster.restart(broker_id)
        cluster.heartbeat(broker_id)
    assert cluster.partition("t").leader == 3


def test_a_loss_before_the_directory_was_reported_counts_too() -> None:
    cluster = memory_cluster()  # nothing is reported yet
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    cluster.restart(3, loses=True, clean=True)
    cluster.heartbeat(3)
    assert 3 not in counting(cluster.partition("t"))


def test_a_loss_while_the_broker_was_unregistered_counts_too() -> None:
    cluster = memory_cluster()
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    cluster.do(cluster.controller.unregister_broker(3))
    cluster.restart(3, loses=True)
    cluster.heartbeat(3)
    assert 3 not in counting(cluster.partition("t"))


def test_no_unclean_election_happens_without_a_request() -> None:
    cluster = MemoryCluster()
    cluster.create("t", assignments=[[1, 2, 3]], configs={**MEMORY, "unclean.leader.election.enable": "true"})
    cluster.report_all()
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    cluster.restart(1, loses=True)
    cluster.heartbeat(1)
    cluster.report(1)
    assert cluster.controller.elect_unclean(limit=10).records == ()
    assert cluster.partition("t").leader == NO_LEADER


def tiered_cluster(restore: str) -> MemoryCluster:
    """With a topic in memory and in the object store, on three brokers, which are down."""
    cluster = MemoryCluster()
    configs = {**MEMORY, "remote.storage.enable": "true", "trioka.memory.restore": restore}
    cluster.create("t", assignments=[[1, 2, 3]], configs=configs)
    cluster.report_all()
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    return cluster


def test_a_lost_tiered_topic_has_a_leader_again_on_request_and_that_leader_restores_it_first() -> None:
    cluster = tiered_cluster("manual")
    for broker_id in (1, 2, 3):
        cluster.restart(broker_id, loses=True)
        cluster.heartbeat(broker_id)
        cluster.report(broker_id)
    assert cluster.controller.elect_unclean(limit=10).records == ()
    assert cluster.partition("t").leader == NO_LEADER
    requested = [ElectLeadersRequest.TopicPartition(topic="t", partitions=[0])]
    assert errors(cluster.do(cluster.controller.elect_leaders(UNCLEAN, requested))) == [None]
    assert cluster.partition("t").leader == 1
    assert cluster.partition("t").leader_recovery_state is RecoveryState.RECOVERING


def test_a_lost_tiered_topic_is_restored_automatically_only_when_no_complete_replica_is_left() -> None:
    cluster = tiered_cluster("auto")
    for broker_id in (1, 2):
        cluster.restart(broker_id, loses=True)
        cluster.heartbeat(broker_id)
        cluster.report(broker_id)
        assert cluster.controller.elect_unclean(limit=10).records == ()
        assert cluster.partition("t").leader == NO_LEADER, "broker 3 may have its memory"
    cluster.restart(3, loses=True)
    cluster.heartbeat(3)
    assert cluster.partition("t").leader != NO_LEADER
    assert cluster.partition("t").leader_recovery_state is RecoveryState.RECOVERING


def test_a_tiered_topic_is_led_by_the_broker_that_kept_its_memory() -> None:
    cluster = tiered_cluster("auto")
    for broker_id in (1, 2):
        cluster.restart(broker_id, loses=True)
        cluster.heartbeat(broker_id)
    cluster.restart(3, clean=True)
    cluster.heartbeat(3)
    assert cluster.partition("t").leader == 3
    assert cluster.partition("t").leader_recovery_state is RecoveryState.RECOVERED


def tm1_holds(seed: int) -> None:
    """Brokers stop, start with or without their memory, report their directories early, late or never, and catch up.
    A replica that lost its memory counts only after it has caught up with a leader."""
    random = Random(seed)
    cluster = memory_cluster()
    lost: set[int] = set()
    for _ in range(60):
        broker_id = random.randint(1, 3)
        broker = cluster.metadata.brokers.get(broker_id)
        match random.randrange(6):
            case 0:
                cluster.fence(broker_id)
            case 1:
                loses = random.random() < 0.5
                cluster.restart(broker_id, loses=loses, clean=random.random() < 0.5)
                lost |= {broker_id} if loses else set()
            case 2 if broker is not None:
                cluster.heartbeat(broker_id)
            case 3 if broker is not None:
                cluster.report(broker_id)
            case 4 if broker is not None and not broker.fenced:
                lost -= {broker_id} if cluster.join(broker_id) else set()
            case 5 if broker is not None and random.random() < 0.2:
                cluster.do(cluster.controller.unregister_broker(broker_id))
        partition = cluster.partition("t")
        assert not counting(partition) & lost, f"seed {seed}: {partition}"
        assert partition.leader not in lost, f"seed {seed}: {partition}"


def tm1_holds_always(seeds: int) -> None:
    for seed in range(seeds):
        tm1_holds(seed)


def test_no_schedule_makes_a_lost_replica_count() -> None:
    tm1_holds_always(1000)


# --- planted mistakes


def of_directories(wrong: ModuleType) -> Mapping[str, Any]:
    return {"trioka.cluster.controller.broker_changes.on_directories_lost": wrong.on_directories_lost}


def of_partitions(wrong: ModuleType) -> Mapping[str, Any]:
    return {"trioka.cluster.placement.memory_topics.change_partition": wrong.change_partition}


def of_registrations(wrong: ModuleType) -> Mapping[str, Any]:
    return {
        "trioka.cluster.controller.broker_changes._without_same_partitions": wrong._without_same_partitions,
        "trioka.cluster.controller.broker_changes.register_broker": wrong.register_broker,
    }


MISTAKES: list[tuple[ModuleType, str, str, Callable[[ModuleType], Mapping[str, Any]]]] = [
    (memory_topics, "is_lost = is_any_missing if is_reserved_directory(directory) else directory not in now",
     "is_lost = not is_reserved_directory(directory) and directory not in now", of_directories),
    (memory_topics, "is_any_missing = before is None or not set(before.directories) <= set(now)",
     "is_any_missing = before is not None and not set(before.directories) <= set(now)", of_directories),
    (memory_topics, "isr = tuple(replica for replica in partition.isr if replica != broker_id)",
     "isr = partition.isr", of_directories),
    (memory_topics, "crashed=(broker_id,)", "crashed=()", of_directories),
    (memory_topics, "lost=(broker_id,)", "lost=()", of_directories),
    (partition_change, "if partition.leader in lost or set(lost) & set(partition.last_known_elr):",
     "if partition.leader in lost:", of_partitions),
    (partition_change, "if partition.leader in lost or set(lost) & set(partition.last_known_elr):",
     "if set(lost) & set(partition.last_known_elr):", of_partitions),
    (broker_changes, "if not isinstance(record, PartitionChangeRecord) or "
     "(record.topic_id, record.partition_id) not in named:", "if True:", of_registrations),
]  # fmt: skip


@pytest.mark.parametrize(("module", "right", "wrong", "patches"), MISTAKES)
def test_a_planted_mistake_is_noticed_by_the_schedules(
    module: ModuleType,
    right: str,
    wrong: str,
    patches: Callable[[ModuleType], Mapping[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in patches(planted(module, right, wrong)).items():
        monkeypatch.setattr(name, value)
    with pytest.raises(AssertionError, match="seed"):
        tm1_holds_always(200)


@pytest.mark.parametrize(
    ("right", "wrong", "test"),
    [
        (
            "is_lost and is_restored_automatically(metadata, topic.name)",
            "is_restored_automatically(metadata, topic.name)",
            test_a_lost_tiered_topic_is_restored_automatically_only_when_no_complete_replica_is_left,
        ),
        (
            "is_lost and is_restored_automatically(metadata, topic.name)",
            "is_lost",
            test_a_lost_tiered_topic_has_a_leader_again_on_request_and_that_leader_restores_it_first,
        ),
    ],
)
def test_an_early_election_of_a_lost_topic_is_noticed(
    right: str, wrong: str, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "default_election", planted(elections, right, wrong).default_election)
    with pytest.raises(AssertionError):
        test()


def test_an_unclean_election_by_configuration_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = "is_linearizable(metadata, topic.name) or is_memory_topic(metadata, topic.name)"
    mistaken = planted(topic_overrides, guard, "is_linearizable(metadata, topic.name)")
    monkeypatch.setattr(elections, "is_unclean_election_allowed", mistaken.is_unclean_election_allowed)
    with pytest.raises(AssertionError):
        test_no_unclean_election_happens_without_a_request()
