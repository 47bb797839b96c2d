"""One disk of several fails, or the process runs out of descriptors: what is served, and the errors."""

import errno
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import trio
from mutants.plant import assert_noticed
from support.serving import ClientConnection, new_broker, on_trio, running_broker

from trioka.broker.background import LogMaintenance
from trioka.broker.broker import Broker
from trioka.broker.http.health import why_not_alive
from trioka.broker.http.protocol import health
from trioka.broker.membership import log_directories
from trioka.broker.membership.log_directories import LogDirectoriesOffline
from trioka.broker.network import descriptors
from trioka.protocol import batch
from trioka.protocol.errors import KafkaError, KafkaStorageError
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.produce import ProduceRequest
from trioka.protocol.record import Record
from trioka.storage.directory import LogDirectory
from trioka.storage.files import sync
from trioka.storage.files.disk import File, OsDisk
from trioka.storage.files.failstop_disk import OutOfDescriptors
from trioka.storage.files.file_pool import FilePool
from trioka.storage.files.sync import GroupCommits, OnShortage
from trioka.testing.disks.disk_faults import DiskOperation, Kind
from trioka.testing.disks.memory_disk import MemoryDisk

NOW_MS = 1_700_000_000_000


async def with_partitions(broker: Broker, partitions: int, **configs: str) -> None:
    config = CreateTopicsRequest.Topic.Config
    topic = CreateTopicsRequest.Topic(
        name="t",
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[config(name=name.replace("_", "."), value=value) for name, value in configs.items()],
    )
    await broker.quorum.change(lambda controller: controller.create_topics([topic]))


def partition_in(broker: Broker, directory: LogDirectory) -> int:
    return next(
        replica.index for replica in broker.partitions if replica.log.directory.startswith(directory.path + "/")
    )


async def produce(client: ClientConnection, partition: int) -> int:
    data = bytes(batch.build([Record(0, NOW_MS, None, b"v")]))
    requested = ProduceRequest.Topic.Partition(index=partition, records=data)
    topics = [ProduceRequest.Topic(name="t", partition_data=[requested])]
    answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


class BrokenIn:
    """A MemoryDisk whose syncs fail in one directory."""

    def __init__(self, path: str) -> None:
        self.disk = MemoryDisk()
        self.path = path
        self.is_broken = False
        self.disk.before = self._before

    def _before(self, operation: DiskOperation) -> None:
        if self.is_broken and operation.kind is Kind.SYNC and operation.path.startswith(self.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), operation.path)


async def a_healthy_directory_goes_on() -> None:
    hurt = BrokenIn("/b")
    async with running_broker("/a,/b", hurt.disk) as broker, ClientConnection(broker) as client:
        await with_partitions(broker, 2, flush_messages="1")
        healthy, broken = (partition_in(broker, directory) for directory in broker.directories)
        assert await produce(client, healthy) == await produce(client, broken) == 0
        hurt.is_broken = True
        assert await produce(client, broken) == KafkaStorageError.code
        for _ in range(3):
            assert await produce(client, healthy) == 0
        log = broker.partitions.get("t", healthy).log
        assert log.recovery_point == log.log_end_offset == 4
        assert [directory.failure is None for directory in broker.directories] == [True, False]


@on_trio
async def test_a_disk_that_fails_does_not_stop_flushes_in_another_directory() -> None:
    await a_healthy_directory_goes_on()


def test_one_group_commit_for_all_directories_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class OneForAll(GroupCommits):
        def __init__(self, nursery: trio.Nursery, pools: list[FilePool], on_shortage: OnShortage) -> None:
            super().__init__(nursery, pools, on_shortage)
            self.by_disk = dict.fromkeys(self.by_disk, next(iter(self.by_disk.values())))

    monkeypatch.setattr("trioka.broker.broker.GroupCommits", OneForAll)
    with pytest.raises(AssertionError):
        on_trio(a_healthy_directory_goes_on)()


@on_trio
async def test_a_log_whose_files_are_gone_takes_its_directory_offline_as_in_kafka(tmp_path: Path) -> None:
    """Its flushes fail for ever, and the log must show the reason."""
    folders = [tmp_path / "a", tmp_path / "b"]
    async with running_broker(",".join(map(str, folders)), None) as broker, ClientConnection(broker) as client:
        await with_partitions(broker, 2, flush_messages="1")
        healthy, broken = (partition_in(broker, directory) for directory in broker.directories)
        assert await produce(client, broken) == 0
        shutil.rmtree(folders[1] / f"t-{broken}")
        assert await produce(client, broken) == KafkaStorageError.code
        assert await produce(client, healthy) == 0
        assert [directory.failure is None for directory in broker.directories] == [True, False]


