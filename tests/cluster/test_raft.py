"""One node of the metadata quorum: when it votes, stands, leads, commits and steps back."""

from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed
from simulation.raft_world import Entry, SimLog

from trioka.cluster import raft as raft_module
from trioka.cluster.raft_messages import (
    Action,
    AppendVoters,
    BecomeLeader,
    BeginEpoch,
    Commit,
    EndEpoch,
    EpochAndOffset,
    Persist,
    PersistentState,
    RaftFetchRequest,
    RaftFetchResponse,
    RaftVoteRequest,
    RaftVoteResponse,
    SendRequest,
    StepDown,
    Truncate,
)
from trioka.cluster.voters import ReplicaKey, VoterHistory, VoterSet
from trioka.protocol.errors import KafkaError

ONE, TWO, THREE = (ReplicaKey(n, bytes([n]) * 16) for n in (1, 2, 3))
LATER = 10_000


@pytest.fixture
def module() -> ModuleType:
    return raft_module


class Node:
    """Node 1 of three, with a log of these epochs, all of it durable."""

    def __init__(
        self, module: ModuleType, *epochs: int, persisted: PersistentState | None = None, voters: int = 3
    ) -> None:
        self.log = SimLog()
        self.log.entries = [Entry(epoch, n) for n, epoch in enumerate(epochs)]
        self.log.durable_offset = len(epochs)
        self.raft = module.Raft(
            ONE,
            self.log,
            VoterHistory(VoterSet.of((ONE, TWO, THREE)[:voters])),
            persisted or PersistentState(epoch=max(epochs, default=0)),
            module.RaftSettings(),
            Random(1),
            0,
        )

    def leads(self) -> int:
        """It is elected by node 2, and appends the first record of its epoch."""
        self.raft.tick(LATER)
        self.raft.on_vote_response(granted(TWO, self.raft.epoch, is_pre_vote=True), LATER)
        actions = self.raft.on_vote_response(granted(TWO, self.raft.epoch), LATER)
        assert any(isinstance(action, BecomeLeader) for action in actions)
        self.append("leads")
        return int(self.raft.epoch)

    def append(self, value: object) -> None:
        self.log.entries.append(Entry(self.raft.epoch, value))
        self.log.durable_offset = len(self.log.entries)

    def fetched_by(
        self, replica: ReplicaKey, end: EpochAndOffset, now_ms: int = LATER
    ) -> tuple[RaftFetchResponse, list[object]]:
        result, actions = self.raft.on_fetch_request(
            RaftFetchRequest(replica=replica, epoch=self.raft.epoch, end=end), now_ms
        )
        for action in actions:
            if isinstance(action, Commit):
                self.log.high_watermark = action.high_watermark
        return result, actions


def granted(voter: ReplicaKey, epoch: int, *, is_pre_vote: bool = False, is_granted: bool = True) -> RaftVoteResponse:
    return RaftVoteResponse(
        voter=voter, epoch=epoch, leader_id=None, is_granted=is_granted, request_epoch=epoch, is_pre_vote=is_pre_vote
    )


def vote_request(
    candidate: ReplicaKey, epoch: int, end: EpochAndOffset, *, is_pre_vote: bool = False
) -> RaftVoteRequest:
    return RaftVoteRequest(candidate=candidate, epoch=epoch, end=end, is_pre_vote=is_pre_vote)


def pre_votes(actions: list[Action]) -> list[bool]:
    """Of the votes that are asked for: is it only a question?"""
    questions = [action.question for action in actions if isinstance(action, SendRequest)]
    return [question.is_pre_vote for question in questions if isinstance(question, RaftVoteRequest)]


# -- votes -----------------------------------------------------------------------------------------------------------


def test_a_vote_is_saved_before_it_is_sent_and_cast_once_in_an_epoch(module: ModuleType) -> None:
    node = Node(module, 1)
    result, actions = node.raft.on_vote_request(vote_request(TWO, 2, EpochAndOffset(1, 1)), 0)
    assert result.is_granted
    assert actions[-1] == Persist(persisted=PersistentState(epoch=2, voted=TWO))
    result, actions = node.raft.on_vote_request(vote_request(THREE, 2, EpochAndOffset(1, 9)), 0)
    assert not result.is_granted and not actions
    result, actions = node.raft.on_vote_request(vote_request(TWO, 2, EpochAndOffset(1, 1)), 0)
    assert result.is_granted and not actions


