"""DescribeLogDirs (35): returns the partitions in each log directory with their sizes.

Future logs (AlterReplicaLogDirs) are included, with their lag behind the current log. An offline directory has an error
and no topics. Requested topics without replicas on this broker, and the metadata log, are omitted.

v2 flexible · v3 an error for the whole response · v4 size of the volume · v5 whether the directory is cordoned
"""

import os.path
from operator import itemgetter
from typing import TYPE_CHECKING

import trio

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC
from trioka.protocol.errors import KafkaError, KafkaStorageError
from trioka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from trioka.storage.directory import LogDirectory
from trioka.storage.files.layout import TopicPartition
from trioka.storage.log import Log

from ..api import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Result = DescribeLogDirsResponse.Result


def error_response(request: DescribeLogDirsRequest, error: KafkaError) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=error.code, results=[])


@handles(DescribeLogDirsRequest, error_response=error_response)
async def describe_log_dirs(broker: "Broker", call: "Call", request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker.guard.must(call, AclOperation.DESCRIBE)
    requested = None
    if request.topics is not None:
        requested = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    # In worker threads: a query of the free space blocks while a disk hangs.
    results = [
        await trio.to_thread.run_sync(_describe, directory, _topics(broker, directory, requested))
        for directory in broker.directories
    ]
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=results)


def _topics(broker: "Broker", directory: LogDirectory, requested: set[TopicPartition] | None) -> list[Result.Topic]:
    topics: dict[str, list[Result.Topic.Partition]] = {}
    for name, log in sorted([*directory.logs.items(), *directory.futures.items()], key=itemgetter(0)):
        if name.topic != CLUSTER_METADATA_TOPIC and (requested is None or name in requested):
            is_future = name in directory.futures
            topics.setdefault(name.topic, []).append(
                Result.Topic.Partition(
                    partition_index=name.partition,
                    partition_size=sum(segment.size for segment in log.segments),
                    offset_lag=_lag(broker, name, log)
                    if is_future
                    else max(log.high_watermark - log.log_end_offset, 0),
                    is_future_key=is_future,
                )
            )
    return [Result.Topic(name=name, partitions=partitions) for name, partitions in topics.items()]


def _lag(broker: "Broker", name: TopicPartition, future: Log) -> int:
    """The lag of a future log behind the current log; -1 if there is no current log."""
    replica = broker.partitions.find(name.topic, name.partition)
    return -1 if replica is None else replica.log.log_end_offset - future.log_end_offset


def _describe(directory: LogDirectory, topics: list[Result.Topic]) -> Result:
    try:
        usable_bytes = directory.volume.free_bytes(directory.path)
        total_bytes = directory.volume.total_bytes(directory.path)
    except KafkaStorageError as error:
        return Result(error_code=error.code, log_dir=os.path.abspath(directory.path), topics=[])
    return Result(
        error_code=0,
        log_dir=os.path.abspath(directory.path),
        topics=topics,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
