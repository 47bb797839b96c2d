"""Unmodified clients under byte quotas: no error, every record once, and a neighbour without a quota is served on."""

from collections.abc import Iterator
from threading import Thread

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # public, and not marked as such
from oracle import run_tool
from support.serving import Client
from trioka_process import TriokaProcess

from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest

QUOTA = 500_000.0
RECORD_BYTES = 4000
RECORDS = 2000  # three megabytes more than the burst of ten windows


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TriokaProcess]:
    with TriokaProcess(tmp_path_factory.mktemp("trioka")) as process:
        yield process


def set_quota(broker: TriokaProcess, client_id: str, key: str, value: float | None) -> None:
    entry = AlterClientQuotasRequest.Entry
    wanted = entry(
        entity=[entry.Entity(entity_type="client-id", entity_name=client_id)],
        ops=[entry.Op(key=key, value=value or 0.0, remove=value is None)],
    )
    client = Client("127.0.0.1", broker.port)
    (result,) = client.ask(AlterClientQuotasRequest(entries=[wanted], validate_only=False), 1).entries
    client.close()
    assert result.error_code == 0, result.error_message


def create_topic(broker: TriokaProcess, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def produce(broker: TriokaProcess, client_id: str, topic: str, finished: list[str], failed: list[str]) -> None:
    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": client_id, "linger.ms": 5})
    for _ in range(RECORDS):
        producer.produce(topic, bytes(RECORD_BYTES), on_delivery=on_delivery)
        producer.poll(0)
    if producer.flush(60):
        failed.append("not all were sent")
    finished.append(client_id)


def consume(broker: TriokaProcess, client_id: str, topic: str) -> list[int]:
    """The offsets of all records."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    offsets: list[int] = []
    while len(offsets) < RECORDS:
        messages = consumer.consume(500, 30)
        assert messages, f"nothing more came after {len(offsets)} records"
        for message in messages:
            assert message.error() is None
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
    consumer.close()
    return offsets


def test_librdkafka_under_a_quota_loses_nothing_and_its_neighbour_is_not_held_up(broker: TriokaProcess) -> None:
    for topic in ("slow", "free"):
        create_topic(broker, topic)
    set_quota(broker, "slow", "producer_byte_rate", QUOTA)
    set_quota(broker, "slow", "consumer_byte_rate", QUOTA)
    finished: list[str] = []
    failed: list[str] = []
    threads = [Thread(target=produce, args=(broker, name, name, finished, failed)) for name in ("slow", "free")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert finished == ["free", "slow"]
    assert consume(broker, "slow", "slow") == list(range(RECORDS))


def test_a_quota_that_is_removed_while_its_client_waits_ends_with_the_wait(broker: TriokaProcess) -> None:
    create_topic(broker, "changed")
    set_quota(broker, "changed", "producer_byte_rate", QUOTA)
    finished: list[str] = []
    failed: list[str] = []
    thread = Thread(target=produce, args=(broker, "changed", "changed", finished, failed))
    thread.start()
    set_quota(broker, "changed", "producer_byte_rate", QUOTA / 2)
    thread.join(5)
    set_quota(broker, "changed", "producer_byte_rate", None)
    thread.join(60)
    assert failed == []
    assert consume(broker, "other", "changed") == list(range(RECORDS))


def test_javas_clients_under_a_quota_lose_nothing(broker: TriokaProcess) -> None:
    create_topic(broker, "java")
    for key in ("producer_byte_rate", "consumer_byte_rate"):
        set_quota(broker, "java", key, QUOTA)
    result = run_tool("org.apache.kafka.tools.ProducerPerformance", "--topic", "java", "--num-records", str(RECORDS),
                    "--record-size", str(RECORD_BYTES), "--throughput", "-1", "--producer-props",
                    f"bootstrap.servers={broker.bootstrap}", "client.id=java", "acks=all")  # fmt: skip
    assert f"{RECORDS} records sent" in result
    read = run_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap,
                    "--topic", "java", "--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "60000",
                    "--command-property", "client.id=java", "--formatter-property", "print.offset=true",
                    "--formatter-property", "print.value=false")  # fmt: skip
    assert [int(line.rpartition(":")[2]) for line in read.split() if line.startswith("Offset:")] == list(range(RECORDS))
