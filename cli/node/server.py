"""A broker in this process: what `trioka dev` and `trioka serve` do.

This is the only module of the command line that starts a broker; it and `run.py` handle signals. It imports the
broker's packages and trio inside the functions that need them, so that `trioka --help` does not load them. A failed
start (a busy port, a wrong key, the directory of another node) prints one sentence and ends with exit code 1, never
with a traceback.
"""

import gc
import logging
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trioka import __version__

from ..terminal.failure import CannotStart, Failure
from . import temp_folders
from .flags import DEFAULT_PORT, JSON
from .gc_policy import freeze_startup_objects
from .log_lines import in_log_format, set_up_logging, write_errors, write_note
from .port_owner import owner_of
from .sd_notify import READY, STOPPING, notify

if TYPE_CHECKING:
    import trio

    from trioka.broker.broker import Broker
    from trioka.broker.config.server import LoadedConfig
    from trioka.broker.http.server import HttpServer

    from ..cluster.local_cluster import LocalCluster
    from .dev_security import DevSecurity
    from .gateway_process import GatewayProcess

lifecycle = logging.getLogger("trioka.lifecycle")

HTTP_PORT_ABOVE: Final = 1000  # offset of the port of metrics and health from Kafka's port
MAX_PORT: Final = 65535
DEMO: Final = "writes customers once and orders all the time, which the group billing reads"
MEMORY_LOOK_S: Final = 0.25
LOOPBACK: Final = "127.0.0.1"
WILDCARDS: Final = ("0.0.0.0", "::")
TEMP_PREFIX: Final = "trioka-dev-"
TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
ADVERTISED: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/,]+)(?::(?P<port>\d{1,5}))?")


class DevRun(NamedTuple):
    """The settings that `trioka dev` adds to a broker."""

    topics: Mapping[str, int]
    is_demo: bool = False
    security: "DevSecurity | None" = None
    endpoint: "Endpoint | None" = None
    has_gateway: bool = False
    has_registry: bool = False
    any_port: bool = False


class Endpoint(NamedTuple):
    """Where clients connect: the address to listen on, and the advertised one. Port 0 is any free port."""

    host: str
    port: int
    advertised_host: str
    advertised_port: int


# -- dev ---------------------------------------------------------------------------------------------------------------


def _dev(options: Mapping[str, Any]) -> None:
    topics = dict(_topic(text) for text in options["topic"])
    if options["demo"]:
        from .demo import TOPICS

        topics |= TOPICS
    is_secured = options["tls"] or options["sasl"]
    if is_secured and (options["nodes"] != 1 or options["demo"]):
        raise CannotStart("--tls and --sasl are for one node, without --nodes and --demo.")
    if options["nodes"] != 1:
        _dev_cluster(options, topics)
        return
    environment, overrides = _layers(options["set"], "--set")
    endpoint = _endpoint(options)
    temporary = None if options["data"] else temp_folders.new_folder(TEMP_PREFIX)
    try:
        data = os.path.abspath(options["data"] or f"{temporary}/data")
        security = None
        if is_secured:
            security = _prepare(Path(data), options)
        properties = _dev_properties(endpoint, data, security)
        properties["trioka.http.listeners"] = _http_listeners(options["port"], options["http_port"])
        dev = DevRun(
            topics,
            is_demo=options["demo"],
            security=security,
            endpoint=endpoint,
            has_gateway=options["gateway"] or options["registry"],
            has_registry=options["registry"],
            any_port=options["port"] == 0,
        )
        _run(properties, environment, overrides, dev=dev, options=options)
    finally:
        if temporary is not None:
            temp_folders.remove(temporary)


