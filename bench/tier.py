"""Reads from the object store: a cold scan of a tiered topic, beside a raw loop of ranges, and what it costs others.

    python bench/tier.py                       # 512 MB, a local directory as the object store
    python bench/tier.py --megabytes 128       # a look
    python bench/tier.py --url s3://bucket/p --endpoint http://127.0.0.1:9000    # credentials from the environment

Three figures. *raw*: the `.log` objects of the topic by `get_range`, 4 MiB each and four in flight, and nothing done
with the bytes. *scan*: one consumer from offset 0, 4 MiB a fetch, after a restart of the broker, so that nothing is
in its memory. *hot*: the time of a produced record until it is acknowledged, on another topic, p50 and p99, without a
scan and beside one that is limited to --limit-mb per second (remote.log.manager.fetch.max.bytes.per.second).
"""

import argparse
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import confluent_kafka
import obstore
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from obstore.store import LocalStore, S3Store

from trioka.cli.client.connection import Connection
from trioka.protocol.batch import headers
from trioka.protocol.errors import KafkaStorageError
from trioka.protocol.messages.fetch import FetchRequest
from trioka.testing import Broker

MIB = 1 << 20
RANGE_BYTES = FETCH_BYTES = 4 * MIB
IN_FLIGHT = 4
SEGMENT_BYTES = 32 * MIB
VALUE_BYTES = 1000
HOT_PAUSE_S = 0.002
PATIENCE_S = 120.0
TOPIC, HOT = "cold", "hot"


def settings(url: str, endpoint: str | None) -> dict[str, str]:
    made = {
        "remote_log_storage_system_enable": "true",
        "rlmm_config_remote_log_metadata_topic_replication_factor": "1",
        "trioka_tier_url": url,
    }
    return made | ({"trioka_tier_endpoint": endpoint} if endpoint else {})


def store_of(url: str, endpoint: str | None) -> "LocalStore | S3Store":
    if url.startswith("file://"):
        return LocalStore(prefix=url.removeprefix("file://"))
    where = {"endpoint": endpoint, "client_options": {"allow_http": True}} if endpoint else {}
    return S3Store.from_url(url, **where)  # type: ignore[arg-type]


def fill(bootstrap: str, megabytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES), "local.retention.bytes": "1"}
    config["file.delete.delay.ms"] = "0"
    made = admin.create_topics([NewTopic(TOPIC, 1, 1, config=config), NewTopic(HOT, 1, 1)])
    for future in made.values():
        future.result(PATIENCE_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 64 * 1024})
    for number in range(megabytes * MIB // VALUE_BYTES):
        while True:
            try:
                producer.produce(TOPIC, os.urandom(16) + bytes(VALUE_BYTES - 16))
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(PATIENCE_S)


def logs(store: "LocalStore | S3Store") -> list[tuple[str, int]]:
    found = [each for page in obstore.list(store) for each in page if each["path"].endswith(".log")]
    return sorted((each["path"], each["size"]) for each in found if each["path"].startswith(f"{TOPIC}-"))


def raw(store: "LocalStore | S3Store") -> float:
    """Megabytes per second."""
    ranges = [(key, at, min(RANGE_BYTES, size - at)) for key, size in logs(store) for at in range(0, size, RANGE_BYTES)]
    began = time.perf_counter()
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        read = sum(pool.map(lambda each: len(obstore.get_range(store, each[0], start=each[1], length=each[2])), ranges))
    return read / MIB / (time.perf_counter() - began)


def scan(bootstrap: str, count: int) -> float:
    """Megabytes per second of a consumer that only follows the offsets, from the headers of the batches."""
    host, _, port = bootstrap.rpartition(":")
    wanted = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    topic = FetchRequest.Topic(topic=TOPIC, partitions=[wanted])
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=FETCH_BYTES, topics=[topic])
    connection = Connection(host, int(port), timeout_s=PATIENCE_S)
    connection.open()
    began, offset, read = time.perf_counter(), 0, 0
    while offset < count:
        wanted.fetch_offset = offset  # type: ignore[misc]
        result = connection.ask(request, 12).responses[0].partitions[0]
        if result.error_code == KafkaStorageError.code and not offset:
            time.sleep(0.01)  # the remote log metadata is not loaded yet
            began = time.perf_counter()
            continue
        assert result.error_code == 0, result
        read += len(result.records or b"")
        for header in headers(result.records or b""):
            offset = header.next_offset
        assert time.perf_counter() - began < PATIENCE_S, f"{offset} of {count} records"
    seconds = time.perf_counter() - began
    connection.close()
    return read / MIB / seconds


def limit(bootstrap: str, megabytes: int) -> None:
    """Of reads from the object store, per second."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    key = "remote.log.manager.fetch.max.bytes.per.second"
    change = ConfigEntry(key, str(megabytes * MIB), incremental_operation=AlterConfigOpType.SET)
    [node] = admin.list_topics(timeout=PATIENCE_S).brokers
    resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


@contextmanager
def hot_latencies(bootstrap: str) -> Iterator[list[float]]:
    """Milliseconds from `produce` to the acknowledgement, of one record after the other."""
    taken: list[float] = []
    done = threading.Event()

    def run() -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
        while not done.is_set():
            began = time.perf_counter()
            producer.produce(HOT, b"x" * 100)
            producer.flush(PATIENCE_S)
            taken.append((time.perf_counter() - began) * 1000)
            time.sleep(HOT_PAUSE_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield taken
    finally:
        done.set()
        thread.join()


def percentiles(taken: list[float]) -> str:
    ordered = sorted(taken)
    return f"p50 {ordered[len(ordered) // 2]:.2f} ms, p99 {ordered[len(ordered) * 99 // 100]:.2f} ms of {len(ordered)}"


def wait_until_tiered(store: "LocalStore | S3Store", megabytes: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while sum(size for _, size in logs(store)) < (megabytes * MIB - 2 * SEGMENT_BYTES):
        assert time.monotonic() < deadline, "the segments were not copied"
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Reads from the object store.")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--limit-mb", type=int, default=100)
    parser.add_argument("--url")
    parser.add_argument("--endpoint")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        url = options.url or f"file://{Path(folder) / 'store'}"
        with Broker(process=True, **settings(url, options.endpoint)) as broker:
            fill(broker.bootstrap_servers, options.megabytes)
            store = store_of(url, options.endpoint)
            wait_until_tiered(store, options.megabytes)
            count = options.megabytes * MIB // VALUE_BYTES
            raw_rate = raw(store)
            broker.restart()
            cold = scan(broker.bootstrap_servers, count)
            print(f"raw {raw_rate:.0f} MB/s, scan {cold:.0f} MB/s: {cold / raw_rate:.0%}")
            with hot_latencies(broker.bootstrap_servers) as alone:
                time.sleep(5)
            print(f"hot alone: {percentiles(alone)}")
            broker.restart()
            limit(broker.bootstrap_servers, options.limit_mb)
            with hot_latencies(broker.bootstrap_servers) as beside:
                limited = scan(broker.bootstrap_servers, count)
            print(f"hot beside a scan of {limited:.0f} MB/s: {percentiles(beside)}")


if __name__ == "__main__":
    main()
