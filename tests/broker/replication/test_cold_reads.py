"""Records that are not in memory: only a worker thread waits for the disk."""

import os
import threading
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import trio
from mutants.plant import planted
from support.serving import ClientConnection, on_trio, running_broker

from trioka.broker.fastpath import fetch as fetch_fast_path
from trioka.broker.replication import cold_reads
from trioka.protocol import batch
from trioka.protocol.errors import KafkaStorageError
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.storage import page_cache_probe
from trioka.storage.disk import Buffer, File, OsDisk
from trioka.storage.page_cache_probe import uncached_range

HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")
SIZE = 50_000


def produce(value: bytes) -> ProduceRequest:
    records = bytes(batch.build([Record(0, 1_700_000_000_000, None, value)]))
    partition = ProduceRequest.Topic.Partition(index=0, records=records)
    return ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[ProduceRequest.Topic(name="t", partition_data=[partition])]
    )


def fetch(offset: int = 0, *, min_bytes: int = 1, max_bytes: int = 1 << 20) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchRequest.Topic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=20_000, min_bytes=min_bytes, max_bytes=1 << 20, topics=topics)


class SlowFile:
    """A file that is not in memory until some thread has read it, with reads that take as long as the test wants."""

    def __init__(self, disk: "SlowDisk", file: File, path: str) -> None:
        self._disk = disk
        self._file = file
        self._path = path

    def read(self, offset: int, size: int) -> bytes:
        if self._path in self._disk.cold:
            self._disk.waited.append(threading.get_ident())
            assert self._disk.may_go_on.wait(20)
            if self._disk.fails:
                raise OSError(5, "the disk has failed")
            self._disk.cold.discard(self._path)
        return self._file.read(offset, size)

    def is_resident(self, offset: int, size: int) -> bool:
        return self._path not in self._disk.cold

    def read_resident(self, offset: int, size: int) -> Buffer | None:
        return self._file.read_resident(offset, size) if self.is_resident(offset, size) else None

    def warm(self, offset: int, size: int) -> None:
        self.read(offset, size)

    def size(self) -> int:
        return self._file.size()

    def write(self, offset: int, *buffers: Buffer) -> int:
        return self._file.write(offset, *buffers)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()

    def map(self, size: int) -> Buffer:
        assert self._path not in self._disk.cold, "a look into a map would wait"
        return self._file.map(size)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


class SlowDisk(OsDisk):
    __slots__ = ("cold", "fails", "may_go_on", "waited")

    def __init__(self) -> None:
        self.cold: set[str] = set()
        self.waited: list[int] = []  # the threads that did
        self.may_go_on = threading.Event()
        self.fails = False

    def open(self, path: str, *, create: bool = False) -> File:
        return SlowFile(self, super().open(path, create=create), path)


