"""Other people's clients get over the faults that they should get over, with each record written once and read once."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from trioka.testing import Broker, Chaos
from trioka.testing.clock_control import Clock
from trioka.testing.plugin import Topic

PATIENCE_S = 60.0
PATIENCE_MS = 60_000

Send = Callable[[str, str, list[bytes]], None]
Read = Callable[[str, str, int], list[bytes | None]]


def kafka_python_sends(where: str, topic: str, values: list[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=where, enable_idempotence=True, retry_backoff_ms=20)
    for value in values:
        producer.send(topic, value).get(PATIENCE_S)
    producer.close()


def kafka_python_reads(where: str, topic: str, count: int) -> list[bytes | None]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=where,
        auto_offset_reset="earliest",
        group_id="g",
        retry_backoff_ms=20,
        consumer_timeout_ms=PATIENCE_MS,
    )
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


def aiokafka_sends(where: str, topic: str, values: list[bytes]) -> None:
    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=where, enable_idempotence=True, retry_backoff_ms=20)
        await producer.start()
        for value in values:
            await asyncio.wait_for(producer.send_and_wait(topic, value), PATIENCE_S)
        await producer.stop()

    asyncio.run(send())


def aiokafka_reads(where: str, topic: str, count: int) -> list[bytes | None]:
    async def read() -> list[bytes | None]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=where, auto_offset_reset="earliest", group_id="g", retry_backoff_ms=20
        )
        await consumer.start()
        values = [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value for _ in range(count)]
        await consumer.stop()
        return values

    return asyncio.run(read())


def confluent_sends(where: str, topic: str, values: list[bytes]) -> None:
    settings = {"bootstrap.servers": where, "enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 20}
    producer = Producer({**settings, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100})
    for value in values:
        producer.produce(topic, value)
        assert producer.flush(PATIENCE_S) == 0


def confluent_reads(where: str, topic: str, count: int) -> list[bytes | None]:
    settings = {"bootstrap.servers": where, "auto.offset.reset": "earliest", "group.id": "g"}
    consumer = Consumer({**settings, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    while len(values) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"{len(values)} of {count}"
        if message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


CLIENTS = [
    pytest.param(kafka_python_sends, kafka_python_reads, id="kafka-python"),
    pytest.param(aiokafka_sends, aiokafka_reads, id="aiokafka"),
    pytest.param(confluent_sends, confluent_reads, id="confluent-kafka"),
]
EVERY_CLIENT = pytest.mark.parametrize(("send", "read"), CLIENTS)


@EVERY_CLIENT
def test_errors_late_answers_and_lost_ones_are_got_over(
    kafka: Broker, kafka_topic: Topic, send: Send, read: Read
) -> None:
    where = kafka.bootstrap_servers
    refused = kafka.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic=kafka_topic, count=2)
    kafka.delay("Metadata", "50ms")
    send(where, kafka_topic, [b"a"])
    lost = kafka.drop(
        "Produce", topic=kafka_topic, done=True
    )  # a client that does not number its records sends it twice
    send(where, kafka_topic, [b"b", b"c"])
    assert (refused.strikes, lost.strikes) == (2, 1)
    assert [each.value for each in kafka.records(kafka_topic)] == [b"a", b"b", b"c"]
    failing = kafka.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=kafka_topic)
    gone = kafka.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE")
    assert read(where, kafka_topic, 3) == [b"a", b"b", b"c"]
    assert (failing.strikes, gone.strikes) == (1, 1)


@EVERY_CLIENT
def test_a_storm_is_survived(kafka: Broker, kafka_chaos: Chaos, kafka_topic: Topic, send: Send, read: Read) -> None:
    values = [b"%d" % number for number in range(20)]
    with kafka_chaos.storm(seed=3, rate=0.2, faults=12) as storm:
        send(kafka.bootstrap_servers, kafka_topic, values)
        assert read(kafka.bootstrap_servers, kafka_topic, len(values)) == values
        assert storm.faults


def test_a_consumer_that_was_dismissed_while_time_passed_comes_back(
    kafka: Broker, kafka_clock: Clock, kafka_topic: Topic
) -> None:
    kafka.produce(kafka_topic, "a")
    consumer = KafkaConsumer(
        kafka_topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_MS,
    )
    assert next(consumer).value == b"a"
    consumer.commit()
    kafka_clock.advance("1h")
    assert "g: Empty" in kafka.describe()
    kafka.produce(kafka_topic, "b")
    assert next(consumer).value == b"b"
    consumer.close()