def test_a_vote_is_remembered_over_a_restart(module: ModuleType) -> None:
    node = Node(module, 1, persisted=PersistentState(epoch=2, voted=TWO))
    assert not node.raft.on_vote_request(vote_request(THREE, 2, EpochAndOffset(1, 9)), 0)[0].is_granted


def test_a_leader_that_restarts_casts_no_vote_in_its_epoch(module: ModuleType) -> None:
    node = Node(module, 1, persisted=PersistentState(epoch=2, leader_id=1))
    assert not node.raft.on_vote_request(vote_request(THREE, 2, EpochAndOffset(1, 9)), 0)[0].is_granted


@pytest.mark.parametrize(
    ("end", "is_granted"),
    [
        (EpochAndOffset(2, 3), True),
        (EpochAndOffset(2, 4), True),
        (EpochAndOffset(3, 1), True),
        (EpochAndOffset(2, 2), False),
        (EpochAndOffset(1, 9), False),
    ],
)
def test_a_vote_goes_to_a_log_that_knows_as_much(end: EpochAndOffset, is_granted: bool) -> None:
    node = Node(raft_module, 1, 2, 2)
    assert node.raft.on_vote_request(vote_request(TWO, 4, end), 0)[0].is_granted is is_granted


def test_a_vote_is_not_given_to_a_log_that_knows_less(module: ModuleType) -> None:
    node = Node(module, 1, 2, 2)
    assert not node.raft.on_vote_request(vote_request(TWO, 4, EpochAndOffset(2, 2)), 0)[0].is_granted


def test_a_pre_vote_changes_nothing(module: ModuleType) -> None:
    node = Node(module, 1)
    before = node.raft.persisted
    result, actions = node.raft.on_vote_request(vote_request(TWO, 1, EpochAndOffset(1, 1), is_pre_vote=True), 0)
    assert result.is_granted and not actions
    assert node.raft.persisted == before


def test_a_follower_with_a_live_leader_refuses_a_pre_vote(module: ModuleType) -> None:
    node = Node(module, 1)
    node.raft.on_begin_epoch(BeginEpoch(leader=TWO, epoch=2), 0)
    ask = vote_request(THREE, 2, EpochAndOffset(1, 1), is_pre_vote=True)
    assert node.raft.on_vote_request(ask, 0)[0].is_granted, "the leader may never have been heard"
    _, requested = node.raft.fetch()
    node.raft.on_fetch_response(RaftFetchResponse(leader_id=2, epoch=2), requested, 0)
    assert not node.raft.on_vote_request(ask, 0)[0].is_granted


# -- standing ----------------------------------------------------------------------------------------------------------


def test_a_voter_without_a_leader_sends_pre_votes_and_then_becomes_a_candidate(module: ModuleType) -> None:
    node = Node(module, 1)
    requested = node.raft.tick(LATER)
    assert pre_votes(requested) == [True, True]
    assert node.raft.epoch == 1 and not any(isinstance(action, Persist) for action in requested)
    actions = node.raft.on_vote_response(granted(TWO, 1, is_pre_vote=True), LATER)
    assert actions[0] == Persist(persisted=PersistentState(epoch=2, voted=ONE))
    assert pre_votes(actions[1:]) == [False, False]
    actions = node.raft.on_vote_response(granted(THREE, 2), LATER)
    assert actions[0] == Persist(persisted=PersistentState(epoch=2, leader_id=1, voted=ONE))
    assert actions[1] == BecomeLeader(epoch=2, granted=(ONE, THREE))


def test_a_pre_vote_is_no_vote(module: ModuleType) -> None:
    node = Node(module, 1)
    node.raft.tick(LATER)
    node.raft.on_vote_response(granted(TWO, 1, is_pre_vote=True), LATER)
    node.raft.on_vote_response(granted(THREE, 2, is_pre_vote=True), LATER)
    assert not node.raft.is_leader


def becomes_a_candidate_beside_another(module: ModuleType) -> Node:
    """And the third, which led both, cannot be reached."""
    node = Node(module, 1)
    node.raft.tick(LATER)
    node.raft.on_vote_response(granted(TWO, 1, is_pre_vote=True), LATER)
    node.raft.on_vote_response(granted(TWO, 2, is_granted=False), LATER)
    node.raft.on_vote_timeout(vote_request(ONE, 2, EpochAndOffset(1, 1)), THREE, LATER)
    return node


