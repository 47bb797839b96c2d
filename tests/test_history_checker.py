"""The checker of histories: it finds nothing in what a correct broker shows, and each anomaly that is planted."""

from collections.abc import Callable
from random import Random

import pytest
from history.checker import check
from history.operations import Assign, Commit, Committed, History, Read, Seek, Send, Step, Subscribe, polls, sends


def a_correct_broker(seed: int, *, operations: int = 400) -> History:
    """Transactions over three keys; some abort, some are unknown; readers see what was committed, in order."""
    random = Random(seed)
    history = History()
    keys = ["a-0", "a-1", "b-0"]
    logs: dict[str, list[tuple[int, bytes]]] = {key: [] for key in keys}
    ends = dict.fromkeys(keys, 0)
    positions = {(reader, key): 0 for reader in ("r0", "r1") for key in keys}
    for reader in ("r0", "r1"):
        history.ok(reader, Assign(frozenset(keys)))
    numbers = iter(range(10**6))
    for _ in range(operations):
        if random.random() < 0.5:
            sent: list[Step] = []
            fate = random.choices(["ok", "fail", "info"], [8, 1, 1])[0]
            happens = fate == "ok" or (fate == "info" and random.random() < 0.5)
            touched = random.sample(keys, random.randint(1, 3))
            for key in touched:
                for _ in range(random.randint(1, 3)):
                    value = b"%d" % next(numbers)
                    sent.append(Send(key, value, ends[key] if fate == "ok" else None))
                    if happens:
                        logs[key].append((ends[key], value))
                    ends[key] += 1
            for key in touched:
                ends[key] += 1  # the marker
            {"ok": history.ok, "fail": history.fail, "info": history.info}[fate](f"w{random.randrange(3)}", sent)
        else:
            reader = random.choice(["r0", "r1"])
            history.ok(reader, _polled(random, reader, keys, logs, positions))
    for key in keys:
        history.ok("r0", Assign(frozenset({key})), Seek(key), polls({key: logs[key]}))
    return history


def _polled(
    random: Random,
    reader: str,
    keys: list[str],
    logs: dict[str, list[tuple[int, bytes]]],
    positions: dict[tuple[str, str], int],
) -> list[Step]:
    read: list[Step] = []
    for key in keys:
        start = positions[reader, key]
        some = logs[key][start : start + random.randint(0, 5)]
        positions[reader, key] += len(some)
        read += [Read(key, offset, value) for offset, value in some]
    return read


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_wrong_with_what_a_correct_broker_shows(seed: int) -> None:
    report = check(a_correct_broker(seed))
    assert not report.anomalies, str(report)


def inconsistent_offsets() -> History:
    history = History()
    history.ok("w", sends(("k", b"1", 0)))
    history.ok("v", sends(("k", b"2", 1)))
    history.ok("r", polls({"k": [(0, b"1"), (1, b"2")]}))
    history.ok("s", polls({"k": [(0, b"2")]}))
    return history


def duplicate() -> History:
    history = History()
    history.ok("w", sends(("k", b"1", 0)))
    history.ok("r", polls({"k": [(0, b"1"), (1, b"1")]}))
    return history


def corrupted() -> History:
    history = History()
    history.ok("w", sends(("k", b"1", 0)))
    history.ok("r", polls({"k": [(0, b"1"), (1, b"\0")]}))
    return history


def lost_write() -> History:
    history = History()
    history.ok("w", sends(("k", b"1", 0)))
    history.ok("w", sends(("k", b"2", 1)))
    history.ok("r", polls({"k": [(1, b"2")]}))
    return history


def lost_write_of_which_a_part_was_read() -> History:
    history = History()
    history.info("w", sends(("k", b"1", 0), ("j", b"2", 0)))
    history.ok("w", sends(("k", b"3", 1)))
    history.ok("r", polls({"j": [(0, b"2")], "k": [(1, b"3")]}))
    return history


def unseen() -> History:
    history = History()
    history.ok("w", sends(("k", b"1", 0)))
    return history


def g1a() -> History:
    history = History()
    history.fail("w", sends(("k", b"1", None)))
    history.ok("r", polls({"k": [(0, b"1")]}))
    return history


