"""confluent-kafka as a load, in a separate process, because a Python loop would compete for the GIL.

    confluent.py produce|consume ADDRESS TOPIC RECORDS SIZE

It prints the duration in seconds, from the first record on. All settings are defaults except `FULL_QUEUE_MS`.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TIMEOUT_SECONDS = 150
POLL_SECONDS = 1.0
AT_ONCE = 1000
# While its own queue is full, librdkafka stops fetching for this time; the default is one second, in which a Python
# loop empties the queue and then waits. The faster the broker, the more often this happens, until it dominates the
# result.
FULL_QUEUE_MS = 10


def produce(address: str, topic: str, records: int, size: int) -> float:
    failed: list[KafkaError] = []

    def acknowledged(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": address})
    value = b"a" * size
    began = time.perf_counter()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=acknowledged)
                break
            except BufferError:  # the queue is full
                producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(TIMEOUT_SECONDS)
    seconds = time.perf_counter() - began
    if left or failed:
        sys.exit(f"{left + len(failed)} records were not acknowledged: {failed[0] if failed else 'in time'}")
    return seconds


def consume(address: str, topic: str, records: int, size: int) -> float:
    settings = {"bootstrap.servers": address, "group.id": f"bench-{topic}", "enable.auto.commit": False}
    consumer = Consumer({**settings, "fetch.queue.backoff.ms": FULL_QUEUE_MS})
    try:
        began = time.perf_counter()
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = 0
        while seen < records:
            got = consumer.consume(AT_ONCE, timeout=POLL_SECONDS)
            seen += sum(1 for one in got if one.error() is None and len(one) == size)
            if time.perf_counter() - began > TIMEOUT_SECONDS:
                sys.exit(f"{seen} of {records} records came")
        return time.perf_counter() - began
    finally:
        consumer.close()


if __name__ == "__main__":
    way, address, topic, records, size = sys.argv[1:]
    print((produce if way == "produce" else consume)(address, topic, int(records), int(size)))
