"""Every promise of replication and of the quorum has a test, and every such test a mistake that it was seen to notice.

A promise is named as in the list of invariants: I of replication, K of the metadata quorum. Of each, the tests that
would fail, and texts of planted mistakes beside them: the right line that a mistake replaces, or the name of an animal
of the zoo. This file runs nothing of that. It only finds out when a test, or a planted mistake, is no longer there.
"""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).resolve().parents[1]
FOLLOWERS, REPLICA, ELECTIONS = (
    "broker/replication/test_fetcher.py",
    "cluster/test_leader_state.py",
    "cluster/test_elections.py",
)
BROKERS, CONFIGS, REPLICAS = (
    "cluster/test_broker_changes.py",
    "cluster/test_config_changes.py",
    "broker/replication/test_applier.py",
)
RAFT, STEPS, ZOO = "cluster/test_raft.py", "broker/quorum/test_driver_steps.py", "mutants/catalog.py"
RAFT_WORLD, WORLD = "simulation/test_raft_world.py", "simulation/test_replication_world.py"
CLUSTER, REPLICATION, MEMBERSHIP = (
    "broker/test_cluster.py",
    "broker/replication/test_replication.py",
    "broker/membership/test_lifecycle.py",
)
BARRIER, READS = "cluster/test_read_barrier.py", "broker/replication/test_linearizable_reads.py"
EPOCHS, ADMISSION, SNAPSHOT = (
    "storage/test_leader_epochs.py",
    "storage/test_append_validation.py",
    "cluster/test_snapshot.py",
)


class Promise(NamedTuple):
    name: str
    tests: tuple[tuple[str, str], ...]  # a file, a function in it
    mistakes: tuple[tuple[str, str], ...]  # a file, a text in it


