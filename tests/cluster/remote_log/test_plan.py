"""What a leader does next for a tiered partition, and the steps of its jobs."""

from itertools import pairwise
from typing import Any

import pytest
from support.remote_segments import ABOUT, DELETING, FINISHED, a_partition, a_segment, lineage, update

from trioka.cluster.remote_log.jobs import (
    Author,
    Command,
    CreateManifest,
    CreateTombstone,
    DeleteObjects,
    Job,
    ManifestKey,
    ObjectKind,
    Outcome,
    PutSegment,
    ReadManifestKey,
    Result,
    StoreFailed,
    WriteRecord,
    cancel_copy,
    copy_segment,
    delete_segment,
)
from trioka.cluster.remote_log.metadata import RemotePartition, RemoteSegment, segment_record
from trioka.cluster.remote_log.plan import (
    CancelCopy,
    Cause,
    CopySegment,
    DeleteSegment,
    LocalSegment,
    LogFacts,
    MoveLogStart,
    NotCopied,
    Policy,
    Step,
    decide_as_leader,
    epochs_of_range,
    not_copied,
    tiered_end,
)
from trioka.storage.files.checkpoint import EpochEntry

AUTHOR = Author(broker_id=1, epoch=5, now_ms=9)
NOW_MS = 1000


def policy(**changed: object) -> Policy:
    values: dict[str, object] = {"copies": True, "deletes_all": False, "retention_ms": -1, "retention_bytes": -1}
    return Policy(**(values | changed))  # type: ignore[arg-type]


def facts(*borders: int, end: int = 100, start: int = 0, **changed: int) -> LogFacts:
    """A log with closed segments between these offsets, all of them committed; a record has ten bytes."""
    local = borders[0] if borders else end
    return LogFacts(
        lineage=lineage(end),
        log_start_offset=start,
        replicated_log_start_offset=changed.get("replicated", start),
        local_start_offset=max(local, start),
        high_watermark=changed.get("high_watermark", end),
        last_stable_offset=changed.get("last_stable", end),
        segments=tuple(
            LocalSegment(base_offset=a, next_offset=b, size_bytes=(b - a) * 10, max_timestamp_ms=b)
            for a, b in pairwise(borders)
        ),
        active_size_bytes=0,
    )


def steps(log: LogFacts, remote: RemotePartition, its_policy: Policy | None = None) -> list[Step]:
    return list(decide_as_leader(log, remote, its_policy or policy(), now_ms=NOW_MS))


def test_the_oldest_segment_that_is_not_in_the_store_is_copied() -> None:
    (step,) = steps(facts(0, 10, 20, 30), a_partition(a_segment(0, 9)))
    assert isinstance(step, CopySegment) and step.local.base_offset == 10
    assert step.leader_epochs == (EpochEntry(0, 10),)


@pytest.mark.parametrize("limits", [{"high_watermark": 9}, {"last_stable": 9}])
def test_a_segment_with_records_that_are_not_stable_is_not_copied(limits: dict[str, int]) -> None:
    assert steps(facts(0, 10, 20, **limits), a_partition()) == []


def test_nothing_is_copied_while_copying_is_disabled() -> None:
    assert steps(facts(0, 10, 20), a_partition(), policy(copies=False)) == []


def test_a_segment_of_the_store_that_was_lost_is_copied_again_if_it_is_local() -> None:
    (step,) = steps(facts(0, 10, 20, 30), a_partition(a_segment(0, 9), a_segment(20, 29)))
    assert isinstance(step, CopySegment) and step.local.base_offset == 10


class Counting(RemotePartition):
    """Counts the searches for segments."""

    searches = 0

    def segment_at(self, *arguments: Any, **named: Any) -> RemoteSegment | None:
        self.searches += 1
        return super().segment_at(*arguments, **named)


def test_a_decision_looks_at_each_segment_a_few_times_however_many_there_are() -> None:
    count, remote = 300, Counting(ABOUT)
    for number in range(count - 1):
        segment = a_segment(10 * number, 10 * number + 9)
        remote.replay(segment_record(ABOUT, segment), 0)
        remote.replay(update(segment, FINISHED), 0)
    log = facts(*range(0, 10 * count + 1, 10), end=10 * count)
    (step,) = steps(log, remote)
    assert isinstance(step, CopySegment) and step.local.base_offset == 10 * (count - 1)
    assert not_copied(log, remote).closed_segments == 1
    assert remote.searches < 6 * count


