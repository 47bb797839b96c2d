"""What a node writes by default: start, stop and changes of leaders; and nothing but JSON with `--log-format json`."""

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.serving import SETTINGS

from trioka.cli.node import log_lines
from trioka.cli.node.log_lines import in_log_format, write_errors
from trioka.cli.terminal.failure import CannotStart, Failure

PATIENCE_S = 60
LIFE = ["quorum.leader", "broker.ready", "broker.stopping", "broker.stopped"]
OFFLINE = "this node has ended: its disk is offline"


def serve_words(folder: Path, **more: str) -> list[str]:
    settings = {**SETTINGS, "log.dirs": str(folder), "trioka.http.listeners": "", **more}
    return ["serve", *(word for key, value in settings.items() for word in ("--override", f"{key}={value}"))]


def life(words: Sequence[str]) -> tuple[str, list[str]]:
    """Standard output, and the lines of standard error, of a node that is stopped when it is ready."""
    command = [sys.executable, "-m", "trioka", *words]
    own = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**own, "NOTIFY_SOCKET": f"@{_bound(ready)}"},
        ) as node,
    ):
        assert ready.recv(100) == b"READY=1"
        node.send_signal(signal.SIGTERM)
        out, err = node.communicate(timeout=PATIENCE_S)
        assert node.returncode == 0, err
    return out, err.splitlines()


def _bound(sock: socket.socket) -> str:
    sock.settimeout(PATIENCE_S)
    sock.bind("")  # Linux chooses an abstract name
    name = sock.getsockname()
    assert isinstance(name, bytes)
    return name[1:].decode()


def events(lines: Sequence[str]) -> list[str]:
    return [json.loads(line)["event"] for line in lines]


def test_start_and_stop_and_the_leader_are_logged_at_the_default_level(tmp_path: Path) -> None:
    out, lines = life(serve_words(tmp_path))
    assert " · ready in " in out
    assert events(lines) == LIFE


def test_they_may_be_text(tmp_path: Path) -> None:
    _, lines = life([*serve_words(tmp_path), "--log-format", "human"])
    assert [line.split(" INFO trioka.lifecycle: ")[1].split(":")[0] for line in lines] == [
        "node 1 is the quorum leader in epoch 1",
        "the broker is ready",
        "the broker stops",
        "the broker has stopped",
    ]


@pytest.mark.parametrize("form", ["auto", "human"])
def test_dev_leaves_them_out(tmp_path: Path, form: str) -> None:
    out, lines = life(["dev", "--port", "0", "--http-port", "off", "--data", str(tmp_path), "--log-format", form])
    assert " · ready in " in out
    assert lines == []


def test_at_the_level_error_they_are_left_out(tmp_path: Path) -> None:
    assert life([*serve_words(tmp_path), "--log-level", "error"])[1] == []


@pytest.mark.parametrize("command", ["dev", "serve"])
def test_in_json_every_line_is_an_object_and_standard_output_is_empty(tmp_path: Path, command: str) -> None:
    words = serve_words(tmp_path, **{"num.partitons": "3"})
    if command == "dev":
        words = ["dev", "--port", "0", "--http-port", "off", "--data", str(tmp_path)]
    out, lines = life([*words, "--log-format", "json"])
    assert out == ""
    found = {each["event"]: each for each in map(json.loads, lines)}
    assert found["node.ready"]["clients"].startswith("PLAINTEXT://")
    assert found["node.ready"]["directories"] == str(tmp_path)
    assert set(LIFE) < found.keys()
    if command == "serve":
        assert "did you mean num.partitions" in found["config.note"]["note"]


def test_in_json_a_failed_start_is_an_object_for_each_reason(tmp_path: Path) -> None:
    wrong = serve_words(tmp_path, **{"num.partitions": "x", "log.segment.bytes": "y"})
    found = subprocess.run(
        [sys.executable, "-m", "trioka", *wrong, "--log-format", "json"], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (1, "")
    assert [(each["event"], each["level"]) for each in map(json.loads, found.stderr.splitlines())] == [
        ("start.failed", "error"),
        ("start.failed", "error"),
    ]


@contextmanager
def logging_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Where a node's lines go, with the loggers of this process as they were afterwards."""
    root, written = logging.getLogger(), io.StringIO()
    before, level, own = list(root.handlers), root.level, log_lines.lifecycle.level
    root.handlers.clear()
    monkeypatch.setattr(sys, "stderr", written)
    try:
        yield written
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = before
        root.setLevel(level)
        log_lines.lifecycle.setLevel(own)


@pytest.mark.parametrize(
    ("error", "event", "code"),
    [
        (CannotStart("port 1 is taken.", hints=["choose another"]), "start.failed", 1),
        (Failure(OFFLINE, exit_code=3), "node.failed", 3),
        (ZeroDivisionError("odd"), "bug.process", 1),
    ],
)
def test_in_json_a_failure_is_an_object_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: Exception, event: str, code: int
) -> None:
    def start(options: Mapping[str, Any]) -> None:
        write_errors(options["log_format"], ["the first"])
        warnings.warn("old", stacklevel=1)
        raise error

    options = {"log_format": "json", "log_level": "warning"}
    with logging_of_its_own(monkeypatch) as written, warnings.catch_warnings():
        warnings.simplefilter("always")
        log_lines.set_up_logging("json", "warning")
        with pytest.raises(SystemExit) as ended:
            in_log_format(start)(options)
        assert ended.value.code == code
    assert events(written.getvalue().splitlines()) == ["start.failed", "py.warnings.warning", event]


def test_in_other_formats_a_failure_stays_an_exception(capsys: pytest.CaptureFixture[str]) -> None:
    def start(options: Mapping[str, Any]) -> None:
        write_errors(options["log_format"], ["the first"])
        raise CannotStart("the last")

    with pytest.raises(CannotStart):
        in_log_format(start)({"log_format": "auto", "log_level": "warning"})
    assert capsys.readouterr().err == "error: the first\n"


def test_in_json_a_cluster_is_one_object_too(tmp_path: Path) -> None:
    """The nodes write theirs into their own files, in which the address of the metrics is found."""
    command = ["dev", "--nodes", "2", "--port", "0", "--data", str(tmp_path), "--log-format", "json"]
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", "trioka", *command], stdout=pipe, stderr=pipe, text=True) as cluster:
        assert cluster.stderr is not None
        ready = json.loads(cluster.stderr.readline())
        cluster.terminate()
        out, err = cluster.communicate(timeout=PATIENCE_S)
    assert (out, err, ready["event"]) == ("", "", "node.ready")
    assert len(ready["clients"].split(",")) == 2 and ready["metrics"].startswith("http://")
    for number in (1, 2):
        assert "node.ready" in events((tmp_path / f"node-{number}" / "log.txt").read_text().splitlines())