def test_two_that_stand_at_once_do_not_wait_for_one_that_is_dead(module: ModuleType) -> None:
    node = becomes_a_candidate_beside_another(module)
    assert node.raft.next_deadline() < LATER + module.FIRST_BACKOFF_MS
    requested = node.raft.tick(LATER + module.FIRST_BACKOFF_MS)
    assert pre_votes(requested) == [True, True]


def test_a_candidate_that_loses_repeatedly_waits_longer(module: ModuleType) -> None:
    node, now, waited = becomes_a_candidate_beside_another(module), LATER, []
    for _ in range(12):
        waited.append(node.raft.next_deadline() - now)
        now = node.raft.next_deadline()
        node.raft.tick(now)
        node.raft.on_vote_response(granted(TWO, node.raft.epoch, is_pre_vote=True), now)
        node.raft.on_vote_response(granted(TWO, node.raft.epoch, is_granted=False), now)
        node.raft.on_vote_timeout(vote_request(ONE, node.raft.epoch, EpochAndOffset(1, 1)), THREE, now)
    assert max(waited) < module.RaftSettings().backoff_ms
    assert max(waited[4:]) > 2 * module.FIRST_BACKOFF_MS
    node.raft.on_begin_epoch(BeginEpoch(leader=TWO, epoch=node.raft.epoch + 1), now)
    assert node.raft._lost == 0


def test_a_prospective_candidate_does_not_give_up_because_its_leader_is_dead(module: ModuleType) -> None:
    """The others may notice that a moment later."""
    node = Node(module, 1)
    node.raft.on_begin_epoch(BeginEpoch(leader=THREE, epoch=2), 0)
    node.raft.tick(LATER)
    node.raft.on_vote_timeout(vote_request(ONE, 2, EpochAndOffset(1, 1), is_pre_vote=True), THREE, LATER)
    refused = RaftVoteResponse(voter=TWO, epoch=2, leader_id=3, is_granted=False, request_epoch=2, is_pre_vote=True)
    node.raft.on_vote_response(refused, LATER)
    assert isinstance(node.raft.role, module.Nominee)


def test_a_single_voter_leads_at_once(module: ModuleType) -> None:
    node = Node(module, 1, voters=1)
    assert any(isinstance(action, BecomeLeader) for action in node.raft.tick(0))


def test_a_voter_that_seeks_a_new_leader_is_not_sent_back_to_the_old_one_by_hearsay(module: ModuleType) -> None:
    node = Node(module, 1)
    node.raft.on_begin_epoch(BeginEpoch(leader=THREE, epoch=2), 0)
    node.raft.tick(LATER)
    hearsay = RaftVoteResponse(voter=TWO, epoch=2, leader_id=3, is_granted=True, request_epoch=2, is_pre_vote=True)
    node.raft.on_vote_response(hearsay, LATER)
    assert node.raft.epoch == 3, "with two of three it stands"


# -- leading -----------------------------------------------------------------------------------------------------------


def test_what_a_majority_has_is_committed(module: ModuleType) -> None:
    node = Node(module, 1)
    epoch = node.leads()
    _, actions = node.fetched_by(TWO, EpochAndOffset(1, 1))
    assert not actions
    _, actions = node.fetched_by(TWO, EpochAndOffset(epoch, 2))
    assert actions == [Commit(high_watermark=2)]


def test_records_of_an_earlier_epoch_are_committed_only_together_with_one_of_this(module: ModuleType) -> None:
    node = Node(module, 1, 1, 1)
    node.leads()
    _, actions = node.fetched_by(TWO, EpochAndOffset(1, 3))
    assert not actions, "a majority has them, and they could still be overwritten"


def test_what_the_leader_has_not_made_durable_does_not_count(module: ModuleType) -> None:
    node = Node(module, 1)
    epoch = node.leads()
    node.log.durable_offset = 1
    _, actions = node.fetched_by(TWO, EpochAndOffset(epoch, 2))
    assert not actions
    node.log.durable_offset = 2
    assert node.raft.flushed(LATER) == [Commit(high_watermark=2)]


