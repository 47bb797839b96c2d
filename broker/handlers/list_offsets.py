"""ListOffsets (2): offsets by timestamp. Spark asks this some fifty times for one read, so it is answered from memory
wherever it can be.

    -1  the end (of what the isolation level lets be read)     -4  the first that is on local disk
    -2  the first                                              -5  the last that is tiered: none, so far
    -3  the one with the largest timestamp                     -6  the first that will be tiered: none, so far
    t   the first whose timestamp is t or later; -1 if there is none

A new leader says where the log ends only when it knows that: not before all that it began with is committed (I10).

Of what lies before the log's start nothing is told. (Kafka may name it for -3 while its segment is still there.)

v2 isolation · v4 leader epochs · v7 -3 · v8 -4 · v9 -5 · v10 how long the asker waits, for tiered logs · v11 -6
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.protocol.errors import (
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from trioka.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from trioka.storage.offset_lookup import offset_for_timestamp, offset_of_max_timestamp

from ..api import handles
from ..replication.partitions import Replica
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Asked = ListOffsetsRequest.Topic.Partition
Told = ListOffsetsResponse.Topic.Partition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
FIRST_VERSIONS: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
FIRST_VERSION_WITH_EPOCHS: Final = 4
FIRST_VERSION_WITH_NOT_AVAILABLE: Final = 5
NO_EPOCH: Final = -1
CONSUMER: Final = -1  # who asks; a broker gives its id, and may see beyond the high watermark
DEBUGGING: Final = -2  # who wants to know of this very replica, whether or not it leads


def refuse(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(
                name=topic.name, partitions=[_refused(asked, error) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


@handles(ListOffsetsRequest, refuse=refuse)
def list_offsets(broker: "Broker", call: "Call", request: ListOffsetsRequest) -> ListOffsetsResponse:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise InvalidRequest(f"there is no isolation level {request.isolation_level}")
    told: dict[str, dict[int, Told]] = {}
    allowed = broker.guard.allowed(call, Operation.DESCRIBE, TOPIC, [topic.name for topic in request.topics])
    for topic in request.topics:
        of_topic = told.setdefault(topic.name, {})
        for asked in topic.partitions:
            index = asked.partition_index
            try:
                if topic.name not in allowed:
                    raise TopicAuthorizationFailed()
                if index in of_topic:
                    raise InvalidRequest(f"{topic.name}-{index} is asked for twice")
                of_topic[index] = _answer(broker, topic.name, asked, request, call.version)
            except KafkaError as error:
                of_topic[index] = _refused(asked, error)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(name=name, partitions=list(partitions.values()))
            for name, partitions in told.items()
        ]
    )


def _answer(broker: "Broker", topic: str, asked: Asked, request: ListOffsetsRequest, version: int) -> Told:
    wanted = asked.timestamp
    if version < FIRST_VERSIONS.get(wanted, 0) or wanted < EARLIEST_PENDING_UPLOAD:
        raise UnsupportedVersion(f"timestamp {wanted} has no meaning in version {version}")
    replica = broker.partitions.get(topic, asked.partition_index)
    if request.replica_id != DEBUGGING:
        replica.must_lead(asked.current_leader_epoch)
    try:
        told = _look_up(replica, asked, request)
    except OffsetNotAvailable as error:
        raise error if version >= FIRST_VERSION_WITH_NOT_AVAILABLE else LeaderNotAvailable() from error
    if version < FIRST_VERSION_WITH_EPOCHS:
        told.leader_epoch = NO_EPOCH  # type: ignore[misc]
    return told


def _look_up(replica: Replica, asked: Asked, request: ListOffsetsRequest) -> Told:
    log, wanted = replica.log, asked.timestamp
    is_unknown = request.replica_id == CONSUMER and not replica.offsets_are_known
    if request.replica_id != CONSUMER:
        end = log.log_end_offset
    else:
        end = log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
    if wanted == LATEST:
        if is_unknown:
            raise OffsetNotAvailable()
        return _told(asked, end, epoch=replica.leader_epoch)
    if wanted in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return _told(asked, start, epoch=log.epochs.epoch_for_offset(start))
    if wanted in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _told(asked, -1)
    found = offset_of_max_timestamp(log) if wanted == MAX_TIMESTAMP else offset_for_timestamp(log, wanted)
    if found is None or found.offset >= end:
        if is_unknown:
            raise OffsetNotAvailable()
        return _told(asked, -1)
    return _told(asked, found.offset, timestamp=found.timestamp, epoch=found.leader_epoch)


def _told(asked: Asked, offset: int, *, timestamp: int = -1, epoch: int = NO_EPOCH) -> Told:
    return Told(
        partition_index=asked.partition_index, error_code=0, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _refused(asked: Asked, error: KafkaError) -> Told:
    return Told(partition_index=asked.partition_index, error_code=error.code)
