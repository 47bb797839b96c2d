"""Rows in every form; failures in two lines."""

import csv
import io
import json
import subprocess
import sys
from typing import Any

import pytest
from support.command_line import command

from trioka.cli import problems
from trioka.cli.terminal import output
from trioka.cli.terminal.failure import Exit, Failure, did_you_mean
from trioka.cli.terminal.output import Column
from trioka.protocol import errors

COLUMNS = (Column("NAME", "name"), Column("SIZE", "size", "bytes"), Column("ISR", "isr", wide=True))
ROWS: list[dict[str, Any]] = [
    {"name": "orders", "size": 1200, "isr": [1, 2], "more": {"a.b": None}},
    {"name": 'a, "b"', "size": None, "isr": [], "more": {}},
]


def shown(how: str, capsys: pytest.CaptureFixture[str]) -> str:
    output.show(ROWS, COLUMNS, how)
    return capsys.readouterr().out


def test_a_table_in_a_pipe_has_capitals_two_blanks_and_raw_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("table", capsys) == 'NAME    SIZE(bytes)\norders  1200\na, "b"  -\n'
    assert shown("wide", capsys).splitlines()[:2] == ["NAME    SIZE(bytes)  ISR", "orders  1200         1,2"]


def test_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(shown("json", capsys)) == ROWS


def test_csv_holds_the_columns_and_quotes_what_must_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(csv.reader(io.StringIO(shown("csv", capsys)))) == [
        ["name", "size", "isr"],
        ["orders", "1200", "1,2"],
        ['a, "b"', "", ""],
    ]


def test_yaml_is_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("yaml", capsys) == (
        '- name: "orders"\n  size: 1200\n  isr:\n    - 1\n    - 2\n  more:\n    a.b: null\n'
        '- name: "a, \\"b\\""\n  size: null\n  isr: []\n  more: {}\n'
    )


def test_name_is_one_name_in_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("name", capsys) == 'orders\na, "b"\n'


def test_a_terminal_gets_numbers_that_people_read_and_no_colour_if_it_wants_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert [line.split() for line in shown("table", capsys).splitlines()[:2]] == [
        ["NAME", "SIZE"],
        ["orders", "1.2", "KB"],
    ]


def test_a_narrow_terminal_cuts_no_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    columns = [Column(name.upper(), name) for name in ("group", "committed")]
    output.show([{"group": "a-group-with-a-name", "committed": 1234567890}], columns, "table")
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["GROUP", "COMMITTED"],
        ["a-group-with-a-name", "1234567890"],
    ]
    output.show([{"group": "a-group-with-a-name", "committed": "one two three four"}], columns, "table")
    _, first, *others = (line.split() for line in capsys.readouterr().out.splitlines())
    assert first[0] == "a-group-with-a-name" and len(others) > 0  # between words, a cell may have several lines
    assert [*first[1:], *(word for line in others for word in line)] == ["one", "two", "three", "four"]


def test_a_table_that_is_drawn_again_keeps_what_was_scrolled_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.clear_terminal()
    written = capsys.readouterr().out
    assert "\x1b[2J" in written and "\x1b[3J" not in written


def test_a_command_in_a_pipe_loads_neither_rich_nor_a_broker_nor_kafka_python() -> None:
    program = (
        "import sys; from trioka.__main__ import main; main(['topics', 'list', '-b', 'localhost:1'])\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'rich', 'kafka', 'trio', 'ssl'}),"
        " 'trioka.broker' in sys.modules)"
    )
    message = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert message.stdout == "[] False\n"


def test_the_start_of_a_broker_does_not_load_click() -> None:
    program = "import sys; from trioka.__main__ import main; main(['serve', '--check'])\nprint('click' in sys.modules)"
    message = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert message.stdout == "False\n"


def test_a_failure_says_what_why_and_the_next_command() -> None:
    failure = problems.not_found(
        errors.UnknownTopicOrPartition, "topic 'ordres' does not exist", ["did you mean: orders?"]
    )
    first, second = str(failure).splitlines()
    assert first == f"{'error: topic ' + repr('ordres') + ' does not exist':<88}[TRK-1003 UNKNOWN_TOPIC_OR_PARTITION]"
    assert second == "  did you mean: orders?   more: trioka explain TRK-1003"
    assert str(Failure("it failed")) == "error: it failed"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TopicAuthorizationFailed, Exit.UNAUTHORISED),
        (errors.ClusterAuthorizationFailed, Exit.UNAUTHORISED),
        (errors.SaslAuthenticationFailed, Exit.UNAUTHORISED),
        (errors.GroupIdNotFound, Exit.NOT_FOUND),
        (errors.TopicAlreadyExists, Exit.EXISTS),
        (errors.InvalidConfig, Exit.FAILED),
    ],
)
def test_an_error_has_its_exit_code(error: type[errors.KafkaError], code: Exit) -> None:
    assert problems.from_error_code(error.code, "it").exit_code == code


def test_a_suggestion_is_made_only_if_something_is_near() -> None:
    assert did_you_mean("ordres", ["orders", "invoices"]) == ["did you mean: orders?"]
    assert did_you_mean("xyz", ["orders"]) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("toipcs list", "did you mean: topics?"),
        ("topics lst", "did you mean: list?"),
        ("topics list --exclude-interna", "--exclude-internal"),
        ("topics create", "name a topic"),
        ("topics list -o tabel", "'tabel' is not one of"),
        ("topics describe x -b a:b", "'a:b' is no address"),
        ("lag billing --all", "name groups, or use --all"),
        ("topics list --timeout soon", "'soon' is no length of time"),
        ("topics create x -c cleanup.policy", "must be KEY=VALUE"),
        ("consume x -o yesterday -b localhost:1", "nothing listens"),
        ("groups reset-offsets g --topic t", "give one target"),
    ],
)
def test_wrong_use_is_one_explained_error(line: str, said: str) -> None:
    ended = command(*line.split())
    assert ended.code == (Exit.UNREACHABLE if said == "nothing listens" else Exit.USAGE), ended
    assert said in ended.stderr
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr
    assert not ended.out


def test_the_singular_works_too() -> None:
    assert command("topic", "--help").out == command("topics", "--help").out.replace("topics", "topic", 1)
