"""A broker for a test: it serves, in a thread or a process, and nothing is left of it, whatever happens."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer

from trioka.cli.client import offsets
from trioka.cli.client.cluster_client import Kafka, TopicPartition
from trioka.cli.client.offsets import OffsetResult
from trioka.protocol.errors import CorruptMessage, TopicAlreadyExists, UnknownTopicOrPartition
from trioka.testing import Broker, Unresponsive, client, temp_dirs
from trioka.testing.loop import Loop
from trioka.testing.temp_dirs import FAST_FOLDER, PREFIX

PATIENCE_S = 60.0
BOTH = pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])


def folders(pid: int | str = os.getpid()) -> set[str]:
    return {str(path) for path in Path(FAST_FOLDER).glob(f"{PREFIX}{pid}-*")}


def brokers_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("trioka")]


def sending(kafka: Broker, topic: str, value: bytes) -> Producer:
    """A producer that has begun to send. (librdkafka's: kafka-python leaves sockets open when no server listens.)"""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "reconnect.backoff.max.ms": 100})
    producer.produce(topic, value)
    return producer


def is_reached(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S):
            return True
    except ConnectionRefusedError:
        return False


@pytest.fixture
def nothing_left() -> Iterator[None]:
    threads, before = set(brokers_threads()), folders()
    yield
    assert set(brokers_threads()) == threads
    assert folders() == before


@BOTH
def test_a_broker_serves_while_its_block_lasts_and_leaves_nothing(process: bool, nothing_left: None) -> None:
    with Broker(process=process, num_partitions=3) as kafka:
        assert is_reached(kafka.bootstrap_servers)
        assert kafka.create_topic("orders", partitions=2, cleanup_policy="compact") == "orders"
        assert kafka.produce("orders", "a", b"b", key="k", partition=1) == [0, 1]
        assert [(each.partition, each.key, each.value) for each in kafka.records("orders")] == [
            (1, b"k", b"a"),
            (1, b"k", b"b"),
        ]
        address = kafka.bootstrap_servers
    assert not is_reached(address)
    assert not kafka.is_running


def test_what_fails_in_the_block_is_raised_as_it_is_and_nothing_is_left(nothing_left: None) -> None:
    with pytest.raises(ZeroDivisionError), Broker():
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ({"num_partitions": "many"}, r"num\.partitions"),
        ({"num_partitons": 3}, r"configuration key num\.partitons.*num\.partitions"),
        ({"log_dirs": "elsewhere"}, r"log\.dirs is chosen"),
        ({"process": True, "num_partitions": "many"}, r"num\.partitions"),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_nothing_is_left(
    configs: dict[str, Any], why: str, nothing_left: None
) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        Broker(**configs).start()
    assert "\n" not in str(caught.value)


def test_ctrl_c_ends_a_start_that_hangs(nothing_left: None) -> None:
    """In a process of its own, since it is interrupted."""
    script = """
import os, signal, threading, trio
from trioka.testing.loop import Loop
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where this runs in the background

async def serve(*, task_status):
    os.kill(os.getpid(), signal.SIGINT)
    await trio.sleep_forever()

try:
    Loop(serve, name="trioka-hanging").start()
except KeyboardInterrupt:
    print([thread.name for thread in threading.enumerate() if thread.name.startswith("trioka")])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_ctrl_c_in_the_block_and_a_broker_that_is_not_stopped_leave_nothing() -> None:
    script = """
import os, signal
from trioka.testing import Broker
signal.signal(signal.SIGINT, signal.default_int_handler)
forgotten = Broker().start()
child = Broker(process=True).start()
print(forgotten.bootstrap_servers, flush=True)
with Broker() as kafka:
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as test:
        try:
            message, complaint = test.communicate(timeout=PATIENCE_S)
        finally:
            test.kill()
    assert "KeyboardInterrupt" in complaint
    assert not is_reached(message.strip())
    assert folders(test.pid) == set()


def test_a_process_ends_with_a_test_that_is_killed_even_if_it_is_paused() -> None:
    script = """
import sys
from trioka.testing import Broker
kafka = Broker(process=True).start()
paused = Broker(process=True).start()
paused.pause()
print(kafka._host.pid, paused._host.pid, kafka._folder, paused._folder, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as test:
        assert test.stdout is not None
        *pids, first, second = test.stdout.readline().split()
        started = {pid: started_at(pid) for pid in pids}
        test.kill()
    for pid in pids:
        deadline = time.monotonic() + PATIENCE_S
        while started_at(pid) == started[pid]:
            assert time.monotonic() < deadline, f"process {pid} outlives its test"
            time.sleep(0.02)
    temp_dirs.sweep()  # as the first broker of any other process would
    assert not any(Path(folder).exists() for folder in (first, second))


def test_only_unused_folders_are_swept() -> None:
    with Broker() as kafka:
        kafka.produce("orders", "a")
        sweeping = "from trioka.testing import temp_dirs; temp_dirs.sweep()"
        subprocess.run([sys.executable, "-c", sweeping], check=True, timeout=PATIENCE_S)
        assert folders()
        assert kafka.produce("orders", "b") == [1]


def started_at(pid: str) -> str | None:
    """When this process was started; None if it has ended. Its number may belong to another one soon."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else fields[18]


def test_a_broker_that_breaks_off_at_its_start_says_why(nothing_left: None) -> None:
    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        Loop(serve, name="trioka-broken").start()


def test_brokers_side_by_side_know_nothing_of_each_other() -> None:
    with Broker() as one, Broker() as other:
        one.produce("orders", "1")
        with other.fail("Metadata", "UNKNOWN_SERVER_ERROR", count=None):
            asking = Producer({"bootstrap.servers": one.bootstrap_servers})
            assert set(asking.list_topics(timeout=PATIENCE_S).topics) == {"orders"}
        one.clock.advance("1h")
        assert one.clock.now_ms() - other.clock.now_ms() > 3_599_000
        with pytest.raises(UnknownTopicOrPartition, match="no topic 'orders'"):
            other.records("orders")
        with pytest.raises(UnknownTopicOrPartition, match="did you mean: orders"):
            one.records("ordres")
        with pytest.raises(UnknownTopicOrPartition, match="no partition 7"):
            one.records("orders", partition=7)


def test_a_restart_keeps_the_data_and_the_address() -> None:
    with Broker() as kafka:
        kafka.produce("orders", "a")
        before = kafka.bootstrap_servers
        kafka.restart()
        assert kafka.bootstrap_servers == before
        assert kafka.produce("orders", "b") == [1]
        kafka.stop()
        with pytest.raises(Unresponsive, match="not running"):
            kafka.clock.now_ms()
        kafka.start()
        assert [each.value for each in kafka.records("orders")] == [b"a", b"b"]


def test_a_paused_broker_answers_later_and_a_killed_one_has_what_it_acknowledged() -> None:
    with Broker(process=True) as kafka:
        producer = sending(kafka, "orders", b"a")
        assert producer.flush(PATIENCE_S) == 0
        kafka.pause()
        producer.produce("orders", b"b")
        with pytest.raises(Unresponsive, match="paused"):
            kafka.clock.now_ms()
        assert "paused" in kafka.describe()
        assert producer.flush(0.1) == 1
        kafka.resume()
        assert producer.flush(PATIENCE_S) == 0
        process_id = kafka._home.pid  # type: ignore[attr-defined]
        os.kill(process_id, signal.SIGSTOP)  # behind the broker's back: it does not say how it is, and says it too late
        assert "does not answer" in kafka.describe()
        os.kill(process_id, signal.SIGCONT)
        assert kafka.clock.now_ms() > 0
        kafka.kill()
        assert not kafka.is_running
        producer.produce("orders", b"c")
        kafka.start()
        assert producer.flush(PATIENCE_S) == 0
        assert [each.value for each in kafka.records("orders")] == [b"a", b"b", b"c"]


def test_only_a_process_can_be_killed_and_paused(kafka: Broker) -> None:
    for what in (kafka.kill, kafka.pause, kafka.resume):
        with pytest.raises(ValueError, match="process=True"):
            what()


# The hands of a test.


def test_a_topic_that_exists_is_refused_and_a_record_is_complete(kafka_topic: str, kafka: Broker) -> None:
    with pytest.raises(TopicAlreadyExists):
        kafka.create_topic(kafka_topic)
    kafka.produce(kafka_topic, None, key="k", timestamp_ms=17, headers=[("h", b"1")])
    (found,) = kafka.consume(kafka_topic)
    assert (found.key, found.value, found.timestamp_ms, found.headers) == (b"k", None, 17, (("h", b"1"),))
    with pytest.raises(TimeoutError, match="1 of 2 records"):
        kafka.consume(kafka_topic, 2, timeout="10ms")
    assert kafka.produce(kafka_topic) == []


def test_committed_records_are_distinguished_from_the_others(kafka: Broker, kafka_topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="t")
    producer.init_transactions()
    for value, end in ((b"kept", producer.commit_transaction), (b"aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.send(kafka_topic, value).get(PATIENCE_S)
        end()
    producer.begin_transaction()
    producer.send(kafka_topic, b"open").get(PATIENCE_S)
    assert [each.value for each in kafka.records(kafka_topic, committed=True)] == [b"kept"]
    assert [each.value for each in kafka.records(kafka_topic)] == [b"kept", b"aborted", b"open"]
    producer.abort_transaction()
    producer.close()


def test_a_topic_that_is_known_before_its_partitions_are_there_is_waited_for(
    kafka: Broker, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.produce(kafka_topic, "a")
    early = 2

    def list_offsets(requested: Kafka, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetResult]:
        nonlocal early
        early -= 1
        absent = OffsetResult(-1, -1, UnknownTopicOrPartition.code)
        return dict.fromkeys(wanted, absent) if early >= 0 else offsets.list_offsets(requested, wanted)

    monkeypatch.setattr(client, "list_offsets", list_offsets)
    assert [each.value for each in kafka.consume(kafka_topic)] == [b"a"]
    assert early < 0
    early = 1
    with pytest.raises(UnknownTopicOrPartition, match=f"the offsets of {kafka_topic}:0 are not known"):
        kafka.records(kafka_topic)


def test_a_group_is_waited_for(kafka: Broker, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, "a", "b", "c")
    with pytest.raises(TimeoutError, match="committed nothing"):
        kafka.wait_group("billing", timeout="50ms")
    consumer = KafkaConsumer(
        kafka_topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    assert [next(consumer).value for _ in range(2)] == [b"a", b"b"]
    consumer.commit()
    kafka.wait_group("billing", lag=1)
    with pytest.raises(TimeoutError, match=rf"lag of 0.*{kafka_topic}:0 1"):
        kafka.wait_group("billing", timeout="50ms")
    waiting = threading.Thread(target=kafka.wait_group, args=("billing",))
    waiting.start()
    next(consumer)
    consumer.commit()
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    consumer.close()


def test_it_works_inside_of_a_trio_loop() -> None:
    async def test() -> None:
        with Broker() as kafka:
            kafka.produce("orders", "a")
            kafka.clock.advance("1s")
            assert len(kafka.records("orders")) == 1

    trio.run(test)


def test_a_flipped_bit_is_noticed_by_every_reader(kafka: Broker, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, "a")
    kafka.flip_bit(kafka_topic)
    with pytest.raises(CorruptMessage):
        kafka.records(kafka_topic)
    kafka.flip_bit(kafka_topic)
    assert [each.value for each in kafka.records(kafka_topic)] == [b"a"]
    for wrong in ({"partition": 7}, {"byte": 10_000}, {"bit": 8}):
        with pytest.raises(ValueError, match=r"partition|bytes|bits"):
            kafka.flip_bit(kafka_topic, **wrong)


def test_signals_of_the_test_are_not_touched() -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with Broker():
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


def test_what_never_came_to_the_disk_is_cut_off_and_the_rest_stays() -> None:
    with Broker(process=True) as kafka:
        kafka.produce("orders", "kept")
        kafka.produce("orders", "torn")
        with pytest.raises(ValueError, match="for a broker that was killed"):
            kafka.tear("orders")
        kafka.kill()
        with pytest.raises(ValueError, match="of which 0 cannot be lost"):
            kafka.tear("orders", lost=0)
        kafka.tear("orders")
        kafka.start()
        assert [record.value for record in kafka.records("orders")] == [b"kept"]
