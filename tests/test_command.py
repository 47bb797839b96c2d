"""The `trioka` command, as a person or a script runs it: it starts, says where it is, stops, and survives kill -9."""

import json
import os
import platform
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from support.serving import SETTINGS, Client

from trioka import __version__
from trioka.cli.node.server import _http_listeners
from trioka.protocol import batch
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record

COMMAND = [sys.executable, "-m", "trioka"]
# The command, and whether the collector is on when modules are loaded, when a port is opened, and at the end.
WATCHED = """
import gc, sys
from trioka.__main__ import main
def note(event, arguments):
    if (event == "import" and arguments[0] == "trioka.broker.broker") or event == "socket.bind":
        print(event, gc.isenabled(), file=sys.stderr, flush=True)
sys.addaudithook(note)
try:
    main(sys.argv[1:])
finally:
    print("end", gc.isenabled(), file=sys.stderr)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


class Running:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline() + self.process.stdout.readline()
        found = re.search(r"localhost:(\d+)", self.said)
        assert found is not None, self.said + str(self.process.stderr and self.process.stderr.read())
        self.port = int(found[1])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        self.process.communicate(timeout=60)
        return self.process.returncode


def until_it_listens(pid: int) -> None:
    for _ in range(600):
        if any(each.status == psutil.CONN_LISTEN for each in psutil.Process(pid).net_connections("tcp")):
            return
        time.sleep(0.1)
    raise AssertionError("it does not listen")


@contextmanager
def running(*arguments: str) -> Iterator[Running]:
    broker = Running(*arguments)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.stop(signal.SIGKILL)


def produce(client: Client, value: bytes) -> int:
    records = bytes(batch.build([Record(0, 1_700_000_000_000, None, value)]))
    partition = ProduceRequest.Topic.Partition(index=0, records=records)
    topics = [ProduceRequest.Topic(name="orders", partition_data=[partition])]
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9)
    result = answer.responses[0].partition_responses[0]
    assert result.error_code == 0
    return int(result.base_offset)


def consume(client: Client) -> list[bytes | None]:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchRequest.Topic(topic="orders", partitions=[partition])]
    answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), 11)
    records = answer.responses[0].partitions[0].records
    return [record.value for header in batch.headers(records) for record in batch.records(records, header)]


def test_a_broker_whose_only_disk_fails_ends_with_a_sentence_and_exit_code_1(tmp_path: Path) -> None:
    with running("dev", "--port", "0", "--data", str(tmp_path), "--topic", "orders:1") as broker:
        with closing(Client("127.0.0.1", broker.port)) as client:
            assert produce(client, b"1") == 0
            resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (1, 1))  # no file can grow any more
            with pytest.raises(AssertionError):
                produce(client, b"2")
        _, text = broker.process.communicate(timeout=60)
    assert broker.process.returncode == 1
    error, hint = text.splitlines()[-2:]
    assert error.startswith(f"error: this node has ended: the log directory of the metadata, {tmp_path}, is offline: ")
    assert hint.strip() == "mend or replace the disk, then start the node again"
    assert "Traceback" not in text


def test_dev_says_where_it_is_and_stops_cleanly(tmp_path: Path) -> None:
    with running("dev", "--port", "0", "--data", str(tmp_path), "--topic", "orders:2") as broker:
        first, second = broker.said.splitlines()
        assert re.fullmatch(rf"trioka {__version__} · ready in \d+\.\d\d s · data in {tmp_path} · Ctrl-C stops", first)
        assert second.split() == ["Kafka", f"localhost:{broker.port}", "any", "Kafka", "client,", "no", "auth"]
        assert broker.process.stdout is not None
        third = broker.process.stdout.readline()
        assert re.fullmatch(r"  Metrics  http://localhost:\d+/metrics {3,4}health /readyz\n", third)
        fourth = broker.process.stdout.readline()
        assert re.match(r"""  Try      echo '\{"id":1\}' \| (\S*/)?trioka produce -b localhost:""", fourth)
        assert broker.stop() == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "orders-1").is_dir()


def test_a_demonstration_has_orders_that_come_and_a_group_that_reads_them(tmp_path: Path) -> None:
    with running("dev", "--port", "0", "--http-port", "off", "--data", str(tmp_path), "--demo") as broker:
        at = ("-b", f"localhost:{broker.port}")
        assert broker.process.stdout is not None
        assert broker.process.stdout.readline().startswith("  Try ")
        assert re.fullmatch(
            r"  Demo     writes customers once and orders all the time, which the group billing reads; "
            rf"watch it: (\S*/)?trioka lag billing -w -b localhost:{broker.port}\n",
            broker.process.stdout.readline(),
        )
        orders = run("consume", "orders", "-n", "5", *at)  # it waits until they are there
        assert orders.returncode == 0, orders
        assert all(json.loads(line)["cents"] > 0 for line in orders.stdout.splitlines())
        for _ in range(600):
            members = run("groups", "describe", "billing", "--members", "-o", "json", *at)
            if members.returncode == 0 and json.loads(members.stdout):
                break
        assert json.loads(members.stdout)[0]["partitions"] == ["orders:0", "orders:1", "orders:2"]
        assert broker.stop() == 0


@pytest.mark.parametrize(("nodes", "loading"), [("1", ["import False"]), ("2", [])], ids=["a broker", "only a parent"])
def test_the_collector_rests_while_modules_are_loaded_and_is_on_before_anything_is_done(
    tmp_path: Path, nodes: str, loading: list[str]
) -> None:
    arguments = ["dev", "--port", "0", "--http-port", "off", "--data", str(tmp_path), "--nodes", nodes]
    command = [sys.executable, "-c", WATCHED, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline()
    process.terminate()
    _, notes = process.communicate(timeout=60)
    *done, last = notes.splitlines()
    assert done[: len(loading)] == loading
    assert set(done[len(loading) :]) == {"socket.bind True"}
    assert last == "end True"


@pytest.mark.parametrize(
    "arguments",
    [["serve", "--check"], ["serve", "no-such-file"], ["dev", "--topic", ":"], ["dev", "--nodes", "1000"]],
    ids=["only checked", "no file", "no topic", "too many nodes"],
)
def test_the_collector_is_on_again_also_if_no_broker_was_started(arguments: list[str]) -> None:
    result = subprocess.run([sys.executable, "-c", WATCHED, *arguments], capture_output=True, text=True, check=False)
    assert result.stderr.splitlines()[-1] == "end True"


def test_dev_without_data_leaves_nothing_behind() -> None:
    with running("dev", "--port", "0") as broker:
        assert "in memory" in broker.said
        folders = folders_of(broker.process.pid)
        assert len(folders) == 1 and all(folder.is_dir() for folder in folders)
        assert broker.stop(signal.SIGINT) == 0
    assert not any(folder.exists() for folder in folders)


def folders_of(pid: int) -> set[Path]:
    """In memory, and its own: others may come and go meanwhile."""
    opened = {each.path for each in psutil.Process(pid).open_files()}
    return {Path(*Path(path).parts[:4]) for path in opened if path.startswith("/dev/shm/trioka-")}


def test_a_broker_whose_output_is_closed_serves_on_and_stops_cleanly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen([*COMMAND, "dev", "--port", "0"], stdout=writing)
    os.close(writing)
    try:
        until_it_listens(process.pid)
        process.terminate()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()


def test_nothing_that_was_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    values: list[bytes | None] = []
    for life in range(3):
        with running("dev", "--port", "0", "--data", str(tmp_path), "--topic", "orders:1") as broker:
            client = Client("127.0.0.1", broker.port)
            assert consume(client) == values
            for number in range(20):
                value = b"%d of life %d" % (number, life)
                assert produce(client, value) == len(values)  # offsets go on where they were
                values.append(value)
            client.close()
            broker.stop(signal.SIGKILL)
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with running("dev", "--port", "0", "--data", str(tmp_path)) as broker:
        client = Client("127.0.0.1", broker.port)
        assert consume(client) == values
        client.close()


def test_a_busy_port_is_named_with_its_owner(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        answer = run("dev", "--port", str(port), "--data", str(tmp_path))
    assert answer.returncode == 1
    assert f"error: port {port} is taken by process " in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_busy_configured_http_port_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        answer = run("dev", "--port", "0", "--http-port", str(port), "--data", str(tmp_path))
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"error: port {port} is taken by process ")
    assert answer.stderr.endswith("; choose another with --http-port.\n")


def test_a_busy_default_http_port_is_a_note_and_another_is_taken(tmp_path: Path) -> None:
    assert _http_listeners(9092, None) == "127.0.0.1:10092,127.0.0.1:0"
    assert _http_listeners(0, None) == _http_listeners(65000, None) == "127.0.0.1:0"
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        overrides = {**SETTINGS, "log.dirs": str(tmp_path), "trioka.http.listeners": f":{taken},:0"}
        words = [word for key, value in overrides.items() for word in ("--override", f"{key}={value}")]
        with running("serve", *words) as broker:
            assert broker.process.stdout is not None
            found = re.search(r"http://localhost:(\d+)/metrics", broker.process.stdout.readline())
            assert found is not None and int(found[1]) != taken
            broker.process.terminate()
            _, talk = broker.process.communicate(timeout=60)
            assert any(line.startswith(f"note: port {taken} is taken by process ") for line in talk.splitlines())
            assert broker.process.returncode == 0


def test_without_http_there_is_no_line_about_it(tmp_path: Path) -> None:
    with running("dev", "--port", "0", "--http-port", "off", "--data", str(tmp_path)) as broker:
        assert broker.process.stdout is not None
        assert broker.process.stdout.readline().startswith("  Try ")


def test_a_broker_logs_json_without_a_terminal_and_prints_the_same_on_standard_output(tmp_path: Path) -> None:
    with running("dev", "--port", "0", "--data", str(tmp_path), "--log-level", "info") as broker:
        broker.process.terminate()
        _, talk = broker.process.communicate(timeout=60)
    lines = [json.loads(line) for line in talk.splitlines()]
    ready, stopping, stopped = (line for line in lines if line["event"].startswith("broker."))
    assert (ready["event"], ready["level"], ready["node"]) == ("broker.ready", "info", 1)
    assert (stopping["event"], stopped["event"]) == ("broker.stopping", "broker.stopped")


def test_two_brokers_do_not_share_a_directory(tmp_path: Path) -> None:
    with running("dev", "--port", "0", "--data", str(tmp_path)) as first:
        answer = run("dev", "--port", "0", "--data", str(tmp_path))
        assert answer.returncode == 1
        assert answer.stderr == f"error: {tmp_path} is in use by another process.\n"
        assert first.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["serve", "--override", "node.id=first"],
            "error: Invalid value 'first' for configuration node.id: it must be a 32-bit integer.",
        ),
        (["serve", "no-such-file"], "error: no-such-file cannot be read: No such file or directory."),
        (["serve"], "error: process.roles is not set"),
        (["dev", "--topic", "orders:many"], "error: --topic orders:many must be NAME or NAME:PARTITIONS"),
        (["dev", "--http-port", "many"], "error: --http-port many must be a port, such as 10092, or off."),
    ],
)
def test_a_wrong_start_is_one_sentence(arguments: list[str], sentence: str) -> None:
    answer = run(*arguments)
    assert answer.returncode == 1
    assert answer.stderr.startswith(sentence)
    assert all(line.startswith("error: ") for line in answer.stderr.splitlines())


def test_serve_reads_kafkas_properties(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=4\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:0\ncontroller.quorum.voters=4@localhost:9093\n"
        f"log.dirs={tmp_path}/a,{tmp_path}/b\nnum.partitons=3\n"
    )
    assert "did you mean num.partitions" in run("serve", str(properties), "--check").stderr
    with running("serve", str(properties), "--override", "num.partitions=4") as broker:
        assert broker.stop() == 0
    assert "node.id=4" in (tmp_path / "b" / "meta.properties").read_text()


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("SASL_SSL", "sasl.enabled.mechanisms is not set, and its default for the listener EXTERNAL is GSSAPI"),
        ("SSL", "The listener EXTERNAL uses TLS, but has no certificate"),
    ],
)
def test_what_cannot_be_secured_is_not_served(tmp_path: Path, protocol: str, reason: str) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=EXTERNAL://:0,CONTROLLER://localhost:0\ncontroller.quorum.voters=1@localhost:9093\n"
        f"listener.security.protocol.map=EXTERNAL:{protocol},CONTROLLER:PLAINTEXT\n"
        f"inter.broker.listener.name=EXTERNAL\nlog.dirs={tmp_path}/data\n"
    )
    for arguments in (
        ["serve", str(properties)],
        ["serve", str(properties), "--check"],
        ["config", "lint", str(properties)],
    ):
        answer = run(*arguments)
        assert answer.returncode == 1, arguments
        assert reason in answer.stderr
        assert answer.stderr.count("\n") == 1 and not answer.stdout
    assert not (tmp_path / "data").exists()


def test_help_and_version_are_there() -> None:
    text = run("--version").stdout
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    assert text == f"trioka {__version__}, Python {platform.python_version()}, {system}\n"
    assert "dev" in run("--help").stdout
    assert run("unheard-of").returncode == 2
