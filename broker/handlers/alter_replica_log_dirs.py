"""AlterReplicaLogDirs (34): moves replicas to another log directory of the same broker.

The response confirms that the move has started or that there is nothing to do; DescribeLogDirs shows its progress. A
request for the replica's current directory cancels its move, and a request for another directory redirects it.

v2 flexible
"""

import os.path
from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import (
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from trioka.storage.directory import LogDirectory
from trioka.storage.files.layout import MAX_NAME_BYTES, UNIQUE_DIGITS, DirectoryState, TopicPartition, renamed_directory

from ..api import handles
from ..replication.partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TopicResult = AlterReplicaLogDirsResponse.Topic


def error_response(request: AlterReplicaLogDirsRequest, error: KafkaError) -> AlterReplicaLogDirsResponse:
    return _to_response({partition: error.code for partition, _ in _targets(request)})


@handles(AlterReplicaLogDirsRequest, error_response=error_response)
async def alter_replica_log_dirs(
    broker: "Broker", call: "Call", request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    broker.guard.must(call, AclOperation.ALTER)
    codes: dict[tuple[str, int], int] = {}
    for (topic, index), path in _targets(request):
        try:
            replica, directory = _find(broker, TopicPartition(topic, index), path)
            await broker.moves.move(replica, directory)
            codes[topic, index] = 0
        except KafkaError as error:
            codes[topic, index] = error.code
    return _to_response(codes)


def _find(broker: "Broker", name: TopicPartition, path: str) -> tuple[Replica, LogDirectory]:
    """The replica to move and its new directory. The order of the checks determines the error, as in Kafka."""
    if len(renamed_directory(name, DirectoryState.FUTURE, "0" * UNIQUE_DIGITS)) > MAX_NAME_BYTES:
        raise InvalidTopic("the topic name is too long for the name of a future log directory")
    directory = next((d for d in broker.data_directories if os.path.abspath(d.path) == path), None)
    if directory is None:
        raise LogDirNotFound(f"{path!r} is not a log directory of this broker")
    if directory.failure is not None:
        raise KafkaStorageError(f"log directory {path} is offline")
    replica = broker.partitions.find(name.topic, name.partition)
    if replica is None:
        topic = broker.metadata.topics.by_name(name.topic)
        raise ReplicaNotAvailable() if topic and name.partition in topic.partitions else UnknownTopicOrPartition()
    if directory.in_memory != broker.replication.is_memory_topic(name.topic):
        raise InvalidRequest(f"{path} is not of the class of directories that topic {name.topic} requires")
    return replica, directory


def _targets(request: AlterReplicaLogDirsRequest) -> list[tuple[tuple[str, int], str]]:
    """The target directory of each partition; the last one if a partition is listed twice."""
    targets = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    return list(targets.items())


def _to_response(codes: dict[tuple[str, int], int]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[TopicResult.Partition]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(TopicResult.Partition(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[TopicResult(topic_name=name, partitions=partitions) for name, partitions in topics.items()],
    )