def test_a_fetch_of_another_epoch_changes_nothing(module: ModuleType) -> None:
    node = Node(module, 1)
    epoch = node.leads()
    result, actions = node.raft.on_fetch_request(
        RaftFetchRequest(replica=TWO, epoch=epoch - 1, end=EpochAndOffset(epoch, 2)), LATER
    )
    assert result.is_refused and not actions


def test_a_diverged_log_gets_the_divergence(module: ModuleType) -> None:
    node = Node(module, 1, 1, 3)
    node.leads()
    result, _ = node.fetched_by(TWO, EpochAndOffset(2, 3))
    assert result.diverging == EpochAndOffset(1, 2)
    result, _ = node.fetched_by(TWO, EpochAndOffset(1, 3))
    assert result.diverging == EpochAndOffset(1, 2)
    result, _ = node.fetched_by(TWO, EpochAndOffset(2, 1))
    assert result.diverging == EpochAndOffset(1, 2), "shorter, and of an epoch that was never committed"
    result, _ = node.fetched_by(TWO, EpochAndOffset(1, 2))
    assert result.diverging is None


def test_a_leader_without_a_majority_resigns(module: ModuleType) -> None:
    node = Node(module, 1)
    epoch = node.leads()
    node.fetched_by(TWO, EpochAndOffset(epoch, 2), LATER + 2900)
    assert not any(isinstance(action, StepDown) for action in node.raft.tick(LATER + 3100))
    actions = node.raft.tick(LATER + 2900 + 3001)
    assert StepDown(epoch=epoch) in actions
    ended = [action.question for action in actions if isinstance(action, SendRequest)]
    assert ended[0] == EndEpoch(leader_id=1, epoch=epoch, successors=(TWO, THREE))


def test_a_larger_epoch_ends_a_leaders_time(module: ModuleType) -> None:
    node = Node(module, 1)
    epoch = node.leads()
    actions = node.raft.on_begin_epoch(BeginEpoch(leader=TWO, epoch=epoch + 1), LATER)
    assert StepDown(epoch=epoch) in actions and node.raft.leader_id == 2


# -- following ---------------------------------------------------------------------------------------------------------


def test_a_follower_cuts_where_the_logs_part_and_no_further(module: ModuleType) -> None:
    node = Node(module, 1, 1, 2, 2)
    node.raft.on_begin_epoch(BeginEpoch(leader=TWO, epoch=3), 0)
    _, requested = node.raft.fetch()
    result = RaftFetchResponse(leader_id=2, epoch=3, diverging=EpochAndOffset(1, 5))
    assert node.raft.on_fetch_response(result, requested, 0) == [Truncate(offset=2)]


def test_a_follower_commits_what_it_has_and_no_more(module: ModuleType) -> None:
    node = Node(module, 1, 1)
    assert node.raft.followed(9) == [Commit(high_watermark=2)]
    assert node.raft.followed(0) == []


def test_a_leader_never_loads_a_snapshot(module: ModuleType) -> None:
    node = Node(module, 1)
    epoch = node.leads()
    result = RaftFetchResponse(leader_id=2, epoch=epoch, snapshot=EpochAndOffset(epoch, 9))
    requested = RaftFetchRequest(replica=ONE, epoch=epoch, end=EpochAndOffset(epoch, 2))
    assert node.raft.on_fetch_response(result, requested, LATER) == []
    assert node.raft.is_leader


# -- voters ------------------------------------------------------------------------------------------------------------


def test_voters_change_one_at_a_time_and_after_a_record_of_the_epoch_is_committed(module: ModuleType) -> None:
    node = Node(module, 1)
    epoch = node.leads()
    with pytest.raises(KafkaError):
        node.raft.remove_voter(THREE)
    node.fetched_by(TWO, EpochAndOffset(epoch, 2))
    (action,) = node.raft.remove_voter(THREE)
    assert action == AppendVoters(voters=VoterSet.of((ONE, TWO)))
    node.append(action.voters)
    node.raft.voters_appended(2, action.voters)
    with pytest.raises(KafkaError):
        node.raft.remove_voter(TWO)
    node.fetched_by(TWO, EpochAndOffset(epoch, 3))
    node.raft.remove_voter(TWO)


