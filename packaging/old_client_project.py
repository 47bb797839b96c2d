"""Tests of a project that pins kafka-python below 3, with the fixtures of trioka: `release_check.py` runs them.

The fixtures and the command line need no client of Kafka, so the project's own version stays.
"""

import subprocess
import sys

import kafka


def test_the_client_is_the_pinned_one():
    assert kafka.__version__.startswith("2.")


def test_the_fixture_serves_the_old_clients(kafka):
    from kafka import KafkaConsumer, KafkaProducer

    kafka.create_topic("orders", 2)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for number in range(10):
        producer.send("orders", key=b"%d" % number, value=b"%d" % number)
    producer.flush()
    producer.close()
    assert sorted(int(record.value) for record in kafka.records("orders")) == list(range(10))
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=kafka.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    found = [int(next(consumer).value) for _ in range(10)]
    consumer.commit()
    consumer.close()
    assert sorted(found) == list(range(10))
    kafka.wait_group("billing", lag=0)


def test_the_command_line_works_beside_it(kafka):
    kafka.create_topic("lines")
    trioka = [sys.executable, "-m", "trioka"]
    at = ["-b", kafka.bootstrap_servers]
    subprocess.run([*trioka, "produce", "lines", *at], input=b"a\nb\n", check=True, timeout=60)
    read = [*trioka, "consume", "lines", "-e", "-g", "g", *at]
    assert subprocess.run(read, capture_output=True, check=True, timeout=60).stdout == b"a\nb\n"
