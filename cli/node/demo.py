"""`trioka dev --demo`: sample traffic. It writes a few orders per second, and a group reads them with some lag.

    trioka consume orders        trioka lag billing -w        trioka groups describe billing --members

A thread of the process that runs `dev` is an ordinary client of the broker: it creates the topics `orders` and
`customers`, writes, and is the only member of the group `billing`. It never disturbs the broker: it retries a failed
request after a pause, and it ends with its process.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from random import Random, SystemRandom
from typing import Any, Final

from trioka.protocol import batch
from trioka.protocol.errors import NONE
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import uuid_text
from trioka.protocol.record import Record

from ..bench_load import BY_NAME
from ..client.cluster_client import Kafka, TopicPartition
from ..client.connection import ConnectionClosed
from ..client.offsets import LATEST, CommittedOffset, commit, offsets_or_fail
from ..client.settings import Settings
from ..configs import TOPIC, Change, alter_configs
from ..terminal.failure import Failure
from ..topics.command import create_topic

ORDERS, CUSTOMERS, GROUP = "orders", "customers", "billing"
TOPICS: Final = {ORDERS: 3, CUSTOMERS: 1}  # topics that exist when a broker reports that it is ready
TURN_S: Final = 0.25
AGAIN_S: Final = 1.0  # pause after a failure
MOST_ORDERS: Final = 4  # per turn
LATE: Final = 25  # maximum number of records that the group leaves unread in a partition
TIMEOUT_S: Final = 10.0
STOP_S: Final = 5.0
KEPT_MS: Final = 3_600_000  # a demo that runs for a week must not fill the memory
NAMES: Final = ("ann", "bob", "eve", "ida", "max", "tim", "uma", "zoe")
GOODS: Final = ("bread", "coffee", "honey", "lamp", "pen", "tea")


def orders(dice: Random, first: int, count: int) -> list[tuple[bytes, bytes]]:
    """Keys and values of this many orders, numbered from the given number on."""
    found = []
    for number in range(first, first + count):
        name = dice.choice(NAMES)
        order = {"id": number, "customer": name, "item": dice.choice(GOODS), "cents": dice.randrange(50, 5000)}
        found.append((name.encode(), json.dumps(order).encode()))
    return found


class Demo:
    """A thread that runs between `start` and `stop`."""

    def __init__(self, servers: Iterable[tuple[str, int]], dice: Random | None = None) -> None:
        self._settings = Settings(tuple(servers), {}, timeout_s=TIMEOUT_S)
        self._dice = dice or SystemRandom()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trioka-demo", daemon=True)
        self._number = 1
        self._member = uuid_text(os.urandom(16))
        self._epoch = 0
        self._read_up_to: dict[TopicPartition, int] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with self._settings.kafka() as kafka:
                    self._work(kafka)
            except (Failure, ConnectionClosed):  # a node or all of them are down: connect again to the rest
                self._is_over.wait(AGAIN_S)

    def _work(self, kafka: Kafka) -> None:
        _prepare(kafka)
        _write(kafka, CUSTOMERS, 0, [(name.encode(), json.dumps({"name": name}).encode()) for name in NAMES])
        self._epoch = 0
        while not self._is_over.wait(TURN_S):
            for key, value in orders(self._dice, self._number, self._dice.randint(1, MOST_ORDERS)):
                _write(kafka, ORDERS, NAMES.index(key.decode()) % TOPICS[ORDERS], [(key, value)])
                self._number += 1
            self._read(kafka)

    def _read(self, kafka: Kafka) -> None:
        """Send the member's heartbeat, and commit the offsets that it would have read by now."""
        is_new = self._epoch == 0
        text = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member,
            member_epoch=self._epoch,
            rebalance_timeout_ms=int(TIMEOUT_S * 1000) if is_new else -1,
            subscribed_topic_names=[ORDERS] if is_new else None,
            topic_partitions=[] if is_new else None,
        )
        result = kafka.ask_coordinator(GROUP, text, lambda result: [result.error_code])
        self._epoch = result.member_epoch if result.error_code == NONE else 0
        if not is_new and self._epoch:
            places = [TopicPartition(ORDERS, index) for index in range(TOPICS[ORDERS])]
            ends = offsets_or_fail(kafka, dict.fromkeys(places, LATEST))
            for place, end in ends.items():  # an offset never goes back
                self._read_up_to[place] = max(self._read_up_to.get(place, 0), end - self._dice.randrange(LATE))
            read = {place: CommittedOffset(offset) for place, offset in self._read_up_to.items()}
            commit(kafka, GROUP, read, member=(self._member, self._epoch))


def _prepare(kafka: Kafka) -> None:
    known = {topic.name for topic in kafka.cluster().topics}
    for name in TOPICS.keys() - known:
        create_topic(kafka, name, TOPICS[name])
    alter_configs(kafka, TOPIC, ORDERS, [Change("retention.ms", str(KEPT_MS))])
    alter_configs(kafka, TOPIC, CUSTOMERS, [Change("cleanup.policy", "compact")])
    kafka.forget()


def _write(kafka: Kafka, topic: str, partition: int, pairs: Sequence[tuple[bytes, bytes]]) -> None:
    now_ms = int(time.time() * 1000)
    records = batch.build([Record(number, now_ms, key, value) for number, (key, value) in enumerate(pairs)])
    data = [ProduceRequest.Topic.Partition(index=partition, records=bytes(records))]
    request = ProduceRequest(
        acks=-1, timeout_ms=kafka.timeout_ms, topic_data=[ProduceRequest.Topic(name=topic, partition_data=data)]
    )

    def ask() -> Any:
        (leader,) = kafka.leaders([TopicPartition(topic, partition)])
        return kafka.ask_node(leader, request, at_most=BY_NAME).responses[0].partition_responses[0]

    kafka.retry_while_stale(ask, lambda result: [result.error_code])
