"""Fetch (1) on a controller's listener: what the metadata's leader has written, for those who follow it.

A fetch says how far the asker's log goes, all of it durable, so that it may commit what others wait for. It is answered
at once if there is something new, also if only the high watermark is; otherwise it waits. A log that has parted from
the leader's is told where, and one that ends before the leader's begins is told of a snapshot.

v12 diverging epochs · v13 the topic by its id · v15 who asks · v17 with its directory · v18 the asker's high watermark
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.raft_messages import FetchAsked, FetchTold, LogEnd
from trioka.cluster.topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from trioka.cluster.voters import ReplicaKey
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

FIRST_VERSION: Final = 12  # from which on a log that has parted can be told so
FIRST_VERSION_BY_ID: Final = 13
MAX_WAIT_MS: Final = 5_000  # a longer wait is of no use to anybody: leaders resign sooner
MAX_BYTES: Final = 8 * READ_BYTES


def refuse(request: FetchRequest, error: KafkaError) -> FetchResponse:
    return FetchResponse(throttle_time_ms=0, error_code=error.code, responses=[])


@handles(FetchRequest, refuse=refuse, for_nodes=True)
async def quorum_fetch(broker: "Broker", call: "Call", request: FetchRequest) -> FetchResponse:
    quorum = broker.quorum
    quorum.check()
    asked = _asked(quorum, call.version, request)
    partition = request.topics[0].partitions[0]
    deadline = broker.clock.now() + min(max(request.max_wait_ms, 0), MAX_WAIT_MS) / 1000
    told, actions = quorum.raft.fetch_asked(asked, quorum.now_ms())
    quorum.step(actions)
    is_plain = not told.is_refused and told.diverging is None and told.snapshot is None
    if is_plain:
        # What it says of the asker was noted once, when it came: the asker may be gone while its fetch waits.
        with trio.move_on_at(deadline):
            while _still_leads(quorum, asked) and not _has_news(quorum, asked, partition.high_watermark):
                await quorum.moved.wait()
        is_plain = _still_leads(quorum, asked)
        told = FetchTold(
            leader_id=quorum.leader_id,
            epoch=quorum.epoch,
            high_watermark=quorum.told_high_watermark,
            is_refused=not is_plain,
        )
    elif told.snapshot is not None:
        newest = quorum.files.snapshots[-1]
        told = replace(told, snapshot=LogEnd(newest.epoch, newest.offset))
    records = _records(quorum, asked.end.offset, partition.partition_max_bytes) if is_plain else b""
    return fetch_response(
        told,
        asked_epoch=asked.epoch,
        log_start=quorum.log.log_start_offset,
        records=records,
        addresses=known_endpoints(quorum),
    )


def _still_leads(quorum: "Quorum", asked: FetchAsked) -> bool:
    return quorum.raft.is_leader and quorum.epoch == asked.epoch


def _has_news(quorum: "Quorum", asked: FetchAsked, known_high_watermark: int) -> bool:
    return quorum.log.log_end_offset > asked.end.offset or quorum.told_high_watermark > known_high_watermark


def _asked(quorum: "Quorum", version: int, request: FetchRequest) -> FetchAsked:
    check_cluster(quorum, request.cluster_id)
    if version < FIRST_VERSION:
        raise InvalidRequest(f"version {version} cannot speak of the metadata")
    topic = only(request.topics)
    partition = only(topic.partitions)
    if version >= FIRST_VERSION_BY_ID and topic.topic_id != CLUSTER_METADATA_TOPIC_ID:
        raise UnknownTopicId()
    if partition.partition != 0 or (version < FIRST_VERSION_BY_ID and topic.topic != CLUSTER_METADATA_TOPIC):
        raise UnknownTopicOrPartition()
    replica = max(request.replica_id, request.replica_state.replica_id)
    if replica < 0 or partition.fetch_offset < 0 or partition.current_leader_epoch < 0:
        raise InvalidRequest("only nodes of the cluster may read its metadata, from an offset on, in an epoch")
    return FetchAsked(
        replica=ReplicaKey(replica, partition.replica_directory_id),
        epoch=partition.current_leader_epoch,
        end=LogEnd(max(partition.last_fetched_epoch, 0), partition.fetch_offset),
    )


def _records(quorum: "Quorum", offset: int, max_bytes: int) -> bytes:
    if offset >= quorum.log.log_end_offset:
        return b""
    read = quorum.log.read(offset, min(max(max_bytes, 0), MAX_BYTES))
    return b"" if read.records is None else bytes(read.records.read())
