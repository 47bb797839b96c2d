"""Apache Kafka's own reader of `__remote_log_metadata` reads what trioka writes there."""

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from oracle import run_tool
from trioka_process import TriokaProcess

PATIENCE_S = 60.0
METADATA = "__remote_log_metadata"
FORMATTER = (
    "org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde"
    "$RemoteLogMetadataFormatter"
)
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
}
SEGMENTS = 3  # at least


def record_count(bootstrap: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        return sum(consumer.end_offsets([TopicPartition(METADATA, index) for index in range(2)]).values())
    finally:
        consumer.close()


def formatted(bootstrap: str) -> list[str]:
    """All records of the topic, as Kafka's formatter prints them."""
    text = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", METADATA, "--from-beginning"),
        *("--formatter", FORMATTER, "--max-messages", str(record_count(bootstrap)), "--timeout-ms", "30000"),
    )
    return [line for line in text.splitlines() if line.startswith("partition: ")]


def states(lines: list[str]) -> Counter[str]:
    return Counter(found for line in lines for found in re.findall(r"tate=(\w+)", line))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)


def test_kafkas_formatter_reads_the_records_of_copies_and_of_a_deleted_topic(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with TriokaProcess(tmp_path, {**SETTINGS, "trioka.tier.url": f"file://{store}"}) as process:
        admin = KafkaAdminClient(bootstrap_servers=process.bootstrap)
        configs = {"remote.storage.enable": "true", "internal.segment.bytes": "2000"}
        admin.create_topics([NewTopic("orders", 1, 1, topic_configs=configs)])
        producer = KafkaProducer(bootstrap_servers=process.bootstrap, linger_ms=0)
        for _ in range(12):
            producer.send("orders", bytes(600)).get(30)
        producer.close()
        until(lambda: len(list(store.rglob("*.rsm-manifest"))) >= SEGMENTS)
        admin.delete_topics(["orders"])
        admin.close()
        # The record of the leader's epoch; of each segment four; of the partition three.
        until(lambda: not list(store.rglob("*.log")) and record_count(process.bootstrap) % 4 == 0)
        lines = formatted(process.bootstrap)
        assert all("orders-0" in line for line in lines)
        counts = states(lines)
        copied = counts["COPY_SEGMENT_FINISHED"]
        assert copied >= SEGMENTS
        assert counts == {
            "COPY_SEGMENT_STARTED": copied,
            "COPY_SEGMENT_FINISHED": copied,
            "DELETE_SEGMENT_STARTED": copied,
            "DELETE_SEGMENT_FINISHED": copied + 1,  # one carries the epoch
            "DELETE_PARTITION_MARKED": 1,
            "DELETE_PARTITION_STARTED": 1,
            "DELETE_PARTITION_FINISHED": 1,
        }
