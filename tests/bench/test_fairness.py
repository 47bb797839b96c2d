"""The cost of background load is a ratio of two latencies of one client; nothing is measured here."""

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mutants.plant import planted

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
fairness: Any = importlib.import_module("fairness")
background_load: Any = importlib.import_module("background_load")
load_generator: Any = importlib.import_module("load_generator")
nodes: Any = importlib.import_module("nodes")

ROW = fairness.ROWS[0]
COLD = fairness.ROWS[-1]


def rounds(module: Any, *pairs: tuple[float, float]) -> list[Any]:
    return [module.Round(alone, beside, 100.0) for alone, beside in pairs]


def the_best_of_each_half_is_compared(module: Any) -> None:
    assert module.times(rounds(module, (2.0, 9.0), (1.0, 2.5), (4.0, 30.0))) == 2.5


def three_times_is_the_limit(module: Any) -> None:
    assert module.is_met(ROW, rounds(module, (1.0, 3.0))) is True
    assert module.is_met(ROW, rounds(module, (1.0, 3.1))) is False
    assert module.is_met(COLD, rounds(module, (1.0, 2.1))) is False


def nothing_measured_is_not_judged(module: Any) -> None:
    assert module.times([]) is None and module.is_met(ROW, []) is None
    text = module.table([ROW], {"trioka": {}}, {"trioka": {ROW.name: "the background load ended too early"}})
    assert "the background load ended too early" in text and "MISSED" not in text


CHECKS = (the_best_of_each_half_is_compared, three_times_is_the_limit, nothing_measured_is_not_judged)
MISTAKES = [
    (
        "min(one.beside for one in rounds) / min(one.alone for one in rounds)",
        "max(one.beside for one in rounds) / min(one.alone for one in rounds)",
        CHECKS[0],
    ),
    (
        "min(one.beside for one in rounds) / min(one.alone for one in rounds)",
        "min(one.beside for one in rounds) / max(one.alone for one in rounds)",
        CHECKS[0],
    ),
    ("found <= row.goal", "found < row.goal", CHECKS[1]),
    ("None if found is None else found <= row.goal", "False if found is None else found <= row.goal", CHECKS[2]),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_of_fairness(check: Callable[[Any], None]) -> None:
    check(fairness)


@pytest.mark.parametrize(("right", "wrong", "check"), MISTAKES, ids=[wrong for _, wrong, _ in MISTAKES])
def test_a_planted_mistake_is_found(right: str, wrong: str, check: Callable[[Any], None]) -> None:
    with pytest.raises(AssertionError):
        check(planted(fairness, right, wrong))


def test_the_table_shows_both_brokers_and_what_is_missed() -> None:
    found = {
        "trioka": {ROW.name: rounds(fairness, (1.0, 1.5), (1.2, 4.0))},
        "Apache Kafka": {ROW.name: rounds(fairness, (2.0, 9.0))},
    }
    head, _, ours, theirs = fairness.table([ROW], found, {}).splitlines()
    assert len(head) == len(ours) == len(theirs)
    assert "1.50× (1.50–3.33)" in ours and ours.rstrip(" |").endswith("met")
    assert "4.50×" in theirs and "MISSED" in theirs
    data = fairness.as_data([ROW], found, {})
    assert [(row["contestant"], row["times"], row["is_met"]) for row in data] == [
        ("trioka", 1.5, True),
        ("Apache Kafka", 4.5, False),
    ]


@pytest.mark.parametrize(
    ("arguments", "folder"), [([], "docs"), (["--measures", "cold-*"], "build"), (["--seconds", "1"], "build")]
)
def test_only_a_whole_run_is_published(arguments: list[str], folder: str) -> None:
    assert fairness.parse(arguments).output == ROOT / folder / "bench"


def test_what_a_broker_died_of_is_found_in_its_last_words() -> None:
    words = "ready\n  | Traceback\n  | RuntimeError: dictionary changed size\n  +-----\n\n"
    assert nodes.error_line(words) == "RuntimeError: dictionary changed size"
    assert nodes.error_line("one\ntwo\n") == "two"
    assert nodes.error_line("") == "(no output)"


# Background load starts and ends.


def test_processes_that_compute_end_with_the_block() -> None:
    with background_load.computing(1):
        (child,) = (path for path in children() if background_load.COMPUTES.encode() in path.read_bytes())
        assert child.exists()
    assert not child.exists()


def children() -> list[Path]:
    found = Path("/proc/thread-self/children").read_text().split()
    return [Path(f"/proc/{pid}/cmdline") for pid in found]


def test_a_stopped_process_does_not_run_until_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_load, "CATCH_UP_SECONDS", 0)
    with subprocess.Popen(["/bin/sleep", "60"]) as process:

        def has_stopped() -> bool:
            return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

        try:
            with background_load.stopped([process.pid]):
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
                assert has_stopped()
            os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)
            assert not has_stopped()
        finally:
            process.kill()


def test_a_background_load_that_ends_early_spoils_the_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_load, "program", lambda: Path("/bin/false"))
    with (
        pytest.raises(load_generator.LoadFailed, match="ended too early: it had written enough"),
        background_load.loading("produce", {}),
    ):
        until_ended()


def until_ended() -> None:
    """The only child is a zombie, which has not been waited for."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        pids = [path.parent.name for path in children()]
        states = subprocess.run(["ps", "-o", "stat=", "-p", ",".join(pids)], capture_output=True, text=True).stdout
        if "Z" in states:
            return
    raise AssertionError("it has not ended")


def test_what_the_page_cache_forgot_is_still_in_the_file(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(b"x" * 100_000)
    background_load.forget([log])
    assert log.read_bytes() == b"x" * 100_000
