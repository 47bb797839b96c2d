"""How far groups are moved, what is kept to take it back, and what the lag says. A broker is asked in compat-tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command_line import at, command, home

from trioka.cli.client.cluster_client import Kafka, TopicPartition
from trioka.cli.client.offsets import CommittedOffset
from trioka.cli.client.settings import find_settings
from trioka.cli.groups import reset, undo
from trioka.cli.groups.lag import LagSample, note_progress, rates, status
from trioka.cli.groups.reset import MOVES, Target, target_of
from trioka.cli.terminal.failure import Exit, Failure

__all__ = ["at", "home"]

NOW = 1_794_800_000_000
NOTHING: dict[str, Any] = {**dict.fromkeys(MOVES), "to_earliest": False, "to_latest": False, "to_current": False}
ORDERS = TopicPartition("moved", 0)


@pytest.fixture(scope="module")
def kafka(at: str) -> Iterator[Kafka]:
    """A broker with ten records in a topic of one partition, of which the first two are deleted."""
    command("topics", "create", "moved", at=at)
    command("produce", "moved", at=at, stdin=b"".join(b"%d\n" % number for number in range(10)))
    command("topics", "trim", "moved", "--to-offset", "2", "-y", at=at)
    with find_settings(bootstrap_server=at, command_config=None, context=None).kafka() as kafka:
        yield kafka


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (Target("to_earliest"), 2),
        (Target("to_latest"), 10),
        (Target("to_current"), 5),
        (Target("to_offset", 7), 7),
        (Target("to_offset", 0), 2),
        (Target("to_offset", 99), 10),
        (Target("shift_by", 3), 8),
        (Target("shift_by", -99), 2),
        (Target("to_datetime", 0), 2),
        (Target("by_duration", 4_000_000_000_000), 10),
    ],
)
def test_a_plan_stays_within_what_the_partition_holds(kafka: Kafka, target: Target, offset: int) -> None:
    assert reset.plan(kafka, target, {ORDERS: 5}, [ORDERS]) == {ORDERS: offset}


def test_partitions_are_chosen_by_topic_or_one_by_one(kafka: Kafka) -> None:
    assert reset.places(kafka, ["moved"]) == reset.places(kafka, ["moved:0"]) == [ORDERS]
    with pytest.raises(Failure, match="has no partition 7: they are 0 to 0"):
        reset.places(kafka, ["moved:7"])
    with pytest.raises(Failure, match="topic 'moves' does not exist"):
        reset.places(kafka, ["moves"])
    with pytest.raises(click.UsageError):
        reset.places(kafka, ["moved:x"])


def test_one_target_is_required() -> None:
    assert target_of({**NOTHING, "to_earliest": True}, NOW) == Target("to_earliest")
    assert target_of({**NOTHING, "to_offset": 0}, NOW) == Target("to_offset", 0)
    assert target_of({**NOTHING, "by_duration": 1000}, NOW) == Target("by_duration", NOW - 1000)
    assert target_of({**NOTHING, "to_datetime": "1970-01-02"}, NOW) == Target("to_datetime", 86_400_000)
    for wrong in ({}, {"to_earliest": True, "to_latest": True}, {"to_datetime": "soon"}):
        with pytest.raises(click.UsageError):
            target_of({**NOTHING, **wrong}, NOW)


places = st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 9))
values = st.none() | st.builds(
    CommittedOffset, st.integers(0, 1 << 60), st.integers(-1, 9), st.none() | st.text(max_size=5)
)
pasts = st.builds(
    undo.UndoEntry, st.integers(0, 1 << 45), st.text(max_size=9), st.dictionaries(places, values, max_size=4)
)


@given(st.text(min_size=1, max_size=30), st.lists(pasts, max_size=3))
def test_what_was_is_kept_as_it_was(group: str, kept: list[undo.UndoEntry]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {"XDG_STATE_HOME": folder}
        for past in kept:
            undo.remember("cluster", group, past, environment)
        assert undo.load("cluster", group, environment) == kept
        assert undo.load("other", group, environment) == []


def test_only_the_newest_changes_are_kept(home: Path) -> None:
    for number in range(undo.KEPT + 3):
        undo.remember("cluster", "g", undo.UndoEntry(number, "reset", {}))
    assert [past.at for past in undo.load("cluster", "g")] == list(range(3, undo.KEPT + 3))
    (file,) = (home / "state" / "trioka" / "undo" / "cluster").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_rates_need_two_looks() -> None:
    before, now = LagSample(100, 200, 0), LagSample(140, 220, 0)
    assert rates(now, None, 2.0) == {"in_per_s": None, "out_per_s": None, "catch_up_ms": None}
    assert rates(now, before, 2.0) == {"in_per_s": 10.0, "out_per_s": 20.0, "catch_up_ms": 8000}
    assert rates(LagSample(100, 220, 0), before, 2.0)["catch_up_ms"] is None
    assert rates(LagSample(220, 220, 0), before, 2.0)["catch_up_ms"] == 0


@pytest.mark.parametrize(
    ("look", "out", "has_reader", "idle_s", "word"),
    [
        (LagSample(None, 10, 0), None, True, 9, "unknown"),
        (LagSample(3, 10, 5), None, True, 9, "lost"),
        (LagSample(10, 10, 0), None, False, 9, "ok"),
        (LagSample(5, 10, 0), None, True, 0, "lagging"),
        (LagSample(5, 10, 0), None, False, 9, "unread"),
        (LagSample(5, 10, 0), 0, True, 6, "stuck"),
        (LagSample(5, 10, 0), 0, True, 5.9, "lagging"),
        (LagSample(5, 10, 0), 3.0, True, 9, "lagging"),
    ],
)
def test_one_word_says_how_a_partition_is_read(
    look: LagSample, out: float | None, has_reader: bool, idle_s: float, word: str
) -> None:
    assert status(look, {"out_per_s": out}, has_reader=has_reader, idle_s=idle_s) == word


def test_a_group_is_stuck_only_after_several_samples_without_a_commit() -> None:
    key = ("g", TopicPartition("t", 0))
    progressed: dict[tuple[str, TopicPartition], float] = {}
    samples = [{key: LagSample(committed, 10, 0)} for committed in (3, 3, 5, 5, 5, 5)]
    before, idle = None, []
    for number, sample in enumerate(samples):
        note_progress(progressed, before, sample, 2.0 * number)
        idle.append(2.0 * number - progressed[key])
        before = sample
    assert idle == [0, 2, 0, 2, 4, 6]


def test_lag_without_a_name_shows_all_groups(at: str, home: Path) -> None:
    assert command("topics", "create", "lagging", at=at).code == Exit.OK
    for group in ("one", "two"):
        reset = ("groups", "reset-offsets", group, "--topic", "lagging", "--to-latest", "-y")
        assert command(*reset, at=at).code == Exit.OK
    ended = command("lag", at=at)
    assert ended.code == Exit.OK
    first, *rows = [line.split() for line in ended.out.splitlines()]
    assert first[:6] == ["GROUP", "TOPIC", "PART", "COMMITTED", "END", "LAG"]
    assert {"TIME-LAG(ms)", "LOSES-DATA-IN(ms)"} <= set(first)
    assert {"one", "two"} <= {row[0] for row in rows}
    both = command("lag", "one", "--all", at=at)
    assert both.code == Exit.USAGE
    assert "not both" in both.stderr


def test_nothing_to_undo_is_an_error(at: str, home: Path) -> None:
    ended = command("groups", "undo", "nobody", at=at)
    assert ended.code == Exit.NOT_FOUND and "there is nothing to undo for group 'nobody'" in ended.stderr


def test_a_missing_group_has_a_suggestion(at: str, home: Path) -> None:
    assert command("topics", "create", "bills", at=at).code == Exit.OK
    reset = ("groups", "reset-offsets", "billing", "--topic", "bills", "--to-latest", "-y")
    assert command(*reset, at=at).code == Exit.OK
    for words in (["groups", "describe", "biling"], ["lag", "biling"], ["groups", "delete", "biling", "-y"]):
        ended = command(*words, at=at)
        assert ended.code == Exit.NOT_FOUND and "TRK-1069 GROUP_ID_NOT_FOUND" in ended.stderr, ended
        assert "did you mean: billing?   see: trioka groups list" in ended.stderr
