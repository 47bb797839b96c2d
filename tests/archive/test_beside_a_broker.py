"""What a broker copies to the object store, the archive reads as a consumer reads it from the broker."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from support.archive_objects import digest
from support.command_line import command
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


def archived(archive: Archive, isolation: str, end: int) -> str:
    records = archive.records("orders", 0, isolation=isolation, offsets=(0, end))
    return digest((each.offset, each.timestamp, each.key, each.value, each.headers) for each in records)


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


@pytest.mark.slow
def test_archive_and_consumer_agree_to_the_hash(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    archive = Archive(store.as_uri())
    end = 0
    for start in range(2):  # the second in another leader epoch
        with serving(tmp_path, store) as bootstrap:
            if start == 0:
                with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
                    admin.create_topics([NewTopic("orders", 1, 1, topic_configs=CONFIGS)])
            for number in range(3):
                produce(bootstrap, number)
            end = copied(archive, end + 100)
            for isolation in ("read_committed", "read_uncommitted"):
                assert archived(archive, isolation, end) == consumed(bootstrap, isolation, end)
    partition = archive.partition("orders", 0)
    assert len(partition.lineage.chain) == 2 and len(partition.slices) > 3
    codecs = {codec for each in partition.manifests if each.content is not None for codec in each.content.codecs}
    assert len(codecs) == len(CODECS)
    ended = command("archive", "verify", str(store), "-o", "json")
    assert (ended.code, [row for row in ended.rows if row["status"] != "foreign"]) == (0, [])
