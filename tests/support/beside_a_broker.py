"""A tiered topic of a broker with batches of all codecs, two leader epochs and aborted transactions, which readers of
the archive must see as a consumer does."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from support.archive_objects import digest
from support.serving import HOST, LISTENER, broker_in_thread
from support.tiered_topics import tiered

from trioka.archive import Archive
from trioka.archive.errors import UnknownPartition

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 60.0
CONFIGS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "3000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
    "index.interval.bytes": "200",
}


@contextmanager
def serving(directory: Path, store: Path) -> Iterator[str]:
    with broker_in_thread(
        directory / "data", **tiered(store), rlmm_config_remote_log_metadata_topic_replication_factor=1
    ) as broker:
        yield f"{HOST}:{broker.addresses[LISTENER][1]}"


def produce(bootstrap: str, number: int) -> None:
    """Batches of all codecs, and two transactions, of which one is aborted."""
    random = Random(number)  # half of which no codec makes small: segments are full soon
    for codec in CODECS:
        with closing(KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec)) as producer:
            for key in range(8):
                producer.send(
                    "orders", key=b"%d" % key, value=random.randbytes(120) + bytes(80), headers=[("codec", b"x")]
                )
            producer.flush()
    transactional = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="t", compression_type="lz4")
    with closing(transactional) as producer:
        producer.init_transactions()
        for commit in (False, True):
            producer.begin_transaction()
            for key in range(6):
                producer.send("orders", key=b"txn %d" % key, value=random.randbytes(120) + bytes(80))
            producer.flush()
            (producer.commit_transaction if commit else producer.abort_transaction)()


@contextmanager
def closing(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        client.close()


def consumed(bootstrap: str, isolation: str, end: int) -> str:
    """The digest of the records below an offset, as a consumer gets them."""
    rows: list[object] = []
    place = TopicPartition("orders", 0)
    with closing(
        KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False)
    ) as consumer:
        consumer.assign([place])
        consumer.seek(place, 0)
        deadline = time.monotonic() + PATIENCE_S
        while consumer.position(place) < end:
            assert time.monotonic() < deadline, f"at {consumer.position(place)} of {end}"
            for record in consumer.poll(timeout_ms=200).get(place, ()):
                if record.offset < end:
                    headers = tuple(record.headers)
                    rows.append((record.offset, record.timestamp, record.key, record.value, headers))
    return digest(rows)


def copied(archive: Archive, at_least: int) -> int:
    """Waits until the archive goes so far; the offset up to which all of it is decided."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            found = archive.partition("orders", 0)
        except UnknownPartition:
            continue
        if found.end_offset >= at_least:
            return found.last_stable_offset
        time.sleep(0.05)
    raise AssertionError(f"nothing up to offset {at_least} was copied")


def two_epochs(directory: Path, store: Path) -> Iterator[tuple[str, int]]:
    """Produces to `orders` in one leader epoch, and then in another; each time the broker's address, while it runs, and
    the offset up to which all is in the object store and decided."""
    archive = Archive(store.as_uri())
    end = 0
    for start in range(2):
        with serving(directory, store) as bootstrap:
            if start == 0:
                with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
                    admin.create_topics([NewTopic("orders", 1, 1, topic_configs=CONFIGS)])
            for number in range(3):
                produce(bootstrap, number)
            end = copied(archive, end + 100)
            yield bootstrap, end
