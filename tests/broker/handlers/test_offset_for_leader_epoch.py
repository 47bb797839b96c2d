from pathlib import Path

from support.serving import ask, on_trio, running_broker
from support.topic_requests import create, produce, told_of

from trioka.broker.broker import Broker
from trioka.protocol.errors import FencedLeaderEpoch, UnknownLeaderEpoch, UnknownTopicOrPartition
from trioka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

Request = OffsetForLeaderEpochRequest


async def end_of(
    broker: Broker, epoch: int, *, current: int = -1, topic: str = "a", version: int = 4
) -> tuple[int, int, int]:
    requested = Request.Topic.Partition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    response = await ask(broker, Request(topics=[Request.Topic(topic=topic, partitions=[requested])]), version)
    (result,) = response.topics[0].partitions
    return result.error_code, result.leader_epoch, result.end_offset


@on_trio
async def test_an_epoch_ends_where_the_next_begins(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
        await produce(broker, "a", 1, 2, 3)
        for version in (2, 3, 4):
            assert await end_of(broker, 0, version=version) == (0, 0, 3)
            assert await end_of(broker, 1, version=version) == (0, -1, -1), "it has not begun"
    async with running_broker(tmp_path) as broker:
        await produce(broker, "a", 4)
        now = (await told_of(broker, "a"))[0].partitions[0].leader_epoch
        assert await end_of(broker, 0) == (0, 0, 3)
        assert await end_of(broker, now - 1) == (0, 0, 3), "the last that wrote something"
        assert await end_of(broker, now) == (0, now, 4)


@on_trio
async def test_a_replica_behind_or_ahead_gets_an_epoch_error(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await create(broker, "a")
    async with running_broker(tmp_path) as broker:
        now = (await told_of(broker, "a"))[0].partitions[0].leader_epoch
        assert await end_of(broker, 0, current=0) == (FencedLeaderEpoch.code, -1, -1)
        assert await end_of(broker, 0, current=now + 1) == (UnknownLeaderEpoch.code, -1, -1)
        assert (await end_of(broker, 0, current=now))[0] == 0
        assert await end_of(broker, 0, topic="nobody") == (UnknownTopicOrPartition.code, -1, -1)