def test_retention_by_time_moves_the_log_start_and_deletes_when_followers_have_it() -> None:
    remote = a_partition(a_segment(0, 9), a_segment(10, 19))
    its_policy = policy(retention_ms=NOW_MS - 15)
    (step,) = steps(facts(20), remote, its_policy)
    assert step == MoveLogStart(offset=10, cause=Cause.TIME)
    assert steps(facts(20, start=10, replicated=0), remote, its_policy) == []
    (deletion,) = steps(facts(20, start=10), remote, its_policy)
    assert isinstance(deletion, DeleteSegment) and deletion.segment.start_offset == 0


def test_retention_by_size_counts_what_is_only_local() -> None:
    remote = a_partition(a_segment(0, 9), a_segment(10, 19))  # of 100 bytes each
    log = facts(20, 30, 40)  # 200 bytes that are not copied
    assert steps(log, remote, policy(copies=False, retention_bytes=301)) == []
    (step,) = steps(log, remote, policy(copies=False, retention_bytes=300))
    assert step == MoveLogStart(offset=10, cause=Cause.SIZE)


def test_the_log_start_leaves_a_hole_that_nothing_can_fill() -> None:
    (step,) = steps(facts(40), a_partition(a_segment(20, 39)))
    assert step == MoveLogStart(offset=20, cause=Cause.UNREADABLE)


def test_the_log_start_stays_if_the_records_themselves_are_lost() -> None:
    assert steps(facts(40), RemotePartition(ABOUT)) == []


def test_a_segment_that_is_in_others_goes_and_only_one_at_a_time() -> None:
    twins = a_partition(a_segment(0, 9), a_segment(0, 9))
    (step,) = steps(facts(10), twins)
    assert isinstance(step, DeleteSegment) and step.cause is Cause.SPARE
    assert list(decide_as_leader(facts(10), twins, policy(), now_ms=0, is_deleting=True)) == []


def test_an_abandoned_copy_is_cancelled_and_a_deletion_is_resumed() -> None:
    remote, segment, log = RemotePartition(ABOUT), a_segment(0, 9), facts(0)
    remote.replay(segment_record(ABOUT, segment), 0)
    (step,) = steps(log, remote)
    assert isinstance(step, CancelCopy)
    assert list(decide_as_leader(log, remote, policy(), now_ms=0, busy={segment.segment_id})) == []
    remote.replay(update(segment, DELETING), 0)
    (step,) = steps(log, remote)
    assert isinstance(step, DeleteSegment) and step.cause is Cause.RESUMED


def test_disabling_deletes_everything_behind_a_moved_log_start() -> None:
    remote, its_policy = a_partition(a_segment(0, 9), a_segment(10, 29)), policy(copies=False, deletes_all=True)
    (step,) = steps(facts(20, 40), remote, its_policy)
    assert step == MoveLogStart(offset=20, cause=Cause.DISABLED)
    deletions = steps(facts(20, 40, start=20), remote, its_policy)
    assert [each.segment.start_offset for each in deletions if isinstance(each, DeleteSegment)] == [0, 10]


def test_local_segments_may_go_up_to_the_first_hole() -> None:
    remote = a_partition(a_segment(0, 9), a_segment(10, 19), a_segment(30, 39))
    assert tiered_end(facts(0, 10, 20, 30, 40), remote) == 20
    assert tiered_end(facts(30, 40), remote) == 40  # the hole is not on this disk


def test_what_is_not_copied_is_counted() -> None:
    assert not_copied(facts(0, 10, 20, 30), a_partition(a_segment(0, 9))) == NotCopied(2, 200, 200, 20, 10, 20)


