"""Fetch (1) on a controller listener: replicates the metadata log from its leader to voters and observers.

The fetch offset is the end of the follower's log, all of it durable, so a fetch may commit records. The leader answers
at once if it has new records or a new high watermark, and waits otherwise. A follower with a diverging log gets the
point to truncate to, and one whose log ends before the leader's log starts gets a snapshot id.

v12 diverging epochs · v13 the topic by id · v15 replica state · v17 directory id · v18 the follower's high watermark
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from trioka.cluster.quorum.raft_messages import EpochAndOffset, RaftFetchRequest, RaftFetchResponse
from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol.errors import InvalidRequest, KafkaError, UnknownTopicId, UnknownTopicOrPartition
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse

from ..api import handles
from ..quorum.rpc import fetch_response, only
from ..quorum.rpc_checks import check_cluster, known_endpoints
from ..quorum.store import READ_BYTES

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call
    from ..quorum.driver import Quorum

FIRST_VERSION: Final = 12  # the first with diverging epochs
FIRST_VERSION_BY_ID: Final = 13
MAX_WAIT_MS: Final = 5_000  # a longer wait is useless: leaders resign sooner
MAX_BYTES: Final = 8 * READ_BYTES


def error_response(request: FetchRequest, error: KafkaError) -> FetchResponse:
    return FetchResponse(throttle_time_ms=0, error_code=error.code, responses=[])


@handles(FetchRequest, error_response=error_response, cluster_only=True)
async def quorum_fetch(broker: "Broker", call: "Call", request: FetchRequest) -> FetchResponse:
    quorum = broker.quorum
    quorum.check()
    fetch = _to_raft_request(quorum, call.version, request)
    partition = request.topics[0].partitions[0]
    deadline = broker.clock.now() + min(max(request.max_wait_ms, 0), MAX_WAIT_MS) / 1000
    response, actions = quorum.raft.on_fetch_request(fetch, quorum.now_ms())
    quorum.step(actions)
    is_success = not response.is_refused and response.diverging is None and response.snapshot is None
    if is_success:
        # The progress of the follower is recorded once, on arrival: it may disconnect while its fetch waits.
        with trio.move_on_at(deadline):
            while _is_still_leader(quorum, fetch) and not _has_new_data(quorum, fetch, partition.high_watermark):
                await quorum.moved.wait()
        is_success = _is_still_leader(quorum, fetch)
        response = RaftFetchResponse(
            leader_id=quorum.leader_id,
            epoch=quorum.epoch,
            high_watermark=quorum.advertised_high_watermark,
            is_refused=not is_success,
        )
    elif response.snapshot is not None:
        newest = quorum.files.snapshots[-1]
        response = replace(response, snapshot=EpochAndOffset(newest.epoch, newest.offset))
    records = _records(quorum, fetch.end.offset, partition.partition_max_bytes) if is_success else b""
    return fetch_response(
        response,
        request_epoch=fetch.epoch,
        log_start=quorum.log.log_start_offset,
        records=records,
        addresses=known_endpoints(quorum),
    )


def _is_still_leader(quorum: "Quorum", fetch: RaftFetchRequest) -> bool:
    return quorum.raft.is_leader and quorum.epoch == fetch.epoch


def _has_new_data(quorum: "Quorum", fetch: RaftFetchRequest, known_high_watermark: int) -> bool:
    return quorum.log.log_end_offset > fetch.end.offset or quorum.advertised_high_watermark > known_high_watermark


def _to_raft_request(quorum: "Quorum", version: int, request: FetchRequest) -> RaftFetchRequest:
    check_cluster(quorum, request.cluster_id)
    if version < FIRST_VERSION:
        raise InvalidRequest(f"version {version} of Fetch is not supported for the metadata log")
    topic = only(request.topics)
    partition = only(topic.partitions)
    if version >= FIRST_VERSION_BY_ID and topic.topic_id != CLUSTER_METADATA_TOPIC_ID:
        raise UnknownTopicId()
    if partition.partition != 0 or (version < FIRST_VERSION_BY_ID and topic.topic != CLUSTER_METADATA_TOPIC):
        raise UnknownTopicOrPartition()
    replica = max(request.replica_id, request.replica_state.replica_id)
    if replica < 0 or partition.fetch_offset < 0 or partition.current_leader_epoch < 0:
        raise InvalidRequest("the replica id, the fetch offset or the leader epoch is negative")
    return RaftFetchRequest(
        replica=ReplicaKey(replica, partition.replica_directory_id),
        epoch=partition.current_leader_epoch,
        end=EpochAndOffset(max(partition.last_fetched_epoch, 0), partition.fetch_offset),
    )


def _records(quorum: "Quorum", offset: int, max_bytes: int) -> bytes:
    if offset >= quorum.log.log_end_offset:
        return b""
    read = quorum.log.read(offset, min(max(max_bytes, 0), MAX_BYTES))
    return b"" if read.records is None else bytes(read.records.read())
