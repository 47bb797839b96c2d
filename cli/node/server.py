"""A broker in this process: what `trioka dev` and `trioka serve` do.

This is the one module of the command line that starts a broker; it and `run.py` mind signals. Importing it costs
nothing: the broker's rooms and trio are loaded by the functions that need them, because `trioka --help` does not.

What can go wrong at a start (a busy port, a wrong key, somebody else's directory) is one sentence and the exit code 1,
never a traceback.
"""

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from trioka import __version__

from ..terminal.failure import CannotStart, Failure
from .flags import DEFAULT_PORT
from .gc_policy import keep_what_stays

if TYPE_CHECKING:
    import trio

    from trioka.broker.broker import Broker
    from trioka.broker.config.server import Loaded
    from trioka.broker.http.server import Door

    from ..cluster.local_cluster import LocalCluster

HTTP_PORT_ABOVE: Final = 1000  # the port of metrics and health, above that of Kafka
MAX_PORT: Final = 65535
FAST_FOLDER: Final = "/dev/shm"  # memory that looks like a disk: the same files, and nothing touches the real one


# -- dev ---------------------------------------------------------------------------------------------------------------


def _dev(options: Mapping[str, Any]) -> None:
    topics = dict(_topic(text) for text in options["topic"])
    if options["demo"]:
        from .demo import TOPICS

        topics |= TOPICS
    if options["nodes"] != 1:
        _dev_cluster(options, topics)
        return
    temporary = None if options["data"] else tempfile.mkdtemp(prefix="trioka-", dir=_fast_folder())
    try:
        properties = _dev_properties(options["port"], options["data"] or temporary)
        properties["trioka.http.listeners"] = _http_listeners(options["port"], options["http_port"])
        _run(properties, {}, {}, topics=topics, is_dev=True, is_demo=options["demo"], options=options)
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _dev_properties(port: int, data: str | None) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
        "advertised.listeners": f"PLAINTEXT://localhost:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": os.path.abspath(data or "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",  # as in the server.properties that Kafka brings along
    }


def _dev_cluster(options: Mapping[str, Any], topics: Mapping[str, int]) -> None:
    """Nodes that end when this process does."""
    from ..cluster.local_cluster import run_in_front

    gc.enable()  # this process only watches over the nodes, but for long
    started = time.perf_counter()
    data, http = options["data"], options["http_port"]
    temporary = None if data else tempfile.mkdtemp(prefix="trioka-", dir=_fast_folder())

    def say(found: "LocalCluster") -> None:
        addresses = {f"Node {node.id}": ("127.0.0.1", node.port) for node in found.nodes.values()}
        where = next(iter(found.metrics.values()), None)
        _say_ready(addresses, where, [str(data or temporary)], True, time.perf_counter() - started)
        if options["demo"]:
            _start_demo(found.servers)

    def listeners(number: int) -> str:
        """Of a node's metrics; the ports follow one another as those of Kafka do."""
        port = options["port"] and options["port"] + number
        is_counted = http is not None and http.isdigit() and http != "0"
        return _http_listeners(port, str(int(http) + number) if is_counted else http)

    log_flags = ["--log-format", options["log_format"], "--log-level", options["log_level"]]
    try:
        run_in_front(
            Path(str(data or temporary)),
            options["nodes"],
            options["port"],
            topics,
            say,
            http=listeners,
            words=log_flags,
        )
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _http_listeners(port: int, asked: str | None) -> str:
    """What nobody asked for must not keep a broker from starting: another port will do."""
    if asked is None:
        wanted = port + HTTP_PORT_ABOVE
        return "127.0.0.1:0" if port == 0 or wanted > MAX_PORT else f"127.0.0.1:{wanted},127.0.0.1:0"
    if asked == "off":
        return ""
    if not (asked.isascii() and asked.isdigit()) or int(asked) > MAX_PORT:
        raise CannotStart(f"--http-port {asked} must be a port, such as 10092, or off.")
    return f"127.0.0.1:{asked}"


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if not name or not (partitions or "1").isdigit() or int(partitions or "1") < 1:
        raise CannotStart(f"--topic {text} must be NAME or NAME:PARTITIONS, such as orders:3.")
    return name, int(partitions or "1")


