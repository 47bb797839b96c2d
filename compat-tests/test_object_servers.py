"""Object stores that others have written: each passes the test of conditional writes, takes uploads in parts and the
segments of a topic, gives the same records back, and a cluster is restored from it."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import confluent_kafka
import object_servers
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # public, and not marked as such
from object_servers import Server
from support.command_line import Ended, command
from support.serving import HOST, LISTENER, broker_in_thread
from toolchains import unavailable

from trioka.broker.tier.store.object_store import PART_BYTES
from trioka.broker.tier.store.obstore_client import open_store
from trioka.broker.tier.store.probe import check_conditional_create
from trioka.broker.tier.store.store_options import StoreOptions
from trioka.pipeline.installation.cache import Unavailable

pytestmark = pytest.mark.nightly

T = TypeVar("T")

RACES = 10
RECORDS = 400
VALUE_BYTES = 10_000
PATIENCE_S = 120.0
TOPIC = "orders"
BROKER = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "trioka.tier.restore.copies.ms": "100",
}
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}


@pytest.fixture(scope="module", params=[object_servers.s3proxy, object_servers.azurite], ids=["s3proxy", "azurite"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    start: Callable[[Path], AbstractContextManager[Server]] = request.param
    try:
        with start(tmp_path_factory.mktemp("server")) as running:
            yield running
    except Unavailable as missing:
        unavailable(missing)


def test_one_of_several_writers_creates_an_object_and_an_upload_in_parts_appears_at_its_end(server: Server) -> None:
    settings = server.settings

    async def check() -> None:
        options = StoreOptions(
            url=settings["trioka.tier.url"],
            endpoint=settings["trioka.tier.endpoint"],
            region=settings.get("trioka.tier.region"),
            access_key=settings["trioka.tier.access.key"],
            secret_key=settings["trioka.tier.secret.key"],
        )
        store = open_store(options, trio.CapacityLimiter(8))
        for number in range(RACES):
            await check_conditional_create(store, f"race-{number}")
        writer = await store.open_writer("parts/one")
        await writer.write(bytes(PART_BYTES))
        await writer.write(b"rest")
        assert await store.list("parts/") == []
        await writer.close()
        assert await store.size("parts/one") == PART_BYTES + 4
        assert bytes(await store.get_range("parts/one", PART_BYTES - 1, 5)) == b"\0rest"
        await store.delete(["parts/one", "parts/missing"])
        assert await store.list("parts/") == []

    trio.run(check)


def test_a_topic_is_copied_read_back_and_restored(server: Server, tmp_path: Path) -> None:
    keys = {name.replace(".", "_"): value for name, value in {**BROKER, **server.settings}.items()}
    values = [b"%08d" % number + bytes(VALUE_BYTES - 8) for number in range(RECORDS)]
    with broker_in_thread(tmp_path / "old", None, **keys) as broker:
        at = f"{HOST}:{broker.addresses[LISTENER][1]}"
        admin = AdminClient({"bootstrap.servers": at})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=TIERED)])[TOPIC].result(PATIENCE_S)
        producer = confluent_kafka.Producer({"bootstrap.servers": at, "linger.ms": 5})
        for value in values:
            producer.produce(TOPIC, value)
        assert producer.flush(PATIENCE_S) == 0
        end = until(lambda: copied_end(at))
        assert read(at, RECORDS) == values
        until(lambda: planned(server, tmp_path / "new", end))
    ended = restore(server, tmp_path / "new", "--yes")
    assert ended.code == 0, ended.stderr
    again = {**keys, "trioka_tier_incarnation": "2"}
    with broker_in_thread(tmp_path / "new", None, **again) as broker:
        assert read(f"{HOST}:{broker.addresses[LISTENER][1]}", end) == values[:end]


def until(condition: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


def copied_end(at: str) -> int | None:
    """The offset behind the last one in the object store, once there are two megabytes."""
    ended = command("tier", "status", TOPIC, "-o", "json", at=at)
    end = 0 if ended.code else (ended.rows[0]["end_offset"] or -1) + 1
    return int(end) if end * VALUE_BYTES > 2 << 20 else None


def restore(server: Server, data: Path, *more: str) -> Ended:
    options = [part for option in server.options for part in ("--store-option", option)]
    url = server.settings["trioka.tier.url"]
    return command("tier", "restore", "--from", url, "--data", str(data), "-o", "json", *options, *more)


def planned(server: Server, data: Path, end: int) -> Ended | None:
    """The plan, once the metadata of the cluster is in the object store too."""
    ended = restore(server, data, "--plan")
    found = ended.code == 0 and any(row["topic"] == TOPIC and row["end_offset"] >= end for row in ended.rows)
    return ended if found else None


def read(at: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": at, "group.id": "g", "enable.auto.commit": False})
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        found: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < deadline, len(found)
            got = consumer.consume(1000, 1.0)
            found += [message.value() or b"" for message in got if message.error() is None]
        return found
    finally:
        consumer.close()
