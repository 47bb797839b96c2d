"""Long work tells how far it is, at the right times and in the right place."""

import sys
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed, within

from trioka.cli.terminal import output, progress
from trioka.cli.terminal.progress import line


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ("verify: 1.2 GB of 4.0 GB, 400.0 MB/s, 7s left", ("verify", "bytes", 1_200_000_000, 4_000_000_000, 3.0)),
        ("produce: 12,000 records, 6,000/s", ("produce", "records", 12_000, None, 2.0)),
        ("consume: 10 of 10 records, 5/s", ("consume", "records", 10, 10, 2.0)),
        ("reassign: 0 of 3 partitions, 0/s", ("reassign", "partitions", 0, 3, 0.0)),
    ],
)
def test_a_line_says_how_much_of_how_much_how_fast_and_how_long(
    said: str, arguments: tuple[str, str, int, int, float]
) -> None:
    assert line(*arguments) == said


def elsewhere_a_line_comes_every_ten_seconds(module: ModuleType) -> None:
    message: list[float] = []
    now = 0.0
    work = module.Progress("work", "records", 1000, now=lambda: now, is_terminal=lambda: False)

    def say(text: str, at: float) -> None:
        message.append(at)
        work._next = at + module.ELSEWHERE_S

    work._say = say
    for second in range(35):
        now = float(second)
        work.add()
    assert message == [10.0, 20.0, 30.0]
    assert work.done == 35


def what_is_silent_says_nothing(module: ModuleType) -> None:
    now = 0.0
    work = module.Progress("work", "records", is_silent=True, now=lambda: now, is_terminal=lambda: True)
    work._say = lambda text, at: pytest.fail("it does")
    now = 100.0
    work.add()
    work.wait("why")


def test_on_a_terminal_one_line_changes_and_is_gone_before_other_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    with progress.Progress("work", "records", 10, now=lambda: now, is_terminal=lambda: True) as work:
        work.add()
        assert capsys.readouterr().err == ""  # what is over in a second says nothing
        for later in (1.0, 1.1, 1.2):
            now = later
            work.add()
        assert capsys.readouterr().err == (
            "\r\x1b[Kwork: 2 of 10 records, 2/s, 4s left\r\x1b[Kwork: 4 of 10 records, 3/s, 1s left"
        )
        output.write_stderr("a word")
        assert capsys.readouterr().err == "\r\x1b[Ka word\n"
        now = 2.0
        work.wait("DEGRADED")
    assert capsys.readouterr().err == "\r\x1b[Kwork: 2s so far; DEGRADED\r\x1b[K"


def test_into_a_pipe_go_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    assert not sys.stderr.isatty()
    with progress.Progress("work", "records", now=lambda: now) as work:
        now = 10.0
        work.add(50)
    assert capsys.readouterr() == ("", "work: 50 records, 5/s\n")


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        within("Progress.reach", "now >= self._next"),
        "True",
        elsewhere_a_line_comes_every_ten_seconds,
    ),
    (
        "inf if is_silent else self._began + (FIRST_S if self._is_terminal else ELSEWHERE_S)",
        "self._began + (FIRST_S if self._is_terminal else ELSEWHERE_S)",
        what_is_silent_says_nothing,
    ),
]


@pytest.mark.parametrize("rule", [elsewhere_a_line_comes_every_ten_seconds, what_is_silent_says_nothing])
def test_the_rule_holds(rule: Rule) -> None:
    rule(progress)


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(progress, right, wrong, rule)
