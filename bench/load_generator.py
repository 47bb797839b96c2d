"""The load generator in `load/`: built when its sources have changed, run once per measure.

It is Go without dependencies, so `go build` downloads nothing. The program is in the cache folder, under a name with
the digest of its sources.
"""

import functools
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from trioka.pipeline.installation.cache import Unavailable, folder, locked

SOURCES = Path(__file__).resolve().with_name("load")
BUILD_TIMEOUT_SECONDS = 300
# The creation and deletion of topics around a measure takes time on a busy machine.
SPARE_SECONDS = 180
# A latency is repeated if the generator itself was later than this at p99.9, at most this many times.
ON_TIME_MICROS = 1000
LATENCY_TRIES = 4


class LoadFailed(Exception):
    """The generator's error, in one line."""


@functools.cache
def program() -> Path:
    """The path of the built program."""
    sources = sorted(path for path in SOURCES.iterdir() if path.suffix == ".go" or path.name == "go.mod")
    digest = hashlib.sha256(b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in sources))
    built = folder("load") / f"load-{digest.hexdigest()[:16]}"
    with locked(built.name):
        if not built.exists():
            _build(built)
    return built


def _build(target: Path) -> None:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise Unavailable("The load generator needs Go, 1.21 or newer, on the PATH.")
    beside = target.with_suffix(f".{os.getpid()}")
    try:
        done = subprocess.run(
            [go, "build", "-o", beside, "."],
            cwd=SOURCES,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(f"The load generator does not build: {done.stderr.strip()}")
        beside.rename(target)
    finally:
        beside.unlink(missing_ok=True)


def arguments_of(options: Mapping[str, object]) -> list[str]:
    return [f"-{name}={_text(value)}" for name, value in options.items()]


def run_load(command: str, options: Mapping[str, object], *, seconds: float = 0) -> dict[str, Any]:
    """Run one command to its end; `{"in-flight": 5}` becomes `-in-flight=5`."""
    try:
        done = subprocess.run(
            [program(), command, *arguments_of(options)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds + SPARE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"it had not ended after {seconds + SPARE_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise LoadFailed(done.stderr.strip().partition("\n")[0] or f"it ended with {done.returncode}")
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def run_latency(
    options: Mapping[str, object], *, seconds: float, quietly: Callable[[], AbstractContextManager[None]]
) -> dict[str, Any]:
    """Run a latency command while the rest of the machine is quiet. Each try runs within a block of `quietly`."""

    def take() -> dict[str, Any]:
        with quietly():
            return run_load("latency", options, seconds=seconds)

    return on_time(take)


def on_time(take: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Repeat a latency until the generator itself was on time. A virtual machine sometimes pauses for tens of
    milliseconds, with everything on it. The generator detects this because it has the highest priority: then it is late
    itself, with either broker. Such a try says nothing about the broker and is repeated; if all tries are late, the one
    with the least lateness counts. The broker's latencies do not affect the choice.
    """
    tries: list[dict[str, Any]] = []
    while len(tries) < LATENCY_TRIES and (not tries or lateness(tries[-1]) > ON_TIME_MICROS):
        tries.append(take())
    return min(tries, key=lateness)


def lateness(outcome: Mapping[str, Any]) -> float:
    """The lateness of the generator itself at p99.9, in µs."""
    return float(outcome["lateness_micros"]["p99.9"])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
