"""Converts the messages of `raft_messages` to protocol requests and responses, and back.

There is one partition, `__cluster_metadata-0`, so every request has one topic with one partition. Any other shape is
INVALID_REQUEST.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from trioka.cluster.image.topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from trioka.cluster.quorum.raft_messages import (
    BeginEpoch,
    EndEpoch,
    EpochAndOffset,
    RaftFetchRequest,
    RaftFetchResponse,
    RaftRequest,
    RaftVoteRequest,
    RaftVoteResponse,
)
from trioka.cluster.quorum.voters import ReplicaKey
from trioka.protocol.errors import (
    NONE,
    FencedLeaderEpoch,
    InvalidRequest,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from trioka.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from trioka.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.messages.vote import VoteRequest, VoteResponse
from trioka.protocol.primitives import RecordBytes
from trioka.protocol.schema import Struct

from ..config.addresses import Endpoint, Server

NO_NODE: Final = -1
BEGINNING: Final = EpochAndOffset(0, 0)
_REFUSED: Final = frozenset({FencedLeaderEpoch.code, UnknownLeaderEpoch.code, NotLeaderOrFollower.code})

T = TypeVar("T", bound=Struct)


def only(items: Sequence[T]) -> T:
    if len(items) != 1:
        raise InvalidRequest(f"{len(items)} entries instead of one")
    return items[0]


def node(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id


def number(leader_id: int | None) -> int:
    return NO_NODE if leader_id is None else leader_id


# -- requests ----------------------------------------------------------------------------------------------------------


def request_of(
    question: RaftRequest, to: ReplicaKey, cluster_id: str, endpoints: Iterable[Endpoint]
) -> VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest:
    match question:
        case RaftVoteRequest():
            return _vote_request(question, to, cluster_id)
        case BeginEpoch():
            begun = BeginQuorumEpochRequest.Topic
            return BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                voter_id=to.id,
                topics=[
                    begun(
                        topic_name=CLUSTER_METADATA_TOPIC,
                        partitions=[
                            begun.Partition(
                                partition_index=0,
                                voter_directory_id=to.directory,
                                leader_id=question.leader.id,
                                leader_epoch=question.epoch,
                            )
                        ],
                    )
                ],
                leader_endpoints=[
                    BeginQuorumEpochRequest.LeaderEndpoint(name=e.name, host=e.host, port=e.port) for e in endpoints
                ],
            )
        case EndEpoch():
            return _end_request(question, cluster_id, endpoints)


def _vote_request(question: RaftVoteRequest, to: ReplicaKey, cluster_id: str) -> VoteRequest:
    partition = VoteRequest.Topic.Partition(
        partition_index=0,
        replica_epoch=question.epoch,
        replica_id=question.candidate.id,
        replica_directory_id=question.candidate.directory,
        voter_directory_id=to.directory,
        last_offset_epoch=question.end.epoch,
        last_offset=question.end.offset,
        pre_vote=question.is_pre_vote,
    )
    topic = VoteRequest.Topic(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])
    return VoteRequest(cluster_id=cluster_id, voter_id=to.id, topics=[topic])


def _end_request(question: EndEpoch, cluster_id: str, endpoints: Iterable[Endpoint]) -> EndQuorumEpochRequest:
    response = EndQuorumEpochRequest.Topic.Partition
    partition = response(
        partition_index=0,
        leader_id=question.leader_id,
        leader_epoch=question.epoch,
        preferred_successors=[],
        preferred_candidates=[
            response.PreferredCandidate(candidate_id=each.id, candidate_directory_id=each.directory)
            for each in question.successors
        ],
    )
    return EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[EndQuorumEpochRequest.Topic(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            EndQuorumEpochRequest.LeaderEndpoint(name=e.name, host=e.host, port=e.port) for e in endpoints
        ],
    )


def to_vote_request(request: VoteRequest) -> tuple[RaftVoteRequest, ReplicaKey]:
    """The message in a request, and its destination."""
    raft_request = only(only(request.topics).partitions)
    if (
        raft_request.last_offset < 0
        or raft_request.last_offset_epoch < 0
        or raft_request.replica_epoch < 0
        or raft_request.replica_id < 0
    ):
        raise InvalidRequest("a candidate with a negative number")
    question = RaftVoteRequest(
        candidate=ReplicaKey(raft_request.replica_id, raft_request.replica_directory_id),
        epoch=raft_request.replica_epoch,
        end=EpochAndOffset(raft_request.last_offset_epoch, raft_request.last_offset),
        is_pre_vote=raft_request.pre_vote,
    )
    return question, ReplicaKey(request.voter_id, raft_request.voter_directory_id)


def to_vote_response(response: VoteResponse, voter: ReplicaKey, request: RaftVoteRequest) -> RaftVoteResponse | None:
    """The message in a response; None if the response has no result."""
    if response.error_code != NONE or not response.topics or not response.topics[0].partitions:
        return None
    raft_response = response.topics[0].partitions[0]
    return RaftVoteResponse(
        voter=voter,
        epoch=raft_response.leader_epoch,
        leader_id=node(raft_response.leader_id),
        is_granted=raft_response.vote_granted and raft_response.error_code == NONE,
        request_epoch=request.epoch,
        is_pre_vote=request.is_pre_vote,
    )


# -- fetching ----------------------------------------------------------------------------------------------------------


def fetch_request(
    request: RaftFetchRequest, cluster_id: str, *, high_watermark: int, log_start: int, max_wait_ms: int, max_bytes: int
) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.end.offset,
        last_fetched_epoch=request.end.epoch,
        log_start_offset=log_start,
        partition_max_bytes=max_bytes,
        replica_directory_id=request.replica.directory,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=FetchRequest.ReplicaState(replica_id=request.replica.id, replica_epoch=-1),
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[
            FetchRequest.Topic(topic=CLUSTER_METADATA_TOPIC, topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=[partition])
        ],
        forgotten_topics_data=[],
    )


def to_fetch_response(response: FetchResponse) -> tuple[RaftFetchResponse, memoryview] | None:
    """The leader's state, and the records that it sends. None if the response has no result."""
    if response.error_code != NONE or not response.responses or not response.responses[0].partitions:
        return None
    raft_response = response.responses[0].partitions[0]
    if raft_response.error_code != NONE and raft_response.error_code not in _REFUSED:
        return None
    diverging, snapshot = raft_response.diverging_epoch, raft_response.snapshot_id
    records = raft_response.records
    assert records is None or isinstance(records, bytes | bytearray | memoryview)
    return RaftFetchResponse(
        leader_id=node(raft_response.current_leader.leader_id),
        epoch=raft_response.current_leader.leader_epoch,
        high_watermark=raft_response.high_watermark,
        diverging=EpochAndOffset(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
        snapshot=EpochAndOffset(snapshot.epoch, snapshot.end_offset) if snapshot.end_offset >= 0 else None,
        is_refused=raft_response.error_code != NONE,
    ), memoryview(records or b"")


def fetch_response(
    response: RaftFetchResponse,
    *,
    request_epoch: int,
    log_start: int,
    records: RecordBytes,
    addresses: dict[int, Server],
) -> FetchResponse:
    partition = FetchResponse.Topic.Partition
    diverging, snapshot = partition.DivergingEpoch(), partition.SnapshotId()
    if response.diverging is not None:
        diverging = partition.DivergingEpoch(epoch=response.diverging.epoch, end_offset=response.diverging.offset)
    if response.snapshot is not None:
        snapshot = partition.SnapshotId(epoch=response.snapshot.epoch, end_offset=response.snapshot.offset)
    return FetchResponse(
        throttle_time_ms=0,
        error_code=NONE,
        session_id=0,
        responses=[
            FetchResponse.Topic(
                topic=CLUSTER_METADATA_TOPIC,
                topic_id=CLUSTER_METADATA_TOPIC_ID,
                partitions=[
                    partition(
                        partition_index=0,
                        error_code=refusal(response, request_epoch),
                        high_watermark=response.high_watermark,
                        last_stable_offset=response.high_watermark,
                        log_start_offset=log_start,
                        diverging_epoch=diverging,
                        current_leader=partition.CurrentLeader(
                            leader_id=number(response.leader_id), leader_epoch=response.epoch
                        ),
                        snapshot_id=snapshot,
                        aborted_transactions=None,
                        records=records,
                    )
                ],
            )
        ],
        node_endpoints=[
            FetchResponse.NodeEndpoint(node_id=node_id, host=server.host, port=server.port)
            for node_id, server in addresses.items()
        ],
    )


def refusal(response: RaftFetchResponse, request_epoch: int) -> int:
    """The error code of a rejected fetch: an older epoch is fenced; with the same or a newer one, this node is not the
    leader."""
    if not response.is_refused:
        return NONE
    if request_epoch < response.epoch:
        return FencedLeaderEpoch.code
    return NotLeaderOrFollower.code if request_epoch == response.epoch else UnknownLeaderEpoch.code
