"""Every command on the pages about the command line is run, in its order, and ends as the page says."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commanding import broker_at, command, home

from trioka.cli.commands import COMMANDS

__all__ = ["home"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROPERTIES = (
    "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlog.dirs=data\n"
    "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.quorum.voters=1@localhost:9093\n"
)
CODE = re.compile(r"\s+# exit code (\d+).*")


def commands_of(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    if page == "CLI.md":
        return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    cells = [row.split(" | ")[1] for row in re.findall(r"(?m)^\| (.* \| .*) \|$", text)[1:]]
    return [code.replace("\\|", "|") for cell in cells for code in re.findall(r"`([^`]*trioka [^`]*)`", cell)]


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder with the files that the pages speak of, and a broker whose data is in it."""
    monkeypatch.chdir(home)
    (home / "server.properties").write_text(PROPERTIES)
    (home / "bin").mkdir()
    (home / "bin" / "trioka").write_text(f'#!/bin/sh\nexec {sys.executable} -m trioka "$@"\n')
    (home / "bin" / "trioka").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    with broker_at(home / "data") as address:
        yield address


def run(line: str, at: str) -> int:
    """How a line ends. One that starts a broker is stopped when it is ready; one that needs a shell gets one."""
    if line.startswith("trioka dev"):
        return started(line)
    if line.startswith("trioka run") or re.search(r"\|.*trioka", line):
        environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": at}
        return subprocess.run(["sh", "-c", line], env=environment, stdout=subprocess.DEVNULL, timeout=60).returncode
    if line.startswith("trioka serve"):
        return subprocess.run(shlex.split(line), timeout=60).returncode
    ended = command(*shlex.split(line)[1:], at=at)
    assert "Traceback" not in ended.talk
    return ended.code


def started(line: str) -> int:
    line = line.replace("./data", "./other-data")  # the folder of the broker that runs already
    process = subprocess.Popen(shlex.split(line), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and "ready in" in process.stdout.readline()
    process.terminate()
    process.communicate(timeout=60)
    shutil.rmtree("other-data")
    return process.returncode


@pytest.mark.parametrize("page", ["CLI.md", "COMING-FROM-KAFKA.md"])
def test_every_line_of_the_page_does_what_it_says(page: str, place: str) -> None:
    lines = commands_of(page)
    assert len(lines) > 20
    for line in lines:
        expected = CODE.search(line)
        code = run(CODE.sub("", line), place)
        assert code == (int(expected[1]) if expected else 0), f"{line!r} ended with {code}"


def test_the_page_has_an_example_of_every_command() -> None:
    shown = {word for line in commands_of("CLI.md") for word in re.findall(r"trioka ([a-z]+)", line)}
    assert {name for name, lazy in COMMANDS.items() if lazy.extra is None} <= shown
    for name, lazy in COMMANDS.items():
        if lazy.extra is not None:
            assert f"trioka {name}" in (DOCS / "CLI.md").read_text(encoding="utf-8")


def test_every_command_of_a_group_is_on_the_page() -> None:
    page = (DOCS / "CLI.md").read_text(encoding="utf-8")
    for name in ("topics", "groups", "config", "segments", "context"):
        listed = command(name, "--help").out.split("Commands:")[1].split("\n")
        inside = [line.split()[0] for line in listed if line.strip()]
        assert [each for each in inside if f"trioka {name} {each}" not in page] == []
