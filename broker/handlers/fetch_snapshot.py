"""FetchSnapshot (59): returns a chunk of a metadata snapshot, for a node whose log ends before the leader's log starts.

v1 directory ids, and the leader's endpoint
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC
from trioka.cluster.quorum.snapshot import SnapshotId
from trioka.protocol.errors import (
    NONE,
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderOrFollower,
    PositionOutOfRange,
    SnapshotNotFound,
    UnknownLeaderEpoch,
)
from trioka.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

from ..api import handles
from ..quorum.rpc import number, only
from ..quorum.rpc_checks import check_cluster, known_endpoints

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call
    from ..quorum.driver import Quorum

TopicResult = FetchSnapshotResponse.Topic
PartitionRequest = FetchSnapshotRequest.Topic.Partition


def error_response(request: FetchSnapshotRequest, error: KafkaError) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(throttle_time_ms=0, error_code=error.code, topics=[])


@handles(FetchSnapshotRequest, error_response=error_response, cluster_only=True)
def fetch_snapshot(broker: "Broker", call: "Call", request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    quorum = broker.quorum
    check_cluster(quorum, request.cluster_id)
    requested = only(only(request.topics).partitions)
    data, size, error_code = b"", 0, NONE
    try:
        data, size = _chunk(quorum, requested, request.max_bytes)
    except KafkaError as error:
        error_code = error.code
    partition = TopicResult.Partition(
        index=requested.partition,
        error_code=error_code,
        snapshot_id=TopicResult.Partition.SnapshotId(
            end_offset=requested.snapshot_id.end_offset, epoch=requested.snapshot_id.epoch
        ),
        current_leader=TopicResult.Partition.CurrentLeader(
            leader_id=number(quorum.leader_id), leader_epoch=quorum.epoch
        ),
        size=size,
        position=requested.position,
        unaligned_records=data,
    )
    return FetchSnapshotResponse(
        throttle_time_ms=0,
        error_code=NONE,
        topics=[TopicResult(name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            FetchSnapshotResponse.NodeEndpoint(node_id=node_id, host=server.host, port=server.port)
            for node_id, server in known_endpoints(quorum).items()
        ],
    )


def _chunk(quorum: "Quorum", requested: PartitionRequest, max_bytes: int) -> tuple[bytes, int]:
    if requested.current_leader_epoch < quorum.epoch:
        raise FencedLeaderEpoch()
    if requested.current_leader_epoch > quorum.epoch:
        raise UnknownLeaderEpoch()
    if not quorum.raft.is_leader:
        raise NotLeaderOrFollower()
    snapshot = SnapshotId(requested.snapshot_id.end_offset, requested.snapshot_id.epoch)
    if snapshot not in quorum.files.snapshots:
        raise SnapshotNotFound()
    data, size = quorum.files.snapshot_chunk(
        snapshot, requested.position, min(max(max_bytes, 1), quorum.snapshot_bytes)
    )
    if not 0 <= requested.position < size:
        raise PositionOutOfRange()
    return data, size
