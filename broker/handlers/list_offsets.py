"""ListOffsets (2): returns offsets by timestamp.

    -1  the end offset, according to the isolation level     -4  the first offset on the local disk
    -2  the first offset                                     -5  the last offset in the object store
    -3  the offset with the largest timestamp                -6  the first offset that is not in the object store
    t   the first offset whose timestamp is t or later; -1 if there is none

-5 and -6 are -1 for topics that are not tiered. A time may have to be looked up in the object store first: then the
response waits, at most remote.list.offsets.request.timeout.ms, and other partitions with it. -3 is looked up on the
local disk only, as in Kafka.

Spark sends some fifty of these requests per read, so they are answered from memory where possible. A new leader returns
OFFSET_NOT_AVAILABLE for the end offset until its high watermark has reached the log end offset that it started with
(I10). In a topic with linearizable reads, an answer that depends on the end waits until the leader knows that it still
leads (replication/linearizable_reads.py). Offsets before the log start offset are never returned. (Kafka may return one
for -3 while its segment exists.)

v2 isolation level · v4 leader epochs · v7 -3 · v8 -4 · v9 -5 · v10 a timeout, for tiered logs · v11 -6
"""

from collections.abc import Callable, Container, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import trio

from trioka.cluster.image.acls import AclOperation
from trioka.protocol.errors import (
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    OffsetNotAvailable,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from trioka.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from trioka.storage.offset_lookup import offset_for_timestamp, offset_of_max_timestamp

from ..api import handles
from ..config.tier_keys import REMOTE_LIST_OFFSETS_REQUEST_TIMEOUT_MS
from ..replication.partitions import Replica
from ..replication.request_reads import RequestReads
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

PartitionRequest = ListOffsetsRequest.Topic.Partition
PartitionResult = ListOffsetsResponse.Topic.Partition
Results: TypeAlias = dict[str, dict[int, PartitionResult]]

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
FIRST_VERSION_WITH_TIMEOUT: Final = 10
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
def list_offsets(
    broker: "Broker", call: "Call", request: ListOffsetsRequest
) -> "ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]":
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise InvalidRequest(f"unknown isolation level {request.isolation_level}")
    allowed = broker.guard.allowed(call, AclOperation.DESCRIBE, TOPIC, [topic.name for topic in request.topics])
    reads = RequestReads(broker)
    results, remote = _look_up_partitions(broker, call, request, allowed, reads)
    if remote or reads.begin():
        again = partial(_look_up_partitions, broker, call, request, allowed, reads)
        return _wait_and_look_up(broker, reads, results, remote, again)
    return _response(results)


async def _wait_and_look_up(
    broker: "Broker",
    reads: RequestReads,
    results: Results,
    remote: "list[_RemoteLookup]",
    again: "Callable[[], tuple[Results, list[_RemoteLookup]]]",
) -> ListOffsetsResponse:
    """Linearizable reads wait first, and the partitions are looked up again: nothing is older than the request."""
    while reads.begin():
        reads.end(await broker.replication.reads.passed(reads.pending))
        results, remote = again()
    return await _look_up_all(broker, remote, results) if remote else _response(results)


def _look_up_partitions(
    broker: "Broker", call: "Call", request: ListOffsetsRequest, allowed: Container[str], reads: RequestReads
) -> "tuple[Results, list[_RemoteLookup]]":
    """What is known here, and what must be looked up in the object store."""
    results: Results = {}
    remote: list[_RemoteLookup] = []
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
                found = _get_offset(broker, topic.name, partition, request, call.version, reads)
                if isinstance(found, _RemoteLookup):
                    remote.append(found)
                    topic_results[index] = _error_result(partition, RequestTimedOut())
                else:
                    topic_results[index] = found
            except KafkaError as error:
                topic_results[index] = _error_result(partition, error)
    return results, remote


def _response(results: Results) -> ListOffsetsResponse:
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
) -> "PartitionResult | _RemoteLookup":
    timestamp = partition.timestamp
    if version < FIRST_VERSIONS.get(timestamp, 0) or timestamp < EARLIEST_PENDING_UPLOAD:
        raise UnsupportedVersion(f"timestamp {timestamp} is not supported in version {version}")
    replica = broker.partitions.get(topic, partition.partition_index)
    if request.replica_id != DEBUGGING:
        replica.require_leader(partition.current_leader_epoch)
    if replica.is_linearizable and request.replica_id == CONSUMER and timestamp not in INDEPENDENT_OF_END:
        reads.reach_end(replica)
    if timestamp >= 0 and replica.log.has_remote_part:
        return _RemoteLookup(topic, replica, partition, request, version)
    return _local_offset(broker, replica, partition, request, version)