PROMISES = (
    Promise(
        "I1",
        (
            (FOLLOWERS, "test_an_acknowledgement_waits_for_in_sync_replicas"),
            (FOLLOWERS, "test_too_few_in_sync_are_refused_before_anything_is_appended"),
            (FOLLOWERS, "test_too_few_in_sync_after_the_append_is_an_error"),
        ),
        (
            (FOLLOWERS, "acks == ALL_REPLICAS and not self.has_min_in_sync:"),
            (FOLLOWERS, "if self.log.high_watermark < until:"),
            (FOLLOWERS, "len(leadership.maximal_isr) < self.min_in_sync"),
            (ZOO, "acknowledges before the high watermark"),
        ),
    ),
    Promise("I2", ((REPLICA, "test_too_small_an_isr_stops_the_high_watermark"),), ((ZOO, "no strict min ISR"),)),
    Promise(
        "I3",
        (
            (REPLICA, "test_the_high_watermark_is_where_the_slowest_in_sync_is"),
            (REPLICA, "test_a_replica_that_has_just_caught_up_is_waited_for"),
        ),
        ((REPLICA, "lowest, maximal = leader_end, self.maximal_isr"), (REPLICA, "or (follower.has_caught_up(")),
    ),
    Promise(
        "I4",
        (
            (REPLICA, "test_a_proposed_member_is_waited_for_before_the_controller_answers"),
            (REPLICA, "test_there_is_one_proposal_at_a_time"),
            (REPLICA, "test_a_proposal_that_is_not_answered_keeps_both_isrs"),
            (REPLICA, "test_a_refused_proposal_is_undone"),
        ),
        (
            (REPLICA, "return {*self.isr, *(self.proposal.isr if self.proposal is not None else ())}"),
            (REPLICA, "if isinstance(error, DEFINITE_REFUSALS):"),
            (ZOO, "a proposal without a response is taken for refused"),
        ),
    ),
    Promise(
        "I5",
        (
            (REPLICA, "test_a_replica_that_joins_has_all_committed_records"),
            (REPLICA, "test_a_replica_that_joins_has_all_of_the_leaders_start"),
            (REPLICA, "test_a_replica_that_joins_has_fetched_in_this_epoch"),
            (REPLICA, "test_a_fenced_broker_does_not_join"),
            (REPLICA, "test_a_broker_that_was_restarted_must_fetch_again"),
        ),
        (
            (REPLICA, "max(high_watermark, self.epoch_start)"),
            (REPLICA, "and follower.broker_epoch in (ANY_BROKER_EPOCH, broker.epoch)"),
            (ZOO, "progress of an earlier epoch counts"),
            (ZOO, "requests lack the broker epoch"),
        ),
    ),
    Promise(
        "I6",
        (
            (ELECTIONS, "test_a_proposal_from_older_or_wrong_knowledge_is_refused"),
            (ELECTIONS, "test_fenced_and_leaving_replicas_are_not_eligible"),
            (ELECTIONS, "test_no_replica_is_in_sync_with_a_leader_that_still_recovers"),
            (ELECTIONS, "test_a_leader_changes_its_isr_and_every_change_counts"),
        ),
        (
            (ELECTIONS, "if proposal.leader_epoch < partition.leader_epoch:"),
            (ELECTIONS, "if broker_id != partition.leader:"),
            (ELECTIONS, "if proposal.partition_epoch < partition.partition_epoch:"),
            (ELECTIONS, "isr_changes._check_eligibility"),
        ),
    ),
    Promise(
        "I7",
        ((FOLLOWERS, "test_a_fetch_of_another_epoch_is_refused_and_nothing_is_noted"),),
        ((ZOO, "answers whatever the leader epoch is"),),
    ),
    Promise(
        "I8",
        (
            (REPLICA, "test_logs_that_know_the_same_epoch_are_cut_where_the_shorter_ends"),
            (REPLICA, "test_a_follower_that_does_not_know_the_epoch_cuts_and_asks_again"),
            (FOLLOWERS, "test_a_diverged_follower_gets_the_divergence_and_nothing_is_noted"),
            (REPLICATION, "test_what_only_a_leader_that_was_cut_off_has_is_cut_off"),
        ),
        (
            (REPLICA, "return Truncation(min(own_end, log_end_offset), False)"),
            (ZOO, "cuts its log at the high watermark"),
            (ZOO, "cuts its log only once"),
        ),
    ),
    Promise(
        "I9",
        (
            (ADMISSION, "test_a_follower_never_goes_back"),
            ("storage/test_log.py", "test_a_follower_keeps_offsets_and_epochs"),
            ("storage/test_log.py", "test_truncation_takes_records_epochs_and_the_high_watermark_with_it"),
            (EPOCHS, "test_cutting_the_end_forgets_epochs_that_start_there_or_later"),
        ),
        (
            (EPOCHS, "keep = bisect_left(self._starts, end_offset)"),
            (ZOO, "cuts records and not epochs"),
            (ADMISSION, "if header.base_offset < next_offset:"),
        ),
    ),
    Promise(
        "I10",
        (
            (REPLICAS, "a_new_epoch_is_noted_before_anything_is_written_in_it"),
            (FOLLOWERS, "test_a_new_leader_does_not_know_at_once_where_its_log_ends"),
        ),
        (
            (REPLICAS, "self._begin_epoch(replica, epoch, ahead)"),
            (FOLLOWERS, "self.log.high_watermark >= self.leadership.epoch_start"),
            (ZOO, "a new leader tells the latest offset at once"),
        ),
    ),
    Promise(
        "I11",
        (
            (FOLLOWERS, "test_acks_1_waits_for_no_follower_and_consumers_see_it_later"),
            (WORLD, "test_what_was_shown_stays_whatever_happens"),
        ),
        (
            (ZOO, "serves above the high watermark"),
            (ZOO, "the last stable offset is past an open transaction"),
        ),
    ),
    Promise(
        "I12",
        (
            (BROKERS, "test_an_eligible_leader_that_comes_back_leads_and_is_the_isr"),
            (BROKERS, "test_without_an_eligible_replica_the_last_leader_leads_and_recovers"),
            (BROKERS, "test_an_unclean_leader_needs_permission"),
            (ELECTIONS, "test_an_unclean_election_takes_any_live_replica"),
        ),
        (
            (BROKERS, "_remember_last_leader"),
            (BROKERS, "is_unclean_election_allowed"),
        ),
    ),
    Promise(
        "I13",
        (
            (BROKERS, "test_a_replica_that_leaves_a_small_isr_stays_eligible"),
            (BROKERS, "test_a_replica_that_has_crashed_is_not_fit_to_lead"),
            (CONFIGS, "test_another_min_isr_forgets_the_eligible_leaders_that_were_found_with_the_former"),
            (ELECTIONS, "test_a_replica_whose_directory_is_lost_is_neither_in_sync_nor_eligible"),
        ),
        (
            (BROKERS, "on_broker_removed"),
            (CONFIGS, "_forgotten_leaders"),
            (ELECTIONS, "isr_changes.LOST_DIRECTORY"),
            (ZOO, "eligible to lead after an unclean stop"),
            (ZOO, "eligible to lead though enough are in sync"),
        ),
    ),
    Promise(
        "I14",
        (
            (BROKERS, "test_a_broker_epoch_is_the_offset_of_its_registration"),
            (BROKERS, "test_another_broker_of_the_same_id_waits_until_the_first_is_gone"),
            (BROKERS, "test_a_replica_that_has_stopped_cleanly_is_still_fit_to_lead"),
            (
                "broker/membership/test_refused_starts.py",
                "test_a_start_that_fails_does_not_make_the_last_stop_an_unclean_one",
            ),
        ),
        (
            (BROKERS, "if before is not None and not is_same and has_session:"),
            (BROKERS, "next_offset + len(records)"),
            (BROKERS, "is_clean = request.previous_broker_epoch == before.epoch"),
            (ZOO, "leads before it is registered"),
        ),
    ),
    Promise(
        "I15",
        (
            (BROKERS, "test_a_fenced_broker_is_in_no_isr_and_leads_nothing"),
            (MEMBERSHIP, "test_a_broker_without_a_controller_loses_nothing_but_time"),
        ),
        ((BROKERS, "on_broker_fenced"), (MEMBERSHIP, "test_a_controller_that_fences_no_broker_is_noticed")),
    ),
    Promise(
        "I16",
        (
            (ELECTIONS, "test_a_move_grows_catches_up_and_shrinks"),
            (ELECTIONS, "test_the_end_of_a_move_makes_a_new_leader_epoch_even_if_the_leader_stays"),
            (REPLICA, "test_a_replica_that_is_added_begins_unproven_and_one_that_is_removed_is_forgotten"),
        ),
        (
            (ELECTIONS, "if staying and set(staying) <= set(isr):"),
            (ELECTIONS, "elif not set(partition.replicas) <= set(replicas):"),
            (REPLICA, "{replica: self.followers"),
        ),
    ),
    Promise(
        "I17",
        (
            (WORLD, "test_what_was_shown_stays_whatever_happens"),
            (REPLICATION, "test_what_is_acknowledged_survives_its_leader"),
        ),
        ((WORLD, "test_a_mistake_is_found_out"), (ZOO, "joins the ISR behind the start of the epoch")),
    ),
    Promise(
        "I18",
        (
            (BARRIER, "a_fetch_that_was_sent_before_the_read_does_not_count"),
            (READS, "test_a_former_leader_never_answers_with_an_old_end"),
            (WORLD, "test_a_linearizable_read_shows_all_that_was_acknowledged_before"),
        ),
        (
            (BARRIER, "if leader_epoch == self._leader_epoch:"),
            (BARRIER, "self._heard.get(each, NO_READ) < read"),
            (READS, "answered=session.answered_read"),
            (ZOO, "a read does not wait for eligible leader replicas"),
        ),
    ),
    Promise(
        "K1",
        (
            (RAFT, "test_a_vote_is_saved_before_it_is_sent_and_cast_once_in_an_epoch"),
            (RAFT, "test_a_vote_is_remembered_over_a_restart"),
            (STEPS, "a_vote_is_durable_before_it_is_sent"),
        ),
        (
            (RAFT, "actions += self._save(PersistentState(epoch=self.epoch, voted=request.candidate))"),
            (STEPS, "self.files.save(persisted)"),
            (ZOO, "votes twice in an epoch"),
        ),
    ),
    Promise(
        "K2",
        ((RAFT, "test_a_vote_is_not_given_to_a_log_that_knows_less"),),
        ((RAFT, "if request.end < self._log.end:"), (ZOO, "votes for a log that knows less")),
    ),
    Promise(
        "K3",
        (
            (RAFT, "test_a_leader_that_restarts_casts_no_vote_in_its_epoch"),
            (STEPS, "voters_of_the_configuration_cannot_be_changed"),
            (RAFT_WORLD, "test_what_is_committed_stays_whatever_happens"),
        ),
        ((STEPS, "if known and not self.kraft_version and known != configured:"), (ZOO, "counts a refusal")),
    ),
    Promise(
        "K4",
        (
            (RAFT, "test_records_of_an_earlier_epoch_are_committed_only_together_with_one_of_this"),
            (RAFT, "test_what_the_leader_has_not_made_durable_does_not_count"),
        ),
        (
            (RAFT, "reached <= role.epoch_start or "),
            (RAFT, "ends[-1] = self._log.durable_offset"),
            (ZOO, "calls committed what an earlier leader wrote"),
        ),
    ),
    Promise(
        "K5",
        (
            (RAFT, "test_a_follower_cuts_where_the_logs_part_and_no_further"),
            (RAFT_WORLD, "test_what_is_committed_stays_whatever_happens"),
            (CLUSTER, "test_all_nodes_may_be_killed_at_once_and_nothing_answered_is_lost"),
        ),
        (
            (RAFT, "min(leaders.offset, ours.offset) if ours.epoch == leaders.epoch else ours.offset"),
            (RAFT, "if ours.epoch != end.epoch or ours.offset < end.offset:"),
        ),
    ),
    Promise(
        "K6",
        (
            (RAFT, "test_a_pre_vote_changes_nothing"),
            (RAFT, "test_a_follower_with_a_live_leader_refuses_a_pre_vote"),
            (RAFT, "test_a_leader_without_a_majority_resigns"),
        ),
        (
            (RAFT, "is_granted and not request.is_pre_vote and"),
            (RAFT, "(isinstance(role, Follower) and role.has_fetched)"),
            (RAFT, "if now_ms >= self._quorum_deadline(role):"),
        ),
    ),
    Promise(
        "K7",
        (
            (RAFT, "test_voters_change_one_at_a_time_and_after_a_record_of_the_epoch_is_committed"),
            (RAFT, "test_a_leader_that_was_voted_out_stays_until_that_is_committed"),
            (RAFT, "test_a_voter_whose_disk_was_wiped_is_another_one"),
            (RAFT, "test_voters_of_the_configuration_are_named_all_together_and_from_the_directories_they_fetch_from"),
            ("broker/quorum/test_voters.py", "a_voter_must_listen_where_it_says_and_understand_what_is_spoken"),
        ),
        (
            (RAFT, "high_watermark <= role.epoch_start or self.voters.latest_offset >= high_watermark"),
            (RAFT, "return actions + self.resign(now_ms) if is_voted_out else actions"),
            (STEPS, "self.voters.truncate(offset)"),
            (ZOO, "two changes of voters at a time"),
        ),
    ),
    Promise(
        "K8",
        (
            (SNAPSHOT, "test_a_snapshot_that_is_cut_off_anywhere_is_refused"),
            (STEPS, "a_log_that_parted_before_a_leaders_snapshot_is_not_kept"),
            (RAFT, "test_a_leader_never_loads_a_snapshot"),
        ),
        (
            (RAFT, "response.is_refused or not is_current or not isinstance(role, Follower)"),
            (STEPS, "metadata_log.epochs.epoch_for_offset(snapshot.offset - 1) == snapshot.epoch"),
        ),
    ),
    Promise(
        "K9",
        (
            (STEPS, "nothing_is_believed_that_only_the_leader_has"),
            (STEPS, "only_the_active_controller_decides"),
            (BROKERS, "test_a_broker_begins_fenced_and_is_let_in_once_it_knows_its_own_registration"),
        ),
        (
            (STEPS, "return self.raft.is_leader and self._active_epoch == self.raft.epoch"),
            (BROKERS, "is_caught_up = request.current_metadata_offset >= broker.epoch"),
        ),
    ),
)


@cache
def text_of(path: str) -> str:
    return (TESTS / path).read_text(encoding="utf-8")


@cache
def strings_of(path: str) -> tuple[str, ...]:
    """Literals in one piece, however many lines they take."""
    found = ast.walk(ast.parse(text_of(path)))
    return tuple(node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str))


@cache
def functions_of(path: str) -> frozenset[str]:
    found = ast.walk(ast.parse(text_of(path)))
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_a_promise_has_its_tests_and_each_was_seen_to_notice_a_mistake(promise: Promise) -> None:
    assert promise.tests and promise.mistakes
    for path, name in promise.tests:
        assert name in functions_of(path), f"{promise.name}: there is no {name} in tests/{path} any more"
    for path, text in promise.mistakes:
        is_planted = text in text_of(path) or any(text in each for each in strings_of(path))
        assert is_planted, f"{promise.name}: no test plants {text!r} in tests/{path} any more"


def test_every_promise_is_in_the_list() -> None:
    wanted = [f"I{number}" for number in range(1, 19)] + [f"K{number}" for number in range(1, 10)]
    assert [promise.name for promise in PROMISES] == wanted
