"""`trioka produce` against brokers that are killed, restart or refuse, and with Ctrl-C."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import pytest
from kafka.partitioner.default import murmur2
from support.command_line import command

from trioka.cli.producer.lines import LineReader
from trioka.cli.terminal.failure import Exit
from trioka.cli.topics import produce
from trioka.testing import Broker, Cluster, Record

TOPIC: Final = "lines"
WAIT_S: Final = 60.0
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def numbers_by_partition(records: Sequence[Record]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for each in records:
        found.setdefault(each.partition, []).append(int(each.value or b""))
    return found


def begin(at: str, *flags: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "trioka", "produce", TOPIC, "-b", at, "--timeout", "60s", *flags]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def produce_numbers(process: "subprocess.Popen[bytes]", count: int, harm: Callable[[], object]) -> None:
    """The harm is done after a third of the numbers; part of them are in flight then."""
    assert process.stdin is not None and process.stderr is not None
    for number in range(count):
        process.stdin.write(b"%d\n" % number)
        if number == count // 3:
            process.stdin.flush()
            harm()
    process.stdin.close()
    assert process.wait(WAIT_S) == Exit.OK, process.stderr.read()
    process.stderr.close()


def assert_each_once_and_in_order(records: Sequence[Record], count: int) -> None:
    found = numbers_by_partition(records)
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sorted(chain.from_iterable(found.values())) == list(range(count))


@pytest.mark.slow
def test_a_leader_that_is_killed_costs_no_line_and_repeats_none() -> None:
    with Cluster(nodes=3) as cluster:
        cluster.create_topic(TOPIC, 2)
        first = cluster.leader(TOPIC, 0)
        with begin(cluster.address(first)) as process:  # the only bootstrap server is the one that dies
            produce_numbers(process, 60_000, lambda: cluster.kill(first))
        assert_each_once_and_in_order(cluster.records(TOPIC), 60_000)


@pytest.mark.slow
def test_a_broker_that_restarts_costs_no_line_and_repeats_none() -> None:
    with Broker() as broker:
        broker.create_topic(TOPIC, 3)
        with begin(broker.bootstrap_servers, "-z", "lz4") as process:
            produce_numbers(process, 60_000, broker.restart)
        assert_each_once_and_in_order(broker.records(TOPIC), 60_000)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_a_line_is_sent_at_once_while_the_input_stays_open(broker: Broker) -> None:
    broker.create_topic(TOPIC, 1)
    with begin(broker.bootstrap_servers) as process:
        assert process.stdin is not None
        for count, line in enumerate([b"1\n", b"2\n"], 1):
            process.stdin.write(line)
            process.stdin.flush()
            assert len(broker.consume(TOPIC, count)) == count
        process.stdin.close()
        assert process.wait(WAIT_S) == Exit.OK
        assert process.stderr is not None and process.stderr.read() == b""


class Interrupted(LineReader):
    """Ctrl-C arrives with the third line; nothing ends the input."""

    count = 0

    def read(self) -> list[bytes]:
        self.count += 1
        if self.count == 3:
            signal.raise_signal(signal.SIGINT)
        return [b"%d" % self.count]


def test_ctrl_c_sends_what_was_read(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("interrupted", 1)
    monkeypatch.setattr(produce, "LineReader", Interrupted)
    before = signal.getsignal(signal.SIGINT)
    assert command("produce", "interrupted", at=broker.bootstrap_servers).code == Exit.INTERRUPTED
    assert numbers_by_partition(broker.records("interrupted")) == {0: [1, 2, 3]}
    assert signal.getsignal(signal.SIGINT) is before


def test_a_line_that_is_too_large_costs_no_other(broker: Broker) -> None:
    broker.create_topic("narrow", 1, **{"max.message.bytes": 2000})
    lines = [b"%d" % number for number in range(3000)]
    data = b"\n".join([*lines[:1000], b"x" * 5000, *lines[1000:]])
    ended = command("produce", "narrow", at=broker.bootstrap_servers, stdin=data)
    assert ended.code == Exit.PARTLY
    assert "error: a record of 'narrow' partition 0 not written" in ended.stderr
    assert "MESSAGE_TOO_LARGE" in ended.stderr and "1 of 3001 records" in ended.stderr
    assert [each.value for each in broker.records("narrow")] == lines


def test_a_line_without_a_key_is_named_by_a_compacted_topic_and_costs_no_other(broker: Broker) -> None:
    broker.create_topic("compacted", 1, **{"cleanup.policy": "compact"})
    data = b"".join(b"%d=v\n" % number for number in range(100)) + b"no key\n" + b"100=v\n"
    ended = command("produce", "compacted", "-K", "=", at=broker.bootstrap_servers, stdin=data)
    assert ended.code == Exit.PARTLY and "1 of 102 records" in ended.stderr
    assert [int(each.key or b"") for each in broker.records("compacted")] == list(range(101))


@pytest.mark.parametrize("codec", CODECS)
def test_keys_choose_partitions_as_other_clients_do(broker: Broker, codec: str) -> None:
    topic = f"keyed-{codec}"
    broker.create_topic(topic, 5)
    data = b"".join(b"key %d=%d\n" % (number % 40, number) for number in range(400))
    assert command("produce", topic, "-K", "=", "-z", codec, at=broker.bootstrap_servers, stdin=data).code == Exit.OK
    records = broker.records(topic)
    assert len(records) == 400
    for each in records:
        assert each.partition == (murmur2(each.key) & 0x7FFFFFFF) % 5
    assert all(numbers == sorted(numbers) for numbers in numbers_by_partition(records).values())


def test_lines_are_written_over_tls_with_a_login(tmp_path: Path) -> None:
    with Broker(tls=True, sasl=True) as broker:
        broker.create_topic(TOPIC, 2)
        file = tmp_path / "client.properties"
        config = broker.client_config("java")
        file.write_text("".join(f"{key}={value}\n" for key, value in config.items() if key != "bootstrap.servers"))
        flags = ("--command-config", str(file))
        data = b"".join(b"%d\n" % number for number in range(50_000))
        ended = command("produce", TOPIC, *flags, at=broker.bootstrap_servers, stdin=data)
        assert ended.code == Exit.OK, ended.stderr
        read = command("consume", TOPIC, "-e", "-g", "g", *flags, at=broker.bootstrap_servers)
        assert sorted(map(int, read.out.split())) == list(range(50_000))


def test_a_user_who_may_not_write_gets_one_sentence(tmp_path: Path) -> None:
    with Broker(sasl=True) as broker:
        broker.create_topic(TOPIC, 1)
        broker.create_topic("mine", 1)
        config = broker.client_config("java")
        (tmp_path / "admin").write_text("".join(f"{key}={value}\n" for key, value in config.items() if "." in key))
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        (tmp_path / "eve").write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={module} username="eve" password="pw";\n'
        )
        admin, eve = (("--command-config", str(tmp_path / name)) for name in ("admin", "eve"))
        at = broker.bootstrap_servers
        assert command("user", "create", "eve", *admin, at=at, stdin=b"pw\n").code == Exit.OK
        assert command("acl", "add", "User:eve", "describe", f"topic:{TOPIC}", *admin, at=at).code == Exit.OK
        without = command("produce", TOPIC, *eve, at=at, stdin=b"a\n")
        assert without.code == Exit.UNAUTHORISED and "gives no producer id" in without.stderr
        assert command("acl", "add", "User:eve", "write", "topic:mine", *admin, at=at).code == Exit.OK
        for acks in ("all", "1"):
            ended = command("produce", TOPIC, "--acks", acks, *eve, at=at, stdin=b"a\nb\n")
            assert ended.code == Exit.UNAUTHORISED and "2 of 2 records were not written" in ended.stderr
            assert f"'{TOPIC}' partition 0 is not written to any more" in ended.stderr
        assert command("produce", "mine", *eve, at=at, stdin=b"a\n").code == Exit.OK
