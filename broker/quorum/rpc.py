"""What nodes of the quorum say to each other: from `raft_messages` to the wire, and back.

There is one partition, `__cluster_metadata-0`, so that every request has one topic with one partition in it. What has
any other shape is an INVALID_REQUEST.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from trioka.cluster.raft_messages import (
    EpochBegun,
    EpochEnded,
    FetchAsked,
    FetchTold,
    LogEnd,
    Question,
    VoteAsked,
    VoteTold,
)
from trioka.cluster.topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from trioka.cluster.voters import ReplicaKey
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

NOBODY: Final = -1
BEGINNING: Final = LogEnd(0, 0)
_REFUSED: Final = frozenset({FencedLeaderEpoch.code, UnknownLeaderEpoch.code, NotLeaderOrFollower.code})

T = TypeVar("T", bound=Struct)


def only(items: Sequence[T]) -> T:
    if len(items) != 1:
        raise InvalidRequest(f"{len(items)} of what there is one of")
    return items[0]


def node(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id


def number(leader_id: int | None) -> int:
    return NOBODY if leader_id is None else leader_id


# -- questions ---------------------------------------------------------------------------------------------------------


def request_of(
    question: Question, to: ReplicaKey, cluster_id: str, endpoints: Iterable[Endpoint]
) -> VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest:
    match question:
        case VoteAsked():
            return _vote_request(question, to, cluster_id)
        case EpochBegun():
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
        case EpochEnded():
            return _end_request(question, cluster_id, endpoints)


def _vote_request(question: VoteAsked, to: ReplicaKey, cluster_id: str) -> VoteRequest:
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


def _end_request(question: EpochEnded, cluster_id: str, endpoints: Iterable[Endpoint]) -> EndQuorumEpochRequest:
    told = EndQuorumEpochRequest.Topic.Partition
    partition = told(
        partition_index=0,
        leader_id=question.leader_id,
        leader_epoch=question.epoch,
        preferred_successors=[],
        preferred_candidates=[
            told.PreferredCandidate(candidate_id=each.id, candidate_directory_id=each.directory)
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


def vote_asked(request: VoteRequest) -> tuple[VoteAsked, ReplicaKey]:
    """What is asked, and of whom."""
    asked = only(only(request.topics).partitions)
    if asked.last_offset < 0 or asked.last_offset_epoch < 0 or asked.replica_epoch < 0 or asked.replica_id < 0:
        raise InvalidRequest("a candidate with a negative number")
    question = VoteAsked(
        candidate=ReplicaKey(asked.replica_id, asked.replica_directory_id),
        epoch=asked.replica_epoch,
        end=LogEnd(asked.last_offset_epoch, asked.last_offset),
        is_pre_vote=asked.pre_vote,
    )
    return question, ReplicaKey(request.voter_id, asked.voter_directory_id)


def vote_told(response: VoteResponse, voter: ReplicaKey, asked: VoteAsked) -> VoteTold | None:
    """None for an answer that says nothing."""
    if response.error_code != NONE or not response.topics or not response.topics[0].partitions:
        return None
    told = response.topics[0].partitions[0]
    return VoteTold(
        voter=voter,
        epoch=told.leader_epoch,
        leader_id=node(told.leader_id),
        is_granted=told.vote_granted and told.error_code == NONE,
        asked_epoch=asked.epoch,
        is_pre_vote=asked.is_pre_vote,
    )


# -- fetching ----------------------------------------------------------------------------------------------------------


def fetch_request(
    asked: FetchAsked, cluster_id: str, *, high_watermark: int, log_start: int, max_wait_ms: int, max_bytes: int
) -> FetchRequest:
    partition = FetchRequest.Topic.Partition(
        partition=0,
        current_leader_epoch=asked.epoch,
        fetch_offset=asked.end.offset,
        last_fetched_epoch=asked.end.epoch,
        log_start_offset=log_start,
        partition_max_bytes=max_bytes,
        replica_directory_id=asked.replica.directory,
        high_watermark=high_watermark,
    )
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=FetchRequest.ReplicaState(replica_id=asked.replica.id, replica_epoch=-1),
        max_wait_ms=max_wait_ms,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[
            FetchRequest.Topic(topic=CLUSTER_METADATA_TOPIC, topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=[partition])
        ],
        forgotten_topics_data=[],
    )


def fetch_told(response: FetchResponse) -> tuple[FetchTold, memoryview] | None:
    """What the leader says, and the records that it sends. None for an answer that says nothing of use."""
    if response.error_code != NONE or not response.responses or not response.responses[0].partitions:
        return None
    told = response.responses[0].partitions[0]
    if told.error_code != NONE and told.error_code not in _REFUSED:
        return None
    diverging, snapshot = told.diverging_epoch, told.snapshot_id
    records = told.records
    assert records is None or isinstance(records, bytes | bytearray | memoryview)
    return FetchTold(
        leader_id=node(told.current_leader.leader_id),
        epoch=told.current_leader.leader_epoch,
        high_watermark=told.high_watermark,
        diverging=LogEnd(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
        snapshot=LogEnd(snapshot.epoch, snapshot.end_offset) if snapshot.end_offset >= 0 else None,
        is_refused=told.error_code != NONE,
    ), memoryview(records or b"")


def fetch_response(
    told: FetchTold, *, asked_epoch: int, log_start: int, records: RecordBytes, addresses: dict[int, Server]
) -> FetchResponse:
    partition = FetchResponse.Topic.Partition
    diverging, snapshot = partition.DivergingEpoch(), partition.SnapshotId()
    if told.diverging is not None:
        diverging = partition.DivergingEpoch(epoch=told.diverging.epoch, end_offset=told.diverging.offset)
    if told.snapshot is not None:
        snapshot = partition.SnapshotId(epoch=told.snapshot.epoch, end_offset=told.snapshot.offset)
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
                        error_code=refusal(told, asked_epoch),
                        high_watermark=told.high_watermark,
                        last_stable_offset=told.high_watermark,
                        log_start_offset=log_start,
                        diverging_epoch=diverging,
                        current_leader=partition.CurrentLeader(
                            leader_id=number(told.leader_id), leader_epoch=told.epoch
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


def refusal(told: FetchTold, asked_epoch: int) -> int:
    """An older epoch than this node's is fenced; with a newer one, or the same, this node is not the leader."""
    if not told.is_refused:
        return NONE
    if asked_epoch < told.epoch:
        return FencedLeaderEpoch.code
    return NotLeaderOrFollower.code if asked_epoch == told.epoch else UnknownLeaderEpoch.code
