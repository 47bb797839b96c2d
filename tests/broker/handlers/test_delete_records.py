import shutil
from pathlib import Path
from typing import Any

import pytest
from mutants.plant import planted
from support.serving import ask, on_trio, running_broker
from support.topic_requests import EARLIEST, LATEST, create, offset_at, produce
from support.transaction_requests import Writer, fetch, values_in
from support.transactional_broker import transacting

from trioka.broker.broker import Broker
from trioka.broker.handlers import delete_records as handler_module
from trioka.protocol.errors import OffsetOutOfRange, PolicyViolation, UnknownTopicOrPartition
from trioka.protocol.messages.delete_records import DeleteRecordsRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.storage import log as log_module
from trioka.storage.log import Log

END = -1


async def delete(broker: Broker, name: str, offset: int, *, partition: int = 0, version: int = 2) -> tuple[int, int]:
    """Error, and where the log starts."""
    requested = DeleteRecordsRequest.Topic.Partition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=name, partitions=[requested])], timeout_ms=1000
    )
    (result,) = (await ask(broker, request, version)).topics[0].partitions
    return result.error_code, result.low_watermark


@on_trio
async def test_what_lies_before_the_offset_is_gone(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        await produce(broker, "a", *range(10))
        for version, offset in enumerate((2, 4, 6)):
            assert await delete(broker, "a", offset, version=version) == (0, offset)
            assert await offset_at(broker, "a", EARLIEST) == offset
        assert await delete(broker, "a", 3) == (0, 6), "it does not come back"
        assert await delete(broker, "a", END) == (0, 10)
        assert await offset_at(broker, "a", EARLIEST) == await offset_at(broker, "a", LATEST) == 10


@on_trio
async def test_what_cannot_be_deleted_stays(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        await create(broker, "compacted", cleanup_policy="compact")
        await create(broker, "both", cleanup_policy="compact,delete")
        for name in ("a", "compacted", "both"):
            await produce(broker, name, 1, 2)
        assert await delete(broker, "a", 3) == (OffsetOutOfRange.code, -1)
        assert await delete(broker, "a", -2) == (OffsetOutOfRange.code, -1)
        assert await delete(broker, "a", 0, partition=7) == (UnknownTopicOrPartition.code, -1)
        assert await delete(broker, "nobody", 0) == (UnknownTopicOrPartition.code, -1)
        assert await delete(broker, "compacted", END) == (PolicyViolation.code, -1)
        assert await offset_at(broker, "compacted", EARLIEST) == 0
        assert await delete(broker, "both", END) == (0, 2)


def read_committed_goes_on(directory: Path) -> None:
    """Records are deleted, the first ones of an open transaction among them. A consumer of committed records that
    begins at the latest offset waits there, and reads what is committed."""

    @on_trio
    async def run() -> None:
        async with transacting(directory) as (broker, connection):
            writer = Writer(connection.ask)
            await writer.init()
            await writer.write(b"a", b"b", b"c")
            assert await delete(broker, "t", 2) == (0, 2)
            latest = await latest_committed(broker)
            assert latest == 2
            response = await ask(broker, fetch(offset=latest), 12)
            (partition,) = response.responses[0].partitions
            assert (partition.error_code, partition.last_stable_offset, partition.log_start_offset) == (0, 2, 2)
            await writer.commit()
            response = await ask(broker, fetch(offset=latest), 12)
            assert values_in(response)[-1:] == [b"c"]
            assert await latest_committed(broker) == 4

    run()


async def latest_committed(broker: Broker) -> int:
    requested = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=1, topics=[ListOffsetsRequest.Topic(name="t", partitions=[requested])]
    )
    (result,) = (await ask(broker, request, 11)).topics[0].partitions
    assert result.error_code == 0
    return int(result.offset)


def test_an_open_transaction_whose_first_records_are_deleted_stops_no_reader(tmp_path: Path) -> None:
    read_committed_goes_on(tmp_path)


def test_a_last_stable_offset_below_the_start_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mistaken = planted(
        log_module,
        "return max(self.producers.last_stable_offset(self.high_watermark), self.log_start_offset)",
        "return self.producers.last_stable_offset(self.high_watermark)",
    )
    monkeypatch.setattr(Log, "last_stable_offset", mistaken.Log.last_stable_offset)
    with pytest.raises(AssertionError):
        read_committed_goes_on(tmp_path)


def assert_a_killed_broker_remembers(tmp_path: Path) -> None:
    @on_trio
    async def run() -> None:
        async with running_broker(tmp_path / "before") as broker:
            await create(broker, "a", 2)
            await produce(broker, "a", 1, 2, 3)
            assert await delete(broker, "a", 2) == (0, 2)
            # What is on the disk at this moment is what a broker finds that comes after a kill.
            shutil.copytree(tmp_path / "before", tmp_path / "after")
        async with running_broker(tmp_path / "after") as broker:
            assert await offset_at(broker, "a", EARLIEST) == 2
            assert await offset_at(broker, "a", LATEST) == 3

    run()


def test_a_log_s_start_is_on_disk_when_it_is_answered(tmp_path: Path) -> None:
    assert_a_killed_broker_remembers(tmp_path)


def test_it_would_be_noticed_if_it_were_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(logs: list[Log]) -> Any:
        pass

    monkeypatch.setattr(handler_module, "_checkpoint", forget)
    with pytest.raises(AssertionError):
        assert_a_killed_broker_remembers(tmp_path)
