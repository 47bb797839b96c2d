"""The recipes of docs/SECURITY.md are followed from top to bottom, each in a folder of its own with real processes, and
a cluster is moved from PLAINTEXT to SASL_SSL as the page says while a producer writes.

A block that begins with the name of a file is saved under it; `# more of …` is appended. Ports and the names of
machines are replaced by free ports of this machine.
"""

import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from support.command_line import home
from support.doc_commands import CODE, install_commands

from trioka.cli.client.connection import free_ports
from trioka.cli.node.certificates import make_certificates

__all__ = ["home"]

PATIENCE_S = 120
PAGE = Path(__file__).resolve().parents[3] / "docs" / "SECURITY.md"
BLOCK = re.compile(r"^```(sh|properties)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# (more of |)(\S+\.properties)\n")
PORTS = ("9092", "9093", "9094")
MIGRATION = "From PLAINTEXT to SASL_SSL without downtime"
NODES = (1, 2, 3)


def chapters() -> dict[str, str]:
    """The text below each heading. A recipe is a chapter with commands."""
    pieces = re.split(r"(?m)^#{2,3} (.*)$", PAGE.read_text(encoding="utf-8"))
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


RECIPES = [name for name, text in chapters().items() if "```sh\n" in text and name not in ("Certificates", MIGRATION)]


