"""A leader and its followers: how far the high watermark goes, who is in sync, and where a follower cuts its log."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed
from support.small_cluster import SmallCluster

from trioka.cluster import leader_state as replica_module
from trioka.cluster.partition import Partition, RecoveryState
from trioka.protocol.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotLeaderOrFollower,
    OperationNotAttempted,
    RequestTimedOut,
    UnknownLeaderEpoch,
)

LAG_S = 10.0


@pytest.fixture
def module() -> ModuleType:
    return replica_module


class LeaderFixture:
    """Broker 1 leads a partition of brokers 1, 2 and 3 whose log ends at 10; all are in sync by default."""

    def __init__(self, module: ModuleType, *, isr: tuple[int, ...] = (1, 2, 3), start: int = 10) -> None:
        self.cluster = SmallCluster(brokers=4, racks={1: "a", 2: "b", 3: "b", 4: "b"})
        self.partition = replace(self._partition(), isr=isr)
        self.now = 100.0
        self.end = start
        self.leadership: Any = module.LeaderState(
            1, self.partition, log_end_offset=start, now=self.now, registered=self.cluster.metadata.brokers.get
        )

    def _partition(self) -> Partition:
        self.cluster.create("t", assignments=[(1, 2, 3)])
        return self.cluster.partition("t")

    def fetches(self, broker_id: int, offset: int, *, epoch: int | None = None, log_start: int = 0) -> None:
        broker = self.cluster.metadata.brokers.get(broker_id)
        assert broker is not None
        self.leadership.note(
            broker_id,
            fetch_offset=offset,
            log_start_offset=log_start,
            broker_epoch=broker.epoch if epoch is None else epoch,
            leader_end=self.end,
            now=self.now,
        )

    def watermark(self, min_in_sync: int = 1) -> int | None:
        found: int | None = self.leadership.high_watermark(self.end, min_in_sync, self.now, LAG_S)
        return found

    def expand(self, broker_id: int, high_watermark: int = 10) -> Any:
        return self.leadership.propose_expand(broker_id, high_watermark)

    def shrink(self) -> Any:
        return self.leadership.propose_shrink(self.end, self.now, LAG_S)

    def accept(self, proposal: Any) -> bool:
        accepted: bool = self.leadership.accepted(
            proposal,
            isr=proposal.isr,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch + 1,
        )
        return accepted


# --- the high watermark


def test_the_high_watermark_is_where_the_slowest_in_sync_is(module: ModuleType) -> None:
    led = LeaderFixture(module)
    led.end = 20
    led.fetches(2, 18)
    assert led.watermark() == module.UNKNOWN  # broker 3 has not fetched yet
    led.fetches(3, 14)
    assert led.watermark() == 14
    led.fetches(3, 20)
    assert led.watermark() == 18


def test_a_replica_out_of_sync_is_not_waited_for(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.end = 20
    led.fetches(2, 18)
    led.fetches(3, 3)
    assert led.watermark() == 18


def test_too_small_an_isr_stops_the_high_watermark(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1,))
    led.end = 20
    assert led.watermark(min_in_sync=1) == 20
    assert led.watermark(min_in_sync=2) is None


def test_a_proposed_member_is_waited_for_before_the_controller_answers(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.fetches(2, 10)
    led.fetches(3, 10)
    assert led.expand(3) is not None
    led.end, led.now = 20, led.now + 2 * LAG_S  # it has not caught up for long, so only the proposal counts
    led.fetches(2, 20)
    assert led.watermark() == 10


def test_a_leaving_member_is_waited_for_until_the_controller_answers(module: ModuleType) -> None:
    led = LeaderFixture(module)
    led.fetches(2, 10)
    led.fetches(3, 10)
    led.end, led.now = 20, led.now + 2 * LAG_S
    led.fetches(2, 20)
    proposal = led.shrink()
    assert proposal.isr == (1, 2)
    assert led.watermark() == 10
    assert led.accept(proposal)
    assert led.watermark() == 20


def test_a_replica_that_has_just_caught_up_is_waited_for(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.fetches(3, 10)
    led.end = 20
    led.fetches(2, 20)
    assert led.watermark() == 10
    led.cluster.fence(3)
    assert led.watermark() == 20


def test_a_proposal_that_is_not_answered_keeps_both_isrs(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.fetches(3, 10)
    proposal = led.expand(3)
    assert led.leadership.refused(proposal, RequestTimedOut())  # it is to be asked again
    assert led.leadership.maximal_isr == {1, 2, 3}
    assert led.leadership.proposal is proposal


@pytest.mark.parametrize("error", [IneligibleReplica, OperationNotAttempted])
def test_a_definite_refusal_is_as_if_nothing_had_been_proposed(module: ModuleType, error: Any) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.fetches(3, 10)
    proposal = led.expand(3)
    assert not led.leadership.refused(proposal, error())
    assert led.leadership.maximal_isr == {1, 2}
    assert led.expand(3) is not None


def test_a_refused_proposal_is_undone(module: ModuleType) -> None:
    test_a_definite_refusal_is_as_if_nothing_had_been_proposed(module, IneligibleReplica)


def test_a_leader_that_knows_less_than_the_controller_waits_for_the_metadata(module: ModuleType) -> None:
    for error in (FencedLeaderEpoch, InvalidUpdateVersion, NewLeaderElected):
        led = LeaderFixture(module, isr=(1, 2))
        led.fetches(3, 10)
        proposal = led.expand(3)
        assert not led.leadership.refused(proposal, error())
        assert led.leadership.maximal_isr == {1, 2, 3}
        newer = replace(led.partition, isr=(1,), partition_epoch=led.partition.partition_epoch + 1)
        led.leadership.follow(newer)
        assert led.leadership.maximal_isr == {1}


def test_older_metadata_does_not_undo_what_the_controller_answered(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.fetches(3, 10)
    assert led.accept(led.expand(3))
    led.leadership.follow(led.partition)
    assert led.leadership.isr == (1, 2, 3)


def test_an_answer_to_a_proposal_that_the_metadata_overtook_changes_nothing(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.fetches(3, 10)
    proposal = led.expand(3)
    newer = replace(led.partition, isr=(1, 2), partition_epoch=led.partition.partition_epoch + 1)
    led.leadership.follow(newer)
    assert not led.accept(proposal)
    assert not led.leadership.refused(proposal, RequestTimedOut())
    assert led.leadership.isr == (1, 2)


# --- who is in sync


def test_there_is_one_proposal_at_a_time(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1,))
    led.fetches(2, 10)
    led.fetches(3, 10)
    assert led.expand(2).isr == (1, 2)
    assert led.expand(3) is None
    led.now += 2 * LAG_S
    led.end = 20
    assert led.shrink() is None


def test_a_replica_that_joins_has_all_committed_records(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2), start=5)
    led.end = 20
    led.fetches(3, 14)
    assert led.expand(3, high_watermark=15) is None
    assert led.expand(3, high_watermark=14) is not None


def test_a_replica_that_joins_has_all_of_the_leaders_start(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2), start=10)
    led.fetches(3, 9)
    assert led.expand(3, high_watermark=5) is None
    led.fetches(3, 10)
    assert led.expand(3, high_watermark=5) is not None


def test_a_replica_that_joins_has_fetched_in_this_epoch(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2), start=0)
    led.end = 0
    assert led.expand(3, high_watermark=0) is None
    led.fetches(3, 0)
    assert led.expand(3, high_watermark=0) is not None


def test_a_fenced_broker_does_not_join(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.fetches(3, 10)
    led.cluster.fence(3)
    assert led.expand(3) is None


def test_a_broker_that_was_restarted_must_fetch_again(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.fetches(3, 10)
    led.cluster.start(3, life=2)
    assert led.expand(3) is None
    led.fetches(3, 10)
    broker = led.cluster.metadata.brokers.get(3)
    assert broker is not None
    assert led.expand(3).broker_epochs[-1] == broker.epoch


def test_a_fetch_of_an_earlier_life_is_not_noted(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    before = led.cluster.metadata.brokers.get(3)
    assert before is not None
    led.cluster.start(3, life=2)
    with pytest.raises(NotLeaderOrFollower):
        led.fetches(3, 10, epoch=before.epoch)
    assert led.leadership.followers[3].log_end_offset == module.UNKNOWN


def test_a_fetch_of_a_non_replica_changes_nothing(module: ModuleType) -> None:
    led = LeaderFixture(module)
    with pytest.raises(UnknownLeaderEpoch):
        led.fetches(4, 10)
    assert set(led.leadership.followers) == {2, 3}


def test_a_replica_that_lags_too_long_leaves_the_isr(module: ModuleType) -> None:
    led = LeaderFixture(module)
    led.fetches(2, 10)
    led.fetches(3, 10)
    led.end, led.now = 11, led.now + LAG_S
    led.fetches(2, 10)
    assert led.shrink() is None  # not longer than it may
    led.now += 1
    assert led.shrink().isr == (1,)


def test_a_caught_up_replica_stays_in_the_isr(module: ModuleType) -> None:
    led = LeaderFixture(module)
    led.fetches(2, 10)
    led.fetches(3, 10)
    led.now += 10 * LAG_S
    assert led.shrink() is None


def test_a_replica_that_keeps_pace_with_a_busy_leader_stays(module: ModuleType) -> None:
    """It never reaches the end, but always what was the end at its last fetch."""
    led = LeaderFixture(module, isr=(1, 2))
    for _ in range(10):
        led.fetches(2, led.end - 1 if led.end > 10 else led.end)
        led.now += LAG_S / 2
        led.end += 1
        assert led.shrink() is None
    led.fetches(2, 12)
    led.now += LAG_S
    assert led.shrink() is not None


def test_a_fetch_proves_that_it_had_caught_up_when_it_last_fetched(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1, 2))
    led.fetches(2, 10)
    led.end, led.now = 11, led.now + LAG_S / 2
    led.fetches(2, 10)  # what was the end then; it is not now
    led.now += LAG_S / 2 + 1
    assert led.shrink() is not None


def test_a_new_follower_has_the_whole_time_to_fetch(module: ModuleType) -> None:
    led = LeaderFixture(module)
    led.end, led.now = 11, led.now + LAG_S
    assert led.shrink() is None
    led.now += 1
    assert led.shrink().isr == (1,)


def test_after_an_unclean_election_the_leader_says_that_it_has_recovered(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1,))
    assert led.leadership.recovery() is None
    recovering = replace(
        led.partition,
        leader_recovery_state=RecoveryState.RECOVERING,
        partition_epoch=led.partition.partition_epoch + 1,
    )
    led.leadership.follow(recovering)
    proposal = led.leadership.recovery()
    assert proposal.isr == (1,)
    assert led.accept(proposal)
    assert led.leadership.recovery() is None


def test_a_replica_that_is_added_begins_unproven_and_one_that_is_removed_is_forgotten(module: ModuleType) -> None:
    led = LeaderFixture(module)
    led.fetches(2, 10)
    led.fetches(3, 10)
    led.leadership.follow(
        replace(led.partition, replicas=(1, 3), isr=(1, 3), directories=led.partition.directories[:2])
    )
    led.leadership.follow(led.partition)
    assert led.leadership.followers[2].log_end_offset == module.UNKNOWN
    assert led.leadership.followers[3].log_end_offset == 10


# --- what else is asked


def test_the_low_watermark_is_the_lowest_start_of_those_alive(module: ModuleType) -> None:
    led = LeaderFixture(module)
    led.fetches(2, 10, log_start=5)
    led.fetches(3, 10, log_start=2)
    assert led.leadership.low_watermark(7) == 2
    led.cluster.fence(3)
    assert led.leadership.low_watermark(7) == 5


def test_a_consumer_is_sent_to_the_follower_in_its_rack_that_has_most(module: ModuleType) -> None:
    led = LeaderFixture(module)
    led.fetches(2, 8)
    led.fetches(3, 9)
    assert led.leadership.select_read_replica("b", 5) == 3
    assert led.leadership.select_read_replica("b", 10) is None  # no replica there has that
    assert led.leadership.select_read_replica("a", 5) is None  # the leader is there
    assert led.leadership.select_read_replica("c", 5) is None
    led.cluster.fence(3)
    assert led.leadership.select_read_replica("b", 5) == 2


def test_a_consumer_is_not_sent_to_a_replica_out_of_sync(module: ModuleType) -> None:
    led = LeaderFixture(module, isr=(1,))
    led.fetches(2, 8)
    assert led.leadership.select_read_replica("b", 5) is None


# --- cutting


def test_logs_that_know_the_same_epoch_are_cut_where_the_shorter_ends(module: ModuleType) -> None:
    assert module.truncation_point(3, 17, 3, 20, 30) == (17, True)
    assert module.truncation_point(3, 20, 3, 17, 30) == (17, True)
    assert module.truncation_point(3, 20, 3, 25, 18) == (18, True)


def test_a_follower_that_does_not_know_the_epoch_cuts_and_asks_again(module: ModuleType) -> None:
    """The leader's last common epoch is 4, of which this log has nothing: it keeps what it has up to epoch 2."""
    assert module.truncation_point(4, 30, 2, 12, 25) == (12, False)


