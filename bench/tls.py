"""Measures the cost of TLS: trioka with TLS against Apache Kafka with TLS and against trioka in plaintext.

    python bench/tls.py [--rounds 3] [--seconds 1.5] [--folder DIR] [--warmup 40]

One node of each runs all the time, with the same RSA-2048 certificate. Rounds are interleaved and medians are compared,
as ratios, because other load slows all of them. Kafka is warmed up first. CPU is that of the broker.
"""

import argparse
import contextlib
import json
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from load_generator import arguments_of, program, run_load
from nodes import KAFKA_JVM, CannotStart, _TimedKafka, allow_many_files, end_in_order, wait_for_answers
from oracle import _free_ports, die_with_parent
from request import FETCH_VERSION, PRODUCE_VERSION, a_batch, fetch, framed, produce
from trioka_process import SUPPORTED_APIS

MIB = 1 << 20
GB = 1e9
OURS, THEIRS, PLAIN = "trioka TLS", "Kafka TLS", "trioka plain"
PIPELINED = 50
STORED_BYTES = 256 * MIB
HANDSHAKE_RATE = 200
CLIENTS = 16
QUIET_RATE = 500
IDLE_CONNECTIONS = 1000
BULK_CONNECTIONS = 50
BULK_BYTES = 900_000
TOPIC = "stored"


class _Server(NamedTuple):
    address: str
    pid: int
    tls: bool


PRODUCES: dict[str, dict[str, object]] = {
    "produce 16 KB": {"batch": 16_384},
    "produce 64 KB": {"batch": 65_536},
    "produce 1 MB": {"batch": 1_000_000, "record": 10_000},
    "1 record, 50 in flight": {"batch": 1, "in-flight": PIPELINED, "record": 100},
    "1 record, 32 connections": {"batch": 1, "in-flight": 1, "record": 100, "connections": 32, "partitions": 8},
}
FETCHES: dict[str, dict[str, object]] = {
    "fetch 64 KB": {"size": 65_536},
    "fetch 1 MB": {"size": MIB},
    "fetch 1 MB, 4 connections": {"size": MIB, "connections": 4},
}


def certificate(folder: Path) -> Path:
    """A key and a certificate in one PEM file, by openssl."""
    key, chain, both = folder / "key.pem", folder / "chain.pem", folder / "server.pem"
    subprocess.run(
        [
            *["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "7", "-subj", "/CN=localhost"],
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(chain)),
        ],
        check=True,
        capture_output=True,
    )
    both.write_text(key.read_text() + chain.read_text())
    both.chmod(0o600)
    return both


def listeners(plain: int, secured: int, controller: int, store: Path) -> dict[str, object]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
    }


class TlsKafka(_TimedKafka):
    """Apache Kafka with a TLS listener besides the plaintext one."""

    def __init__(self, parent: Path, store: Path) -> None:
        super().__init__(jvm_options=KAFKA_JVM, parent=parent)
        self._store = store
        (self.secured_port,) = _free_ports(1)

    def _configure(self) -> Path:
        configuration = super()._configure()
        more = listeners(self.port, self.secured_port, self._controller_port, self._store)
        kept = [line for line in configuration.read_text().splitlines() if line.partition("=")[0] not in more]
        configuration.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in more.items()), ""]))
        return configuration


