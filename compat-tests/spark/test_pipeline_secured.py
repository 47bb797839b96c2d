"""A pipeline whose brokers ask for TLS and a login: the connector and trioka itself use one set of options."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from pyspark.sql import SparkSession

from trioka.pipeline import Pipeline
from trioka.testing import Broker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

RECORDS = 12


@pytest.fixture
def secured() -> Iterator[Broker]:
    with Broker(tls=True, sasl=True) as broker:
        yield broker


@pytest.mark.nightly
def test_rows_and_dead_letters_go_once_to_topics_of_brokers_with_tls_and_a_login(
    secured: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    for topic in ("orders", "copy", "dead"):
        secured.create_topic(topic)
    producer = KafkaProducer(**secured.client_config("kafka-python"))
    for number in range(RECORDS):
        producer.send("orders", b'{"id": %d}' % number if number else b"{")
    producer.close()
    options = {f"kafka.{key}": value for key, value in secured.client_config("java").items()}
    bootstrap = options.pop("kafka.bootstrap.servers")
    pipeline = Pipeline(
        {
            "name": "secured",
            "source": {"topics": ["orders"], "options": options},
            "decode": {"format": "json", "schema": "id BIGINT NOT NULL"},
            "sink": {"kind": "topic", "topic": "copy", "delivery": "exactly_once", "value": "cast(id AS STRING)"},
            "dead_letters": {"kind": "topic", "topic": "dead"},
        },
        folder=tmp_path,
        bootstrap=bootstrap,
    )
    for _ in range(2):
        pipeline.run(once=True)
    assert [lag.records for lag in pipeline.lag()] == [0]
    consumer = KafkaConsumer(
        "copy",
        "dead",
        **secured.client_config("kafka-python"),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        group_id=None,
        consumer_timeout_ms=5000,
    )
    found = sorted((one.topic, one.value) for one in consumer)
    consumer.close()
    assert found == sorted([*(("copy", b"%d" % number) for number in range(1, RECORDS)), ("dead", b"{")])