def test_a_damaged_replica_steps_aside_if_another_could_lead_at_once(module: ModuleType) -> None:
    def may(isr: tuple[int, ...], eligible: tuple[int, ...] = (), alive: tuple[int, ...] = (1, 2, 3)) -> bool:
        found = replace(LeaderFixture(module).partition, isr=isr, eligible_leader_replicas=eligible)
        return bool(module.may_demote(found, 1, alive.__contains__))

    assert may((1, 2)) and may((2, 1, 3), alive=(1, 3))
    assert not may((1,)) and not may((1, 2), alive=(1,)), "no other replica has it all"
    assert may((1,), (2,)) and not may((1,), (2,), alive=(1,))
    assert not may((1, 2), (3,), alive=(1, 3)), "while a replica is in sync, the eligible ones are not elected"
    assert may((2,), (1,)) and not may((2,), (3,)), "who counts no longer has nothing to leave"


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "if len(self.isr) < min_in_sync:",
        "if len(self.isr) < 1:",
        test_too_small_an_isr_stops_the_high_watermark,
    ),
    (
        "return {*self.isr, *(self.proposal.isr if self.proposal is not None else ())}",
        "return set(self.isr)",
        test_a_proposed_member_is_waited_for_before_the_controller_answers,
    ),
    (
        "return {*self.isr, *(self.proposal.isr if self.proposal is not None else ())}",
        "return set(self.isr if self.proposal is None else self.proposal.isr)",
        test_a_leaving_member_is_waited_for_until_the_controller_answers,
    ),
    (
        "or (follower.has_caught_up(leader_end, now, max_lag_s) and self._is_eligible(follower))",
        "or False",
        test_a_replica_that_has_just_caught_up_is_waited_for,
    ),
    (
        "lowest, maximal = leader_end, self.maximal_isr",
        "lowest, maximal = leader_end, set(self.isr[:2])",
        test_the_high_watermark_is_where_the_slowest_in_sync_is,
    ),
    (
        "        if isinstance(error, DEFINITE_REFUSALS):",
        "        if True:",
        test_a_proposal_that_is_not_answered_keeps_both_isrs,
    ),
    ("        if isinstance(error, DEFINITE_REFUSALS):", "        if False:", test_a_refused_proposal_is_undone),
    (
        "if partition.partition_epoch > self.partition_epoch:",
        "if True:",
        test_older_metadata_does_not_undo_what_the_controller_answered,
    ),
    (
        "proposal is not self.proposal or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch",
        "leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch",
        test_an_answer_to_a_proposal_that_the_metadata_overtook_changes_nothing,
    ),
    (
        "            self.proposal is not None\n            or broker_id in self.isr",
        "            broker_id in self.isr",
        test_there_is_one_proposal_at_a_time,
    ),
    (
        "max(high_watermark, self.epoch_start)",
        "high_watermark",
        test_a_replica_that_joins_has_all_of_the_leaders_start,
    ),
    ("max(high_watermark, self.epoch_start)", "self.epoch_start", test_a_replica_that_joins_has_all_committed_records),
    (
        "broker is not None and broker.is_active and follower.broker_epoch in (ANY_BROKER_EPOCH, broker.epoch)",
        "broker is not None and follower.broker_epoch in (ANY_BROKER_EPOCH, broker.epoch)",
        test_a_fenced_broker_does_not_join,
    ),
    (
        "and follower.broker_epoch in (ANY_BROKER_EPOCH, broker.epoch)",
        "",
        test_a_broker_that_was_restarted_must_fetch_again,
    ),
    ("and broker_epoch < broker.epoch:", "and False:", test_a_fetch_of_an_earlier_life_is_not_noted),
    (
        'raise UnknownLeaderEpoch(f"broker {broker_id} has no replica in leader epoch {self.leader_epoch}")',
        "found = self.followers[broker_id] = Follower(broker_id, 0)\n"
        'str(f"broker {broker_id} has no replica in leader epoch {self.leader_epoch}")',
        test_a_fetch_of_a_non_replica_changes_nothing,
    ),
    (
        "self.log_end_offset == leader_end or now - self.caught_up <= max_lag_s",
        "now - self.caught_up <= max_lag_s",
        test_a_caught_up_replica_stays_in_the_isr,
    ),
    (
        "follower.caught_up = max(follower.caught_up, follower.fetched)",
        "pass",
        test_a_replica_that_keeps_pace_with_a_busy_leader_stays,
    ),
    (
        "follower.caught_up = max(follower.caught_up, follower.fetched)",
        "follower.caught_up = now",
        test_a_fetch_proves_that_it_had_caught_up_when_it_last_fetched,
    ),
    ("now if replica in partition.isr else NEVER", "NEVER", test_a_new_follower_has_the_whole_time_to_fetch),
    (
        "{replica: self.followers.get(replica) or Follower(replica, NEVER) for replica in others}",
        "self.followers | {replica: self.followers.get(replica) or Follower(replica, NEVER) for replica in others}",
        test_a_replica_that_is_added_begins_unproven_and_one_that_is_removed_is_forgotten,
    ),
    (
        "if broker is not None and not broker.fenced:",
        "if True:",
        test_the_low_watermark_is_the_lowest_start_of_those_alive,
    ),
    ("                and follower.broker_id in self.isr\n", "", test_a_consumer_is_not_sent_to_a_replica_out_of_sync),
    (
        "    if node_id not in (*partition.isr, *partition.eligible_leader_replicas):\n        return False\n",
        "",
        test_a_damaged_replica_steps_aside_if_another_could_lead_at_once,
    ),
    (
        "    return any(is_active(replica) for replica in others)",
        "    return bool(others)",
        test_a_damaged_replica_steps_aside_if_another_could_lead_at_once,
    ),
    (
        "[replica for replica in partition.isr if replica != node_id] or [replica for replica in "
        "partition.eligible_leader_replicas if replica != node_id]",
        "[replica for replica in partition.isr if replica != node_id] + [replica for replica in "
        "partition.eligible_leader_replicas if replica != node_id]",
        test_a_damaged_replica_steps_aside_if_another_could_lead_at_once,
    ),
    (
        "return Truncation(min(own_end, log_end_offset), False)",
        "return Truncation(min(leader_end, log_end_offset), True)",
        test_a_follower_that_does_not_know_the_epoch_cuts_and_asks_again,
    ),
    (
        "return Truncation(min(leader_end, own_end, log_end_offset), True)",
        "return Truncation(min(leader_end, log_end_offset), True)",
        test_logs_that_know_the_same_epoch_are_cut_where_the_shorter_ends,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(replica_module, right, wrong, rule)
