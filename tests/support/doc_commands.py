"""The lines of a page that a reader would type, and how each of them ends.

A line may contain its result: `trioka topics describe ordres     # exit code 5: did you mean orders?`
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import command

CODE = re.compile(r"\s+# exit code (\d+)(?: or (\d+))?.*")


def commands_in(text: str) -> list[str]:
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


def install_commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`trioka` is found on the PATH, as it would be."""
    (folder / "bin").mkdir()
    (folder / "bin" / "trioka").write_text(f'#!/bin/sh\nexec {sys.executable} -m trioka "$@"\n')
    (folder / "bin" / "trioka").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def must_end_as_documented(line: str, at: str | None) -> None:
    """Against the broker `at` host:port; None: the default address of the command."""
    message = CODE.search(line)
    expected = {int(code) for code in message.groups() if code} if message else {0}
    code = _run(CODE.sub("", line), at)
    assert code in expected, f"{line!r} ended with {code}"


def _run(line: str, at: str | None) -> int:
    """How a line ends. One that starts a broker is stopped when it is ready; one that needs a shell gets one."""
    if line.startswith("trioka dev"):
        return _started(line)
    if line.startswith("trioka run") or re.search(r"\|.*trioka|\$\(trioka", line):
        environment = {**os.environ, **({} if at is None else {"KAFKA_BOOTSTRAP_SERVERS": at})}
        return subprocess.run(["sh", "-c", line], env=environment, stdout=subprocess.DEVNULL, timeout=60).returncode
    if line.startswith("trioka serve"):
        return subprocess.run(shlex.split(line), timeout=60).returncode
    ended = command(*shlex.split(line)[1:], at=at)
    assert "Traceback" not in ended.stderr
    return ended.code


def _started(line: str) -> int:
    line = line.replace("./data", "./other-data")  # the folder of the broker that runs already
    process = subprocess.Popen(shlex.split(line), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and "ready in" in process.stdout.readline()
    process.terminate()
    process.communicate(timeout=60)
    shutil.rmtree("other-data")
    return process.returncode