def g1b() -> History:
    history = History()
    history.ok("w", sends(("k", b"1", 0), ("j", b"2", 1)))
    history.ok("v", sends(("j", b"0", 0)))
    history.ok("v", sends(("j", b"3", 2)))
    history.ok("r", Subscribe(frozenset("kj")), polls({"j": [(0, b"0")]}))
    history.ok("r", polls({"k": [(0, b"1")]}))
    history.ok("r", polls({"j": [(2, b"3")]}))
    history.ok("s", polls({"j": [(0, b"0"), (1, b"2"), (2, b"3")]}))
    return history


def precommitted_read() -> History:
    history = History()
    history.ok("w", sends(("k", b"1", 0)), polls({"k": [(0, b"1")]}))
    return history


def int_poll_skip() -> History:
    history = three_values()
    history.ok("r", polls({"k": [(0, b"0"), (2, b"2")]}))
    return history


def int_nonmonotonic_poll() -> History:
    history = three_values()
    history.ok("r", polls({"k": [(1, b"1"), (0, b"0")]}))
    return history


def poll_skip() -> History:
    history = three_values()
    history.ok("r", Assign(frozenset("k")), polls({"k": [(0, b"0")]}))
    history.ok("r", polls({"k": [(2, b"2")]}))
    return history


def nonmonotonic_poll() -> History:
    history = three_values()
    history.ok("r", Assign(frozenset("k")), polls({"k": [(0, b"0"), (1, b"1")]}))
    history.ok("r", Assign(frozenset("kj")), polls({"k": [(1, b"1")]}))
    return history


def int_nonmonotonic_send() -> History:
    history = History()
    history.ok("w", sends(("k", b"1", 1), ("k", b"0", 0)))
    history.ok("all", polls({"k": [(0, b"0"), (1, b"1")]}))
    return history


def nonmonotonic_send() -> History:
    history = History()
    history.ok("w", sends(("k", b"1", 1)))
    history.info("w", sends(("k", b"0", None)))
    history.ok("all", polls({"k": [(0, b"0"), (1, b"1")]}))
    return history


def g1c() -> History:
    history = History()
    history.ok("p", sends(("k", b"1", 0)), polls({"j": [(0, b"2")]}), began=0, ended=10)
    history.ok("q", sends(("j", b"2", 0)), polls({"k": [(0, b"1")]}), began=0, ended=10)
    return history


def g1c_process() -> History:
    history = History()
    history.ok("p", polls({"j": [(0, b"2")]}), began=0, ended=10)
    history.ok("p", sends(("k", b"1", 0)), began=0, ended=10)
    history.ok("q", sends(("j", b"2", 0)), polls({"k": [(0, b"1")]}), began=0, ended=10)
    return history


def g1c_realtime() -> History:
    history = History()
    history.ok("r", polls({"k": [(0, b"1")]}), began=0, ended=1)
    history.ok("w", sends(("k", b"1", 0)), began=5, ended=6)
    return history


def lost_commit() -> History:
    history = History()
    history.ok("r", Commit("g", "k", 5))
    history.ok("r", Commit("g", "k", 9))
    history.ok("s", Committed("g", "k", 5))
    return history


def lost_first_commit() -> History:
    history = History()
    history.ok("r", Commit("g", "k", 5))
    history.ok("s", Committed("g", "k", None))
    return history


def commit_regression() -> History:
    history = History()
    history.ok("r", Commit("g", "k", 9))
    history.ok("r", Commit("g", "k", 5))
    return history


def three_values() -> History:
    history = History()
    for n in range(3):
        history.ok("w", sends(("k", b"%d" % n, n)))
    history.ok("all", polls({"k": [(0, b"0"), (1, b"1"), (2, b"2")]}))
    return history