def test_a_leader_that_was_voted_out_stays_until_that_is_committed(module: ModuleType) -> None:
    node = Node(module, 1)
    epoch = node.leads()
    node.fetched_by(TWO, EpochAndOffset(epoch, 2))
    (action,) = node.raft.remove_voter(ONE)
    node.append(action.voters)
    node.raft.voters_appended(2, action.voters)
    _, actions = node.fetched_by(TWO, EpochAndOffset(epoch, 3))
    assert not actions and node.raft.is_leader
    _, actions = node.fetched_by(THREE, EpochAndOffset(epoch, 3))
    assert actions[:2] == [Commit(high_watermark=3), StepDown(epoch=epoch)]


STATIC = VoterSet.of(map(ReplicaKey, (1, 2, 3)))
NAMED = VoterSet.of((ONE, TWO, THREE))


def leads_static(module: ModuleType) -> tuple[Node, int]:
    """A leader whose voters stand in the configuration; a record of its epoch is committed."""
    node = Node(module, 1)
    node.raft.voters = VoterHistory(STATIC)
    epoch = node.leads()
    node.fetched_by(TWO, EpochAndOffset(epoch, 2))
    assert node.log.high_watermark == 2
    return node, epoch


def test_voters_of_the_configuration_are_named_all_together_and_from_the_directories_they_fetch_from(
    module: ModuleType,
) -> None:
    node, _ = leads_static(module)
    for wrong in (
        VoterSet.of((ONE, TWO)),
        VoterSet.of((ONE, TWO, ReplicaKey(4, b"4" * 16))),
        VoterSet.of((ONE, TWO, ReplicaKey(3))),
        VoterSet.of((ONE, ReplicaKey(2, b"the former disk."), THREE)),
    ):
        with pytest.raises(KafkaError):
            node.raft.name_voters(wrong)
    assert node.raft.name_voters(NAMED) == [AppendVoters(voters=NAMED)]


def test_a_leader_that_names_its_voters_keeps_their_updates(module: ModuleType) -> None:
    node, epoch = leads_static(module)
    late = LATER + node.raft._settings.check_quorum_ms
    node.fetched_by(TWO, EpochAndOffset(epoch, 2), now_ms=late - 10)
    node.append(NAMED)
    node.raft.voters_appended(2, NAMED)
    assert not any(isinstance(action, StepDown) for action in node.raft.tick(late)), "it has heard of a majority"
    wiped = ReplicaKey(2, b"another disk now")
    _, actions = node.fetched_by(wiped, EpochAndOffset(epoch, 3))
    assert actions == [], "whose disk is another one is no voter any more"
    node.fetched_by(TWO, EpochAndOffset(epoch, 3))
    assert node.log.high_watermark == 3


def test_a_node_that_has_never_caught_up_does_not_become_a_voter(module: ModuleType) -> None:
    node = Node(module, 1, 1, 1, voters=2)
    epoch = node.leads()
    node.fetched_by(TWO, EpochAndOffset(epoch, 4))
    node.fetched_by(THREE, EpochAndOffset(1, 1))
    with pytest.raises(KafkaError):
        node.raft.add_voter(THREE, LATER)
    node.fetched_by(THREE, EpochAndOffset(epoch, 4))
    assert node.raft.add_voter(THREE, LATER) == [AppendVoters(voters=NAMED)]


def test_a_voter_whose_disk_was_wiped_is_another_one() -> None:
    wiped = ReplicaKey(3, b"\x99" * 16)
    assert wiped not in VoterSet.of((ONE, TWO, THREE))
    assert ReplicaKey(3) in VoterSet.of((ONE, TWO, THREE)), "its directory is unknown"


def test_voters_that_were_cut_off_never_voted() -> None:
    history = VoterHistory(VoterSet.of((ONE,)))
    history.append(5, VoterSet.of((ONE, TWO)))
    history.append(9, VoterSet.of((ONE, TWO, THREE)))
    assert len(history.before(9)) == 2 and len(history.before(10)) == 3
    history.truncate(9)
    assert len(history.latest) == 2
    history.truncate(0)
    assert len(history.latest) == 1


