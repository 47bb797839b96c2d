"""Apache Kafka as the reference: a broker for the length of a `with`, its tools, and small Java programs beside it.

    with ApacheKafka() as kafka:
        kafka.create_topic("greetings", partitions=2)
        ...                                  # any client, at kafka.bootstrap
        kafka.stop()                         # cleanly; the files stay until the `with` ends
        print(dump_log(*kafka.segments("greetings-0")))

Everything runs on loopback and in one temporary folder. A broker ends with its `with`, and on Linux also when the
test process is killed. The broker's output is in `kafka.log`; it is part of the error when it fails.
"""

import base64
import ctypes
import functools
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import jars
from java import java

from trioka.pipeline.installation.cache import folder, locked

START_TIMEOUT_SECONDS = 240
STOP_TIMEOUT_SECONDS = 120
TOOL_TIMEOUT_SECONDS = 240
# Another process may take a port between the check and Kafka's bind; then the node tries again with other ports.
PORT_TRIES = 3
POLL_SECONDS = 0.05
LOG_TAIL_CHARS = 4000

PROGRAMS = Path(__file__).parent / "programs"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
READY = "Kafka Server started"
PORT_TAKEN = "Address already in use"

LOG_WARNINGS = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
# For short-lived programs: no second compiler tier, one garbage collector thread.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

# One node that is broker and controller, with everything of a real one, only small and without waits.
SETTINGS: Mapping[str, object] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.network.threads": 2,
    "num.io.threads": 4,
    "num.recovery.threads.per.data.dir": 1,
    "background.threads": 2,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.dedupe.buffer.size": 2 << 20,
}


class OracleFailed(Exception):
    """Kafka, one of its tools or a program beside it failed; the message contains its output."""