def _endpoint(options: Mapping[str, Any]) -> Endpoint:
    host, port = options["host"], options["port"]
    if re.fullmatch(r"\[?[0-9a-zA-Z_.:-]+\]?", host) is None:
        raise CannotStart(f"--host {host} must be a name or an address, such as 0.0.0.0.")
    host = host.strip("[]")
    advertised, advertised_port = "localhost" if host == LOOPBACK else host, port
    if options["advertise"] is not None:
        found = ADVERTISED.fullmatch(options["advertise"])
        if found is None or int(found["port"] or 0) > MAX_PORT:
            raise CannotStart(f"--advertise {options['advertise']} must be HOST or HOST:PORT.")
        advertised, advertised_port = found["host"].strip("[]"), int(found["port"] or port)
    elif host in WILDCARDS:
        raise CannotStart(f"--host {host} needs --advertise HOST: the name by which clients reach this machine.")
    return Endpoint(host, port, advertised, advertised_port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _layers(pairs: Sequence[str], flag: str) -> tuple[dict[str, str], dict[str, str]]:
    """The configuration in KAFKA_ variables, and that of the command line."""
    from trioka.broker.config.properties import PropertiesError, parse_environment, parse_overrides

    try:
        return parse_environment(os.environ), parse_overrides(pairs)
    except PropertiesError as error:
        raise CannotStart(str(error).replace("The override", flag, 1)) from None


def _prepare(data: Path, options: Mapping[str, Any]) -> "DevSecurity":
    from .dev_security import prepare

    try:
        return prepare(data, tls=options["tls"], sasl=options["sasl"])
    except OSError as error:
        raise CannotStart(f"{error.filename or data} cannot be written: {error.strerror}.") from None


def _dev_properties(endpoint: Endpoint, data: str, security: "DevSecurity | None") -> dict[str, str]:
    name = "PLAINTEXT" if security is None else security.access.protocol
    advertised = f"{_bracketed(endpoint.advertised_host)}:{endpoint.advertised_port}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"{name}://{_bracketed(endpoint.host)}:{endpoint.port},CONTROLLER://{LOOPBACK}:0",
        "advertised.listeners": f"{name}://{advertised}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": data,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",  # as in the server.properties of Kafka's distribution
        **({} if security is None else security.settings),
    }


def _dev_cluster(options: Mapping[str, Any], topics: Mapping[str, int]) -> None:
    """A cluster whose nodes end with this process."""
    from ..cluster.local_cluster import run_in_foreground
    from .gateway_process import GatewayProcess

    if (options["host"], options["advertise"]) != (LOOPBACK, None):
        raise CannotStart("--host and --advertise are for one node, without --nodes.")
    _layers(options["set"], "--set")  # the nodes read both; a mistake is reported once, before they start
    gc.enable()  # this process only supervises the nodes, but possibly for long
    started = time.perf_counter()
    data, http, form = options["data"], options["http_port"], options["log_format"]
    set_up_logging(form, options["log_level"], is_dev=True)
    temporary = None if data else temp_folders.new_folder(TEMP_PREFIX)

    gateways: list[GatewayProcess] = []

    def report(found: "LocalCluster") -> None:
        addresses = {f"Node {node.id}": ("127.0.0.1", node.port) for node in found.nodes.values()}
        is_address_written = form != JSON or options["log_level"] != "error"
        if http != "off" and is_address_written:
            found.wait_metrics()
        where = next(iter(found.metrics.values()), None)
        took = time.perf_counter() - started
        if form == JSON:
            servers = [f"{host}:{port}" for host, port in found.servers]
            _log_ready(servers, where, [str(data or temporary)], took)
        else:
            _report_ready(addresses, where, [str(data or temporary)], True, took, is_demo=options["demo"])
        if options["demo"]:
            _start_demo(found.servers)
        if options["gateway"] or options["registry"]:
            bootstrap = ",".join(f"{host}:{port}" for host, port in found.servers)
            any_port, has_registry = options["port"] == 0, options["registry"]
            gateways.append(GatewayProcess(bootstrap, any_port=any_port, has_registry=has_registry, log_format=form))

    def listeners(number: int) -> str:
        """The HTTP listeners of the nodes; their ports are consecutive, as Kafka's are."""
        port = options["port"] and options["port"] + number
        is_counted = http is not None and http.isdigit() and http != "0"
        return _http_listeners(port, str(int(http) + number) if is_counted else http)

    words = ["--log-format", options["log_format"], "--log-level", options["log_level"]]
    words += [word for pair in options["set"] for word in ("--override", pair)]
    try:
        run_in_foreground(
            Path(str(data or temporary)),
            options["nodes"],
            options["port"],
            topics,
            report,
            http=listeners,
            words=words,
        )
    finally:
        for gateway in gateways:
            gateway.stop()
        if temporary is not None:
            temp_folders.remove(temporary)


def _http_listeners(port: int, requested: str | None) -> str:
    """The default port of metrics must not keep a broker from starting: if it is busy, use another one."""
    if requested is None:
        wanted = port + HTTP_PORT_ABOVE
        return "127.0.0.1:0" if port == 0 or wanted > MAX_PORT else f"127.0.0.1:{wanted},127.0.0.1:0"
    if requested == "off":
        return ""
    if not (requested.isascii() and requested.isdigit()) or int(requested) > MAX_PORT:
        raise CannotStart(f"--http-port {requested} must be a port, such as 10092, or off.")
    return f"127.0.0.1:{requested}"


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if not name or not (partitions or "1").isdecimal() or int(partitions or "1") < 1:
        raise CannotStart(f"--topic {text} must be NAME or NAME:PARTITIONS, such as orders:3.")
    if TOPIC_NAME.fullmatch(name) is None:
        rule = "letters, digits, '.', '_' and '-', at most 249 of them"
        raise CannotStart(f"--topic {text!r}: the name of a topic has {rule}.")
    return name, int(partitions or "1")