def _fast_folder() -> str | None:
    return FAST_FOLDER if os.access(FAST_FOLDER, os.W_OK) else None


# -- serve -------------------------------------------------------------------------------------------------------------


def _serve(options: Mapping[str, Any]) -> None:
    from trioka.broker.config.properties import parse_environment, parse_overrides, parse_properties

    try:
        file: Mapping[str, str] = {}
        if options["file"] is not None:
            file = parse_properties(Path(options["file"]).read_bytes())
        environment, overrides = parse_environment(os.environ), parse_overrides(options["override"])
        _run(file, environment, overrides, is_check=options["check"], options=options)
    except OSError as error:
        raise CannotStart(f"{options['file']} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise CannotStart(str(error)) from None


# -- both --------------------------------------------------------------------------------------------------------------


def _run(
    file: Mapping[str, str],
    environment: Mapping[str, str],
    overrides: Mapping[str, str],
    *,
    options: Mapping[str, Any],
    topics: Mapping[str, int] | None = None,
    is_dev: bool = False,
    is_demo: bool = False,
    is_check: bool = False,
) -> None:
    started = time.perf_counter()
    _set_up_logging(options["log_format"], options["log_level"])
    from trioka.broker.config.layers import ConfigError
    from trioka.broker.config.server import load

    try:
        loaded = load(file, environment=environment, overrides=overrides)
    except ConfigError as error:
        raise CannotStart(str(error)) from None
    for remark in () if is_dev else (*loaded.warnings, *loaded.notes):  # of `dev`, nobody wrote the properties
        print(f"note: {remark}", file=sys.stderr)
    if is_check:
        return

    import trio

    from trioka.broker.membership.identity import NotFormatted
    from trioka.broker.membership.lifecycle import CannotJoin
    from trioka.broker.membership.log_directories import LogDirectoriesOffline
    from trioka.broker.network.listener import PortInUse
    from trioka.broker.quorum.store import VotersDisagree
    from trioka.storage.directory import DirectoryInUse, ForeignDirectory
    from trioka.storage.disk import allow_many_descriptors
    from trioka.storage.failstop_disk import OutOfDescriptors
    from trioka.storage.layout import DamagedFile

    allow_many_descriptors()
    try:
        trio.run(_live, loaded, topics or {}, is_dev, is_demo, started)
    except Exception as errors:  # not `except*`: what it raises is a group again, before Python 3.11.4
        happened = list(_single(errors))
        ended = next((each for each in happened if isinstance(each, LogDirectoriesOffline)), None)
        if ended is not None:
            hints = ["mend or replace the disk, then start the node again"]
            raise Failure(f"this node has ended: {ended}", hints=hints) from None
        known = (DirectoryInUse, ForeignDirectory, NotFormatted, VotersDisagree, DamagedFile, CannotJoin)
        if not all(isinstance(each, (PortInUse, *known, OutOfDescriptors, OSError)) for each in happened):
            raise
        port = next((each.port for each in happened if isinstance(each, PortInUse)), None)
        if port is None:
            raise CannotStart(f"{happened[0]}.") from errors
        is_http = port not in [endpoint.port for endpoint in loaded.node.broker_listeners]
        flag, key = ("--http-port", "trioka.http.listeners") if is_http else ("--port", "listeners")
        where = f"with {flag}" if is_dev else f"in {key}"
        raise CannotStart(f"port {port} is taken by {owner_of(port)}; choose another {where}.") from errors


def _single(error: Exception) -> Iterator[Exception]:
    """What really happened, however deep it is."""
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from _single(each)
    else:
        yield error


def _set_up_logging(form: str, level: str) -> None:
    from trioka.broker.logs.formatters import HumanLines, JsonLines, Repetitions

    is_human = form == "human" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(HumanLines() if is_human else JsonLines())
    handler.addFilter(Repetitions())
    logging.basicConfig(level=level.upper(), handlers=[handler])


async def _live(loaded: "Loaded", topics: Mapping[str, int], is_dev: bool, is_demo: bool, started: float) -> None:
    import trio

    from trioka.broker.broker import Broker
    from trioka.broker.clock import SystemClock
    from trioka.broker.http.server import open_door
    from trioka.storage.disk import OsDisk

    gc.freeze()  # modules stay, and need not be looked through
    gc.enable()  # the entry point had it off; a node that waits for its quorum may do so for days
    broker = Broker(loaded.config, loaded.node, disk=OsDisk(), clock=SystemClock(), random=SystemRandom())
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            signalled = trio.Event()
            nursery.start_soon(_mind, signals, signalled, broker, nursery.cancel_scope)
            door = open_door(loaded.config)
            if door is not None:
                nursery.start_soon(door.serve, broker)
            await nursery.start(broker.run)
            if not signalled.is_set():
                await broker.create_missing_topics(topics)
            keep_what_stays()
            if not signalled.is_set():
                took = time.perf_counter() - started
                _say_ready(broker.addresses, _http_text(door), loaded.node.log_dirs, is_dev, took)
                for port in () if door is None else door.passed_over:
                    print(f"note: port {port} is taken by {owner_of(port)}; metrics are elsewhere.", file=sys.stderr)
                if is_demo:
                    _start_demo([("127.0.0.1", port) for _, port in broker.addresses.values()])
                from trioka.broker.network.scheduling import ask_for_short_turns

                ask_for_short_turns()
            await broker.stopped.wait()
            nursery.cancel_scope.cancel()


def _start_demo(servers: Sequence[tuple[str, int]]) -> None:
    """Its thread ends with the process, and must not hold it up: brokers finish what they serve in any case."""
    from .demo import Demo

    Demo(servers).start()


def _http_text(door: "Door | None") -> str | None:
    if door is None:
        return None
    host, port = door.address
    return f"http://{({'127.0.0.1': 'localhost', '::1': '[::1]'}).get(host, host)}:{port}/metrics"


async def _mind(
    signals: AsyncIterator[int], signalled: "trio.Event", broker: "Broker", scope: "trio.CancelScope"
) -> None:
    """The first signal lets requests finish; the second does not wait for them. Both stop cleanly."""
    await anext(signals)
    signalled.set()  # it may come before the broker is ready, which then never is
    broker.stop()
    await anext(signals)
    scope.cancel()


def _say_ready(
    addresses: Mapping[str, tuple[str, int]],
    http: str | None,
    log_dirs: Sequence[str],
    is_dev: bool,
    seconds: float,
) -> None:
    in_memory = is_dev and log_dirs[0].startswith(FAST_FOLDER)
    kept = "in memory (keep data: --data ./data)" if in_memory else f"data in {', '.join(log_dirs)}"
    lines = [f"trioka {__version__} · ready in {seconds:.2f} s · {kept} · Ctrl-C stops"]
    for name, (host, port) in addresses.items():
        host = "localhost" if host == "127.0.0.1" else host
        lines.append(f"  {'Kafka' if len(addresses) == 1 else name:<9}{f'{host}:{port}':<26}any Kafka client, no auth")
    if http is not None:
        lines.append(f"  Metrics  {http:<33}health /readyz")
    if is_dev:
        first = next(iter(addresses.values()))[1]
        at = "" if first == DEFAULT_PORT else f" -b localhost:{first}"
        said = "echo '{\"id\":1}'"
        lines.append(f"  Try      {said} | trioka produce{at} orders      then    trioka consume{at} orders")
    _say("\n".join(lines) + "\n")


def _say(text: str) -> None:
    """Whoever started the broker may have stopped listening after its first line: that must not end the broker."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def owner_of(port: int) -> str:
    """Who listens there, as far as this system tells."""
    wanted = f"{port:04X}"
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and fields[1].endswith(f":{wanted}"):
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(link) in inodes for link in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {process.name} ({command[:80]})"
        except OSError:
            continue
    return "another process"


RUN: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {"dev": _dev, "serve": _serve}