def run_java(
    *arguments: str | Path, stdin: str = "", merged: bool = False, timeout: float = TOOL_TIMEOUT_SECONDS
) -> str:
    """Runs Java to its end and returns its output: standard output only, unless both streams are `merged`."""
    done = subprocess.run(
        [java(), *QUICK, *arguments],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        message = f"{done.stdout}\n{done.stderr or ''}"[-LOG_TAIL_CHARS:]
        raise OracleFailed(f"java {' '.join(map(str, arguments[-4:]))} ended with {done.returncode}:\n{message}")
    return done.stdout


def run_tool(main_class: str, *arguments: str | Path, stdin: str = "", merged: bool = False) -> str:
    """Run a class of Apache Kafka, such as `org.apache.kafka.tools.TopicCommand`, and return what it printed."""
    return run_java(*LOG_WARNINGS, "-cp", jars.class_path(), main_class, *arguments, stdin=stdin, merged=merged)


def run_program(name: str, *arguments: str | Path, stdin: str = "") -> str:
    """Run `programs/<name>.java` on Kafka's class path. It is compiled once; the classes stay in the cache folder."""
    classes = compiled(PROGRAMS / f"{name}.java")
    return run_java(*LOG_WARNINGS, "-cp", f"{classes}{os.pathsep}{jars.class_path()}", name, *arguments, stdin=stdin)


@functools.cache
def compiled(source: Path, listed: str | None = None) -> Path:
    """The folder of the classes of a source file; a changed source or class path gets another folder. `listed` are more
    jars that it needs, such as those of `shell_jars.txt`."""
    class_path = jars.class_path() if listed is None else jars.class_path_with(listed)
    pins = jars.PINS.read_bytes() + (b"" if listed is None else jars.PINS.with_name(listed).read_bytes())
    digest = hashlib.sha256(source.read_bytes() + pins).hexdigest()[:16]
    classes = folder("classes") / f"{source.stem}-{digest}"
    with locked(classes.name):
        if not classes.exists():
            beside = Path(tempfile.mkdtemp(dir=classes.parent, prefix=".compiling-"))
            try:
                run_java("-jar", jars.jar(jars.COMPILER), "-17", "-nowarn", "-cp", class_path, "-d", beside, source)
                beside.rename(classes)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
    return classes


def dump_log(*files: Path, deep: bool = True, data: bool = False, index: str | None = None) -> str:
    """The output of Kafka's own reader for segment, index and snapshot files; the name of a file determines its kind.

    `deep` looks into compressed batches, `data` prints keys and values too. For index files, `index="verify"` compares
    each entry with the log beside it and `index="sanity"` does the check of a broker's start; both print only faults.
    The tool prints some faults to standard error, so both streams are returned; `dump.parse_dump` reads them.
    """
    options = {"verify": ["--verify-index-only"], "sanity": ["--index-sanity-check"], None: []}[index]
    options += ["--deep-iteration"] * deep + ["--print-data-log"] * data
    return run_tool(DUMP_LOG, *options, "--files", ",".join(map(str, files)), merged=True)


class ApacheKafka:
    """One KRaft node of Apache Kafka on free loopback ports. See the top of this file."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        jvm_options: Sequence[str] = ("-Xmx512m", *QUICK),
        data_dir: Path | None = None,
        parent: Path | None = None,
    ) -> None:
        """`settings` are added to, or replace, those of `SETTINGS`. A given `data_dir` is used as it is, if it is
        formatted already, and not deleted in the end. The temporary folder is made inside of `parent`.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="apache-kafka-", dir=parent))
        self.data_dir = data_dir or self.folder / "data"
        self.log = self.folder / "kafka.log"
        # Never with a dash at its start, which the format tool would take for an option.
        self.cluster_id = "K" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        self.port = self._controller_port = 0
        self._settings = dict(settings or {})
        self._jvm_options = list(jvm_options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "ApacheKafka":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None and self.log.exists():
            error.add_note(f"Apache Kafka's last words:\n{self.log_tail()}")
        self.close()

    def start(self) -> None:
        """Format the folder if it is new, start the node and wait until it serves. After `stop()`, start it again."""
        assert self._process is None, "it runs already"
        for attempt in range(PORT_TRIES):
            if attempt > 0 or not self.port:  # a second start keeps its address, if it can
                self.port, self._controller_port = _free_ports(2)
            configuration = self._configure()
            if not (self.data_dir / "meta.properties").exists():
                arguments = ("format", "--standalone", "-t", self.cluster_id, "-c", configuration)
                run_tool("kafka.tools.StorageTool", *arguments)
            self._launch(configuration)
            if self._wait_until_ready():
                return
        raise OracleFailed(f"Apache Kafka found no free port in {PORT_TRIES} tries:\n{self.log_tail()}")

    def stop(self) -> None:
        """Stop cleanly and wait for the end; the files are complete then. Nothing happens if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise OracleFailed(f"Apache Kafka did not stop when asked to:\n{self.log_tail()}") from None

    def kill(self) -> None:
        """End it without a warning, as a crash would. Only the page cache keeps what was not synced."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End it, however it stands, and delete its temporary folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARS:] if self.log.exists() else "(none)"

    def tool(self, main_class: str, *arguments: str | Path, stdin: str = "") -> str:
        """Run one of Kafka's tools against this node."""
        return run_tool(main_class, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)

    def create_topic(self, name: str, *, partitions: int = 1, **config: object) -> None:
        """Create a topic with Kafka's own tool; `segment_bytes=1024` means `segment.bytes=1024`."""
        pairs = [f"{key.replace('_', '.')}={value}" for key, value in config.items()]
        options = [option for pair in pairs for option in ("--config", pair)]
        tool = "org.apache.kafka.tools.TopicCommand"
        self.tool(tool, "--create", "--topic", name, "--partitions", str(partitions), *options)

    def partition(self, name: str) -> Path:
        """The folder of a partition, such as `greetings-0`."""
        return self.data_dir / name

    def segments(self, name: str) -> list[Path]:
        """The log files of a partition, oldest first."""
        return sorted(self.partition(name).glob("*.log"))

    def _configure(self) -> Path:
        """Write the settings to a file."""
        settings = {
            **SETTINGS,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            "log.dirs": self.data_dir,
            **self._settings,
        }
        configuration = self.folder / "server.properties"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return configuration

    def _launch(self, configuration: Path) -> None:
        logging = ("-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
        command: list[str | Path] = [
            java(),
            *self._jvm_options,
            *logging,
            "-cp",
            jars.class_path(),
            "kafka.Kafka",
            configuration,
        ]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=die_with_parent(),
            )

    def _wait_until_ready(self) -> bool:
        """True once it serves, False if another process took one of the ports; anything else is an error."""
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            text = self.log.read_text(errors="replace")
            if READY in text:
                return True
            if self._process.poll() is not None:
                self._process = None
                if PORT_TAKEN in text:
                    return False
                raise OracleFailed(f"Apache Kafka ended while it started:\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)
        raise OracleFailed(f"Apache Kafka was not ready after {START_TIMEOUT_SECONDS} s:\n{self.log_tail()}")


def _free_ports(count: int) -> list[int]:
    """Free ports. All are held until all are known, so that no two are the same."""
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]
    finally:
        for holder in holders:
            holder.close()


def die_with_parent() -> Callable[[], object] | None:
    """On Linux the kernel can end a child when its parent dies, even by SIGKILL; elsewhere the `with` must do."""
    if sys.platform != "linux":
        return None
    set_option = ctypes.CDLL(None).prctl
    parent_death_signal = 1
    return lambda: set_option(parent_death_signal, signal.SIGTERM)