# -- serve -------------------------------------------------------------------------------------------------------------


def _serve(options: Mapping[str, Any]) -> None:
    from trioka.broker.config.exposed_files import exposed_files
    from trioka.broker.config.properties import parse_properties

    try:
        file: Mapping[str, str] = {}
        if options["file"] is not None:
            file = parse_properties(Path(options["file"]).read_bytes())
        environment, overrides = _layers(options["override"], "The override")
        exposed = list(exposed_files(options["file"], file))
        _run(file, environment, overrides, is_check=options["check"], options=options, remarks=exposed)
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
    dev: DevRun | None = None,
    is_check: bool = False,
    remarks: Sequence[str] = (),
) -> None:
    started, form = time.perf_counter(), options["log_format"]
    set_up_logging(form, options["log_level"], is_dev=dev is not None)
    for remark in remarks:
        write_note(form, remark)
    loaded = _checked(form, file, environment, overrides, is_dev=dev is not None)
    if is_check:
        print("ok")
        return

    import trio

    from trioka.broker.membership.identity import NotFormatted
    from trioka.broker.membership.lifecycle import JoinRefused
    from trioka.broker.membership.log_directories import LogDirectoriesOffline
    from trioka.broker.network.listener import PortInUse
    from trioka.broker.quorum.store import VotersDisagree
    from trioka.storage.directory import DirectoryInUse, ForeignDirectory
    from trioka.storage.files.disk import raise_descriptor_limit
    from trioka.storage.files.failstop_disk import OutOfDescriptors
    from trioka.storage.files.layout import CorruptFile

    raise_descriptor_limit()
    try:
        trio.run(_live, loaded, dev, started, form)
    except Exception as errors:  # not `except*`: before Python 3.11.4, an exception raised there is wrapped in a group
        happened = list(_single(errors))
        ended = next((each for each in happened if isinstance(each, LogDirectoriesOffline)), None)
        if ended is not None:
            hint = "mend or replace the disk, then start the node again"
            if _is_in_memory(loaded.node.log_dirs):
                hint = "keep the data on a disk: --data ./data"
            raise Failure(f"this node has ended: {ended}", hints=[hint]) from None
        if isinstance(happened[0], CannotStart):
            raise happened[0] from None
        known = (DirectoryInUse, ForeignDirectory, NotFormatted, VotersDisagree, CorruptFile, JoinRefused)
        if not all(isinstance(each, (PortInUse, *known, OutOfDescriptors, OSError)) for each in happened):
            raise
        port = next((each.port for each in happened if isinstance(each, PortInUse)), None)
        if port is None:
            raise CannotStart(f"{happened[0]}.") from errors
        is_http = port not in [endpoint.port for endpoint in loaded.node.broker_listeners]
        flag, key = ("--http-port", "trioka.http.listeners") if is_http else ("--port", "listeners")
        where = f"with {flag}" if dev is not None else f"in {key}"
        raise CannotStart(f"port {port} is taken by {owner_of(port)}; choose another {where}.") from errors


def _checked(
    form: str, file: Mapping[str, str], environment: Mapping[str, str], overrides: Mapping[str, str], *, is_dev: bool
) -> "LoadedConfig":
    """The configuration. Remarks about it are printed, and all errors but the last, which is raised."""

    def write_remarks(remarks: Sequence[str]) -> None:
        for remark in () if is_dev else remarks:  # `dev` has no properties file
            write_note(form, remark)

    from trioka.broker.config.layers import ConfigError
    from trioka.broker.config.server import load
    from trioka.broker.security.tls.listener_check import check_security

    try:
        loaded = load(file, environment=environment, overrides=overrides)
        tls_remarks = check_security(loaded.config, loaded.node)
    except ConfigError as error:
        write_remarks(error.remarks)
        *others, last = str(error), *error.others
        write_errors(form, others)
        raise CannotStart(last) from None
    write_remarks([*loaded.warnings, *loaded.notes, *tls_remarks])
    return loaded


def _single(error: Exception) -> Iterator[Exception]:
    """The first exception inside nested groups."""
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from _single(each)
    else:
        yield error


