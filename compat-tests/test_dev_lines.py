"""Each line that `trioka dev --tls --sasl` prints for a client is run by that client, as a reader would copy it."""

import gc
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import toolchains
from confluent_kafka import Producer
from kafka import KafkaProducer
from oracle import run_tool
from support.command_line import command, home
from support.dev_process import PASSWORD, dev

from trioka.cli.terminal.failure import Exit
from trioka.pipeline.installation.cache import Unavailable

__all__ = ["home"]

PATIENCE_S = 60
CLIENT_LINE = re.compile(r"(?m)^  (kafka-python|confluent-kafka|Java|kcat) +(.*)$")


class Printed(NamedTuple):
    """`lines` by client, with the password where they say PASSWORD."""

    address: str
    config: Path
    lines: dict[str, str]

    @property
    def records(self) -> int:
        """The records in the topic orders."""
        read = ("consume", "orders", "--from-beginning", "--exit", "-f", "json")
        ended = command(*read, "--command-config", str(self.config), at=self.address)
        assert ended.code == Exit.OK, ended
        return len(ended.out.splitlines())


@pytest.fixture(scope="module", params=["--tls --sasl", "--tls", "--sasl"])
def printed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Printed]:
    data = tmp_path_factory.mktemp("dev") / "data"
    with dev(data, *request.param.split(), "--topic", "orders:1") as (address, text):
        password = "".join(PASSWORD.findall(text))
        lines = {client: line.replace("PASSWORD", password) for client, line in CLIENT_LINE.findall(text)}
        assert len(lines) == 4
        yield Printed(address, data / "client.properties", lines)


# kafka-python leaves a socket of its bootstrap connection to the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_kafka_python(printed: Printed) -> None:
    before = printed.records
    producer = eval(printed.lines["kafka-python"], {"KafkaProducer": KafkaProducer})
    producer.send("orders", b"1").get(timeout=PATIENCE_S)
    producer.close()
    gc.collect()
    assert printed.records == before + 1


def test_confluent_kafka(printed: Printed) -> None:
    before = printed.records
    producer = eval(printed.lines["confluent-kafka"], {"Producer": Producer})
    producer.produce("orders", b"1")
    assert producer.flush(PATIENCE_S) == 0
    assert printed.records == before + 1


def test_java(printed: Printed, apache_kafka: None) -> None:
    script, *arguments = shlex.split(printed.lines["Java"])
    assert script == "kafka-topics.sh"
    assert run_tool("org.apache.kafka.tools.TopicCommand", *arguments).split() == ["orders"]


def test_kcat(printed: Printed) -> None:
    try:
        program = toolchains.kcat()
    except Unavailable as missing:
        toolchains.unavailable(missing)
    words = shlex.split(printed.lines["kcat"])
    assert words[0] == "kcat"
    ended = subprocess.run([program, *words[1:]], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0 and 'topic "orders"' in ended.stdout, ended.stderr