MISTAKES = [
    (
        "            role.refused.add(voter)\n",
        "            pass\n",
        test_two_that_stand_at_once_do_not_wait_for_one_that_is_dead,
    ),
    ("self._lost += 1", "pass", test_a_candidate_that_loses_repeatedly_waits_longer),
    (
        "role.is_candidate and not request.is_pre_vote and",
        "",
        test_a_prospective_candidate_does_not_give_up_because_its_leader_is_dead,
    ),
    ("if request.end < self._log.end:", "if False:", test_a_vote_is_not_given_to_a_log_that_knows_less),
    (
        "actions += self._save(PersistentState(epoch=self.epoch, voted=request.candidate))",
        "self.persisted = PersistentState(epoch=self.epoch, voted=request.candidate)",
        test_a_vote_is_saved_before_it_is_sent_and_cast_once_in_an_epoch,
    ),
    (
        "return self.persisted.voted.matches(request.candidate) and self.persisted.leader_id is None",
        "return True",
        test_a_vote_is_remembered_over_a_restart,
    ),
    (
        "return self.persisted.leader_id is None and isinstance(role, Unattached | Nominee)",
        "return True",
        test_a_leader_that_restarts_casts_no_vote_in_its_epoch,
    ),
    (
        "(isinstance(role, Follower) and role.has_fetched)",
        "False",
        test_a_follower_with_a_live_leader_refuses_a_pre_vote,
    ),
    ("if response.is_pre_vote is role.is_candidate:", "if False:", test_a_pre_vote_is_no_vote),
    (
        "is_granted and not request.is_pre_vote and self.persisted.voted is None",
        "is_granted and self.persisted.voted is None",
        test_a_pre_vote_changes_nothing,
    ),
    (
        "response.is_refused or not is_current or not isinstance(role, Follower)",
        "response.is_refused or not is_current",
        test_a_leader_never_loads_a_snapshot,
    ),
    (
        "return actions + self.resign(now_ms) if is_voted_out else actions",
        "return actions",
        test_a_leader_that_was_voted_out_stays_until_that_is_committed,
    ),
    (
        "reached <= role.epoch_start or ",
        "",
        test_records_of_an_earlier_epoch_are_committed_only_together_with_one_of_this,
    ),
    (
        "ends[-1] = self._log.durable_offset",
        "ends[-1] = self._log.end.offset",
        test_what_the_leader_has_not_made_durable_does_not_count,
    ),
    (
        "if not isinstance(role, Leader) or request.epoch != self.epoch:",
        "if not isinstance(role, Leader):",
        test_a_fetch_of_another_epoch_changes_nothing,
    ),
    (
        "if ours.epoch != end.epoch or ours.offset < end.offset:",
        "if ours.offset < end.offset:",
        test_a_diverged_log_gets_the_divergence,
    ),
    ("if now_ms >= self._quorum_deadline(role):", "if False:", test_a_leader_without_a_majority_resigns),
    (
        "min(leaders.offset, ours.offset) if ours.epoch == leaders.epoch else ours.offset",
        "self._log.high_watermark",
        test_a_follower_cuts_where_the_logs_part_and_no_further,
    ),
    (
        "high_watermark <= role.epoch_start or self.voters.latest_offset >= high_watermark",
        "False",
        test_voters_change_one_at_a_time_and_after_a_record_of_the_epoch_is_committed,
    ),
    (
        "if {voter.id for voter in named} != {voter.id for voter in self.voters.latest}:",
        "if False:",
        test_voters_of_the_configuration_are_named_all_together_and_from_the_directories_they_fetch_from,
    ),
    (
        "voter.directory == NULL_UUID or (found and found.directory not in (NULL_UUID, voter.directory))",
        "False",
        test_voters_of_the_configuration_are_named_all_together_and_from_the_directories_they_fetch_from,
    ),
    (
        "return role.progress.get(voter) or role.progress.get(ReplicaKey(voter.id))",
        "return role.progress.get(voter)",
        test_a_leader_that_names_its_voters_keeps_their_updates,
    ),
    (
        "key = next((voter for voter in self.voters.latest if voter.matches(request.replica)), request.replica)",
        "key = next((voter for voter in self.voters.latest if voter.id == request.replica.id), request.replica)",
        test_a_leader_that_names_its_voters_keeps_their_updates,
    ),
    (
        "caught_up_ms: int = NEVER",
        "caught_up_ms: int = 10_000",
        test_a_node_that_has_never_caught_up_does_not_become_a_voter,
    ),
    (
        "is_new_leader = self.persisted.leader_id is None or not self.is_voter",
        "is_new_leader = True",
        test_a_voter_that_seeks_a_new_leader_is_not_sent_back_to_the_old_one_by_hearsay,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(raft_module, right, wrong, rule)