def _local_offset(
    broker: "Broker", replica: Replica, partition: PartitionRequest, request: ListOffsetsRequest, version: int
) -> PartitionResult:
    try:
        result = _look_up(broker, replica, partition, request)
    except OffsetNotAvailable as error:
        raise error if version >= FIRST_VERSION_WITH_NOT_AVAILABLE else LeaderNotAvailable() from error
    if version < FIRST_VERSION_WITH_EPOCHS:
        result.leader_epoch = NO_EPOCH  # type: ignore[misc]
    return result


def _look_up(
    broker: "Broker", replica: Replica, partition: PartitionRequest, request: ListOffsetsRequest
) -> PartitionResult:
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
        start = log.log_start_offset if timestamp == EARLIEST else log.local_log_start_offset
        return _to_result(partition, start, epoch=log.epochs.epoch_for_offset(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        offset = _tiered_offset(broker, replica, timestamp)
        return _to_result(partition, offset, epoch=log.epochs.epoch_for_offset(offset) if offset >= 0 else NO_EPOCH)
    position = offset_of_max_timestamp(log) if timestamp == MAX_TIMESTAMP else offset_for_timestamp(log, timestamp)
    if position is None or position.offset >= end:
        if is_unknown:
            raise OffsetNotAvailable()
        return _to_result(partition, -1)
    return _to_result(partition, position.offset, timestamp=position.timestamp, epoch=position.leader_epoch)


def _tiered_offset(broker: "Broker", replica: Replica, which: int) -> int:
    """The last offset in the object store, or the first that is not there; -1 if that is unknown."""
    log = replica.log
    if broker.tier is None or not log.config.remote_storage:
        return -1
    last = broker.tier.last_tiered_offset(replica)
    if which == LATEST_TIERED:
        return last
    if last < 0:
        return -1 if log.has_remote_part else log.log_start_offset
    return max(last + 1, log.log_start_offset)


class _RemoteLookup(NamedTuple):
    """A time that is looked up in the object store, and then in the local log."""

    topic: str
    replica: Replica
    partition: PartitionRequest
    request: ListOffsetsRequest
    version: int

    async def run(self, broker: "Broker") -> PartitionResult:
        """Raises the error for the partition."""
        replica, partition, request, version = self[1:]
        if broker.tier is None:
            raise KafkaStorageError(f"{replica.log.name} has remote segments, and no object store is configured")
        found = await broker.tier.offset_for_timestamp(replica, partition.timestamp)
        if found is None:
            return _local_offset(broker, replica, partition, request, version)
        epoch = found.leader_epoch if version >= FIRST_VERSION_WITH_EPOCHS else NO_EPOCH
        return _to_result(partition, found.offset, timestamp=found.timestamp, epoch=epoch)


async def _look_up_all(broker: "Broker", lookups: "list[_RemoteLookup]", results: Results) -> ListOffsetsResponse:
    timeout_ms = broker.config[REMOTE_LIST_OFFSETS_REQUEST_TIMEOUT_MS]
    if lookups[0].version >= FIRST_VERSION_WITH_TIMEOUT and lookups[0].request.timeout_ms > 0:
        timeout_ms = min(timeout_ms, lookups[0].request.timeout_ms)
    with trio.move_on_after(timeout_ms / 1000):  # what has no answer by then has timed out
        async with trio.open_nursery() as nursery:
            for lookup in lookups:
                nursery.start_soon(_look_up_remote, broker, lookup, results)
    return _response(results)


async def _look_up_remote(broker: "Broker", lookup: "_RemoteLookup", results: Results) -> None:
    try:
        result = await lookup.run(broker)
    except KafkaError as error:
        result = _error_result(lookup.partition, error)
    results[lookup.topic][lookup.partition.partition_index] = result


def _to_result(
    partition: PartitionRequest, offset: int, *, timestamp: int = -1, epoch: int = NO_EPOCH
) -> PartitionResult:
    return PartitionResult(
        partition_index=partition.partition_index, error_code=0, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _error_result(partition: PartitionRequest, error: KafkaError) -> PartitionResult:
    return PartitionResult(partition_index=partition.partition_index, error_code=error.code)
