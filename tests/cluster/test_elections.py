"""Requested elections and reassignments, and what leaders and brokers report of their replicas (I6, I16)."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import planted
from support.small_cluster import SmallCluster, directory, errors

from trioka.cluster import isr_changes, partition_change
from trioka.cluster.partition import LOST_DIRECTORY, NO_LEADER, RecoveryState
from trioka.protocol.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NewLeaderElected,
    NoReassignmentInProgress,
    NotController,
    NotLeaderOrFollower,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.internal_records.metadata import ConfigRecord, NoOpRecord, PartitionChangeRecord
from trioka.protocol.messages.alter_partition import AlterPartitionRequest
from trioka.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from trioka.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from trioka.protocol.messages.elect_leaders import ElectLeadersRequest
from trioka.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

PREFERRED, UNCLEAN = 0, 1
Error = type[KafkaError]


def cluster_of(brokers: int = 3, *assignments: Sequence[int], **settings: Any) -> SmallCluster:
    cluster = SmallCluster(brokers=brokers, **settings)
    cluster.create("orders", assignments=assignments or [[1, 2, 3]])
    return cluster


# --- ElectLeaders


def elect(cluster: SmallCluster, how: int, *indexes: int, topic: str = "orders") -> list[Error | None]:
    requested = [ElectLeadersRequest.TopicPartition(topic=topic, partitions=list(indexes))]
    return errors(cluster.do(cluster.controller.elect_leaders(how, requested)))


def test_a_topic_with_linearizable_reads_has_no_unclean_election() -> None:
    cluster = cluster_of(2, [1, 2], unclean_leader_election_enable=True)
    key = ConfigRecord(resource_type=2, resource_name="orders", name="trioka.read.consistency", value="linearizable")
    cluster.append([key])
    cluster.fence(2)
    cluster.fence(1)
    cluster.heartbeat(2)  # which is not in sync
    assert cluster.partition("orders").leader == NO_LEADER
    assert elect(cluster, UNCLEAN, 0) == [InvalidRequest]
    assert not cluster.controller.elect_unclean(10).records
    cluster.append([ConfigRecord(resource_type=2, resource_name="orders", name=key.name, value="committed")])
    assert elect(cluster, UNCLEAN, 0) == [None]


def test_the_preferred_leader_leads_again_when_it_is_in_sync() -> None:
    cluster = cluster_of()
    cluster.fence(1)
    cluster.heartbeat(1)
    assert elect(cluster, PREFERRED, 0) == [PreferredLeaderNotAvailable]  # there, but not in sync
    propose(cluster, 2, isr=[2, 3, 1])
    assert elect(cluster, PREFERRED, 0) == [None]
    assert cluster.partition("orders").leader == 1
    assert elect(cluster, PREFERRED, 0) == [ElectionNotNeeded]


def test_an_unclean_election_takes_any_live_replica() -> None:
    cluster = cluster_of()
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    assert elect(cluster, UNCLEAN, 0) == [EligibleLeadersNotAvailable]
    cluster.heartbeat(1)
    assert cluster.partition("orders").leader == NO_LEADER
    assert elect(cluster, UNCLEAN, 0) == [None]
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (1, (1,), ())
    assert partition.leader_recovery_state is RecoveryState.RECOVERING
    assert elect(cluster, UNCLEAN, 0) == [ElectionNotNeeded]


def test_what_is_not_there_has_no_election() -> None:
    cluster = cluster_of()
    assert elect(cluster, PREFERRED, 9, -1) == [UnknownTopicOrPartition] * 2
    assert elect(cluster, PREFERRED, 0, topic="nope") == [UnknownTopicOrPartition]
    with pytest.raises(InvalidRequest):
        elect(cluster, 7, 0)


def test_an_election_everywhere_answers_only_where_one_was_needed() -> None:
    cluster = cluster_of(3, [1, 2], [2, 1], [3, 1])
    cluster.create("events")
    cluster.fence(1)
    cluster.start(1, life=2)
    propose(cluster, 2, isr=[2, 1])
    replies = cluster.do(cluster.controller.elect_leaders(PREFERRED, None))
    assert [(reply.topic, reply.index) for reply in replies] == [("events", None), ("orders", 0)]


# --- reassignments


def move(
    cluster: SmallCluster, replicas: list[int] | None, *, index: int = 0, topic: str = "orders", same_size: bool = False
) -> Error | None:
    wanted = AlterPartitionReassignmentsRequest.Topic
    requested = [wanted(name=topic, partitions=[wanted.Partition(partition_index=index, replicas=replicas)])]
    decision = cluster.controller.alter_partition_reassignments(
        requested, allow_replication_factor_change=not same_size
    )
    (error,) = errors(cluster.do(decision))
    return error


def test_a_move_grows_catches_up_and_shrinks() -> None:
    cluster = cluster_of(4, [1, 2])
    epoch = cluster.partition("orders").leader_epoch
    assert move(cluster, [3, 4]) is None
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 4, 1, 2), (1, 2), 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((3, 4), (1, 2))
    assert partition.directories == tuple(map(directory, partition.replicas))
    assert propose(cluster, 1, isr=[1, 2, 3]) is None
    assert cluster.partition("orders").is_reassigning
    assert propose(cluster, 1, isr=[1, 2, 3, 4]) is NewLeaderElected  # and it counts all the same
    partition = cluster.partition("orders")
    assert (partition.replicas, set(partition.isr), partition.leader) == ((3, 4), {3, 4}, 3)
    assert not partition.is_reassigning and partition.leader_epoch == epoch + 1


def test_the_end_of_a_move_makes_a_new_leader_epoch_even_if_the_leader_stays() -> None:
    cluster = cluster_of(3, [1, 2])
    epoch = cluster.partition("orders").leader_epoch
    assert move(cluster, [1, 3]) is None
    assert propose(cluster, 1, isr=[1, 2, 3]) is None
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((1, 3), 1, epoch + 1)


def test_a_move_that_only_takes_away_ends_at_once() -> None:
    cluster = cluster_of()
    assert move(cluster, [1, 2]) is None
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.is_reassigning) == ((1, 2), (1, 2), False)


def test_a_move_to_where_it_is_changes_nothing() -> None:
    cluster = SmallCluster()
    cluster.create("orders")
    before = cluster.partition("orders")
    assert move(cluster, [1]) is None
    assert cluster.partition("orders") == before


def test_a_move_is_called_off() -> None:
    cluster = cluster_of(4, [1, 2])
    assert move(cluster, None) is NoReassignmentInProgress
    move(cluster, [3, 4])
    propose(cluster, 1, isr=[1, 2, 3])
    assert move(cluster, None) is None
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (1, 2), 1)
    assert not partition.is_reassigning


def test_there_is_no_clean_way_back_if_only_new_replicas_are_in_sync() -> None:
    cluster = cluster_of(3, [1])
    move(cluster, [2, 3])
    propose(cluster, 1, isr=[1, 2])
    cluster.fence(1)
    assert cluster.partition("orders").isr == (2,)
    assert move(cluster, None) is InvalidReplicaAssignment


def test_a_second_move_replaces_the_first_and_keeps_what_it_has_begun() -> None:
    cluster = cluster_of(4, [1, 2])
    move(cluster, [3, 2])
    assert move(cluster, [3, 4]) is None
    partition = cluster.partition("orders")
    assert (partition.adding_replicas, partition.removing_replicas) == ((3, 4), (1, 2))
    assert move(cluster, None) is None
    assert set(cluster.partition("orders").replicas) == {1, 2}


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ([9], InvalidReplicaAssignment),
        ([1, 1], InvalidReplicaAssignment),
        ([], InvalidReplicaAssignment),
        ([3], None),
        ([1, 2, 3], None),
    ],
)
def test_a_move_is_checked_as_any_assignment(replicas: list[int], error: Error | None) -> None:
    assert move(cluster_of(3, [1, 2]), replicas) is error


def test_a_move_may_be_bound_to_keep_the_number_of_replicas() -> None:
    cluster = cluster_of(4, [1, 2])
    assert move(cluster, [1, 2, 3], same_size=True) is InvalidReplicationFactor
    assert move(cluster, [3], same_size=True) is InvalidReplicationFactor
    assert move(cluster, [3, 4], same_size=True) is None
    assert move(cluster, [1, 3], same_size=True) is None
    assert move(cluster, [9], same_size=True) is InvalidReplicaAssignment


def test_what_is_not_there_does_not_move() -> None:
    cluster = cluster_of()
    assert move(cluster, [1], topic="nope") is UnknownTopicOrPartition
    assert move(cluster, None, index=9) is UnknownTopicOrPartition


def test_the_moves_under_way_are_listed() -> None:
    cluster = cluster_of(4, [1, 2], [1, 2])
    assert cluster.controller.list_partition_reassignments(None) == ()
    move(cluster, [3, 4], index=1)
    (found,) = cluster.controller.list_partition_reassignments(None)
    assert (found.topic, found.partition.index, found.partition.adding_replicas) == ("orders", 1, (3, 4))

    def listed(name: str, *indexes: int) -> int:
        requested = [ListPartitionReassignmentsRequest.Topic(name=name, partition_indexes=list(indexes))]
        return len(cluster.controller.list_partition_reassignments(requested))

    assert (listed("orders", 0, 1, 7), listed("orders", 0), listed("nope", 1)) == (1, 0, 0)


# --- AlterPartition


def proposal(cluster: SmallCluster, leader: int, *, isr: Sequence[int], **said: Any) -> AlterPartitionRequest:
    topic, partition = cluster.topic(said.pop("topic", "orders")), cluster.partition("orders")
    wanted = AlterPartitionRequest.Topic
    epochs = {broker.broker_id: broker.epoch for broker in cluster.metadata.brokers} | said.pop("epochs", {})
    return AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=said.pop("broker_epoch", epochs[leader]),
        topics=[
            wanted(
                topic_id=said.pop("topic_id", topic.topic_id),
                partitions=[
                    wanted.Partition(
                        partition_index=said.pop("index", 0),
                        leader_epoch=partition.leader_epoch + said.pop("leader_epoch", 0),
                        partition_epoch=partition.partition_epoch + said.pop("partition_epoch", 0),
                        leader_recovery_state=said.pop("recovery", 0),
                        new_isr_with_epochs=[
                            wanted.Partition.NewIsrWithEpoch(broker_id=each, broker_epoch=epochs.get(each, -1))
                            for each in isr
                        ],
                    )
                ],
            )
        ],
    )


def propose(cluster: SmallCluster, leader: int, *, isr: Sequence[int], **said: Any) -> Error | None:
    (error,) = errors(cluster.do(cluster.controller.alter_partition(proposal(cluster, leader, isr=isr, **said))))
    return error


def test_a_leader_changes_its_isr_and_every_change_counts() -> None:
    cluster = cluster_of()
    before = cluster.partition("orders")
    decision = cluster.controller.alter_partition(proposal(cluster, 1, isr=[1, 3]))
    (reply,) = cluster.do(decision)
    after = cluster.partition("orders")
    assert reply.partition == after and after.isr == (1, 3)
    assert (after.partition_epoch, after.leader_epoch) == (before.partition_epoch + 1, before.leader_epoch)


def a_proposal_that_changes_nothing_is_answered_after_a_commit(rules: ModuleType) -> None:
    """A leader asks in this way whether it still leads: a controller that was replaced must not answer."""
    cluster = cluster_of()
    decision = rules.alter_partition(cluster.metadata, cluster.settings, proposal(cluster, 1, isr=[1, 2, 3]))
    assert decision.records == (NoOpRecord(),)
    (reply,) = cluster.do(decision)
    assert reply.partition == cluster.partition("orders")
    refused = rules.alter_partition(cluster.metadata, cluster.settings, proposal(cluster, 2, isr=[1, 2, 3]))
    assert refused.records == ()
    changed = rules.alter_partition(cluster.metadata, cluster.settings, proposal(cluster, 1, isr=[1, 2]))
    assert [type(record) for record in changed.records] == [PartitionChangeRecord]


def test_a_proposal_that_changes_nothing_is_answered_after_a_commit() -> None:
    a_proposal_that_changes_nothing_is_answered_after_a_commit(isr_changes)


def test_a_planted_mistake_in_answering_at_once_is_noticed() -> None:
    right = "if not records and any(reply.partition is not None for reply in replies):"
    with pytest.raises(AssertionError):
        a_proposal_that_changes_nothing_is_answered_after_a_commit(planted(isr_changes, right, "if False:"))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"leader_epoch": 1}, NotController),
        ({"partition_epoch": 1}, NotController),
        ({"leader_epoch": -1}, FencedLeaderEpoch),
        ({"leader": 2}, InvalidRequest),
        ({"partition_epoch": -1}, InvalidUpdateVersion),
        ({"isr": [1, 9]}, InvalidRequest),
        ({"isr": [1, 1]}, InvalidRequest),
        ({"isr": [2, 3]}, InvalidRequest),
        ({"recovery": 1}, InvalidRequest),
        ({"recovery": 1, "isr": [1]}, InvalidRequest),
        ({"recovery": 7}, InvalidRequest),
        ({"isr": [1, 2], "epochs": {2: 0}}, IneligibleReplica),
        ({"index": 5}, UnknownTopicOrPartition),
        ({"topic_id": b"x" * 16}, UnknownTopicId),
        # Of two errors, the first of the order is returned.
        ({"leader_epoch": 1, "leader": 2, "isr": [9]}, NotController),
        ({"leader_epoch": -1, "leader": 2, "isr": [9]}, FencedLeaderEpoch),
        ({"leader": 2, "partition_epoch": -1}, InvalidRequest),
        ({"partition_epoch": -1, "isr": [9]}, InvalidUpdateVersion),
    ],
)
def test_a_proposal_from_older_or_wrong_knowledge_is_refused(said: dict[str, Any], error: Error) -> None:
    cluster = cluster_of()
    fields = {"leader": 1, "isr": [1, 2], **said}
    assert propose(cluster, fields.pop("leader"), **fields) is error


def test_fenced_and_leaving_replicas_are_not_eligible() -> None:
    cluster = cluster_of()
    cluster.fence(3)
    assert propose(cluster, 1, isr=[1, 2, 3]) is IneligibleReplica
    cluster.heartbeat(3)
    assert propose(cluster, 1, isr=[1, 2, 3]) is None


def test_no_replica_is_in_sync_with_a_leader_that_still_recovers() -> None:
    cluster = cluster_of(3, [1, 2])
    topic_id = cluster.topic("orders").topic_id
    cluster.append(
        [PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1], leader=1, leader_recovery_state=1)]
    )
    assert cluster.partition("orders").leader_recovery_state is RecoveryState.RECOVERING
    assert propose(cluster, 1, isr=[1, 2], recovery=1) is InvalidRequest
    assert propose(cluster, 1, isr=[1], recovery=1) is None


def test_a_leader_that_has_recovered_says_so() -> None:
    cluster = SmallCluster(brokers=1)
    cluster.create("orders")
    cluster.start(1, life=2)
    assert cluster.partition("orders").leader_recovery_state is RecoveryState.RECOVERING
    assert propose(cluster, 1, isr=[1]) is None
    assert cluster.partition("orders").leader_recovery_state is RecoveryState.RECOVERED


def test_a_proposal_of_an_earlier_life_is_raised() -> None:
    cluster = cluster_of()
    with pytest.raises(StaleBrokerEpoch):
        propose(cluster, 1, isr=[1], broker_epoch=0)


# --- AssignReplicasToDirs


def assign(cluster: SmallCluster, broker_id: int, where: bytes, topic_id: bytes, index: int = 0) -> Error | None:
    broker = cluster.metadata.brokers.get(broker_id)
    assert broker is not None
    text = AssignReplicasToDirsRequest.Directory
    topic = text.Topic(topic_id=topic_id, partitions=[text.Topic.Partition(partition_index=index)])
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id, broker_epoch=broker.epoch, directories=[text(id=where, topics=[topic])]
    )
    (error,) = errors(cluster.do(cluster.controller.assign_replicas_to_directories(request)))
    return error


def test_a_broker_says_where_it_keeps_a_replica() -> None:
    cluster = cluster_of(3, [1, 2])
    topic_id = cluster.topic("orders").topic_id
    assert assign(cluster, 2, directory(2), topic_id) is None
    assert cluster.partition("orders").partition_epoch == 0  # it was there already
    assert assign(cluster, 1, directory(1, 9), topic_id) is None  # a directory that is offline
    partition = cluster.partition("orders")
    assert partition.directories == (directory(1, 9), directory(2))
    assert (partition.isr, partition.leader) == ((2,), 2)


def test_a_replica_whose_directory_is_lost_is_neither_in_sync_nor_eligible() -> None:
    """So is one whose log is damaged (S6): it is not elected before it has caught up again."""
    cluster = cluster_of(3, [1, 2], min_insync_replicas=2)
    topic_id = cluster.topic("orders").topic_id
    assert assign(cluster, 1, LOST_DIRECTORY, topic_id) is None
    partition = cluster.partition("orders")
    assert (partition.isr, partition.eligible_leader_replicas, partition.leader) == ((2,), (), 2)
    assert assign(cluster, 1, directory(1), topic_id) is None
    cluster.fence(2)  # the other one is eligible, and the damaged one is not elected in its place
    partition = cluster.partition("orders")
    assert (partition.eligible_leader_replicas, partition.leader) == ((2,), NO_LEADER)


def test_a_leader_whose_directory_is_lost_yields_to_an_eligible_replica() -> None:
    cluster = cluster_of(3, [1, 2], min_insync_replicas=2)
    assert propose(cluster, 1, isr=[1]) is None
    assert cluster.partition("orders").eligible_leader_replicas == (2,)
    assert assign(cluster, 1, LOST_DIRECTORY, cluster.topic("orders").topic_id) is None
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (2, (2,), ())


def test_a_broker_reports_only_its_own_replicas() -> None:
    cluster = cluster_of(3, [1, 2])
    topic_id = cluster.topic("orders").topic_id
    assert assign(cluster, 3, directory(3), topic_id) is NotLeaderOrFollower
    assert assign(cluster, 1, directory(1), topic_id, 9) is UnknownTopicOrPartition
    assert assign(cluster, 1, directory(1), b"x" * 16) is UnknownTopicId


# --- planted mistakes


@pytest.mark.parametrize(
    ("where", "wrong", "rule"),
    [
        (
            "reassignments.check_assignment",
            lambda *_: None,
            lambda: test_a_move_is_checked_as_any_assignment([9], InvalidReplicaAssignment),
        ),
        ("isr_changes._check_eligibility", lambda *_: None, test_fenced_and_leaving_replicas_are_not_eligible),
        ("isr_changes._check_proposal", lambda *_: None, test_fenced_and_leaving_replicas_are_not_eligible),
        (
            "isr_changes.LOST_DIRECTORY",
            b"another",
            test_a_replica_whose_directory_is_lost_is_neither_in_sync_nor_eligible,
        ),
        (
            "isr_changes.LOST_DIRECTORY",
            b"another",
            test_a_leader_whose_directory_is_lost_yields_to_an_eligible_replica,
        ),
        (
            "reassignments.is_unclean_election_allowed",
            lambda *_: True,
            test_there_is_no_clean_way_back_if_only_new_replicas_are_in_sync,
        ),
    ],
)
def test_a_planted_mistake_is_noticed(where: str, wrong: Any, rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rule()
    monkeypatch.setattr(f"trioka.cluster.{where}", wrong)
    with pytest.raises(Exception):  # noqa: B017, PT011
        rule()


@pytest.mark.parametrize(
    ("right", "wrong", "said", "error"),
    [
        ("proposal.leader_epoch > partition.leader_epoch or ", "", {"leader_epoch": 1}, NotController),
        (" or proposal.partition_epoch > partition.partition_epoch:", ":", {"partition_epoch": 1}, NotController),
        (
            "if proposal.leader_epoch < partition.leader_epoch:",
            "if broker_id == partition.leader and proposal.leader_epoch < partition.leader_epoch:",
            {"leader_epoch": -1, "leader": 2, "isr": [9]},
            FencedLeaderEpoch,
        ),
        ("if broker_id != partition.leader:", "if False:", {"leader": 2, "partition_epoch": -1}, InvalidRequest),
        (
            "if proposal.partition_epoch < partition.partition_epoch:",
            "if False:",
            {"partition_epoch": -1, "isr": [9]},
            InvalidUpdateVersion,
        ),
        (
            "not set(isr) <= set(partition.replicas) or len(isr) != count",
            "len(isr) != count",
            {"isr": [1, 9]},
            InvalidRequest,
        ),
        ("if partition.leader not in isr:", "if False:", {"isr": [2, 3]}, InvalidRequest),
        (
            "partition.leader_recovery_state",
            "None",
            {"recovery": 1, "isr": [1]},
            InvalidRequest,
        ),
    ],
)
def test_a_check_of_a_proposal_that_is_left_out_or_comes_too_late_is_noticed(
    right: str, wrong: str, said: dict[str, Any], error: Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_a_proposal_from_older_or_wrong_knowledge_is_refused(said, error)
    monkeypatch.setattr("trioka.cluster.isr_changes", planted(isr_changes, right, wrong))
    with pytest.raises(AssertionError):
        test_a_proposal_from_older_or_wrong_knowledge_is_refused(said, error)


def test_followers_of_a_leader_that_still_recovers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    mistaken = planted(isr_changes, "        if len(isr) > 1:\n", "        if False:\n")
    monkeypatch.setattr("trioka.cluster.isr_changes", mistaken)
    with pytest.raises(AssertionError):
        test_no_replica_is_in_sync_with_a_leader_that_still_recovers()


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        (
            "if staying and set(staying) <= set(isr):",
            "if staying:",
            test_a_move_grows_catches_up_and_shrinks,
        ),
        (
            "    elif not set(partition.replicas) <= set(replicas):\n",
            "    elif False:\n",
            test_the_end_of_a_move_makes_a_new_leader_epoch_even_if_the_leader_stays,
        ),
    ],
)
def test_a_move_that_ends_otherwise_is_noticed(
    right: str, wrong: str, rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule()
    mistaken = planted(partition_change, right, wrong).change_partition
    for user in ("isr_changes", "reassignments"):
        monkeypatch.setattr(f"trioka.cluster.{user}.change_partition", mistaken)
    with pytest.raises(AssertionError):
        rule()