@on_trio
async def test_a_read_of_cold_data_delays_only_itself(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with (
        running_broker(tmp_path, disk) as broker,
        ClientConnection(broker) as reader,
        ClientConnection(broker) as other,
    ):
        await broker.create_missing_topics({"t": 1})
        await other.ask(produce(b"old" * SIZE), 9)
        log = broker.partitions.get("t", 0).log
        disk.cold.add(log.segments.active.log_path)
        await reader.say(fetch(), 11)
        while not disk.waited:
            await trio.sleep(0.001)
        assert (await other.ask(HELLO, 3)).error_code == 0  # served while the other waits for the disk
        disk.may_go_on.set()
        records = (await reader.hear(fetch(), 11)).responses[0].partitions[0].records
        assert b"old" * SIZE in bytes(records)
        assert threading.get_ident() not in disk.waited


@on_trio
async def test_an_index_that_is_not_in_memory_is_waited_for_elsewhere_too(tmp_path: Path) -> None:
    disk = SlowDisk()
    disk.may_go_on.set()
    async with running_broker(tmp_path, disk) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({"t": 1})
        for _ in range(5):
            await client.ask(produce(bytes(SIZE)), 9)
    async with running_broker(tmp_path, disk) as broker, ClientConnection(broker) as client:
        segment = broker.partitions.get("t", 0).log.segments.active
        assert len(segment.index.entries) > 0
        disk.cold |= {segment.log_path, segment.index.entries.path}
        records = (await client.ask(fetch(3), 11)).responses[0].partitions[0].records
        assert batch.read_header(records).base_offset == 3
        assert len(disk.waited) >= 1
        assert threading.get_ident() not in disk.waited


@on_trio
async def test_less_than_was_wanted_is_answered_when_it_had_to_be_waited_for(tmp_path: Path) -> None:
    disk = SlowDisk()
    disk.may_go_on.set()
    async with running_broker(tmp_path, disk) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({"t": 1})
        await client.ask(produce(b"old"), 9)
        disk.cold.add(broker.partitions.get("t", 0).log.segments.active.log_path)
        answer = await client.ask(fetch(min_bytes=1000), 11)
        assert b"old" in bytes(answer.responses[0].partitions[0].records)


@on_trio
async def test_a_disk_failure_there_is_an_error_for_the_reader_and_the_broker_goes_on(tmp_path: Path) -> None:
    disk = SlowDisk()
    disk.may_go_on.set()
    # There are two other disks that work, one of them the metadata's: without them the node would end.
    settings = {"log_dirs": f"{tmp_path}/a,{tmp_path}/b", "metadata_log_dir": f"{tmp_path}/metadata"}
    async with running_broker(tmp_path, disk, **settings) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({"t": 1})
        await client.ask(produce(b"old"), 9)
        disk.fails = True
        disk.cold.add(broker.partitions.get("t", 0).log.segments.active.log_path)
        answer = await client.ask(fetch(), 11)
        assert answer.responses[0].partitions[0].error_code == KafkaStorageError.code
        assert (await client.ask(HELLO, 3)).error_code == 0


@on_trio
async def test_so_many_threads_wait_for_disks_and_no_more(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with running_broker(tmp_path, disk) as broker, trio.open_nursery() as nursery:
        await broker.create_missing_topics({"t": 1})
        async with ClientConnection(broker) as client:
            await client.ask(produce(b"old"), 9)
        disk.cold.add(broker.partitions.get("t", 0).log.segments.active.log_path)
        answers = []

        async def read() -> None:
            async with ClientConnection(broker) as reader:
                answers.append(await reader.ask(fetch(), 11))

        for _ in range(cold_reads.THREADS + 3):
            nursery.start_soon(read)
        while len(broker.network) < cold_reads.THREADS + 3 or len(disk.waited) < cold_reads.THREADS:
            await trio.sleep(0.001)
        await trio.sleep(0.01)
        assert len(disk.waited) == cold_reads.THREADS
        disk.may_go_on.set()
    assert len(answers) == cold_reads.THREADS + 3


def throw_out(path: str) -> None:
    """Of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


@on_trio
async def test_the_kernel_says_what_is_not_in_memory(tmp_path: Path) -> None:
    """A real file, thrown out of the page cache."""
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({"t": 1})
        await client.ask(produce(b"old" * SIZE), 9)
        log = broker.partitions.get("t", 0).log
        assert uncached_range(log, 0, 1 << 20) is None
        for _ in range(100):  # the kernel holds on to pages that it has in hand
            throw_out(log.segments.active.log_path)
            if uncached_range(log, 0, 1 << 20) is not None:
                break
        else:
            pytest.skip("this file system does not say what is in memory, or keeps it there")
        answer = await client.ask(fetch(), 11)
        assert b"old" * SIZE in bytes(answer.responses[0].partitions[0].records)
        assert uncached_range(log, 0, 1 << 20) is None


# Planted mistakes. A rule runs in a loop of its own, with a copy of a module in the place of the right one.


async def a_cold_log_is_read_elsewhere(path: Path) -> None:
    """By a request of the general path, and by one of a fast path; neither waits here, for log or index."""
    disk = SlowDisk()
    disk.may_go_on.set()
    async with running_broker(path, disk) as broker, ClientConnection(broker) as client:
        await broker.create_missing_topics({"t": 1})
        for _ in range(5):
            await client.ask(produce(bytes(SIZE)), 9)
    async with running_broker(path, disk) as broker, ClientConnection(broker) as client:
        log = broker.partitions.get("t", 0).log
        segment = log.segments.active
        disk.cold.add(segment.index.entries.path)
        assert batch.read_header(await records_of(client, 3)).base_offset == 3
        for offset in (0, 1, 2):  # these open a fast path
            await records_of(client, offset)
        for offset in (0, 1, 2, 3, 4):
            disk.cold.add(segment.log_path)
            assert batch.read_header(await records_of(client, offset)).base_offset == offset
            assert segment.log_path not in disk.cold
        assert len(disk.waited) >= 6
        assert threading.get_ident() not in disk.waited


async def records_of(client: ClientConnection, offset: int) -> bytes:
    wanted = fetch(offset, max_bytes=SIZE)
    with trio.fail_after(20):
        return bytes((await client.ask(wanted, 11)).responses[0].partitions[0].records)


@on_trio
async def test_what_is_not_in_memory_is_read_elsewhere_whichever_road_a_fetch_takes(tmp_path: Path) -> None:
    await a_cold_log_is_read_elsewhere(tmp_path)


MISTAKES: list[tuple[ModuleType, str, str, tuple[str, str]]] = [
    (
        page_cache_probe,
        "size <= 0",
        "True",
        ("trioka.broker.handlers.fetch", "uncached_range"),
    ),
    (
        page_cache_probe,
        "if not segment.index_is_warm:",
        "if False:",
        ("trioka.broker.handlers.fetch", "uncached_range"),
    ),
    (
        page_cache_probe,
        "size <= 0",
        "True",
        ("trioka.broker.fastpath.fetch", "uncached_range"),
    ),
    (page_cache_probe, "file.warm(part.position, part.size)", "pass", ("trioka.broker.replication.cold_reads", "warm")),
    (
        fetch_fast_path,
        "elif uncached_range(log, offset, limit) is not None:",
        "elif False:",
        ("trioka.broker.fastpath.registry", "fast_path_for"),
    ),
    (
        cold_reads,
        "await trio.to_thread.run_sync(partial(warm, part), limiter=self._limiter)",
        "warm(part)",
        ("trioka.broker.broker", "ColdReads"),
    ),
]


@pytest.mark.parametrize(("module", "right", "wrong", "place"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    tmp_path: Path,
    module: ModuleType,
    right: str,
    wrong: str,
    place: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where, name = place
    monkeypatch.setattr(import_module(where), name, getattr(planted(module, right, wrong), name))
    with pytest.raises((Exception, pytest.fail.Exception)):
        trio.run(a_cold_log_is_read_elsewhere, tmp_path)
