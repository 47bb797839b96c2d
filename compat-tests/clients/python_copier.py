"""confluent-kafka as a copier: `python python_copier.py localhost:9092`; `copier.py` describes the lines."""

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 60
SEND_SECONDS = 5  # a transaction that takes longer is given up

left = threading.Event()


def tell(**line: object) -> None:
    print(json.dumps(line), flush=True)


def now_ms() -> int:
    return int(time.time() * 1000)


# When no broker is left, librdkafka starts again with the bootstrap address, and drops the brokers that it knew:
# requests to a coordinator among them wait for ever (librdkafka 2.16). With this setting it keeps the known brokers.
FAITHFUL = {"metadata.recovery.strategy": "none"}


class Copy:
    def __init__(self, bootstrap: str, command: dict[str, Any]) -> None:
        self._command = command
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": command["group"],
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": command["session_ms"],
                "heartbeat.interval.ms": 500,
                **FAITHFUL,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": command["transactional_id"],
                "transaction.timeout.ms": command["timeout_ms"],
                "linger.ms": 5,
                **FAITHFUL,
            }
        )

    def run(self) -> None:
        self._producer.init_transactions(PATIENCE_SECONDS)
        self._consumer.subscribe([self._command["source"]])
        number = 0
        while not left.is_set():
            began = now_ms()
            messages = [
                message
                for message in self._consumer.consume(self._command["count"], POLL_SECONDS)
                if message.error() is None
            ]
            if messages:
                self._copy(messages, number, began)
                number += 1
        self._consumer.close()

    def _copy(self, messages: list[Message], number: int, began: int) -> None:
        places = [(message.partition() or 0, message.offset() or 0) for message in messages]
        values = [(message.value() or b"").decode() for message in messages]
        tell(began=began, read=[(*place, value) for place, value in zip(places, values, strict=True)])
        offsets: dict[int, int] = {}
        try:
            self._producer.begin_transaction()
            for index, (message, value) in enumerate(zip(messages, values, strict=True)):

                def heard(error: object, sent: Message, index: int = index) -> None:
                    if error is None:
                        offsets[index] = sent.offset() or 0

                self._producer.produce(
                    self._command["target"],
                    key=message.key(),
                    value=f"{value}|{self._command['name']}|{number}",
                    partition=message.partition() or 0,
                    on_delivery=heard,
                )
            self._producer.flush(PATIENCE_SECONDS)
            following = {partition: offset + 1 for partition, offset in places}
            self._producer.send_offsets_to_transaction(
                [TopicPartition(self._command["source"], *place) for place in following.items()],
                self._consumer.consumer_group_metadata(),
                SEND_SECONDS,
            )
            if number % self._command["abort_every"] == self._command["abort_every"] - 1:
                self._abort()
                return
            tell(asks="commit")
            self._commit()
        except KafkaException as error:
            print(repr(error), file=sys.stderr)
            if error.args[0].fatal():
                raise
            self._abort()  # or end, if it cannot
            return
        tell(ended="ok", at=now_ms(), offsets=[offsets[index] for index in range(len(messages))])

    def _commit(self) -> None:
        """While the error is retriable, the result of the commit is unknown."""
        while True:
            try:
                self._producer.commit_transaction()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                print(repr(error), file=sys.stderr)

    def _abort(self) -> None:
        """And what was read is read again, from where the group stands."""
        self._producer.abort_transaction(PATIENCE_SECONDS)
        tell(ended="fail", at=now_ms())
        assigned = self._consumer.assignment()
        for place in self._consumer.committed(assigned, PATIENCE_SECONDS) if assigned else []:
            self._consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


def wait_for_the_end() -> None:
    sys.stdin.read()
    left.set()


if __name__ == "__main__":
    result = json.loads(sys.stdin.readline())
    threading.Thread(target=wait_for_the_end, daemon=True).start()
    Copy(sys.argv[1], result).run()
