"""`trioka config lint` and `serve --check`: all errors of a file at once, and `ok` for a good one."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = [["config", "lint"], ["serve", "--check"]]
GOOD = """\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.quorum.voters=1@localhost:9093
"""


def checked(command: list[str], path: Path, text: str) -> subprocess.CompletedProcess[str]:
    path.write_text(text)
    words = [sys.executable, "-m", "trioka", *command, str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_all_errors_are_listed_at_once(command: list[str], tmp_path: Path) -> None:
    wrong = "num.partitions=many\nlog.retention.ms=long\nlistener.name.a.ssl.client.auth=perhaps\n"
    found = checked(command, tmp_path / "server.properties", wrong)
    assert found.returncode == 1
    lines = found.stderr.splitlines()
    assert all(line.startswith("error: ") for line in lines)
    for key in ("num.partitions", "log.retention.ms", "listener.name.a.ssl.client.auth", "process.roles"):
        assert sum(key in line for line in lines) == 1, (key, lines)


@pytest.mark.parametrize("wrong", ["log.retention.ms=long", "process.roles=waiter"])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_key_is_listed_beside_errors(command: list[str], wrong: str, tmp_path: Path) -> None:
    found = checked(command, tmp_path / "server.properties", f"{GOOD}{wrong}\nnum.partitons=3\n")
    said = (found.stdout + found.stderr).splitlines()
    assert found.returncode == 1
    assert sum(line.startswith("error: ") for line in said) == 1
    assert [line for line in said if "did you mean num.partitions" in line], said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_good_file_is_ok(command: list[str], tmp_path: Path) -> None:
    found = checked(command, tmp_path / "server.properties", f"{GOOD}log.dirs={tmp_path}\n")
    assert (found.returncode, found.stdout) == (0, "ok\n")


@pytest.mark.parametrize("wrong", ["num.partitions=many", "node.id=first", "process.roles=waiter"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_single_error_is_one_line(command: list[str], wrong: str, tmp_path: Path) -> None:
    found = checked(command, tmp_path / "server.properties", f"{GOOD}{wrong}\n")
    assert found.returncode == 1
    assert len(found.stderr.splitlines()) == 1
