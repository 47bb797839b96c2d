"""What a table's properties and summaries say of the pipelines that wrote it."""

from types import ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.pipeline.errors import InvalidPipeline
from trioka.pipeline.sources import offsets
from trioka.pipeline.sources.offsets import Commit
from trioka.pipeline.tables import table_progress

TARGET = "Iceberg table trioka.shop.orders"


def commit(batch: int, start: int, end: int, run: str = "r", pipeline: str = "p", id: str = "") -> Commit:
    topics = {"t": id} if id else {}
    return Commit(pipeline=pipeline, run=run, batch=batch, start={"t": {0: start}}, end={"t": {0: end}}, topics=topics)


def summary(one: Commit, **more: str) -> dict[str, Any]:
    return {"snapshot-id": one.batch, "summary": {"trioka.commit": one.to_json(), **more}}


def metadata(*snapshots: dict[str, Any], **properties: str) -> dict[str, Any]:
    return {"properties": properties, "snapshots": list(snapshots), "current-snapshot-id": -1}


def kept(module: ModuleType, there: list[Commit], one: Commit) -> list[Commit]:
    """What is known after a commit, if every snapshot is expired at once."""
    properties = module.properties_with(there, one, TARGET)
    known = {module._key(before): before.to_json() for before in there} | properties
    return list(module.commits_of(metadata(**{key: text for key, text in known.items() if text}), TARGET))


def batches_of_a_run_are_one_range(module: ModuleType) -> None:
    known: list[Commit] = []
    for number in range(3):
        known = kept(module, known, commit(number, 10 + number, 11 + number))
    assert known == [commit(2, 10, 13)]


def summaries_of_before_become_properties(module: ModuleType) -> None:
    old = [commit(0, 5, 7), commit(1, 7, 9), commit(0, 0, 5, run="backfill-1"), commit(0, 0, 3, pipeline="other")]
    there = module.commits_of(metadata(*map(summary, old)), TARGET)
    assert set(module.properties_with(there, commit(2, 9, 10), TARGET)) == {
        "trioka.progress.p.r",
        "trioka.progress.p.backfill-1",
    }
    known = {(one.pipeline, one.run): one for one in kept(module, there, commit(2, 9, 10))}
    assert known["p", "r"] == commit(2, 5, 10)
    assert known["p", "backfill-1"] == commit(0, 0, 5, run="backfill-1")


def a_snapshot_that_was_only_staged_does_not_count(module: ModuleType) -> None:
    assert module.commits_of(metadata(summary(commit(0, 0, 5), **{"wap.id": "r-0"})), TARGET) == []


def a_backfill_changes_its_own_property_alone(module: ModuleType) -> None:
    """The stream may be about to change its own, and Iceberg would write what was read before."""
    backfill = commit(0, 0, 5, run="backfill-1")
    assert list(module.properties_with([commit(3, 5, 9)], backfill, TARGET)) == ["trioka.progress.p.backfill-1"]


def there_is_a_limit_to_runs_and_nothing_is_forgotten(module: ModuleType) -> None:
    known: list[Commit] = []
    for number in range(module.MAX_RUNS + 5):
        known = kept(module, known, commit(0, number, number + 1, run=f"r{number:03}"))
    assert len(known) == module.MAX_RUNS
    assert min(one.start["t"][0] for one in known) == 0
    (newest,) = (one for one in known if one.run == f"r{module.MAX_RUNS + 4:03}")
    assert newest.end == {"t": {0: module.MAX_RUNS + 5}}


def what_was_read_of_a_topic_before_it_was_created_again_is_not_the_new_ones(module: ModuleType) -> None:
    joined = module._begun_by(commit(0, 0, 90, run="old", id="a"), commit(0, 3, 5, run="new", id="b"))
    assert joined == commit(0, 3, 5, run="new", id="b")


def backfills_beyond_the_limit_are_refused(module: ModuleType) -> None:
    there = [commit(0, at, at + 1, run=f"backfill-{at}") for at in range(module.MAX_BACKFILLS)]
    module.properties_with(there, there[0], TARGET)
    with pytest.raises(InvalidPipeline, match="has had 1000 backfills of p"):
        module.properties_with(there, commit(0, 5000, 5001, run="backfill-new"), TARGET)


def a_property_that_somebody_edited_stops_the_pipeline(module: ModuleType) -> None:
    for text in ("", "{}", "[]", '{"pipeline": "p", "run": "r", "batch": 1, "start": 3, "end": {}}'):
        with pytest.raises(InvalidPipeline, match=r"trioka\.progress\.p\.r of .* is not as trioka wrote it"):
            module.commits_of(metadata(**{"trioka.progress.p.r": text}), TARGET)


def a_table_says_whether_it_has_rows(module: ModuleType) -> None:
    assert not module.has_rows({"snapshots": []})
    snapshots = [{"snapshot-id": id, "summary": {"total-records": str(id)}} for id in (0, 1)] + [{"snapshot-id": 2}]
    found = [module.has_rows({"snapshots": snapshots, "current-snapshot-id": id}) for id in (-1, 0, 1, 2)]
    assert found == [False, False, True, True]


RULES = [
    batches_of_a_run_are_one_range,
    summaries_of_before_become_properties,
    a_snapshot_that_was_only_staged_does_not_count,
    a_backfill_changes_its_own_property_alone,
    there_is_a_limit_to_runs_and_nothing_is_forgotten,
    what_was_read_of_a_topic_before_it_was_created_again_is_not_the_new_ones,
    backfills_beyond_the_limit_are_refused,
    a_property_that_somebody_edited_stops_the_pipeline,
    a_table_says_whether_it_has_rows,
]


