"""AlterReplicaLogDirs: clients do not notice the move, nothing is lost, and it can be cancelled."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio
from support.serving import ClientConnection, ask, on_trio, running_broker
from support.topic_requests import create

from trioka.broker.broker import Broker
from trioka.protocol.batch import build, headers, records
from trioka.protocol.errors import KafkaStorageError
from trioka.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from trioka.protocol.messages.delete_topics import DeleteTopicsRequest
from trioka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.primitives import NULL_UUID
from trioka.protocol.record import Record
from trioka.storage.files.layout import TopicPartition

NAME = TopicPartition("orders", 0)
LARGE = b"x" * 500_000  # three of them are more than the piece that the event loop copies by itself
HARDLY_ANYTHING = {"replica.alter.log.dirs.io.max.bytes.per.second": 1}  # a move waits for ever after its first piece


class Copy(NamedTuple):
    directory: str
    is_future: bool
    lag: int


def directories(tmp_path: Path, *names: str) -> str:
    return ",".join(f"{tmp_path}/{name}" for name in names)


@asynccontextmanager
async def broker_at(tmp_path: Path, *names: str, **settings: object) -> AsyncIterator[Broker]:
    async with running_broker(directories(tmp_path, *names), None, **settings) as broker:
        yield broker


async def copies(broker: Broker) -> list[Copy]:
    """Where the partition is, and where it goes; the names of the directories only."""
    topics = [DescribeLogDirsRequest.Topic(topic=NAME.topic, partitions=[NAME.partition])]
    return [
        Copy(result.log_dir.rpartition("/")[2], partition.is_future_key, partition.offset_lag)
        for result in (await ask(broker, DescribeLogDirsRequest(topics=topics), 4)).results
        for topic in result.topics
        for partition in topic.partitions
    ]


async def move(broker: Broker, directory: str) -> int:
    path = next(each.path for each in broker.directories if each.path.endswith(f"/{directory}"))
    wanted = AlterReplicaLogDirsRequest.Dir
    topics = [wanted.Topic(name=NAME.topic, partitions=[NAME.partition])]
    response = await ask(broker, AlterReplicaLogDirsRequest(dirs=[wanted(path=path, topics=topics)]), 2)
    code: int = response.results[0].partitions[0].error_code
    return code


async def arrived(broker: Broker, directory: str) -> None:
    """Returns when the partition is there, and nowhere else, and the controller knows it."""
    there = next(each for each in broker.directories if each.path.endswith(f"/{directory}"))
    assert there.meta is not None
    while True:
        topic = broker.metadata.topics.by_name(NAME.topic)
        assert topic is not None
        known = topic.partitions[NAME.partition].directory(broker.node_id)
        if await copies(broker) == [Copy(directory, False, 0)] and known == there.meta.directory_id:
            return
        await trio.sleep(0.01)


def elsewhere(here: str, *names: str) -> str:
    return next(name for name in names if name != here)


async def place(broker: Broker) -> str:
    (only,) = await copies(broker)
    return only.directory


def producing(*values: bytes) -> ProduceRequest:
    batch = build([Record(offset, 1_700_000_000_000, None, value) for offset, value in enumerate(values)])
    data = ProduceRequest.Topic.Partition(index=NAME.partition, records=bytes(batch))
    topic = ProduceRequest.Topic(name=NAME.topic, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


async def produce(connection: ClientConnection, *values: bytes) -> int:
    (reply,) = (await connection.ask(producing(*values), 9)).responses[0].partition_responses
    assert reply.error_code == 0
    return int(reply.base_offset)


async def fetch(connection: ClientConnection, offset: int) -> list[Record]:
    requested = FetchRequest.Topic.Partition(
        partition=NAME.partition, fetch_offset=offset, partition_max_bytes=100_000, last_fetched_epoch=-1
    )
    topic = FetchRequest.Topic(topic=NAME.topic, partitions=[requested])
    request = FetchRequest(max_wait_ms=50, min_bytes=1, topics=[topic])
    (reply,) = (await connection.ask(request, 11)).responses[0].partitions
    assert reply.error_code == 0
    return [record for header in headers(reply.records) for record in records(reply.records, header)]


async def read_all(broker: Broker) -> list[bytes]:
    found: list[bytes] = []
    async with ClientConnection(broker) as connection:
        while more := await fetch(connection, len(found)):
            found += [record.value or b"" for record in more]
    return found


async def fill(broker: Broker) -> list[bytes]:
    values = [b"%d" % number + LARGE for number in range(6)]
    async with ClientConnection(broker) as connection:
        for value in values:
            await produce(connection, value)
    return values


@on_trio
async def test_a_replica_moves_while_it_is_written_and_read(tmp_path: Path) -> None:
    written: list[bytes] = []
    read: list[bytes] = []
    moved, finished = trio.Event(), trio.Event()

    async def write(connection: ClientConnection) -> None:
        while not moved.is_set() or len(written) < 300:
            value = b"%d " % len(written) + b"x" * (len(written) % 7 * 5000)
            assert await produce(connection, value) == len(written), "each record gets the next offset, and once"
            written.append(value)
        finished.set()

    async def consume(connection: ClientConnection) -> None:
        while not finished.is_set() or len(read) < len(written):
            read.extend(record.value or b"" for record in await fetch(connection, len(read)))

    async with (
        broker_at(tmp_path, "a", "b") as broker,
        ClientConnection(broker) as producer,
        ClientConnection(broker) as consumer,
        trio.open_nursery() as nursery,
    ):
        await create(broker, NAME.topic, internal_segment_bytes=200_000, flush_messages=1)
        nursery.start_soon(write, producer)
        nursery.start_soon(consume, consumer)
        for _ in range(4):
            there = elsewhere(await place(broker), "a", "b")
            before = len(written)
            assert await move(broker, there) == 0
            await arrived(broker, there)
            while len(written) < before + 20:
                await trio.sleep(0.01)
        moved.set()
    assert read == written
    assert len(list(tmp_path.glob("*/orders-0"))) == 1
    async with broker_at(tmp_path, "a", "b") as broker:
        assert await read_all(broker) == written


@on_trio
async def test_a_move_can_be_watched_and_called_off(tmp_path: Path) -> None:
    async with broker_at(tmp_path, "a", "b", **HARDLY_ANYTHING) as broker:
        await create(broker, NAME.topic)
        values = await fill(broker)
        here = await place(broker)
        there = elsewhere(here, "a", "b")
        for _ in range(2):  # asked twice, it goes there once
            assert await move(broker, there) == 0
        found = await copies(broker)
        assert [copy for copy in found if not copy.is_future] == [Copy(here, False, 0)]
        ((directory, _, lag),) = [copy for copy in found if copy.is_future]
        assert directory == there and 0 < lag <= 6
        assert len(list(tmp_path.glob(f"{there}/orders-0.*-future"))) == 1
        assert await move(broker, here) == 0
        assert await copies(broker) == [Copy(here, False, 0)]
        assert not list(tmp_path.glob("*/orders-0.*"))
        assert await read_all(broker) == values


@on_trio
async def test_a_move_can_go_elsewhere_midway(tmp_path: Path) -> None:
    async with broker_at(tmp_path, "a", "b", "c", **HARDLY_ANYTHING) as broker:
        await create(broker, NAME.topic)
        await fill(broker)
        here = await place(broker)
        first, second = [name for name in ("a", "b", "c") if name != here]
        assert await move(broker, first) == 0
        assert await move(broker, second) == 0
        assert {(copy.directory, copy.is_future) for copy in await copies(broker)} == {(here, False), (second, True)}
        assert not list(tmp_path.glob(f"{first}/orders-0*"))


@on_trio
async def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(tmp_path: Path) -> None:
    async with broker_at(tmp_path, "a", "b", **HARDLY_ANYTHING) as broker:
        await create(broker, NAME.topic, file_delete_delay_ms=0)
        await fill(broker)
        here = await place(broker)
        assert await move(broker, elsewhere(here, "a", "b")) == 0
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.Topic(name=NAME.topic, topic_id=NULL_UUID)], timeout_ms=1000
        )
        assert (await ask(broker, request, 6)).responses[0].error_code == 0
        assert await copies(broker) == []
        assert not list(tmp_path.glob("*/orders-0")) and not list(tmp_path.glob("*/*-future"))
        await create(broker, NAME.topic)
        assert await read_all(broker) == []


@on_trio
async def test_a_move_that_a_stop_interrupted_goes_on_after_the_start(tmp_path: Path) -> None:
    async with broker_at(tmp_path, "a", "b", **HARDLY_ANYTHING) as broker:
        await create(broker, NAME.topic)
        values = await fill(broker)
        there = elsewhere(await place(broker), "a", "b")
        assert await move(broker, there) == 0
    assert list(tmp_path.glob(f"{there}/orders-0.*-future"))
    async with broker_at(tmp_path, "a", "b") as broker:
        await arrived(broker, there)
        assert await read_all(broker) == values
    assert not list(tmp_path.glob(f"{there}/orders-0.*"))


@on_trio
async def test_of_two_copies_that_a_crash_left_the_longer_is_kept(tmp_path: Path) -> None:
    async with broker_at(tmp_path, "a", "b") as broker:
        await create(broker, NAME.topic)
        here = await place(broker)
        there = elsewhere(here, "a", "b")
        async with ClientConnection(broker) as connection:
            await produce(connection, b"one")
            shutil.copytree(tmp_path / here / "orders-0", tmp_path / there / "orders-0")
            await produce(connection, b"two")
    async with broker_at(tmp_path, "a", "b") as broker:
        assert await copies(broker) == [Copy(here, False, 0)]
        assert await read_all(broker) == [b"one", b"two"]
    assert len(list(tmp_path.glob(f"{there}/orders-0.*-stray"))) == 1


@on_trio
async def test_a_copy_whose_log_is_nowhere_is_left_alone(tmp_path: Path) -> None:
    left = tmp_path / "b" / f"orders-0.{'a' * 32}-future"
    left.mkdir(parents=True)
    async with broker_at(tmp_path, "a", "b") as broker:
        await create(broker, NAME.topic)
    assert left.is_dir()


@on_trio
async def test_a_move_to_a_disk_that_fails_is_given_up(tmp_path: Path) -> None:
    # The metadata has a directory of its own: without it the node would end.
    async with broker_at(tmp_path, "a", "b", metadata_log_dir=str(tmp_path / "metadata")) as broker:
        await create(broker, NAME.topic)
        values = await fill(broker)
        here = await place(broker)
        there = next(each for each in broker.directories if not each.path.endswith(f"/{here}"))
        real: Any = there.begin_future

        def begin_and_fail(*arguments: Any, **keywords: Any) -> Any:
            made = real(*arguments, **keywords)
            there.volume.fail(OSError(5, "the disk is broken"))
            return made

        there.begin_future = begin_and_fail  # type: ignore[method-assign]
        assert await move(broker, there.path.rpartition("/")[2]) == 0
        while broker.moves._moves:
            await trio.sleep(0.01)
        assert await copies(broker) == [Copy(here, False, 0)]
        assert await read_all(broker) == values
        assert await move(broker, there.path.rpartition("/")[2]) == KafkaStorageError.code


@on_trio
async def test_the_controller_learns_where_new_partitions_are(tmp_path: Path) -> None:
    async with broker_at(tmp_path, "a", "b") as broker:
        await create(broker, "orders", 4)
        wanted = {
            name: directory.meta.directory_id
            for directory in broker.directories
            for name in directory.logs
            if directory.meta is not None and name.topic == "orders"
        }
        while True:
            topic = broker.metadata.topics.by_name("orders")
            assert topic is not None
            known = {
                TopicPartition("orders", partition.index): partition.directory(broker.node_id)
                for partition in topic.partitions.values()
            }
            if known == wanted:
                break
            await trio.sleep(0.01)
