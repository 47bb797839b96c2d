"""Real clients as a load: each writes records to a fresh topic and reads them all again, with its default settings
except one of confluent-kafka's, which its program explains.

    franz-go           client_programs/franz, built with its pinned modules
    librdkafka         client_programs/rdkafka.c, against the library in confluent-kafka's wheel
    Java               ProducerPerformance and ConsumerPerformance, in one JVM for the whole run
    confluent-kafka    client_programs/confluent.py, a loop in Python

A client reports its own duration, from its first record on, without the start of the process and a group's initial
rebalance. Only the ratio is meaningful, and less so than that of a bare load: where a client is slower than both
brokers, it is near 1, and the broker's CPU is more significant.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "compat-tests"))

import confluent_kafka
import jars
from clients.kafka_tools import CLASSES
from clients.program import Program
from java import java
from load_generator import LoadFailed
from nodes import KAFKA_JVM, die_with_parent
from oracle import LOG_WARNINGS, PROGRAMS, compiled

from trioka.pipeline.installation.cache import Unavailable, folder, locked

SOURCES = Path(__file__).resolve().with_name("client_programs")
BUILD_TIMEOUT_SECONDS = 600
RUN_TIMEOUT_SECONDS = 150
# The heap that Kafka's scripts give to a tool, instead of a broker's gigabyte.
TOOL_JVM = ("-Xmx512M", *(option for option in KAFKA_JVM if not option.startswith("-Xm")))
WAYS = ("produce", "consume")

Seconds = float
Run = Callable[[str, str, str, int, int], Seconds]  # way, address, topic, records, size


class RealClients:
    """All clients; those in separate processes end with the `with`."""

    def __init__(self) -> None:
        self._tools: Program | None = None
        self._runs: Mapping[str, Run] = {
            "franz-go": lambda *requested: _ran([franz()], *requested),
            "librdkafka": lambda *requested: _ran([rdkafka()], *requested),
            "Java": self._java,
            "confluent-kafka": lambda *requested: _ran([sys.executable, SOURCES / "confluent.py"], *requested),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tools is not None:
            self._tools.close()

    def seconds(self, client: str, way: str, address: str, topic: str, records: int, size: int) -> Seconds:
        """The duration; a missing or failing client raises LoadFailed with one sentence."""
        try:
            return self._runs[client](way, address, topic, records, size)
        except Unavailable as missing:
            raise LoadFailed(str(missing)) from missing

    def _java(self, way: str, address: str, topic: str, records: int, size: int) -> Seconds:
        if self._tools is None:
            self._tools = Program(perf_tools())
        wanted = ["--bootstrap-server", address, "--topic", topic, "--num-records", str(records)]
        if way == "produce":
            wanted += ["--record-size", str(size), "--throughput", "-1"]
        try:
            response = self._tools.ask({"tool": CLASSES[f"{way[:-1]}er-perf-test"], "arguments": wanted, "stdin": ""})
        except AssertionError as ended:
            self._tools = None
            raise LoadFailed(str(ended).partition("\n")[0]) from ended
        if response["exit"]:
            raise LoadFailed(last_line(response["err"] + response["out"]) or f"it ended with {response['exit']}")
        return produced_in(response["out"], records) if way == "produce" else consumed_in(response["out"], records)


def last_line(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1].strip() if lines else ""


def produced_in(said: str, records: int) -> Seconds:
    """The duration from `300000 records sent, 123456.7 records/sec (120.56 MB/sec), …`, the last line of this form."""
    count, _, rest = last_line(said).partition(" records sent, ")
    rate, _, _ = rest.partition(" records/sec")
    if not rest or int(count) != records:
        raise LoadFailed(f"the tool did not send {records} records: {last_line(said)}")
    return records / float(rate)


def consumed_in(said: str, records: int) -> Seconds:
    """The duration from the tool's table with one row, without the rebalance time, which is a separate column."""
    head, _, row = said.strip().partition("\n")
    found = dict(zip(head.replace(" ", "").split(","), row.replace(" ", "").split(","), strict=False))
    if int(found.get("data.consumed.in.nMsg", 0)) < records:
        raise LoadFailed(f"the tool did not read {records} records: {last_line(said)}")
    return int(found["fetch.time.ms"]) / 1000


@functools.cache
def franz() -> Path:
    home = SOURCES / "franz"
    go = _found("go", "/usr/local/go/bin")
    command = [go, "build", "-mod=readonly", "-buildvcs=false", "-o", "{target}", "."]
    return _built("franz", sorted(home.iterdir()), command, home)


@functools.cache
def rdkafka() -> Path:
    source = SOURCES / "rdkafka.c"
    beside = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    libraries = sorted(beside.glob("librdkafka*"))
    if not libraries:
        raise Unavailable("confluent-kafka has no library of its own here, so librdkafka is not measured.")
    compiler = _found("cc", None)
    command = [compiler, "-O2", "-o", "{target}", source, libraries[0], f"-Wl,-rpath,{beside}"]
    return _built("rdkafka", [source, libraries[0]], command, SOURCES)


@functools.cache
def perf_tools() -> list[str | Path]:
    """Java with all its compilers, which the short-lived tools of the tests leave out."""
    class_path = f"{compiled(PROGRAMS / 'Tools.java')}{os.pathsep}{jars.class_path()}"
    return [java(), *TOOL_JVM, *LOG_WARNINGS, "-cp", class_path, "Tools"]


def _found(tool: str, elsewhere: str | None) -> str:
    found = shutil.which(tool) or (shutil.which(tool, path=elsewhere) if elsewhere else None)
    if found is None:
        raise Unavailable(f"{tool} is not on the PATH.")
    return found


def _built(name: str, sources: Sequence[Path], command: Sequence[str | Path], where: Path) -> Path:
    """The program, built if its sources have changed; an incomplete build never has the final name."""
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    target = folder("clients") / f"bench-{name}-{digest}"
    with locked(target.name):
        if not target.exists():
            beside = target.with_suffix(f".{os.getpid()}")
            try:
                subprocess.run(
                    [str(beside) if part == "{target}" else str(part) for part in command],
                    cwd=where,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=BUILD_TIMEOUT_SECONDS,
                    check=True,
                )
                beside.rename(target)
            except (OSError, subprocess.SubprocessError) as error:
                message = last_line(getattr(error, "stderr", None) or str(error))
                raise Unavailable(f"{name} could not be built: {message}") from error
            finally:
                beside.unlink(missing_ok=True)
    return target


def _ran(program: Sequence[str | Path], way: str, address: str, topic: str, records: int, size: int) -> Seconds:
    try:
        done = subprocess.run(
            [*program, way, address, topic, str(records), str(size)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_SECONDS,
            check=False,
            preexec_fn=die_with_parent(),
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"it had not ended after {RUN_TIMEOUT_SECONDS} s") from None
    if done.returncode != 0:
        raise LoadFailed(last_line(done.stderr) or f"it ended with {done.returncode}")
    with contextlib.suppress(ValueError):
        return float(done.stdout)
    raise LoadFailed(f"it did not print its duration, but {last_line(done.stdout)!r}")