async def _live(loaded: "LoadedConfig", dev: DevRun | None, started: float, form: str) -> None:
    import trio

    from trioka.broker.broker import Broker
    from trioka.broker.clock import SystemClock
    from trioka.broker.http.server import open_http_server
    from trioka.storage.files.disk import OsDisk

    gc.freeze()  # modules live as long as the process, so collections need not traverse them
    gc.enable()  # the entry point disabled it; a node may wait for its quorum for days
    broker = Broker(loaded.config, loaded.node, disk=OsDisk(), clock=SystemClock(), random=SystemRandom())
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            signalled = trio.Event()
            gateways: list[GatewayProcess] = []
            nursery.start_soon(_mind, signals, signalled, broker, nursery.cancel_scope, gateways)
            if _is_in_memory(loaded.node.log_dirs):
                nursery.start_soon(_watch_memory, broker)
            http_server = open_http_server(loaded.config)
            if http_server is not None:
                nursery.start_soon(http_server.serve, broker)
            await nursery.start(broker.run)
            if not signalled.is_set() and broker.failure is None:
                await _furnish(broker, dev)
            freeze_startup_objects()
            if not signalled.is_set() and broker.failure is None:
                took = time.perf_counter() - started
                http = _http_text(http_server)
                secured = {each.name: each.protocol.name for each in loaded.node.listeners if each.protocol}
                security = None if dev is None else dev.security
                addresses, log_dirs = _advertised(broker, dev), loaded.node.log_dirs
                if form == JSON:
                    places = [f"{name}://{_bracketed(host)}:{port}" for name, (host, port) in addresses.items()]
                    _log_ready(places, http, log_dirs, took)
                else:
                    is_demo = dev is not None and dev.is_demo
                    _report_ready(addresses, http, log_dirs, dev is not None, took, secured, security, is_demo=is_demo)
                notify(READY)
                for port in () if http_server is None else http_server.ports_in_use:
                    write_note(form, f"port {port} is taken by {owner_of(port)}; metrics are on another port.")
                if dev is not None and dev.is_demo:
                    _start_demo([_reachable(address) for address in broker.addresses.values()])
                if dev is not None and dev.has_gateway:
                    gateways.append(_gateway_of(broker, dev, form))
                from trioka.broker.network.scheduling import request_short_timeslice

                request_short_timeslice()
            await broker.stopped.wait()
            nursery.cancel_scope.cancel()


async def _furnish(broker: "Broker", dev: DevRun | None) -> None:
    """Create the topics and the user that the options of `trioka dev` name."""
    if dev is None:
        return
    upsertions = [] if dev.security is None else dev.security.upsertions()
    if upsertions:
        from trioka.protocol.errors import NONE

        decision = await broker.quorum.change(
            lambda controller: controller.alter_user_scram_credentials([], upsertions)
        )
        for reply in decision.replies:
            if reply.outcome.code != NONE:
                raise CannotStart(f"user {reply.user} was not created: {reply.outcome.message}")
    for name, error in (await broker.create_missing_topics(dev.topics)).items():
        raise CannotStart(f"topic {name} was not created: {error}.")


def _start_demo(servers: Sequence[tuple[str, int]]) -> None:
    """Start the demo in a daemon thread, which never delays the end of the process."""
    from .demo import Demo

    Demo(servers).start()


def _advertised(broker: "Broker", dev: DevRun | None) -> Mapping[str, tuple[str, int]]:
    """The addresses for clients, by listener."""
    if dev is None or dev.endpoint is None:
        return broker.addresses
    at = dev.endpoint
    return {name: (at.advertised_host, at.advertised_port or port) for name, (_, port) in broker.addresses.items()}


def _reachable(address: tuple[str, int]) -> tuple[str, int]:
    """Where a process of this machine reaches a listener."""
    host, port = address
    return (LOOPBACK if host in WILDCARDS else host), port


def _gateway_of(broker: "Broker", dev: DevRun, form: str) -> "GatewayProcess":
    from .gateway_process import GatewayProcess

    host, port = _reachable(next(iter(broker.addresses.values())))
    client_file = None if dev.security is None else str(dev.security.client_file)
    return GatewayProcess(
        f"{_bracketed('localhost' if host == LOOPBACK else host)}:{port}",
        client_file=client_file,
        any_port=dev.any_port,
        has_registry=dev.has_registry,
        log_format=form,
    )


def _http_text(http_server: "HttpServer | None") -> str | None:
    if http_server is None:
        return None
    host, port = http_server.address
    return f"http://{({'127.0.0.1': 'localhost', '::1': '[::1]'}).get(host, host)}:{port}/metrics"


