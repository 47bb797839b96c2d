"""Writes tests/golden/batches: record batches as real clients put them on the wire.

    .venv/bin/python compat-tests/capture_goldens.py

Each client sends the same records, once per codec, to a real Apache Kafka whose topics keep the producer's codec. Kafka
stores such a batch as it came, except for the base offset and the leader epoch, so a client's bytes are cut out of the
segment file. The expected content comes from Kafka too: its consumer returns the records, and DumpLogSegments the
header. tests/golden/README.md describes the files.
"""

import asyncio
import importlib.metadata
import json
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import confluent_kafka
import jars
from aiokafka import AIOKafkaProducer
from dump import DumpedBatch, complaints, parse_dump
from kafka import KafkaProducer
from oracle import ApacheKafka, dump_log, run_program

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "batches"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Long enough that all records of a test are in one batch, on any machine; flush ends the wait.
LINGER_MS = 2_000
FIRST_TIMESTAMP_MS = 1_700_000_000_000

RecordFields = dict[str, Any]
# Keys, values and header values are text here and UTF-8 on the wire. The third record is older than the first: its
# timestamp delta is negative. The fifth has a value that every codec can shorten.
RECORDS: list[RecordFields] = [
    {"key": "key", "value": "value", "headers": [], "delay_ms": 0},
    {"key": None, "value": "no key", "headers": [], "delay_ms": 1},
    {"key": "no value", "value": None, "headers": [], "delay_ms": -1_000},
    {"key": "", "value": "", "headers": [], "delay_ms": 70_000},
    {"key": "long", "value": "ballad " * 20, "headers": [], "delay_ms": 70_000},
    {
        "key": "headers",
        "value": "größer",
        "headers": [["name", "value"], ["empty", ""], ["null", None], ["name", "again"], ["schlüssel", "ß"]],
        "delay_ms": 70_001,
    },
]


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def headers_of(record: RecordFields) -> list[tuple[str, str | bytes | None]]:
    return [(name, encoded(value)) for name, value in record["headers"]]


def send_with_librdkafka(bootstrap: str, topic: str, codec: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": LINGER_MS}
    )
    for record in RECORDS:
        producer.produce(
            topic,
            key=encoded(record["key"]),
            value=encoded(record["value"]),
            headers=headers_of(record),
            partition=0,
            timestamp=FIRST_TIMESTAMP_MS + record["delay_ms"],
        )
    producer.flush()


def send_with_kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=LINGER_MS
    )
    for record in RECORDS:
        producer.send(
            topic,
            key=encoded(record["key"]),
            value=encoded(record["value"]),
            # This client refuses headers without a value.
            headers=[(name, value) for name, value in headers_of(record) if value is not None],
            partition=0,
            timestamp_ms=FIRST_TIMESTAMP_MS + record["delay_ms"],
        )
    producer.flush()
    producer.close()


def send_with_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    async def send() -> None:
        compression = None if codec == "none" else codec
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=compression, linger_ms=LINGER_MS
        ) as producer:
            for record in RECORDS:
                await producer.send(
                    topic,
                    key=encoded(record["key"]),
                    value=encoded(record["value"]),
                    headers=headers_of(record),
                    partition=0,
                    timestamp_ms=FIRST_TIMESTAMP_MS + record["delay_ms"],
                )
            await producer.flush()

    asyncio.run(send())


def commands_to_send(topic: str) -> list[dict[str, Any]]:
    """The records, for programs/Produce.java."""

    def as_hex(text: str | None) -> str | None:
        return None if text is None else text.encode().hex()

    return [
        {
            "send": {
                "topic": topic,
                "timestamp": FIRST_TIMESTAMP_MS + record["delay_ms"],
                "key": as_hex(record["key"]),
                "value": as_hex(record["value"]),
                "headers": [[name, as_hex(value)] for name, value in record["headers"]],
            }
        }
        for record in RECORDS
    ]


