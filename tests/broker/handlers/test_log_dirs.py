"""DescribeLogDirs and AlterReplicaLogDirs: where replicas lie."""

import errno
from pathlib import Path

from support.serving import ask, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.protocol.errors import (
    InvalidTopic,
    KafkaStorageError,
    LogDirNotFound,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from trioka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from trioka.storage.disk import OsDisk


async def places(broker: Broker, *topics: str) -> dict[tuple[str, int], str]:
    """The reported directory of each partition."""
    requested = [DescribeLogDirsRequest.Topic(topic=name, partitions=[0, 1, 2]) for name in topics]
    response = await ask(broker, DescribeLogDirsRequest(topics=requested or None), 4)
    return {
        (topic.name, partition.partition_index): result.log_dir
        for result in response.results
        for topic in result.topics
        for partition in topic.partitions
    }


async def move(broker: Broker, topic: str, index: int, path: str) -> int:
    wanted = AlterReplicaLogDirsRequest.Dir
    request = AlterReplicaLogDirsRequest(
        dirs=[wanted(path=path, topics=[wanted.Topic(name=topic, partitions=[index])])]
    )
    (reply,) = (await ask(broker, request, 2)).results
    (partition,) = reply.partitions
    assert (reply.topic_name, partition.partition_index) == (topic, index)
    code: int = partition.error_code
    return code


@on_trio
async def test_each_partition_is_listed_with_its_directory(tmp_path: Path) -> None:
    async with running_broker(f"{tmp_path}/a,{tmp_path}/b") as broker:
        await broker.create_missing_topics({"orders": 3, "other": 1})
        found = await places(broker)
        assert found.keys() == {("orders", 0), ("orders", 1), ("orders", 2), ("other", 0)}
        for (topic, index), directory in found.items():
            assert OsDisk().is_directory(f"{directory}/{topic}-{index}")
        assert set(found.values()) == {f"{tmp_path}/a", f"{tmp_path}/b"}
        assert (await places(broker, "other", "nobody")).keys() == {("other", 0)}
        for result in (await ask(broker, DescribeLogDirsRequest(topics=None), 4)).results:
            assert result.error_code == 0 and result.usable_bytes > 0


@on_trio
async def test_a_directory_that_is_offline_says_so(tmp_path: Path) -> None:
    async with running_broker(f"{tmp_path}/a,{tmp_path}/b") as broker:
        broker.directories[1].volume.fail(OSError(errno.EIO, "the disk is broken"))
        results = (await ask(broker, DescribeLogDirsRequest(topics=None), 4)).results
        assert [result.error_code for result in results] == [0, KafkaStorageError.code]
        assert [result.log_dir for result in results] == [f"{tmp_path}/a", f"{tmp_path}/b"]


@on_trio
async def test_a_replica_stays_where_it_is(tmp_path: Path) -> None:
    async with running_broker(f"{tmp_path}/a,{tmp_path}/b") as broker:
        await broker.create_missing_topics({"orders": 2})
        found = await places(broker)
        here = found["orders", 0]
        assert await move(broker, "orders", 0, here) == 0
        assert await move(broker, "orders", 0, "/nowhere") == LogDirNotFound.code
        assert await move(broker, "orders", 7, here) == UnknownTopicOrPartition.code
        assert await move(broker, "nobody", 0, here) == UnknownTopicOrPartition.code
        assert await move(broker, "x" * 249, 0, "/nowhere") == InvalidTopic.code
        assert (await places(broker))["orders", 0] == here
