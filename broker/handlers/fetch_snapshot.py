"""FetchSnapshot (59): a piece of a snapshot of the metadata, for a node whose log ends before the leader's begins.

v1 directories, and where the leader listens
"""

from typing import TYPE_CHECKING

from trioka.cluster.snapshot import SnapshotId
from trioka.cluster.topics import CLUSTER_METADATA_TOPIC
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

Told = FetchSnapshotResponse.Topic
Asked = FetchSnapshotRequest.Topic.Partition


def refuse(request: FetchSnapshotRequest, error: KafkaError) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(throttle_time_ms=0, error_code=error.code, topics=[])


@handles(FetchSnapshotRequest, refuse=refuse, for_nodes=True)
def fetch_snapshot(broker: "Broker", call: "Call", request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    quorum = broker.quorum
    check_cluster(quorum, request.cluster_id)
    asked = only(only(request.topics).partitions)
    data, size, error_code = b"", 0, NONE
    try:
        data, size = _piece(quorum, asked, request.max_bytes)
    except KafkaError as error:
        error_code = error.code
    partition = Told.Partition(
        index=asked.partition,
        error_code=error_code,
        snapshot_id=Told.Partition.SnapshotId(end_offset=asked.snapshot_id.end_offset, epoch=asked.snapshot_id.epoch),
        current_leader=Told.Partition.CurrentLeader(leader_id=number(quorum.leader_id), leader_epoch=quorum.epoch),
        size=size,
        position=asked.position,
        unaligned_records=data,
    )
    return FetchSnapshotResponse(
        throttle_time_ms=0,
        error_code=NONE,
        topics=[Told(name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        node_endpoints=[
            FetchSnapshotResponse.NodeEndpoint(node_id=node_id, host=server.host, port=server.port)
            for node_id, server in known_endpoints(quorum).items()
        ],
    )


def _piece(quorum: "Quorum", asked: Asked, max_bytes: int) -> tuple[bytes, int]:
    if asked.current_leader_epoch < quorum.epoch:
        raise FencedLeaderEpoch()
    if asked.current_leader_epoch > quorum.epoch:
        raise UnknownLeaderEpoch()
    if not quorum.raft.is_leader:
        raise NotLeaderOrFollower()
    snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    if snapshot not in quorum.files.snapshots:
        raise SnapshotNotFound()
    data, size = quorum.files.snapshot_piece(snapshot, asked.position, min(max(max_bytes, 1), quorum.snapshot_bytes))
    if not 0 <= asked.position < size:
        raise PositionOutOfRange()
    return data, size
