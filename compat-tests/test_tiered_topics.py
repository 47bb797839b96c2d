"""Unmodified consumers read a tiered topic through the object store: the same records as from the disk.

The topic has committed and aborted transactions over many segments. Each client reads it twice, from its first offset
and under both isolation levels: while all segments are on the disk, and after all but the active one were deleted there
and the broker was started again.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from oracle import run_tool
from trioka_process import TriokaProcess

PATIENCE_S = 60.0
TOPIC = "history"
TRANSACTIONS, EACH = 60, 20
VALUE_BYTES = 300
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "log.initial.task.delay.ms": "0",
}
CONFIGS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "30000",
    "local.retention.bytes": "100000000",
    "file.delete.delay.ms": "0",
    "index.interval.bytes": "1000",
}
LEVELS = ("read_committed", "read_uncommitted")


def value_of(transaction: int, number: int) -> bytes:
    return b"%05d %05d " % (transaction, number) + b"x" * VALUE_BYTES


def is_aborted(transaction: int) -> bool:
    return transaction % 3 == 1


def write(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(TOPIC, 1, 1, topic_configs=CONFIGS)])
    admin.close()
    writer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer", "linger.ms": 5})
    writer.init_transactions(PATIENCE_S)
    for transaction in range(TRANSACTIONS):
        writer.begin_transaction()
        for number in range(EACH):
            writer.produce(TOPIC, value=value_of(transaction, number), key=b"%d" % number)
        writer.flush(PATIENCE_S)
        if is_aborted(transaction):
            writer.abort_transaction(PATIENCE_S)
        else:
            writer.commit_transaction(PATIENCE_S)


def by_kafka_python(bootstrap: str, level: str, count: int) -> Iterator[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level=level,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(PATIENCE_S * 1000),
    )
    consumer.assign([PythonPartition(TOPIC, 0)])
    consumer.seek_to_beginning()
    for _, record in zip(range(count), consumer, strict=False):
        yield record.value
    consumer.close()


def by_confluent(bootstrap: str, level: str, count: int) -> Iterator[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "isolation.level": level,
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    for _ in range(count):
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None, message and message.error()
        value = message.value()
        assert isinstance(value, bytes)
        yield value
    consumer.close()


def by_java(bootstrap: str, level: str, count: int) -> Iterator[bytes]:
    text = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--partition", "0", "--offset", "earliest"),
        *("--isolation-level", level, "--max-messages", str(count), "--timeout-ms", str(int(PATIENCE_S * 1000))),
    )
    yield from (line.encode() for line in text.splitlines() if line.endswith("x"))


READERS: dict[str, Callable[[str, str, int], Iterator[bytes]]] = {
    "kafka-python": by_kafka_python,
    "confluent-kafka": by_confluent,
    "java": by_java,
}


def digest(values: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for value in values:
        found.update(len(value).to_bytes(4) + value)
    return found.hexdigest()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


def test_consumers_read_the_same_from_the_object_store_as_from_the_disk(tmp_path: Path) -> None:
    store, logs = tmp_path / "store", tmp_path / "data" / f"{TOPIC}-0"
    expected = {
        level: digest(
            value_of(transaction, number)
            for transaction in range(TRANSACTIONS)
            for number in range(EACH)
            if level == "read_uncommitted" or not is_aborted(transaction)
        )
        for level in LEVELS
    }
    aborted = sum(map(is_aborted, range(TRANSACTIONS)))
    counts = {"read_committed": (TRANSACTIONS - aborted) * EACH, "read_uncommitted": TRANSACTIONS * EACH}

    def read_by_all(bootstrap: str) -> dict[tuple[str, str], str]:
        return {
            (name, level): digest(read(bootstrap, level, counts[level]))
            for name, read in READERS.items()
            for level in LEVELS
        }

    with TriokaProcess(tmp_path, {**SETTINGS, "trioka.tier.url": f"file://{store}"}) as process:
        write(process.bootstrap)
        segments = len(list(logs.glob("*.log")))
        assert segments > 5
        before = read_by_all(process.bootstrap)
        assert before == {(name, level): expected[level] for name in READERS for level in LEVELS}
        until(lambda: len(list(store.rglob(f"{TOPIC}-*/**/*.rsm-manifest"))) == segments - 1)
        admin = KafkaAdminClient(bootstrap_servers=process.bootstrap)
        configs = CONFIGS | {"local.retention.bytes": "1"}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs=configs)])
        admin.close()
        until(lambda: len(list(logs.glob("*.log"))) == 1)
        assert read_by_all(process.bootstrap) == before
        process.stop()
        process.start()
        assert read_by_all(process.bootstrap) == before
        process.kill()
        process.start()
        assert read_by_all(process.bootstrap) == before


def test_a_broker_whose_object_store_cannot_be_opened_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    process = TriokaProcess(tmp_path, {**SETTINGS, "trioka.tier.url": f"file://{tmp_path / 'file'}"})
    with pytest.raises(AssertionError), process:
        pass
    logged = process.log.read_text()
    assert f"trioka.tier.url file://{tmp_path / 'file'} cannot be used" in logged and "Traceback" not in logged


def test_a_broker_whose_object_store_does_not_answer_serves_what_is_on_its_disk(tmp_path: Path) -> None:
    store = {
        "trioka.tier.url": "s3://bucket/prefix",
        "trioka.tier.endpoint": "http://127.0.0.1:1",
        "trioka.tier.region": "x",
        "trioka.tier.access.key": "a",
        "trioka.tier.secret.key": "hidden-secret",
        "trioka.tier.request.timeout.ms": "200",
        "trioka.tier.request.retries": "0",
    }
    with TriokaProcess(tmp_path, {**SETTINGS, **store}) as process:
        admin = KafkaAdminClient(bootstrap_servers=process.bootstrap)
        admin.create_topics([NewTopic(TOPIC, 1, 1, topic_configs=CONFIGS)])
        admin.close()
        writer = confluent_kafka.Producer({"bootstrap.servers": process.bootstrap, "batch.num.messages": 20})
        for number in range(200):
            writer.produce(TOPIC, value=value_of(0, number))
        assert writer.flush(PATIENCE_S) == 0
        expected = digest(value_of(0, number) for number in range(200))
        assert digest(by_confluent(process.bootstrap, "read_committed", 200)) == expected
    logged = process.log.read_text()
    assert "the object store does not answer" in logged
    assert "hidden-secret" not in logged and "Traceback" not in logged