def test_the_epochs_of_a_segment_begin_with_it() -> None:
    local = LocalSegment(base_offset=10, next_offset=30, size_bytes=1, max_timestamp_ms=0)
    assert epochs_of_range(lineage(50, (1, 0), (3, 20), (4, 30)), local) == (EpochEntry(1, 10), EpochEntry(3, 20))
    assert epochs_of_range(lineage(50, (1, 15)), local) == (EpochEntry(1, 10),)


# -- jobs --------------------------------------------------------------------------------------------------------------


def carry_out(job: Job, **results: Result) -> tuple[list[Command], Outcome]:
    """All commands of a job, whose results are given by the names of their types; records count."""
    commands: list[Command] = []
    try:
        command = next(job)
        while True:
            commands.append(command)
            name = type(command).__name__
            command = job.send(results.get(name, True if isinstance(command, WriteRecord) else None))
    except StopIteration as done:
        return commands, done.value


def kinds(commands: list[Command]) -> list[type[Command]]:
    return [type(each) for each in commands]


def test_a_copy_writes_its_manifest_last_and_between_its_records() -> None:
    commands, outcome = carry_out(copy_segment(ABOUT, a_segment(0, 9), AUTHOR), CreateManifest=True)
    assert kinds(commands) == [WriteRecord, PutSegment, CreateManifest, WriteRecord]
    assert outcome is Outcome.DONE


def test_a_copy_ends_at_a_tombstone_and_at_a_record_that_does_not_count() -> None:
    job = copy_segment(ABOUT, a_segment(0, 9), AUTHOR)
    commands, outcome = carry_out(job, CreateManifest=False, ReadManifestKey=ManifestKey.TOMBSTONE)
    assert outcome is Outcome.FENCED and kinds(commands)[-1] is ReadManifestKey
    commands, outcome = carry_out(copy_segment(ABOUT, a_segment(0, 9), AUTHOR), WriteRecord=False)
    assert outcome is Outcome.FENCED and kinds(commands) == [WriteRecord]


def test_a_cancelled_copy_is_adopted_if_it_is_complete() -> None:
    job = cancel_copy(ABOUT, a_segment(0, 9), AUTHOR)
    commands, outcome = carry_out(job, CreateTombstone=False, ReadManifestKey=ManifestKey.MANIFEST)
    assert outcome is Outcome.ADOPTED and kinds(commands) == [CreateTombstone, ReadManifestKey, WriteRecord]


def test_a_cancelled_copy_is_deleted_behind_its_tombstone() -> None:
    commands, outcome = carry_out(cancel_copy(ABOUT, a_segment(0, 9), AUTHOR), CreateTombstone=True)
    assert outcome is Outcome.DONE
    assert kinds(commands) == [CreateTombstone, WriteRecord, DeleteObjects, WriteRecord]
    deletion = commands[2]
    assert isinstance(deletion, DeleteObjects) and ObjectKind.MANIFEST not in deletion.kinds


def test_a_cancelled_copy_without_anything_at_its_key_is_tried_again() -> None:
    job = cancel_copy(ABOUT, a_segment(0, 9), AUTHOR)
    with pytest.raises(StoreFailed):
        carry_out(job, CreateTombstone=False, ReadManifestKey=ManifestKey.NOTHING)


@pytest.mark.parametrize(
    ("found", "deletes_manifest"),
    [(ManifestKey.MANIFEST, True), (ManifestKey.NOTHING, True), (ManifestKey.TOMBSTONE, False)],
)
def test_a_deletion_begins_with_the_manifest_and_spares_a_tombstone(found: ManifestKey, deletes_manifest: bool) -> None:
    commands, outcome = carry_out(delete_segment(ABOUT, a_segment(0, 9), AUTHOR), ReadManifestKey=found)
    assert outcome is Outcome.DONE
    (deletion,) = [each for each in commands if isinstance(each, DeleteObjects)]
    assert (deletion.kinds[0] is ObjectKind.MANIFEST) is deletes_manifest
    assert deletion.kinds[-1] is ObjectKind.DATA


def test_no_object_goes_if_the_deletion_does_not_count() -> None:
    commands, outcome = carry_out(delete_segment(ABOUT, a_segment(0, 9), AUTHOR), WriteRecord=False)
    assert outcome is Outcome.FENCED and kinds(commands) == [WriteRecord]
