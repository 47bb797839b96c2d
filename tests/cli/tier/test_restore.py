"""`trioka tier restore`: all directories of a cluster are deleted, and a node is built from the object store alone."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from support.command_line import Ended, command
from support.serving import HOST, LISTENER, broker_in_thread

from trioka.broker.broker import Broker
from trioka.broker.tier.ownership import incarnation_key
from trioka.cli.terminal.failure import Exit
from trioka.cluster.metadata import Metadata

PATIENCE_S = 60.0
RECORDS = 25
SETTINGS = {
    "remote_log_storage_system_enable": "true",
    "rlmm_config_remote_log_metadata_topic_replication_factor": 1,
    "rlmm_config_remote_log_metadata_topic_num_partitions": 2,
    "trioka_tier_restore_copies_ms": 50,
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def address(broker: Broker) -> str:
    return f"{HOST}:{broker.addresses[LISTENER][1]}"


def done(*arguments: str, at: str, stdin: bytes = b"") -> Ended:
    ended = command(*arguments, at=at, stdin=stdin)
    assert ended.code == Exit.OK, (arguments, ended)
    return ended


def read(at: str, topic: str, isolation: str = "read_uncommitted") -> dict[int, tuple[Any, ...]]:
    """All records of partition 0, as a client that knows nothing of the tier gets them."""
    place = TopicPartition(topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=at, auto_offset_reset="earliest", enable_auto_commit=False, isolation_level=isolation
    )
    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end, found = consumer.end_offsets([place])[place], {}
        while consumer.position(place) < end:
            for record in consumer.poll(500).get(place, []):
                found[record.offset] = (record.timestamp, record.key, record.value, tuple(record.headers))
        return found
    finally:
        consumer.close()


def committed(at: str, group: str) -> dict[str, int]:
    consumer = KafkaConsumer(bootstrap_servers=at, group_id=group, enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, 0) for topic in ("orders", "plain")]
        found = {place.topic: consumer.committed(place) for place in places}
        return {topic: offset for topic, offset in found.items() if offset is not None}
    finally:
        consumer.close()


def commit(at: str, group: str, **offsets: int) -> None:
    consumer = KafkaConsumer(bootstrap_servers=at, group_id=group, enable_auto_commit=False)
    try:
        places = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1) for topic, offset in offsets.items()}
        consumer.assign(list(places))
        consumer.commit(places)
    finally:
        consumer.close()


class LostCluster(NamedTuple):
    store: Path
    records: dict[int, tuple[Any, ...]]  # of orders-0
    tiered_end: int
    image: Metadata
    cluster_id: str


@pytest.fixture(scope="module")
def lost_cluster(tmp_path_factory: pytest.TempPathFactory) -> LostCluster:
    """The object store of a cluster with topics, settings and groups, whose directory is deleted."""
    store, data = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("node")
    with broker_in_thread(data, None, **SETTINGS, trioka_tier_url=f"file://{store}") as broker:
        at = address(broker)
        config = ["--config", "remote.storage.enable=true", "--config", "internal.segment.bytes=2000"]
        config += ["--config", "local.retention.bytes=1", "--config", "file.delete.delay.ms=0"]
        done("topics", "create", "orders", "--partitions", "1", *config, at=at)
        done("topics", "create", "plain", "--partitions", "1", at=at)
        for number in range(RECORDS):
            done("produce", "orders", at=at, stdin=b"%06d" % number + b"x" * 600 + b"\n")
        done("produce", "plain", at=at, stdin=b"1\n2\n3\n")
        done("topics", "create", "paid", "--partitions", "1", *config, at=at)
        decide_late(at)
        done("acl", "add", "User:ann", "read", "topic:orders", at=at)
        done("user", "create", "ann", at=at, stdin=b"secret-of-ann\n")
        done("quota", "set", "producer_byte_rate=1MB", "--user", "ann", at=at)
        commit(at, "reader", orders=4)
        commit(at, "fast", orders=RECORDS, plain=2)
        orders, offsets = broker.partitions.find("orders", 0), broker.partitions.find("__consumer_offsets", 0)
        assert orders is not None and offsets is not None and broker.tier is not None
        closed = orders.log.segments.active.base_offset
        tiered = until(lambda: copied_end(at, "orders", closed))
        until(lambda: copied_end(at, "paid", 4))
        copies = broker.tier.copies
        until(lambda: copies._metadata_end == broker.metadata.offset + 1)
        until(lambda: 0 in copies._logs and copies._logs[0].end == offsets.log.high_watermark)
        records = read(at, "orders")
        image, cluster_id = broker.metadata.copy(), broker.cluster_id
    shutil.rmtree(data)
    assert len(records) == RECORDS and 0 < tiered < RECORDS
    return LostCluster(store, records, tiered, image, cluster_id)


def copied_end(at: str, topic: str, closed: int) -> int | None:
    ended = command("tier", "status", topic, "-o", "json", at=at)
    end: int = 0 if ended.code != Exit.OK else (ended.rows[0]["end_offset"] or -1) + 1
    return end if end >= closed > 0 else None


def decide_late(at: str) -> None:
    """A transaction whose records are in a closed segment of `paid`, and its marker in the active one."""
    producer = KafkaProducer(bootstrap_servers=at, transactional_id="t")
    try:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(2):
            producer.send("paid", b"late" + b"x" * 600).get(PATIENCE_S)
        for _ in range(3):
            done("produce", "paid", at=at, stdin=b"plain" + b"x" * 600 + b"\n")
        producer.commit_transaction()
    finally:
        producer.close()


@pytest.fixture
def store(lost_cluster: LostCluster, tmp_path: Path) -> Path:
    return Path(shutil.copytree(lost_cluster.store, tmp_path / "bucket"))


def restored(store: Path, data: Path, *more: str) -> Ended:
    return command("tier", "restore", "--from", f"file://{store}", "--data", str(data), "-o", "json", *more)


def files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_the_plan_says_what_is_lost_and_writes_nothing(lost_cluster: LostCluster, store: Path, tmp_path: Path) -> None:
    before = files(store)
    ended = restored(store, tmp_path / "new", "--plan")
    assert ended.code == Exit.OK, ended.stderr
    rows = {(row["topic"], row["partition"]): row for row in ended.rows}
    orders, plain = rows["orders", 0], rows["plain", 0]
    assert (orders["start_offset"], orders["end_offset"], orders["holes"]) == (0, lost_cluster.tiered_end, [])
    assert orders["lost"] == f"from {lost_cluster.tiered_end} on"
    assert plain["back"] == "empty" and plain["lost"] == "from 0 on"
    assert f"group fast, orders-0: {RECORDS} becomes {lost_cluster.tiered_end}" in ended.stderr
    assert "group fast, plain-0: 2 becomes 0" in ended.stderr
    assert files(store) == before and not (tmp_path / "new").exists()


def test_a_cluster_comes_back_from_the_object_store_alone(
    lost_cluster: LostCluster, store: Path, tmp_path: Path
) -> None:
    data = tmp_path / "new"
    data.mkdir()  # an empty directory is replaced
    ended = restored(store, data, "--yes")
    assert ended.code == Exit.OK, ended.stderr
    assert "trioka.tier.incarnation=2" in ended.stderr
    assert (store / incarnation_key(lost_cluster.cluster_id, 2)).exists()
    more = {"trioka_tier_url": f"file://{store}", "trioka_tier_incarnation": 2}
    for _ in range(2):  # a restored node may be restarted
        with broker_in_thread(data, None, **SETTINGS, **more) as broker:
            at, image, old = address(broker), broker.metadata, lost_cluster.image
            assert broker.cluster_id == lost_cluster.cluster_id
            assert {t.name: t.topic_id for t in image.topics} == {t.name: t.topic_id for t in old.topics}
            assert (image.configs, image.quotas, image.access) == (old.configs, old.quotas, old.access)
            assert image.features == old.features
            found = read(at, "orders")
            assert {offset: found[offset] for offset in range(lost_cluster.tiered_end)} == {
                offset: lost_cluster.records[offset] for offset in range(lost_cluster.tiered_end)
            }
            assert committed(at, "reader") == {"orders": 4}
            assert committed(at, "fast") == {"orders": lost_cluster.tiered_end, "plain": 0}
            end = max(found, default=-1) + 1
            done("produce", "orders", at=at, stdin=b"behind" + b"y" * 900 + b"\n")
            assert read(at, "orders")[end][2] == b"behind" + b"y" * 900
    assert end == lost_cluster.tiered_end + 1


def test_a_transaction_whose_end_was_not_copied_is_listed_and_aborted(store: Path, tmp_path: Path) -> None:
    ended = restored(store, tmp_path / "new", "--yes")
    assert ended.code == Exit.OK, ended.stderr
    (row,) = (row for row in ended.rows if row["topic"] == "paid")
    ((producer, first),) = row["open_transactions"]
    assert first == 0 and f"transaction of producer {producer} from offset 0 on: aborted" in row["lost"]
    more = {"trioka_tier_url": f"file://{store}", "trioka_tier_incarnation": 2}
    with broker_in_thread(tmp_path / "new", None, **SETTINGS, **more) as broker:
        at = address(broker)
        everything = read(at, "paid")
        assert [value[2][:4] for value in everything.values()][:3] == [b"late", b"late", b"plai"]
        assert set(everything) == set(range(row["end_offset"]))
        assert set(read(at, "paid", "read_committed")) == set(range(2, row["end_offset"]))
        decide_late(at)  # a new transaction of the same id
        assert len(read(at, "paid", "read_committed")) == row["end_offset"] - 2 + 5


def test_the_old_cluster_stops_copying_when_another_one_is_restored(tmp_path: Path) -> None:
    store = tmp_path / "bucket"
    store.mkdir()
    with broker_in_thread(tmp_path / "old", None, **SETTINGS, trioka_tier_url=f"file://{store}") as broker:
        at = address(broker)
        config = ("--config", "remote.storage.enable=true", "--config", "internal.segment.bytes=2000")
        done("topics", "create", "orders", "--partitions", "1", *config, at=at)
        for _ in range(6):
            done("produce", "orders", at=at, stdin=b"x" * 600 + b"\n")
        before = until(lambda: copied_end(at, "orders", 3))
        until(lambda: list(store.glob("_trioka/*/metadata/*.checkpoint")))
        assert restored(store, tmp_path / "new", "--yes").code == Exit.OK
        tier = broker.tier
        assert tier is not None
        tier.ownership._checked = -1e9  # as if the last look at the bucket was long ago
        done("topics", "create", "later", at=at)
        until(lambda: tier.ownership.superseded_by == 2)
        objects = files(store)
        for _ in range(6):
            done("produce", "orders", at=at, stdin=b"y" * 600 + b"\n")
        assert files(store) == objects and copied_end(at, "orders", before) == before


def test_a_segment_whose_objects_are_gone_is_a_hole_that_is_listed(
    lost_cluster: LostCluster, store: Path, tmp_path: Path
) -> None:
    gone = sorted(store.glob("orders-*/0/*.log"))[2]
    gone.unlink()
    ended = restored(store, tmp_path / "new", "--yes")
    assert ended.code == Exit.OK, ended.stderr
    (row,) = (row for row in ended.rows if row["topic"] == "orders")
    ((start, end),) = row["holes"]
    assert start == int(gone.name[:20]) and f"offsets {start} to {end - 1}" in row["lost"]
    more = {"trioka_tier_url": f"file://{store}", "trioka_tier_incarnation": 2}
    with broker_in_thread(tmp_path / "new", None, **SETTINGS, **more) as broker:
        found = read(address(broker), "orders")
    kept = {offset: record for offset, record in lost_cluster.records.items() if offset < lost_cluster.tiered_end}
    assert found == {offset: record for offset, record in kept.items() if not start <= offset < end}


def test_a_restored_cluster_can_be_restored_again(store: Path, tmp_path: Path) -> None:
    assert restored(store, tmp_path / "first", "--yes").code == Exit.OK
    more = {"trioka_tier_url": f"file://{store}", "trioka_tier_incarnation": 2}
    with broker_in_thread(tmp_path / "first", None, **SETTINGS, **more) as broker:
        at = address(broker)
        for _ in range(6):
            done("produce", "orders", at=at, stdin=b"again" + b"x" * 600 + b"\n")
        commit(at, "reader", orders=7)
        orders, offsets = broker.partitions.find("orders", 0), broker.partitions.find("__consumer_offsets", 0)
        assert orders is not None and offsets is not None and broker.tier is not None
        end = until(lambda: copied_end(at, "orders", orders.log.segments.active.base_offset))
        copies = broker.tier.copies
        until(lambda: copies._metadata_end == broker.metadata.offset + 1)
        until(lambda: 0 in copies._logs and copies._logs[0].end == offsets.log.high_watermark)
        before = read(at, "orders")
    ended = restored(store, tmp_path / "second", "--yes")
    assert ended.code == Exit.OK and "trioka.tier.incarnation=3" in ended.stderr, ended.stderr
    with broker_in_thread(tmp_path / "second", None, **SETTINGS, **(more | {"trioka_tier_incarnation": 3})) as broker:
        at = address(broker)
        assert read(at, "orders") == {offset: record for offset, record in before.items() if offset < end}
        assert committed(at, "reader") == {"orders": 7}


def test_an_impossible_restore_is_one_sentence(lost_cluster: LostCluster, store: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    full = restored(store, tmp_path / "full", "--yes")
    assert full.code == Exit.NOT_FOUND and "is not empty" in full.stderr
    other = restored(store, tmp_path / "new", "--cluster-id", "other", "--plan")
    assert other.code == Exit.NOT_FOUND and f"only of {lost_cluster.cluster_id}" in other.stderr
    for copy in store.glob("_trioka/*/metadata/*.checkpoint"):
        copy.write_bytes(copy.read_bytes()[:-10])
    damaged = restored(store, tmp_path / "new", "--plan")
    assert damaged.code == Exit.NOT_FOUND and "no readable copy of the metadata" in damaged.stderr
    shutil.rmtree(store / "_trioka")
    nothing = restored(store, tmp_path / "new", "--plan")
    assert nothing.code == Exit.NOT_FOUND and "nothing can be restored" in nothing.stderr
