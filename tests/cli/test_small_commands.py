"""doctor, explain, context, completion, run, bench, and what comes from elsewhere."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import at, command, home

from trioka.cli import commands
from trioka.cli.commands import COMMANDS, LazyCommand
from trioka.cli.problems import KNOWN_PROBLEMS
from trioka.cli.terminal.failure import Exit, Failure
from trioka.protocol.errors import BY_CODE

__all__ = ["at", "home"]


def test_a_healthy_broker_is_called_so(at: str) -> None:
    ended = command("doctor", "-o", "json", at=at)
    assert ended.code == Exit.OK, ended
    assert {"bootstrap server", "cluster", "controller", "advertised listener", "partitions"} <= {
        row["check"] for row in ended.rows if row["status"] == "ok"
    }


def test_a_bootstrap_server_that_is_away_is_found_also_if_another_answers(at: str) -> None:
    ended = command("doctor", "-b", f"127.0.0.1:1,{at}", "-o", "json")
    assert ended.code == Exit.UNHEALTHY
    assert [row["status"] for row in ended.rows[:2]] == ["failed", "ok"]
    assert command("doctor", "-b", "127.0.0.1:1").code == Exit.UNREACHABLE


# -- explain -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["TRK-1003", "trk-1003", "UNKNOWN_TOPIC_OR_PARTITION", "3"])
def test_an_error_is_explained_by_each_of_its_names(what: str) -> None:
    ended = command("explain", what)
    assert ended.code == Exit.OK
    assert ended.out.startswith("TRK-1003 UNKNOWN_TOPIC_OR_PARTITION (Kafka's error 3)\n")
    assert "trioka topics create" in ended.out and "ends with 5" in ended.out


@pytest.mark.parametrize("code", [f"TRK-{1000 + code:04}" for code in BY_CODE] + list(KNOWN_PROBLEMS))
def test_every_code_is_explained(code: str) -> None:
    assert command("explain", code).out.startswith(f"{code} ")


def test_a_config_key_is_explained() -> None:
    text = command("explain", "retention.ms").out
    assert (
        text.startswith("retention.ms (topic, long)\n") and "Default: 604800000" in text and "log.retention.ms" in text
    )
    assert (
        "must be set" in command("explain", "process.roles").out or "Default" in command("explain", "process.roles").out
    )


def test_what_is_neither_has_a_suggestion() -> None:
    ended = command("explain", "retention.mz")
    assert ended.code == Exit.NOT_FOUND and "did you mean: retention.ms" in ended.stderr


# -- context -----------------------------------------------------------------------------------------------------------


def test_a_context_is_used_where_no_server_is_named(at: str, home: Path) -> None:
    assert command("context", "set", "here", "-b", at).code == Exit.OK
    assert command("context", "set", "away", "-b", "127.0.0.1:1").code == Exit.OK
    assert command("context", "show").out == "here\n"
    assert command("topics", "list").code == Exit.OK
    assert command("topics", "list", "--context", "away").code == Exit.UNREACHABLE
    assert command("context", "use", "away").code == Exit.OK
    assert command("topics", "list").code == Exit.UNREACHABLE
    assert command("topics", "list", at=at).code == Exit.OK  # the environment is stronger
    assert command("topics", "list", "-b", at).code == Exit.OK
    assert command("context", "list").lines == [["*", "away", "127.0.0.1:1", "-"], ["-", "here", at, "-"]]
    assert command("context", "remove", "away").code == Exit.OK
    assert command("context", "show").code == Exit.NOT_FOUND


def test_a_context_that_does_not_exist_has_a_suggestion(home: Path) -> None:
    command("context", "set", "production", "-b", "localhost:9092")
    for line in (["context", "use", "prodution"], ["topics", "list", "--context", "prodution"]):
        ended = command(*line)
        assert ended.code == Exit.NOT_FOUND and "did you mean: production?" in ended.stderr
    assert command("context", "set", "odd", "-b", "a:b").code == Exit.USAGE


def test_a_file_of_contexts_that_cannot_be_read_is_named(home: Path) -> None:
    (home / "config" / "trioka").mkdir(parents=True)
    (home / "config" / "trioka" / "contexts.json").write_text("[]")
    ended = command("context", "list")
    assert ended.code == Exit.FAILED and "contexts.json cannot be read" in ended.stderr


# -- completion --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str) -> None:
    assert "_TRIOKA_COMPLETE" in command("completion", shell).out


def test_the_shell_gets_the_commands() -> None:
    environment = {
        **os.environ,
        "_TRIOKA_COMPLETE": "bash_complete",
        "COMP_WORDS": "trioka topics de",
        "COMP_CWORD": "2",
    }
    message = subprocess.run(
        [sys.executable, "-m", "trioka"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert {line.split(",")[1] for line in message.stdout.split()} == {"describe", "delete"}


def test_the_shell_gets_the_topics_and_nothing_without_a_broker(at: str) -> None:
    command("topics", "create", "completed", at=at)
    words = {"_TRIOKA_COMPLETE": "bash_complete", "COMP_WORDS": "trioka consume comp", "COMP_CWORD": "2"}
    for address, result in ((at, "plain,completed\n"), ("127.0.0.1:1", "\n")):
        environment = {**os.environ, **words, "KAFKA_BOOTSTRAP_SERVERS": address}
        message = subprocess.run(
            [sys.executable, "-m", "trioka"], env=environment, capture_output=True, text=True, timeout=60
        )
        assert (message.stdout, message.stderr) == (result, "")


# -- run ---------------------------------------------------------------------------------------------------------------

RUN = [sys.executable, "-m", "trioka", "run"]


def test_a_command_runs_beside_a_broker_and_its_exit_code_is_the_exit_code() -> None:
    program = "import os, sys; print(os.environ['KAFKA_BOOTSTRAP_SERVERS']); sys.exit(7)"
    message = subprocess.run([*RUN, "--", sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (message.returncode, message.stderr) == (7, "")
    address = message.stdout.strip()
    assert address.startswith("localhost:")
    assert command("topics", "list", "-b", address).code == Exit.UNREACHABLE  # it is gone


def test_the_topics_are_there_when_the_command_starts() -> None:
    inside = [sys.executable, "-m", "trioka", "topics", "list", "-o", "name"]
    message = subprocess.run([*RUN, "--topic", "orders:2", *inside], capture_output=True, text=True, timeout=60)
    assert message.stdout == "orders\n"


def test_a_command_may_have_a_cluster_around_it() -> None:
    inside = [sys.executable, "-m", "trioka", "cluster", "brokers", "-o", "name"]
    message = subprocess.run([*RUN, "--nodes", "2", *inside], capture_output=True, text=True, timeout=120)
    assert (message.stdout, message.returncode) == ("1\n2\n", 0), message
    many = subprocess.run([*RUN, "--nodes", "99", "true"], capture_output=True, text=True, timeout=60)
    assert many.returncode == 1 and "--nodes 99 must be 1 to 9" in many.stderr


def test_a_command_that_does_not_exist_and_a_broker_that_does_not_start_are_named() -> None:
    absent = subprocess.run([*RUN, "no-such-command"], capture_output=True, text=True, timeout=60)
    assert absent.returncode == 127 and "there is no command 'no-such-command'" in absent.stderr
    odd = subprocess.run([*RUN, "--topic", "orders:many", "true"], capture_output=True, text=True, timeout=60)
    assert odd.returncode == 1 and "must be NAME or NAME:PARTITIONS" in odd.stderr


def test_every_signal_ends_the_command_and_the_broker() -> None:
    inside = "import os, time; print(os.environ['KAFKA_BOOTSTRAP_SERVERS'], flush=True); time.sleep(60)"
    process = subprocess.Popen([*RUN, "--", sys.executable, "-c", inside], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert command("topics", "list", "-b", address).code == Exit.UNREACHABLE


# -- bench -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["produce", "consume", "e2e"])
def test_a_bench_counts_the_requested_records_and_leaves_nothing_behind(at: str, what: str) -> None:
    arguments = ("--msgs", "60", "--size", "100", "--clients", "2", "--rate", "2000", "-z", "lz4", "-o", "json")
    ended = command("bench", what, *arguments, at=at)
    assert ended.code == Exit.OK, ended
    (row,) = ended.rows
    assert row["records"] == 60 and row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert "trioka-bench" not in command("topics", "list", at=at).out


def test_a_result_is_kept_and_compared(at: str, tmp_path: Path) -> None:
    file = str(tmp_path / "result.json")
    command("bench", "produce", "--msgs", "10", "--save", file, at=at)
    assert json.loads(Path(file).read_text())["records"] == 10
    again = command("bench", "produce", "--msgs", "10", "--size", "99", "--compare", file, "-o", "json", at=at)
    assert again.rows[0]["ratio"].endswith("x") and "size differ" in again.stderr
    Path(file).write_text("{}")
    assert command("bench", "produce", "--msgs", "1", "--compare", file, at=at).code == Exit.USAGE


# -- the list of commands ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, lazy in COMMANDS.items() if lazy.extra is None])
def test_every_command_has_its_help(name: str) -> None:
    ended = command(name, "--help")
    assert ended.code == Exit.OK and f"Usage: trioka {name}" in ended.out


def test_a_part_that_is_not_installed_is_named() -> None:
    missing = LazyCommand("trioka.cli.no_such_module", "it", "something", extra="spark")
    with pytest.raises(Failure, match=r"trioka it needs 'trioka\.cli\.no_such_module'") as failed:
        commands.load("it", missing)
    assert "pip install 'trioka[spark]'" in str(failed.value)