async def _watch_memory(broker: "Broker") -> None:
    """End a broker in memory before the machine has no memory left."""
    import trio

    while not temp_folders.is_memory_short():  # noqa: ASYNC110 - the kernel reports no event
        await trio.sleep(MEMORY_LOOK_S)
    broker.fail(f"less than {temp_folders.MIN_LEFT_BYTES >> 20} MB of memory are left")


async def _mind(
    signals: AsyncIterator[int],
    signalled: "trio.Event",
    broker: "Broker",
    scope: "trio.CancelScope",
    gateways: "Sequence[GatewayProcess]",
) -> None:
    """Handle signals: the first one lets requests finish; the second does not wait for them. Both stop cleanly. A
    gateway stops before the broker, so that the calls that it serves can end."""
    await anext(signals)
    signalled.set()  # a signal before the broker is ready cancels the start
    notify(STOPPING)
    if gateways:
        from trio import to_thread

        for gateway in gateways:
            await to_thread.run_sync(gateway.stop)
    broker.stop()
    await anext(signals)
    scope.cancel()


def _log_ready(clients: Iterable[str], http: str | None, log_dirs: Sequence[str], seconds: float) -> None:
    where, data = ",".join(clients), ",".join(log_dirs)
    lifecycle.info("ready in %.2f s: clients %s, metrics %s, data in %s", seconds, where, http, data)


def _report_ready(
    addresses: Mapping[str, tuple[str, int]],
    http: str | None,
    log_dirs: Sequence[str],
    is_dev: bool,
    seconds: float,
    secured: Mapping[str, str] = MappingProxyType({}),
    security: "DevSecurity | None" = None,
    *,
    is_demo: bool = False,
) -> None:
    """Print that the broker is ready. `secured` are the protocols of listeners that are not PLAINTEXT, by name."""
    lines = [f"trioka {__version__} · ready in {seconds:.2f} s · {_kept(is_dev, log_dirs)} · Ctrl-C stops"]
    for name, (host, port) in addresses.items():
        host = "localhost" if host == LOOPBACK else _bracketed(host)
        label = "Kafka" if len(addresses) == 1 else name
        access = secured.get(name, "any Kafka client, no auth")
        lines.append(f"  {label:<8} {f'{host}:{port}':<26}{access}")
    if http is not None:
        lines.append(f"  Metrics  {http:<33}health /readyz")
    if is_dev:
        host, first = next(iter(addresses.values()))
        host = "localhost" if host == LOOPBACK else _bracketed(host)
        at = "" if (host, first) == ("localhost", DEFAULT_PORT) else f" -b {host}:{first}"
        if security is not None:
            lines += security.lines(f"{host}:{first}")
            at += f" --command-config {security.client_file}"
        message, program = "echo '{\"id\":1}'", _program()
        lines.append(f"  Try      {message} | {program} produce{at} orders      then    {program} consume{at} orders")
        if is_demo:
            lines.append(f"  Demo     {DEMO}; watch it: {program} lag billing -w{at}")
    say("\n".join(lines) + "\n")


def _kept(is_dev: bool, log_dirs: Sequence[str]) -> str:
    """Where the data is, and how much of it fits into memory."""
    if not (is_dev and f"/{TEMP_PREFIX}" in log_dirs[0]):
        return f"data in {', '.join(log_dirs)}"
    if not _is_in_memory(log_dirs):
        return f"data in {log_dirs[0]} until it stops (keep data: --data ./data)"
    free_gb = temp_folders.free_bytes(temp_folders.FAST_FOLDER) / 1e9
    return f"in memory, {free_gb:.1f} GB fit (keep data: --data ./data)"


def _is_in_memory(log_dirs: Sequence[str]) -> bool:
    """Whether the data is in a temporary folder of `dev` that is in memory."""
    return log_dirs[0].startswith(f"{temp_folders.FAST_FOLDER}/{TEMP_PREFIX}")


def _program() -> str:
    """How to call `trioka` in another terminal: by its path if it is not on the PATH."""
    own = Path(sys.executable).with_name("trioka")
    found = shutil.which("trioka")
    if found is not None and (not own.exists() or Path(found).resolve() == own.resolve()):
        return "trioka"
    return str(own) if own.exists() else f"{sys.executable} -m trioka"


def say(text: str) -> None:
    """Print a line; the parent process may have closed the pipe after the first one, which must not end the broker."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


RUN: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {
    "dev": in_log_format(_dev),
    "serve": in_log_format(_serve),
}
