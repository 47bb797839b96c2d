from pathlib import Path
from typing import Any

from support.serving import ask, on_trio, running_broker
from support.topic_requests import EARLIEST, LATEST, create, offset_at, produce

from trioka.broker.broker import Broker
from trioka.protocol.errors import FencedLeaderEpoch, InvalidRequest, UnknownLeaderEpoch, UnsupportedVersion
from trioka.protocol.messages.list_offsets import ListOffsetsRequest

NEWEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -3, -4, -5, -6


async def result(
    broker: Broker, timestamp: int, *, version: int = 11, times: int = 1, epoch: int = -1, isolation: int = 0
) -> list[Any]:
    query = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsRequest.Topic(name="a", partitions=[query] * times)],
    )
    return list((await ask(broker, request, version)).topics[0].partitions)


@on_trio
async def test_offsets_are_found_by_time_in_every_version(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        await produce(broker, "a", 100, 50, 200)
        await produce(broker, "a", 150)
        cases = {EARLIEST: 0, LATEST: 4, 0: 0, 50: 0, 101: 2, 200: 2, 201: -1}
        for version in range(1, 12):
            assert {when: await offset_at(broker, "a", when, version=version) for when in cases} == cases
            (found,) = await result(broker, 101, version=version)
            assert (found.timestamp, found.leader_epoch) == (200, 0 if version >= 4 else -1)


@on_trio
async def test_times_with_a_meaning_have_it_from_a_version_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        await produce(broker, "a", 100, 300, 200)
        meanings = {NEWEST: (7, 1), EARLIEST_LOCAL: (8, 0), LATEST_TIERED: (9, -1), EARLIEST_PENDING: (11, -1)}
        for timestamp, (first, offset) in meanings.items():
            (before,) = await result(broker, timestamp, version=first - 1)
            assert before.error_code == UnsupportedVersion.code
            (since,) = await result(broker, timestamp, version=first)
            assert (since.error_code, since.offset) == (0, offset)
        (unknown,) = await result(broker, -7)
        assert unknown.error_code == UnsupportedVersion.code


@on_trio
async def test_what_is_asked_twice_is_refused_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        assert [each.error_code for each in await result(broker, LATEST, times=3)] == [InvalidRequest.code]
        assert [each.error_code for each in await result(broker, LATEST, isolation=2)] == [InvalidRequest.code]


@on_trio
async def test_another_epoch_gets_an_error(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
    async with running_broker(tmp_path) as broker:  # a restart begins another epoch
        (now,) = await result(broker, LATEST)
        assert now.leader_epoch > 0
        (old,) = await result(broker, LATEST, epoch=0)
        (coming,) = await result(broker, LATEST, epoch=now.leader_epoch + 1)
        assert (old.error_code, coming.error_code) == (FencedLeaderEpoch.code, UnknownLeaderEpoch.code)
