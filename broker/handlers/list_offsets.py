"""ListOffsets (2): returns offsets by timestamp.

    -1  the end offset, according to the isolation level     -4  the first offset on the local disk
    -2  the first offset                                     -5  the last tiered offset; none yet
    -3  the offset with the largest timestamp                -6  the first offset to be tiered; none yet
    t   the first offset whose timestamp is t or later; -1 if there is none

Spark sends some fifty of these requests per read, so they are answered from memory where possible. A new leader returns
OFFSET_NOT_AVAILABLE for the end offset until its high watermark has reached the log end offset that it started with
(I10). In a topic with linearizable reads, an answer that depends on the end waits until the leader knows that it still
leads (replication/linearizable_reads.py). Offsets before the log start offset are never returned. (Kafka may return one
for -3 while its segment exists.)

v2 isolation level · v4 leader epochs · v7 -3 · v8 -4 · v9 -5 · v10 a timeout, for tiered logs · v11 -6
"""

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import AclOperation
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
from ..network.connection import PENDING
from ..replication.partitions import Replica
from ..replication.request_reads import RequestReads
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending

PartitionRequest = ListOffsetsRequest.Topic.Partition
PartitionResult = ListOffsetsResponse.Topic.Partition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
INDEPENDENT_OF_END: Final = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
FIRST_VERSIONS: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
FIRST_VERSION_WITH_EPOCHS: Final = 4
FIRST_VERSION_WITH_NOT_AVAILABLE: Final = 5
NO_EPOCH: Final = -1
CONSUMER: Final = -1  # replica id of a consumer; a broker sends its own id and may read beyond the high watermark
DEBUGGING: Final = -2  # replica id of a debugging client, which may also query a follower


def error_response(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(
                name=topic.name, partitions=[_error_result(partition, error) for partition in topic.partitions]
            )
            for topic in request.topics
        ]
    )


@handles(ListOffsetsRequest, error_response=error_response)
def list_offsets(broker: "Broker", call: "Call", request: ListOffsetsRequest) -> "ListOffsetsResponse | Pending":
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise InvalidRequest(f"unknown isolation level {request.isolation_level}")
    allowed = broker.guard.allowed(call, AclOperation.DESCRIBE, TOPIC, [topic.name for topic in request.topics])
    reads = RequestReads(broker)
    response = _respond(broker, call, request, allowed, reads)
    if not reads.begin():
        return response

    def go_on(refused: frozenset[Replica]) -> None:
        reads.end(refused)
        call.reply(_respond(broker, call, request, allowed, reads))

    waiting = broker.replication.reads.wait(reads.pending, go_on, call.fail)
    call.on_disconnect = lambda: broker.purgatory.cancel(waiting)
    return PENDING


def _respond(
    broker: "Broker", call: "Call", request: ListOffsetsRequest, allowed: Container[str], reads: RequestReads
) -> ListOffsetsResponse:
    results: dict[str, dict[int, PartitionResult]] = {}
    reads.start_over()
    for topic in request.topics:
        topic_results = results.setdefault(topic.name, {})
        for partition in topic.partitions:
            index = partition.partition_index
            try:
                if topic.name not in allowed:
                    raise TopicAuthorizationFailed()
                if index in topic_results:
                    raise InvalidRequest(f"{topic.name}-{index} is listed twice")
                topic_results[index] = _get_offset(broker, topic.name, partition, request, call.version, reads)
            except KafkaError as error:
                topic_results[index] = _error_result(partition, error)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(name=name, partitions=list(partitions.values()))
            for name, partitions in results.items()
        ]
    )


def _get_offset(
    broker: "Broker",
    topic: str,
    partition: PartitionRequest,
    request: ListOffsetsRequest,
    version: int,
    reads: RequestReads,
) -> PartitionResult:
    timestamp = partition.timestamp
    if version < FIRST_VERSIONS.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        raise UnsupportedVersion(f"timestamp {timestamp} is not supported in version {version}")
    replica = broker.partitions.get(topic, partition.partition_index)
    if request.replica_id != DEBUGGING:
        replica.require_leader(partition.current_leader_epoch)
    if replica.is_linearizable and request.replica_id == CONSUMER and timestamp not in INDEPENDENT_OF_END:
        reads.reach_end(replica)
    try:
        result = _look_up(replica, partition, request)
    except OffsetNotAvailable as error:
        raise error if version >= FIRST_VERSION_WITH_NOT_AVAILABLE else LeaderNotAvailable() from error
    if version < FIRST_VERSION_WITH_EPOCHS:
        result.leader_epoch = NO_EPOCH  # type: ignore[misc]
    return result


def _look_up(replica: Replica, partition: PartitionRequest, request: ListOffsetsRequest) -> PartitionResult:
    log, timestamp = replica.log, partition.timestamp
    is_unknown = request.replica_id == CONSUMER and not replica.offsets_are_known
    if request.replica_id != CONSUMER:
        end = log.log_end_offset
    else:
        end = log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
    if timestamp == LATEST:
        if is_unknown:
            raise OffsetNotAvailable()
        return _to_result(partition, end, epoch=replica.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return _to_result(partition, start, epoch=log.epochs.epoch_for_offset(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _to_result(partition, -1)
    position = offset_of_max_timestamp(log) if timestamp == MAX_TIMESTAMP else offset_for_timestamp(log, timestamp)
    if position is None or position.offset >= end:
        if is_unknown:
            raise OffsetNotAvailable()
        return _to_result(partition, -1)
    return _to_result(partition, position.offset, timestamp=position.timestamp, epoch=position.leader_epoch)


def _to_result(
    partition: PartitionRequest, offset: int, *, timestamp: int = -1, epoch: int = NO_EPOCH
) -> PartitionResult:
    return PartitionResult(
        partition_index=partition.partition_index, error_code=0, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _error_result(partition: PartitionRequest, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition_index=partition.partition_index, error_code=error.code)
