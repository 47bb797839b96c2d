"""Every line of the tutorial and of the README is run, from top to bottom, as a newcomer would type it.

A block of `sh` is typed line by line; a block of `python` that begins with the name of a file is saved under it, and
one without is run. What a page shows as output (`text`) is compared only where it matters.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
CODE = re.compile(r"\s+# exit code (\d+).*")
COMMENT = re.compile(r"\s+# .*")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\S+\.py)\n")

# Lines that set up the machine or take minutes, and where they are run instead.
ELSEWHERE = {
    "make run": "test_make_run_is_trioka_dev",
    "make test": "this is it",
    "pip install 'trioka[pytest]'": "tests/test_packaging.py builds and installs the package",
    "pip install 'trioka[spark]'": "tests/test_packaging.py builds and installs the package",
    "trioka pipeline example --keep": "compat-tests/spark/test_pipeline_run.py, and tests/pipeline",
}


class Block(NamedTuple):
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line.strip()]


def blocks_of(page: str) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]


@contextmanager
def broker(environment: dict[str, str], folder: Path) -> Iterator[str]:
    """`trioka dev`, on a port of its own."""
    process = subprocess.Popen(
        ["trioka", "dev", "--port", "0"], env=environment, cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            found = re.search(r"Kafka\s+(\S+:\d+)", line)
            if found is not None:
                yield found[1]
                return
        raise AssertionError("the broker did not start")
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def new_user(tmp_path: Path) -> Iterator["NewUser"]:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, module in (("trioka", "trioka"), ("pytest", "pytest"), ("python", None)):
        run = f'exec {sys.executable} {f"-m {module} " if module else ""}"$@"'
        (commands / name).write_text(f"#!/bin/sh\n{run}\n")
        (commands / name).chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "KAFKA_"))},
        "PATH": f"{commands}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(home),
        "XDG_STATE_HOME": str(home),
    }
    with broker(environment, home) as address:
        yield NewUser(home, environment | {"KAFKA_BOOTSTRAP_SERVERS": address}, address)


class NewUser:
    def __init__(self, home: Path, environment: dict[str, str], address: str) -> None:
        self._home = home
        self._environment = environment
        self._address = address
        self.said = ""

    def follow(self, page: str) -> None:
        for block in blocks_of(page):
            if block.language == "sh":
                for line in block.lines:
                    self._type(line)
            elif block.language == "python":
                self._save_or_run(block.text)

    def _type(self, line: str) -> None:
        if COMMENT.sub("", line) in ELSEWHERE or line == "trioka dev":  # which runs already
            return
        expected = CODE.search(line)
        self._run(["sh", "-c", COMMENT.sub("", line)], int(expected[1]) if expected else 0, line)

    def _save_or_run(self, text: str) -> None:
        name = FILE.match(text)
        path = self._home / (name[1] if name else "block.py")
        path.write_text(text.replace("localhost:9092", self._address))
        if not name:
            self._run([sys.executable, str(path)], 0, text)

    def _run(self, command: list[str], expected: int, shown: str) -> None:
        ended = subprocess.run(
            command, cwd=self._home, env=self._environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert "Traceback" not in ended.stderr, f"{shown}\n{ended.stderr}"
        assert ended.returncode == expected, f"{shown!r} ended with {ended.returncode}\n{ended.stdout}{ended.stderr}"
        self.said += ended.stdout


def test_the_tutorial_can_be_followed(new_user: NewUser) -> None:
    new_user.follow("docs/TUTORIAL.md")
    assert "13 orders, 2099 cents" in new_user.said
    assert "1 passed" in new_user.said


def test_the_readme_can_be_followed(new_user: NewUser) -> None:
    new_user.follow("README.md")


def test_make_run_is_trioka_dev() -> None:
    """As in the README and the tutorial. Not started here: it would take port 9092 of the user who runs this."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(
        ["make", "--dry-run", "run"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert shown.splitlines()[-1].endswith("/trioka dev")


def test_every_page_that_is_run_elsewhere_is_run_there() -> None:
    for where in ELSEWHERE.values():
        for path in re.findall(r"\S+/test_\w+\.py", where):
            assert (ROOT / path).exists(), path