class Machine:
    """A folder, the nodes that run in it, and what the page calls by another name."""

    def __init__(self, folder: Path, names: dict[str, str]) -> None:
        self._folder = folder
        self._names = names
        self._running: dict[str, subprocess.Popen[str]] = {}

    def save(self, name: str, text: str, *, append: bool = False) -> None:
        with (self._folder / name).open("a" if append else "w") as file:
            file.write(self.here(text))

    def here(self, text: str) -> str:
        for name, real in self._names.items():
            text = text.replace(name, real)
        return text

    def follow(self, text: str) -> None:
        for language, block in BLOCK.findall(text):
            if language == "sh":
                for line in block.splitlines():
                    self.type(line)
            elif named := NAMED.match(block):
                self.save(named[2], block, append=bool(named[1]))

    def type(self, line: str) -> None:
        code = CODE.search(line)
        line = self.here(CODE.sub("", line))
        if line == "trioka serve server.properties":
            self.start("server.properties")
            return
        ended = subprocess.run(["sh", "-c", line], cwd=self._folder, capture_output=True, text=True, timeout=PATIENCE_S)
        message = f"{line!r} ended with {ended.returncode}\n{ended.stdout}{ended.stderr}"
        assert ended.returncode == (int(code[1]) if code else 0), message
        assert "Traceback" not in ended.stderr, message

    def start(self, properties: str) -> None:
        log = (self._folder / f"{properties}.log").open("a")
        process = subprocess.Popen(
            [sys.executable, "-m", "trioka", "serve", properties, "--override", "trioka.http.listeners="],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        self._running[properties] = process
        assert process.stdout is not None
        message = process.stdout.readline()
        assert "ready in" in message, (self._folder / f"{properties}.log").read_text()

    def stop(self, properties: str) -> None:
        process = self._running.pop(properties)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0

    def end(self) -> None:
        for process in self._running.values():
            process.kill()
            process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine with the base of each recipe: the first lines of server.properties and the certificates."""
    install_commands(home, monkeypatch)
    found = Machine(home, dict(zip(PORTS, map(str, free_ports("127.0.0.1", len(PORTS))), strict=True)))
    try:
        found.follow(chapters()["Recipes"])
        found.follow(chapters()["Certificates"])
        yield found
    finally:
        found.end()


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_recipe_works_as_it_is_written(recipe: str, machine: Machine) -> None:
    machine.follow(chapters()[recipe])


def test_every_mechanism_has_a_recipe() -> None:
    assert {"TLS", "mTLS", "PLAIN", "SCRAM", "Delegation tokens", "OAUTHBEARER", "Between nodes"} <= set(RECIPES)
    assert "Access control lists" in RECIPES


def test_every_link_within_the_page_leads_somewhere() -> None:
    text = PAGE.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"(?m)^#{2,3} (.*)$", text)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= headings


# -- the migration -----------------------------------------------------------------------------------------------------


class Writer:
    """A producer that writes numbers in a thread of its own, until it is stopped."""

    def __init__(self, first: int, settings: dict[str, str]) -> None:
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self.next = first
        self._ended = threading.Event()
        self._producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 1})
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        while not self._ended.is_set():
            number = self.next
            self._producer.produce("orders", b"%d" % number, on_delivery=self._delivered)
            self.next += 1
            self._producer.poll(0.005)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(int(message.value() or b""))
        else:
            self.refused.append(str(error))

    def wait_for_more(self) -> None:
        """Until something that is written from now on is acknowledged."""
        first, deadline = self.next, time.monotonic() + PATIENCE_S
        while not self.acknowledged or self.acknowledged[-1] < first:
            assert time.monotonic() < deadline and not self.refused, self.refused
            time.sleep(0.05)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0


@pytest.fixture
def three_machines(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    install_commands(home, monkeypatch)
    ports = iter(free_ports("127.0.0.1", len(NODES) * len(PORTS)))
    names = {f"kafka-{node}:{port}": f"localhost:{next(ports)}" for node in NODES for port in PORTS}
    found = Machine(home, names)
    made = make_certificates()
    found.save("server.pem", made.identity)
    found.save("ca.pem", made.authority)
    try:
        yield found
    finally:
        found.end()


def of_node(text: str, node: int) -> str:
    """The lines of node 1, for another. The voters are the same."""
    own = re.compile(r"(?<=kafka-)1|(?<=data-)1|(?<=node\.id=)1")
    return "".join(
        line if line.startswith("controller.quorum.voters") else own.sub(str(node), line)
        for line in text.splitlines(keepends=True)
    )


def roll(machine: Machine, lines: str, healthy: Sequence[str]) -> None:
    """Each node gets the lines, one after the other. A later value of a key wins."""
    for node in NODES:
        machine.stop(f"node-{node}.properties")
        machine.save(f"node-{node}.properties", of_node(lines, node), append=True)
        machine.start(f"node-{node}.properties")
        for line in healthy:
            machine.type(line)


def test_a_cluster_moves_to_sasl_ssl_while_a_producer_writes(
    three_machines: Machine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = three_machines
    blocks = [text for _, text in BLOCK.findall(chapters()[MIGRATION])]
    before, step_1, healthy, step_2, users, client, step_4, secured = blocks
    for node in NODES:
        machine.save(f"node-{node}.properties", of_node(before, node))
    for node in NODES:
        machine.type(f"trioka storage format -t 4L6g3nShT-eMCtK--X86sw -c node-{node}.properties")
    starting = [threading.Thread(target=machine.start, args=(f"node-{node}.properties",)) for node in NODES]
    for each in starting:
        each.start()
    for each in starting:
        each.join()
    machine.type(healthy.strip())
    plain = "kafka-1:9092,kafka-2:9092,kafka-3:9092"
    machine.type(f"trioka topics create orders --partitions 3 --replication-factor 3 -b {plain}")
    first = Writer(0, {"bootstrap.servers": machine.here(plain)})
    try:
        first.wait_for_more()
        roll(machine, step_1, [healthy.strip()])
        roll(machine, step_2, [healthy.strip()])
        first.wait_for_more()
        machine.type(users.strip())
        machine.save("client.properties", client)
        settings = {
            "bootstrap.servers": machine.here("kafka-1:9094,kafka-2:9094,kafka-3:9094"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(home / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "app",
            "sasl.password": "app-secret",
        }
    finally:
        first.end()
    second = Writer(first.next, settings)
    try:
        second.wait_for_more()
        roll(machine, step_4, [secured.strip()])
        second.wait_for_more()
    finally:
        second.end()
    assert first.refused + second.refused == []
    assert Counter(stored(settings, second.next)) == Counter(range(second.next))
    machine.type(f"trioka topics list -b {plain} --timeout 5s  # exit code 3")


def stored(settings: dict[str, str], count: int) -> list[int]:
    """The values of the topic, of which there are `count`."""
    reading = {"group.id": "reader", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer({**settings, **reading})
    consumer.subscribe(["orders"])
    found: list[int] = []
    ends = 0
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count or ends < len(NODES):
        assert time.monotonic() < deadline, f"{len(found)} of {count} records were read"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(int(message.value() or b""))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ends += 1
    consumer.close()
    return found


def test_the_certificates_of_the_page_pass_a_strict_verification(tmp_path: Path) -> None:
    """That of Python 3.13, with which many clients verify them."""
    Machine(tmp_path, {}).follow(chapters()["Certificates"])
    command = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.pem", "server.crt"]
    verified = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
