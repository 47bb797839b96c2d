"""The clients that are written for Python as members of groups: `python python_member.py kafka-python localhost:9092`.

They receive their task in one line of standard input; `member.py` describes it, and their reports.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

POLL_MS = 200
HEARTBEAT_MS = 1000

left = threading.Event()


def tell(**event: object) -> None:
    print(json.dumps(event), flush=True)


class AssignmentReporter:
    """Reports the partitions of a member when they change."""

    def __init__(self) -> None:
        self._had: list[int] | None = None

    def has(self, partitions: Iterable[int]) -> None:
        has = sorted(partitions)
        if has != self._had:
            tell(has=has)
        self._had = has


def session(command: dict[str, Any], session: str, heartbeat: str) -> dict[str, Any]:
    """The given session settings, under the client's names for them; without any, its defaults hold."""
    return {session: command["session_ms"], heartbeat: HEARTBEAT_MS} if command["session_ms"] is not None else {}


def kafka_python(bootstrap: str, command: dict[str, Any]) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        command["topic"],
        bootstrap_servers=bootstrap,
        group_id=command["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[assignors[command["assignor"]]],
        **session(command, "session_timeout_ms", "heartbeat_interval_ms"),
    )
    result = AssignmentReporter()
    tell(polls=[])
    while not left.is_set():
        batches = consumer.poll(POLL_MS)
        result.has(place.partition for place in consumer.assignment())
        saw = [(record.partition, record.offset) for records in batches.values() for record in records]
        if not saw:
            continue
        tell(saw=saw)
        try:
            consumer.commit()
        except KafkaError as error:  # the records are reported again, perhaps by another member
            print(repr(error), file=sys.stderr)
    consumer.close()


def confluent(bootstrap: str, command: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": command["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.protocol": command["protocol"],
    }
    if command["protocol"] == "classic":
        settings["partition.assignment.strategy"] = command["assignor"]
        settings |= session(command, "session.timeout.ms", "heartbeat.interval.ms")
    elif command["assignor"]:
        settings["group.remote.assignor"] = command["assignor"]
    consumer = Consumer(settings)
    consumer.subscribe([command["topic"]])
    result = AssignmentReporter()
    tell(polls=[])
    while not left.is_set():
        messages = [message for message in consumer.consume(100, POLL_MS / 1000) if message.error() is None]
        result.has(place.partition for place in consumer.assignment())
        if not messages:
            continue
        tell(saw=[(message.partition(), message.offset()) for message in messages])
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            print(repr(error), file=sys.stderr)
    consumer.close()


def aiokafka(bootstrap: str, command: dict[str, Any]) -> None:
    asyncio.run(_aiokafka(bootstrap, command))


async def _aiokafka(bootstrap: str, command: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer: Any = AIOKafkaConsumer(
        command["topic"],
        bootstrap_servers=bootstrap,
        group_id=command["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[assignors[command["assignor"]]],
        **session(command, "session_timeout_ms", "heartbeat_interval_ms"),
    )
    await consumer.start()
    result = AssignmentReporter()
    tell(polls=[])
    while not left.is_set():
        batches = await consumer.getmany(timeout_ms=POLL_MS)
        result.has(place.partition for place in consumer.assignment())
        saw = [(record.partition, record.offset) for records in batches.values() for record in records]
        if not saw:
            continue
        tell(saw=saw)
        try:
            await consumer.commit()
        except KafkaError as error:
            print(repr(error), file=sys.stderr)
    await consumer.stop()


MEMBERS: dict[str, Callable[[str, dict[str, Any]], None]] = {
    "kafka-python": kafka_python,
    "confluent-kafka": confluent,
    "aiokafka": aiokafka,
}


def wait_for_the_end() -> None:
    sys.stdin.read()
    left.set()


if __name__ == "__main__":
    _, client, bootstrap = sys.argv
    command = json.loads(sys.stdin.readline())
    threading.Thread(target=wait_for_the_end, daemon=True).start()
    MEMBERS[client](bootstrap, command)