@pytest.mark.parametrize("rule", RULES)
def test_a_table_remembers_what_was_written_to_it(rule: Rule) -> None:
    rule(table_progress)


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        (
            "STAGED not in summary and COMMIT_PROPERTY in summary",
            "COMMIT_PROPERTY in summary",
            a_snapshot_that_was_only_staged_does_not_count,
        ),
        ("by_run([*there, commit])", "by_run([commit])", batches_of_a_run_are_one_range),
        ("    if commit.is_backfill:\n", "    if False:\n", a_backfill_changes_its_own_property_alone),
        ("if len(runs) >= MAX_RUNS:", "if False:", there_is_a_limit_to_runs_and_nothing_is_forgotten),
        (
            "[topic for topic in oldest.end if not is_another_topic(oldest.topics, newest.topics, topic)]",
            "[topic for topic in oldest.end]",
            what_was_read_of_a_topic_before_it_was_created_again_is_not_the_new_ones,
        ),
        (
            "_begun_by(oldest, own[commit.run])",
            "own[commit.run]",
            there_is_a_limit_to_runs_and_nothing_is_forgotten,
        ),
        (
            "sum(one.is_backfill for one in own.values()) > MAX_BACKFILLS",
            "sum(one.is_backfill for one in own.values()) > 2 * MAX_BACKFILLS",
            backfills_beyond_the_limit_are_refused,
        ),
        (
            'snapshot.get("summary", {}).get("total-records") != "0"',
            'snapshot.get("summary", {}).get("total-records") == "1"',
            a_table_says_whether_it_has_rows,
        ),
    ],
)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(table_progress, right, wrong, rule)


# -- whether a table holds a batch -------------------------------------------------------------------------------------


def a_repeated_batch_is_held(module: ModuleType) -> None:
    there = [commit(0, 0, 5), commit(1, 5, 9), commit(7, 0, 99, run="other")]
    assert module.is_held(there, commit(0, 0, 5))
    assert module.is_held(there, commit(1, 5, 9))
    assert not module.is_held(there, commit(2, 9, 12))
    assert not module.is_held(there, commit(0, 9, 12, run="new"))
    # Flows that share a read have its run.
    assert not module.is_held(there, commit(1, 5, 9, pipeline="other"))


def a_batch_of_an_older_checkpoint_that_reaches_farther_is_refused(module: ModuleType) -> None:
    there = [commit(0, 0, 5), commit(1, 5, 9)]
    with pytest.raises(InvalidPipeline, match=r"older than the table: batch 1 is t-0 from 5 to 12, .* up to 9"):
        module.is_held(there, commit(1, 5, 12))
    with pytest.raises(InvalidPipeline, match="older than the table: batch 2 is t-0 from 7 to 12"):
        module.is_held(there, commit(2, 7, 12))


def a_topic_that_lost_its_end_goes_on_from_there(module: ModuleType) -> None:
    """Where it may (`on_data_loss = "skip"`), a batch ends before the end of the one before it."""
    assert not module.is_held([commit(0, 0, 9), commit(1, 9, 6)], commit(2, 6, 8))


def partitions_that_came_later_are_whole(module: ModuleType) -> None:
    first = Commit(pipeline="p", run="r", batch=0, start={}, end={"t": {0: 5}})
    second = Commit(pipeline="p", run="r", batch=1, start={"t": {0: 5}}, end={"t": {0: 6, 1: 2}})
    third = Commit(pipeline="p", run="r", batch=2, start={"t": {0: 6, 1: 2}}, end={"t": {0: 6, 1: 4}})
    assert module.joined([third, first, second]).ranges() == {("t", 0): (0, 6), ("t", 1): (0, 4)}


def another_topic_of_the_name_does_not_overlap(module: ModuleType) -> None:
    wanted = commit(0, 0, 9, run="backfill-1", id="b")
    assert module.overlaps(wanted, [commit(0, 0, 9, id="a")]) == []
    assert module.overlaps(wanted, [commit(0, 0, 9, id="b")]) == module.overlaps(wanted, [commit(0, 0, 9)]) != []


HELD = [
    a_repeated_batch_is_held,
    a_batch_of_an_older_checkpoint_that_reaches_farther_is_refused,
    a_topic_that_lost_its_end_goes_on_from_there,
    partitions_that_came_later_are_whole,
    another_topic_of_the_name_does_not_overlap,
]


@pytest.mark.parametrize("rule", HELD)
def test_a_batch_is_known_by_its_run_and_its_offsets(rule: Rule) -> None:
    rule(offsets)


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("known.batch >= commit.batch", "known.batch > commit.batch", a_repeated_batch_is_held),
        (
            "(one.pipeline, one.run) == (commit.pipeline, commit.run)",
            "one.pipeline == commit.pipeline",
            a_repeated_batch_is_held,
        ),
        (
            "(one.pipeline, one.run) == (commit.pipeline, commit.run)",
            "one.run == commit.run",
            a_repeated_batch_is_held,
        ),
        ("end > known_end", "False", a_batch_of_an_older_checkpoint_that_reaches_farther_is_refused),
        ("start < known_end", "False", a_batch_of_an_older_checkpoint_that_reaches_farther_is_refused),
        (
            "end.setdefault(topic, {})[one] = until",
            "end.setdefault(topic, {})[one] = max(until, end.get(topic, {}).get(one, 0))",
            a_topic_that_lost_its_end_goes_on_from_there,
        ),
        ("min(since, known.get(one, since))", "since", partitions_that_came_later_are_whole),
        ("known[topic] != now[topic]", "False", another_topic_of_the_name_does_not_overlap),
    ],
)
def test_a_planted_mistake_in_positions_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(offsets, right, wrong, rule)