@pytest.mark.parametrize(
    ("plant", "kinds"),
    [
        (inconsistent_offsets, {"inconsistent-offsets", "duplicate"}),
        (duplicate, {"duplicate"}),
        (corrupted, {"corrupted"}),
        (lost_write, {"lost-write", "unseen"}),
        (lost_write_of_which_a_part_was_read, {"lost-write"}),
        (unseen, {"unseen"}),
        (g1a, {"G1a"}),
        (g1b, {"G1b"}),
        (precommitted_read, {"precommitted-read"}),
        (int_poll_skip, {"int-poll-skip"}),
        (int_nonmonotonic_poll, {"int-nonmonotonic-poll"}),
        (poll_skip, {"poll-skip"}),
        (nonmonotonic_poll, {"nonmonotonic-poll"}),
        (int_nonmonotonic_send, {"int-nonmonotonic-send"}),
        (nonmonotonic_send, {"nonmonotonic-send"}),
        (g1c, {"G1c"}),
        (g1c_process, {"G1c-process"}),
        (g1c_realtime, {"G1c-realtime"}),
        (lost_commit, {"lost-commit"}),
        (lost_first_commit, {"lost-commit"}),
        (commit_regression, {"commit-regression"}),
    ],
)
def test_an_anomaly_that_is_planted_is_found_and_no_other(plant: Callable[[], History], kinds: set[str]) -> None:
    report = check(plant())
    assert report.kinds == kinds, str(report)


@pytest.mark.parametrize(
    ("loses", "kind"),
    [(lambda steps: steps[:-1], "unseen"), (lambda steps: steps[:1] + steps[2:], "int-poll-skip")],
)
def test_one_record_that_is_missing_at_the_end_of_a_long_history_is_noticed(
    loses: Callable[[tuple[Step, ...]], tuple[Step, ...]], kind: str
) -> None:
    history = a_correct_broker(3)
    known = {(read.key, read.value) for op in history.operations[:-3] for read in op.reads}
    for position in (-1, -2, -3):
        last = history.operations.pop(position)
        reads = [read for read in last.reads if (read.key, read.value) not in known or kind == "int-poll-skip"]
        if len(reads) >= 3:
            history.ok("r0", *(step for step in last.steps if not isinstance(step, Read)), loses(tuple(reads)))
            assert kind in check(history).kinds
            return
        history.operations.append(last)
    raise AssertionError("the history is too short to lose anything")


def test_a_subscriber_may_read_again_and_a_seek_may_go_back() -> None:
    history = three_values()
    history.ok("r", Subscribe(frozenset("k")), polls({"k": [(0, b"0"), (1, b"1")]}))
    history.ok("r", polls({"k": [(1, b"1"), (2, b"2")]}))
    history.ok("s", Assign(frozenset("k")), polls({"k": [(2, b"2")]}))
    history.ok("s", Seek("k"), polls({"k": [(0, b"0")]}))
    report = check(history)
    assert not report.anomalies, str(report)
    assert report.read_twice == {"r": 1}


def test_commits_that_were_under_way_together_may_both_hold() -> None:
    history = History()
    history.ok("r", Commit("g", "k", 5), began=0, ended=10)
    history.info("s", Commit("g", "k", 3), began=1, ended=9)
    history.ok("t", Committed("g", "k", 3), began=11, ended=12)
    assert not check(history).anomalies


def test_a_commit_may_be_valid_before_its_response() -> None:
    history = History()
    history.ok("r", Commit("g", "k", 5), began=0, ended=1)
    history.ok("t", Committed("g", "k", 7), began=3, ended=4)
    history.ok("r", Commit("g", "k", 7), began=2, ended=5)
    assert not check(history).anomalies


def test_a_commit_that_may_not_have_happened_takes_nothing_away() -> None:
    history = History()
    history.ok("r", Commit("g", "k", 5), began=0, ended=1)
    history.info("s", Commit("g", "k", 7), began=2, ended=3)
    history.ok("t", Committed("g", "k", 5), began=4, ended=5)
    assert not check(history).anomalies


def test_a_commit_that_began_later_is_no_excuse() -> None:
    history = History()
    history.ok("r", Commit("g", "k", 5), began=0, ended=1)
    history.ok("t", Committed("g", "k", 7), began=2, ended=3)
    history.ok("r", Commit("g", "k", 7), began=4, ended=5)
    assert check(history).kinds == {"lost-commit"}


def test_a_poll_that_misses_old_records_is_counted_as_lag() -> None:
    history = History()
    history.ok("w", sends(("k", b"1", 0)), began=0, ended=1)
    history.ok("w", sends(("k", b"2", 1)), began=1, ended=2)
    history.ok("r", polls({"k": [(0, b"1")]}), began=9, ended=10)
    history.ok("r", polls({"k": [(1, b"2")]}), began=11, ended=12)
    assert check(history).worst_lag == 7