async def chores_go_on(chore: str, **configs: str) -> None:
    hurt = BrokenIn("/b")
    async with running_broker("/a,/b", hurt.disk) as broker, ClientConnection(broker) as client:
        await with_partitions(broker, 4, **configs)
        for replica in broker.partitions:
            assert await produce(client, replica.index) == 0
            if chore == "checkpoint":
                replica.log.roll(now_ms=NOW_MS)
        hurt.is_broken = True
        await getattr(LogMaintenance(broker), chore)()
        for replica in broker.partitions:
            if replica.log.directory.startswith("/a/"):
                assert replica.log.recovery_point == replica.log.log_end_offset == 1
        assert broker.directories[1].failure is not None


@pytest.mark.parametrize(("chore", "configs"), [("checkpoint", {}), ("flush", {"flush_ms": "0"})])
@on_trio
async def test_chores_make_the_logs_of_other_directories_durable(chore: str, configs: dict[str, str]) -> None:
    await chores_go_on(chore, **configs)


def test_a_chore_that_ends_with_the_first_failed_log_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def make_durable(self: LogMaintenance, each: sync.PooledLog) -> None:
        await self._broker.commit.flush(each)

    monkeypatch.setattr(LogMaintenance, "_make_durable", make_durable)
    with pytest.raises(KafkaStorageError):
        on_trio(chores_go_on)("flush", flush_ms="0")


# Descriptors ----------------------------------------------------------------------------------------------------------


class ShortDisk(OsDisk):
    """The machine's own, where so many more files can be opened; None is any number."""

    __slots__ = ("left", "refused")

    def __init__(self) -> None:
        self.left: int | None = None
        self.refused = 0

    def open(self, path: str, *, create: bool = False) -> File:
        self._take(path)
        return super().open(path, create=create)

    def sync_directory(self, path: str) -> None:
        self._take(path)
        super().sync_directory(path)

    def _take(self, path: str) -> None:
        if self.left is not None:
            if self.left == 0:
                self.refused += 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            self.left -= 1


async def short_of_descriptors(
    folder: Path, during: Callable[[ShortDisk, Broker, ClientConnection], Awaitable[None]]
) -> None:
    disk = ShortDisk()
    async with running_broker(folder, disk) as broker, ClientConnection(broker) as client:
        await with_partitions(broker, 1, flush_messages="1")
        assert await produce(client, 0) == 0
        await during(disk, broker, client)
        assert broker.directories[0].failure is None
        disk.left = None
        assert await produce(client, 0) == 0
        log = broker.partitions.get("t", 0).log
        assert log.recovery_point == log.log_end_offset
    assert (folder / ".kafka_cleanshutdown").exists()


async def freed_in_time(disk: ShortDisk, broker: Broker, client: ClientConnection) -> None:
    async def free() -> None:
        while not disk.refused:
            await trio.sleep(0.001)
        disk.left = None

    disk.left = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(free)
        assert await produce(client, 0) == 0


async def freed_too_late(disk: ShortDisk, broker: Broker, client: ClientConnection) -> None:
    disk.left = 0
    assert await produce(client, 0) == KafkaStorageError.code
    assert disk.refused == 1 + sync.SHORTAGE_TRIES - 1


@on_trio
async def test_a_flush_without_a_descriptor_is_done_when_there_is_one(tmp_path: Path) -> None:
    await short_of_descriptors(tmp_path, freed_in_time)


@on_trio
async def test_a_flush_that_never_finds_a_descriptor_is_refused_and_the_next_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "SHORTAGE_WAIT_S", 0.0)
    await short_of_descriptors(tmp_path, freed_too_late)


MISTAKES = [
    ("is_out_of_descriptors", lambda error: False, freed_in_time),  # any error of a flush is one of the disk
    ("is_out_of_descriptors", lambda error: False, freed_too_late),
    ("SHORTAGE_TRIES", 1, freed_in_time),
]