def send_with_java(bootstrap: str, topics: list[str]) -> None:
    """All that the Java client sends, in one go: each codec, then two transactions, then with the broker's time.

    It makes the topics of all clients first: a client that had to wait for its topic might cut its batch in two.
    """
    append_time = {"message.timestamp.type": "LogAppendTime"}
    commands: list[dict[str, Any]] = [{"create": {topic: {} for topic in topics} | {"java-append-time": append_time}}]
    for codec in CODECS:
        commands += [{"open": {"compression.type": codec, "linger.ms": LINGER_MS}}, *commands_to_send(f"java-{codec}")]
    commands += [{"open": {"transactional.id": "golden", "linger.ms": LINGER_MS}}]
    commands += [{"begin": 1}, *commands_to_send("java-transaction"), {"commit": 1}]
    commands += [{"begin": 1}, *commands_to_send("java-transaction"), {"abort": 1}]
    commands += [{"open": {"compression.type": "lz4", "linger.ms": LINGER_MS}}, *commands_to_send("java-append-time")]
    run_program("Produce", bootstrap, stdin="\n".join(json.dumps(command) for command in commands))


PYTHON_CLIENTS: dict[str, Callable[[str, str, str], None]] = {
    "librdkafka": send_with_librdkafka,
    "kafka-python": send_with_kafka_python,
    "aiokafka": send_with_aiokafka,
}

VERSIONS = {
    "java": f"kafka-clients {jars.pins()['kafka-clients'].version}",
    "librdkafka": f"librdkafka {confluent_kafka.libversion()[0]}, through confluent-kafka {confluent_kafka.version()}",
    "kafka-python": f"kafka-python {importlib.metadata.version('kafka-python')}",
    "aiokafka": f"aiokafka {importlib.metadata.version('aiokafka')}",
}


def main() -> None:
    topics = [f"{client}-{codec}" for client in ("java", *PYTHON_CLIENTS) for codec in CODECS]
    topics += ["java-transaction", "java-append-time"]
    # Segments that never roll or expire: the timestamps are years old.
    settings = {"log.retention.ms": -1, "log.roll.ms": 1 << 40}
    with ApacheKafka(settings) as kafka:
        send_with_java(kafka.bootstrap, topics)
        for client, send in PYTHON_CLIENTS.items():
            for codec in CODECS:
                send(kafka.bootstrap, f"{client}-{codec}", codec)
        message = run_program("Consume", kafka.bootstrap, "read_uncommitted", *topics)
        kafka.stop()
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for topic in topics:
            records = [record for record in map(json.loads, message.splitlines()) if record["topic"] == topic]
            write_goldens(topic, kafka.segments(f"{topic}-0"), records)


def write_goldens(topic: str, segments: list[Path], records: list[RecordFields]) -> None:
    [segment] = segments
    [dumped] = files = parse_dump(dump_log(segment, data=True))
    assert not complaints(files), complaints(files)
    names = [topic]
    if topic == "java-transaction":
        names = ["java-transactional", "java-commit", "java-transactional-aborted", "java-abort"]
    assert len(dumped.batches) == len(names), f"{topic} has {len(dumped.batches)} batches"
    content = segment.read_bytes()
    for name, batch in zip(names, dumped.batches, strict=True):
        result = [record for record in records if batch.base_offset <= record["offset"] <= batch.last_offset]
        write_golden(name, batch, result, content[batch.position : batch.position + batch.size])


def write_golden(name: str, batch: DumpedBatch, result: list[RecordFields], content: bytes) -> None:
    fields = ("offset", "timestamp", "key", "value", "headers")
    records = [{field: record[field] for field in fields} for record in result]
    header = asdict(batch)
    marker = header.pop("records")[0]["marker"]
    del header["position"], header["is_valid"]
    client = max((known for known in VERSIONS if name.startswith(known)), key=len)
    lines = [f"# A record batch of {VERSIONS[client]}, codec {batch.codec}, as Apache Kafka stored it."]
    if marker:
        lines = ["# A control batch of Apache Kafka's own transaction coordinator."]
        lines += ["# marker: " + json.dumps({"type": marker, "coordinator_epoch": 0})]
    lines += ["# header: " + json.dumps(header), "# records: " + json.dumps(records)]
    lines += textwrap.wrap(content.hex(), 120)
    (GOLDEN / f"{name}.hex").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
