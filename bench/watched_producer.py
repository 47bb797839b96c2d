"""A real client that writes continuously, and records the send time and the acknowledgement time of each record.

It is librdkafka with acks=all and idempotence, and short backoffs: it refreshes metadata, connects and retries within
tenths of a second, so that the cluster is measured and not a client's pauses. A record waits in the client until a
broker accepts it; only an abandoned record is an error.
"""

import itertools
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

SETTINGS: Final[dict[str, str | int | float | bool]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "socket.nagle.disable": True,
    "message.timeout.ms": 60_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}
VALUE: Final = b"v" * 100
FLUSH_S: Final = 90.0
FIRST_ACK_S: Final = 60.0
LOOK_S: Final = 0.005


class Acknowledged(NamedTuple):
    partition: int
    sent: float
    acked: float


class NeverAcknowledged(Exception):
    """No record was acknowledged."""


class WatchedProducer:
    """For the length of a `with`, sends `rate` records a second to these partitions in turn."""

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int], rate: float) -> None:
        self._topic = topic
        self._partitions = partitions
        self._period_s = 1 / rate
        self._producer: Any = Producer({**SETTINGS, "bootstrap.servers": bootstrap, "error_cb": self._complained})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watched producer")
        self.acknowledged: list[Acknowledged] = []
        self.errors: list[str] = []
        self.handed_over = 0
        self._newest: dict[int, float] = {}  # by partition: the send time of the last acknowledged record

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._wait_for(self._partitions, 0.0)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_S)
        self.errors += ["never acknowledged"] * left

    def _run(self) -> None:
        due = time.perf_counter()
        for partition in itertools.cycle(self._partitions):
            while (left := due - time.perf_counter()) > 0:
                self._producer.poll(left)
            if self._stopping.is_set():
                return
            self._send(partition)
            due += self._period_s

    def _send(self, partition: int) -> None:
        sent = time.perf_counter()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.errors.append(str(error))
            else:
                self.acknowledged.append(Acknowledged(partition, sent, time.perf_counter()))
                self._newest[partition] = sent

        self._producer.produce(self._topic, VALUE, partition=partition, on_delivery=delivered)
        self.handed_over += 1
        self._producer.poll(0)

    def _complained(self, error: KafkaError) -> None:
        """Unreachable brokers are not an error; permanent errors are."""
        if error.fatal():
            self.errors.append(str(error))

    # -- results -------------------------------------------------------------------------------------------------------

    def wait_for_ack(self, partition: int, since: float) -> float:
        """The acknowledgement time of the first record that was sent since then."""
        self._wait_for([partition], since)
        seen = self.acknowledged
        return min(each.acked for each in seen if each.partition == partition and each.sent >= since)

    def _wait_for(self, partitions: Sequence[int], since: float) -> None:
        deadline = time.monotonic() + FIRST_ACK_S
        while not all(self._newest.get(partition, -1.0) >= since for partition in partitions):
            if time.monotonic() > deadline:
                raise NeverAcknowledged(f"nothing was acknowledged for {FIRST_ACK_S:.0f} s; {self.errors[:1]}")
            time.sleep(LOOK_S)

    def longest_wait(self, since: float) -> float:
        """The longest time from send to acknowledgement of the records sent since then. Call it at the end."""
        return max((each.acked - each.sent for each in self.acknowledged if each.sent >= since), default=0.0)