@pytest.mark.parametrize(("name", "wrong", "during"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    name: str, wrong: object, during: Callable[..., Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "SHORTAGE_WAIT_S", 0.0)
    monkeypatch.setattr(sync, name, wrong)
    with pytest.raises((AssertionError, ExceptionGroup)):
        on_trio(short_of_descriptors)(tmp_path, during)


@on_trio
async def test_what_one_append_cannot_open_is_an_error_that_clients_try_again(tmp_path: Path) -> None:
    disk = ShortDisk()
    async with running_broker(tmp_path, disk) as broker, ClientConnection(broker) as client:
        await with_partitions(broker, 1)
        broker.directories[0].files.close()  # no file is open, and none can be
        disk.left = 0
        assert await produce(client, 0) == KafkaStorageError.code
        assert broker.directories[0].failure is None
        disk.left = None
        assert await produce(client, 0) == 0


@on_trio
async def test_new_logs_that_find_no_descriptor_are_made_when_there_are_some(tmp_path: Path) -> None:
    disk = ShortDisk()

    async def free() -> None:
        while not disk.refused:
            await trio.sleep(0.001)
        disk.left = None

    async with (
        running_broker(tmp_path, disk) as broker,
        ClientConnection(broker) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(free)
        disk.left = 30  # the metadata's record can be written, and some of the logs
        await with_partitions(broker, 20)
        assert disk.refused
        for partition in range(20):
            assert await produce(client, partition) == 0


@on_trio
async def test_a_start_without_descriptors_ends_and_does_not_serve_an_empty_directory(tmp_path: Path) -> None:
    disk = ShortDisk()
    async with running_broker(tmp_path, disk) as broker, ClientConnection(broker) as client:
        await with_partitions(broker, 5)
        assert await produce(client, 0) == 0
    disk.left = 8
    with pytest.raises(OutOfDescriptors):
        await new_broker(tmp_path, disk).run()
    disk.left = None
    async with running_broker(tmp_path, disk) as broker:
        assert broker.partitions.get("t", 0).log.log_end_offset == 1


async def a_reader_of_many_partitions(monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    """How many files were open at a time, while a pool that may have eight was asked for sixty partitions at once."""
    partitions, most = 60, 0
    open_file = FilePool._open_file

    def counted(pool: FilePool, path: str, create: bool) -> File:
        nonlocal most
        most = max(most, pool.open_files + 1)
        return open_file(pool, path, create)

    async with running_broker(folder) as broker, ClientConnection(broker) as client:
        await with_partitions(broker, partitions)
        for partition in range(partitions):
            assert await produce(client, partition) == 0
        files = broker.directories[0].files
        files.close()
        files.limit = 8
        monkeypatch.setattr(FilePool, "_open_file", counted)
        requested = [
            FetchRequest.Topic.Partition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
            for partition in range(partitions)
        ]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchRequest.Topic(topic="t", partitions=requested)])
        for _ in range(2):
            answer = await client.ask(request, 11)
            found = [bytes(each.records) for each in answer.responses[0].partitions]
            assert [len(list(batch.headers(data))) for data in found] == [1] * partitions
    return most


@on_trio
async def test_a_reader_of_many_partitions_opens_no_more_files_than_the_pool_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await a_reader_of_many_partitions(monkeypatch, tmp_path) <= 9


@on_trio
async def test_an_answer_that_holds_every_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FilePool, "for_response", lambda pool, part: part)
    assert await a_reader_of_many_partitions(monkeypatch, tmp_path) > 9


@on_trio
async def test_connections_leave_descriptors_for_files(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, ClientConnection(broker) as client:
        broker.network.max_descriptor = 0  # the next one has a number above it
        async with await trio.open_tcp_stream(*broker.addresses["PLAINTEXT"]) as refused:
            with suppress(trio.BrokenResourceError):
                assert await refused.receive_some() == b""
        await with_partitions(broker, 1)
        assert await produce(client, 0) == 0, "who is connected is served"


# No directory is left -------------------------------------------------------------------------------------------------


class Broken:
    """A MemoryDisk on which every write and sync below some directories fails."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.below: tuple[str, ...] = ()
        self.disk.before = self._before

    def _before(self, operation: DiskOperation) -> None:
        if operation.kind in (Kind.WRITE, Kind.SYNC) and operation.path.startswith(self.below or "nowhere"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), operation.path)


async def ends(broken: tuple[str, ...], log_dirs: str, metadata_dir: str, **configs: str) -> str:
    """What `run` raises, when a record was refused by a broker whose disks fail in these directories."""
    hurt = Broken()
    broker = new_broker(log_dirs, hurt.disk, metadata_log_dir=metadata_dir)
    async with trio.open_nursery() as nursery:

        async def live(*, task_status: trio.TaskStatus[None]) -> None:
            with pytest.raises(LogDirectoriesOffline) as ended:
                await broker.run(task_status=task_status)
            reasons.append(str(ended.value))

        reasons: list[str] = []
        await nursery.start(live)
        async with ClientConnection(broker) as client:
            await with_partitions(broker, 2, **configs)
            assert await produce(client, 0) == 0
            hurt.below = broken
            if broken == ("/meta/",):
                topic = CreateTopicsRequest.Topic(
                    name="u", num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
                with pytest.raises(KafkaError):
                    await broker.quorum.change(lambda controller: controller.create_topics([topic]))
            for partition in (0, 1) if len(broken) > 1 else ():
                assert await produce(client, partition) == KafkaStorageError.code, "who waits is answered"
            await broker.stopped.wait()
    assert broker.failure is not None
    return reasons[0]


@pytest.mark.parametrize("configs", [{}, {"flush_messages": "1"}])
@on_trio
async def test_a_broker_ends_when_its_last_log_directory_fails(configs: dict[str, str]) -> None:
    reason = await ends(("/a/", "/b/"), "/a,/b", "/meta", **configs)
    assert reason.startswith("all log directories are offline: /a: [Errno 5]")
    assert "/b: [Errno 5]" in reason


@on_trio
async def test_a_broker_ends_when_the_metadata_cannot_be_written_though_its_partitions_can() -> None:
    reason = await ends(("/meta/",), "/a,/b", "/meta")
    assert reason.startswith("the log directory of the metadata, /meta, is offline: [Errno 5]")


@pytest.mark.parametrize(("broken", "is_said"), [("/a", "of the metadata, /a, is offline"), ("/b", None)])
@on_trio
async def test_a_start_does_with_the_directories_that_work_unless_it_needs_the_others(
    broken: str, is_said: str | None
) -> None:
    disk = MemoryDisk()
    async with running_broker("/a,/b", disk) as broker, ClientConnection(broker) as client:
        await with_partitions(broker, 2)
        assert await produce(client, 0) == await produce(client, 1) == 0
    disk.before = lambda operation: fail(operation, broken)
    if is_said is not None:
        with pytest.raises(LogDirectoriesOffline, match=is_said):
            await new_broker("/a,/b", disk).run()
        return
    async with running_broker("/a,/b", disk) as broker:
        assert [directory.failure is None for directory in broker.directories] == [True, False]
        assert len(broker.partitions) == 1


def fail(operation: DiskOperation, below: str) -> None:
    if operation.path.startswith(below):
        raise OSError(errno.EIO, os.strerror(errno.EIO), operation.path)


@on_trio
async def test_a_directory_that_cannot_be_closed_does_not_keep_the_others_from_a_clean_stop() -> None:
    hurt = Broken()
    async with running_broker("/a,/b,/c", hurt.disk) as broker, ClientConnection(broker) as client:
        await with_partitions(broker, 3)
        for partition in range(3):
            assert await produce(client, partition) == 0
        hurt.below = ("/b/",)
    assert [hurt.disk.exists(f"/{name}/.kafka_cleanshutdown") for name in "abc"] == [True, False, True]


class Directory(NamedTuple):
    path: str
    failure: OSError | None


BROKEN_DISK = OSError(errno.EIO, "broken")


def a_node_ends_without_what_it_needs(module: ModuleType) -> None:
    node = new_broker("/a,/b", MemoryDisk(), metadata_log_dir="/m").node

    def verdict(**failures: OSError | None) -> str | None:
        found: str | None = module.fatal_reason([Directory(f"/{n}", failures.get(n)) for n in "abm"], node)
        return found

    assert verdict() is None
    assert verdict(a=BROKEN_DISK) is verdict(b=BROKEN_DISK) is None
    assert "metadata, /m," in str(verdict(m=BROKEN_DISK))
    assert "all log directories" in str(verdict(a=BROKEN_DISK, b=BROKEN_DISK))
    assert module.fatal_reason([], node) is None, "they are not opened yet"


def test_a_node_ends_without_what_it_needs() -> None:
    a_node_ends_without_what_it_needs(log_directories)


VERDICTS = [
    (
        "all(directory.failure is not None for directory in held)",
        "any(directory.failure is not None for directory in held)",
    ),
    (
        "held and all(directory.failure is not None for directory in held)",
        "all(directory.failure is not None for directory in held)",
    ),
    ("directory.path == of_metadata and", "False and"),
    ("directory.path == of_metadata and", ""),
    ("held = of_partitions(directories, node)", "held = directories"),
]


@pytest.mark.parametrize(("right", "wrong"), VERDICTS)
def test_a_wrong_verdict_is_noticed(right: str, wrong: str) -> None:
    assert_noticed(log_directories, right, wrong, a_node_ends_without_what_it_needs)


@on_trio
async def test_a_node_that_ends_does_not_pass_for_one_that_lives() -> None:
    async with running_broker("/a,/b", MemoryDisk(), metadata_log_dir="/m") as broker:
        assert why_not_alive(broker) == []
        broker.directories[
            1
        ].volume.failure = BROKEN_DISK  # the controller does not learn of it, so that the broker does not end
        assert why_not_alive(broker) == []
        broker.directories[0].volume.failure = BROKEN_DISK
        assert health(broker, "/livez").status == 503
        broker.directories[0].volume.failure = broker.directories[1].volume.failure = None
