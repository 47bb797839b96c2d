"""AlterReplicaLogDirs (34): moves replicas to another log directory of the same broker.

The answer says that the move has begun, or that there is nothing to do; DescribeLogDirs says how far it is. A replica
that is asked to be where it is stops moving, and one that is asked to go elsewhere turns round.

v2 flexible
"""

import os.path
from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.protocol.errors import (
    InvalidTopic,
    KafkaError,
    KafkaStorageError,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from trioka.storage.directory import LogDirectory
from trioka.storage.layout import MAX_NAME_BYTES, UNIQUE_DIGITS, DirectoryState, TopicPartition, renamed_directory

from ..api import handles
from ..replication.partitions import Replica

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = AlterReplicaLogDirsResponse.Topic


def refuse(request: AlterReplicaLogDirsRequest, error: KafkaError) -> AlterReplicaLogDirsResponse:
    return _told({place: error.code for place, _ in _wanted(request)})


@handles(AlterReplicaLogDirsRequest, refuse=refuse)
async def alter_replica_log_dirs(
    broker: "Broker", call: "Call", request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    broker.guard.must(call, Operation.ALTER)
    codes: dict[tuple[str, int], int] = {}
    for (topic, index), path in _wanted(request):
        try:
            replica, directory = _find(broker, TopicPartition(topic, index), path)
            await broker.moves.move(replica, directory)
            codes[topic, index] = 0
        except KafkaError as error:
            codes[topic, index] = error.code
    return _told(codes)


def _find(broker: "Broker", name: TopicPartition, path: str) -> tuple[Replica, LogDirectory]:
    """Who shall go where. What is asked first decides which error it is, as in Kafka."""
    if len(renamed_directory(name, DirectoryState.FUTURE, "0" * UNIQUE_DIGITS)) > MAX_NAME_BYTES:
        raise InvalidTopic("the name of this topic is too long for that of a directory that holds a copy")
    directory = next((each for each in broker.data_directories if os.path.abspath(each.path) == path), None)
    if directory is None:
        raise LogDirNotFound(f"{path!r} is none of the log directories of this broker")
    if directory.failure is not None:
        raise KafkaStorageError(f"{path} is offline")
    replica = broker.partitions.find(name.topic, name.partition)
    if replica is None:
        topic = broker.metadata.topics.by_name(name.topic)
        raise ReplicaNotAvailable() if topic and name.partition in topic.partitions else UnknownTopicOrPartition()
    return replica, directory


def _wanted(request: AlterReplicaLogDirsRequest) -> list[tuple[tuple[str, int], str]]:
    """Where each partition shall go; of two wishes for the same, the latter counts."""
    wanted = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    return list(wanted.items())


def _told(codes: dict[tuple[str, int], int]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[Told.Partition]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(Told.Partition(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[Told(topic_name=name, partitions=partitions) for name, partitions in topics.items()],
    )
