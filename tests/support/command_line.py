"""The command line inside of a test: `ended = command("topics", "list", at=address)`, and then its output.

It runs in this process, without a terminal, so it costs milliseconds; what needs a process (signals, the exit of a
child) starts one itself. Files that a command keeps for the user go below `home`, if the test gives one.
"""

import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from support.serving import HOST, LISTENER, broker_in_thread

from trioka.cli.commands import main


class Ended(NamedTuple):
    """The result of a command: exit code, output, and messages."""

    code: int
    out: str
    stderr: str

    @property
    def rows(self) -> Any:
        """The output of `-o json`."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """The cells of a table, its head left out."""
        return [line.split() for line in self.out.splitlines()[1:]]


def command(
    *arguments: str, at: str | None = None, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> Ended:
    """Runs `trioka …` against the broker `at` host:port."""
    text, talked = io.BytesIO(), io.BytesIO()
    out, err = io.TextIOWrapper(text, "utf-8"), io.TextIOWrapper(talked, "utf-8")
    variables = dict(environment or {}) | ({} if at is None else {"KAFKA_BOOTSTRAP_SERVERS": at})
    with (
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        mock.patch.dict("os.environ", variables),
    ):
        code = main(arguments)
        out.flush()
        err.flush()
    return Ended(code, text.getvalue().decode(), talked.getvalue().decode())


@contextmanager
def broker_at(directory: Path | str, **settings: object) -> Iterator[str]:
    """The address of a broker in a thread."""
    with broker_in_thread(directory, None, **settings) as broker:
        yield f"{HOST}:{broker.addresses[LISTENER][1]}"


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that the tests of one file share; each makes its own topics."""
    with broker_at(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for the user's files."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    return tmp_path