@contextmanager
def trioka(folder: Path, settings: dict[str, object]) -> Iterator[int]:
    """The process of `trioka serve`."""
    wanted = SUPPORTED_APIS | settings | {"log.dirs": folder / "data", "controller.quorum.voters": "1@127.0.0.1:9093"}
    properties = folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in wanted.items()))
    command = [sys.executable, "-m", "trioka", "serve", properties]
    with (
        (folder / "trioka.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent()) as process,
    ):
        port = int(str(settings["advertised.listeners"]).partition(",")[0].rpartition(":")[2])
        if not wait_for_answers(port, process):
            raise CannotStart((folder / "trioka.log").read_text())
        try:
            yield process.pid
        finally:
            process.terminate()


@contextmanager
def nodes(folder: Path) -> Iterator[dict[str, _Server]]:
    store = certificate(folder)
    plain, secured = _free_ports(2)
    kafka = TlsKafka(folder, store)
    try:
        kafka.start()
        with trioka(folder, listeners(plain, secured, 0, store)) as pid:
            yield {
                OURS: _Server(f"127.0.0.1:{secured}", pid, True),
                THEIRS: _Server(f"127.0.0.1:{kafka.secured_port}", kafka.pid, True),
                PLAIN: _Server(f"127.0.0.1:{plain}", pid, False),
            }
    finally:
        kafka.close()


Figures = dict[str, float]  # by name, of one measure


def bulk(command: str, place: _Server, options: dict[str, object], seconds: float) -> Figures:
    more: dict[str, object] = {"topic": TOPIC, "copy": True} if command == "fetch" else {}
    wanted = {"address": place.address, "pid": place.pid, "tls": place.tls, "seconds": seconds, **options, **more}
    found = run_load(command, wanted, seconds=seconds)
    size, cpu, lasted = found["bytes"], found["broker_cpu_seconds"], found["seconds"]
    if size / max(found["requests"], 1) < 1000:
        return {"requests/s": found["requests"] / lasted, "CPU µs/request": cpu / found["requests"] * 1e6}
    return {"MB/s": size / lasted / 1e6, "CPU s/GB": cpu / size * GB}


def handshakes(place: _Server, seconds: float) -> Figures:
    options = {"address": place.address, "pid": place.pid, "tls": place.tls, "seconds": seconds, "rate": 0}
    found = run_load("handshake", {**options, "connections": 4}, seconds=seconds)
    count = found["per_second"] * found["seconds"]
    return {"connects/s": found["per_second"], "CPU ms each": found["broker_cpu_seconds"] / count * 1000}


def latency_under_handshakes(place: _Server, seconds: float) -> Figures:
    """The p99 of a client, without and with connection attempts of 16 other clients."""
    common = {"address": place.address, "tls": place.tls}
    wanted = {**common, "rate": QUIET_RATE, "seconds": seconds, "warmup": 0.5}
    quiet = run_load("latency", wanted, seconds=seconds)
    storm = {**common, "rate": HANDSHAKE_RATE, "connections": CLIENTS, "seconds": seconds + 2, "warmup": 0}
    storming = subprocess.Popen(
        [program(), "handshake", *arguments_of(storm)], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    try:
        busy = run_load("latency", wanted, seconds=seconds)
        text = json.loads(storming.communicate()[0])
    finally:
        storming.kill()
        storming.wait()
    return {
        "quiet p99 ms": quiet["micros"]["p99"] / 1000,
        "p99 ms": busy["micros"]["p99"] / 1000,
        "connects/s meanwhile": text["per_second"],
    }


def anonymous_bytes(pid: int) -> int:
    """Memory of the process without file pages, which a Fetch maps."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def memory(place: _Server, count: int, requests: tuple[bytes, ...]) -> Figures:
    """KB of the broker per connection, after these requests on each."""
    host, _, port = place.address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    before = anonymous_bytes(place.pid)
    with contextlib.ExitStack() as connections:
        for _ in range(count):
            sock: socket.socket = connections.enter_context(socket.create_connection((host, int(port)), 60))
            if place.tls:
                sock = connections.enter_context(context.wrap_socket(sock))
            for request in requests:
                sock.sendall(request)
                with sock.makefile("rb") as stream:
                    stream.read(int.from_bytes(stream.read(4)))
        time.sleep(1)
        return {"KB each": (anonymous_bytes(place.pid) - before) / count / 1024}


def hello() -> bytes:
    return (10).to_bytes(4) + bytes.fromhex("0012 0000 00000001 ffff")


def measures(seconds: float) -> dict[str, Callable[[_Server], Figures]]:
    def row(command: str, options: dict[str, object]) -> Callable[[_Server], Figures]:
        return lambda place: bulk(command, place, options, seconds)

    large = framed(produce(a_batch(1, BULK_BYTES), TOPIC), PRODUCE_VERSION)
    read = framed(fetch(0, MIB, topic=TOPIC), FETCH_VERSION)
    return {
        **{name: row("produce", options) for name, options in PRODUCES.items()},
        **{name: row("fetch", options) for name, options in FETCHES.items()},
        "handshakes, 4 clients": lambda place: handshakes(place, seconds),
        f"another client under {HANDSHAKE_RATE} connects/s": lambda place: latency_under_handshakes(place, 2 * seconds),
        f"memory of {IDLE_CONNECTIONS} idle": lambda place: memory(place, IDLE_CONNECTIONS, (hello(),)),
        f"memory of {BULK_CONNECTIONS} after 1 MB both ways": lambda place: memory(
            place, BULK_CONNECTIONS, (hello(), large, read)
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--warmup", type=float, default=40)
    parser.add_argument("--folder")
    parser.add_argument("--only", default="", help="measures that have this in their name")
    chosen = parser.parse_args()
    allow_many_files()
    end_in_order()
    program()
    with tempfile.TemporaryDirectory(dir=chosen.folder, ignore_cleanup_errors=True) as name, nodes(Path(name)) as found:
        for place in found.values():
            with contextlib.suppress(Exception):  # both listeners of a node have the same topics
                run_load(
                    "fill",
                    {"address": place.address, "tls": place.tls, "topic": TOPIC, "max-bytes": STORED_BYTES},
                    seconds=60,
                )
        warm = chosen.warmup / 2
        for command, options in (("produce", PRODUCES["produce 16 KB"]), ("fetch", FETCHES["fetch 64 KB"])):
            if warm:
                bulk(command, found[THEIRS], options, warm)
        for title, measure in measures(chosen.seconds).items():
            if chosen.only in title:
                report(title, {who: [] for who in found}, found, measure, chosen.rounds)


def report(
    title: str,
    taken: dict[str, list[Figures]],
    places: dict[str, _Server],
    measure: Callable[[_Server], Figures],
    rounds: int,
) -> None:
    for _ in range(rounds):
        for who, place in places.items():
            taken[who].append(measure(place))
    middle: dict[str, dict[str, Any]] = {
        who: {name: statistics.median(each[name] for each in figures) for name in figures[0]}
        for who, figures in taken.items()
    }
    for name, ours in middle[OURS].items():
        others = [f"{middle[who][name]:9.2f}" for who in (THEIRS, PLAIN)]
        ratios = [f"{ours / middle[who][name]:5.2f}×" if middle[who][name] else "    –" for who in (THEIRS, PLAIN)]
        print(
            f"{title:40} {name:22} {ours:9.2f} {others[0]} {others[1]}   : Kafka TLS {ratios[0]}  : plain {ratios[1]}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
