"""Offsets: log start and end of partitions, committed offsets of groups, and timestamps of records.

Requests are grouped by destination broker (a leader, a coordinator); results are returned by partition.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, NamedTuple, TypeVar

from trioka.protocol import batch
from trioka.protocol.errors import NONE, KafkaError, LeaderNotAvailable, ProtocolError
from trioka.protocol.messages.fetch import FetchRequest
from trioka.protocol.messages.list_offsets import ListOffsetsRequest
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_delete import OffsetDeleteRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest

from .. import problems
from .cluster_client import NO_NODE, Kafka, TopicPartition

EARLIEST, LATEST = -2, -1
CONSUMER: Final = -1  # the replica id of a consumer
BY_NAME: Final = {"fetch": 12, "offsets": 9}  # the last versions that use topic names instead of topic ids
READ_BYTES: Final = 64 * 1024  # fetched from a partition to find a record's timestamp
NO_OFFSET: Final = -1
NO_MEMBER_ID: Final = ("", -1)

T = TypeVar("T")


class OffsetResult(NamedTuple):
    """The offset of one partition. -1: there is none."""

    offset: int
    timestamp: int
    error: int


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    ordered = sorted(set(partitions))
    return [(topic, [each.partition for each in group]) for topic, group in groupby(ordered, lambda each: each.topic)]


def list_offsets(kafka: Kafka, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetResult]:
    """For each partition the first offset at or after a time; or the log start (`EARLIEST`) or end (`LATEST`)."""

    def ask() -> dict[TopicPartition, OffsetResult]:
        found: dict[TopicPartition, OffsetResult] = {}
        for leader, partitions in kafka.leaders(wanted).items():
            if leader == NO_NODE:
                found |= dict.fromkeys(partitions, OffsetResult(NO_OFFSET, NO_OFFSET, LeaderNotAvailable.code))
                continue
            Topic = ListOffsetsRequest.Topic
            topics = [
                Topic(
                    name=name,
                    partitions=[
                        Topic.Partition(partition_index=index, timestamp=wanted[TopicPartition(name, index)])
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(partitions)
            ]
            request = ListOffsetsRequest(replica_id=CONSUMER, topics=topics, timeout_ms=kafka.timeout_ms)
            for topic in kafka.ask_node(leader, request).topics:
                for result in topic.partitions:
                    place = TopicPartition(topic.name, result.partition_index)
                    found[place] = OffsetResult(result.offset, result.timestamp, result.error_code)
        return found

    return kafka.retry_while_stale(ask, lambda found: [each.error for each in found.values()])


def offsets_or_fail(kafka: Kafka, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """`list_offsets`, but an error of one partition fails the command."""
    found = list_offsets(kafka, wanted)
    for place, result in found.items():
        if result.error != NONE:
            raise problems.from_error_code(result.error, f"the offsets of {place} are not known")
    return {place: result.offset for place, result in found.items()}


def committed(kafka: Kafka, group: str) -> dict[TopicPartition, CommittedOffset]:
    """All committed offsets of a group; nothing for a group that does not exist."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=None)], require_stable=False)
    answer = kafka.ask_coordinator(
        group, request, lambda result: [each.error_code for each in result.groups], at_most=BY_NAME["offsets"]
    )
    (result,) = answer.groups
    if result.error_code != NONE:
        raise problems.from_error_code(result.error_code, f"what group '{group}' has committed is not known")
    return {
        TopicPartition(topic.name, each.partition_index): CommittedOffset(
            each.committed_offset, each.committed_leader_epoch, each.metadata
        )
        for topic in result.topics
        for each in topic.partitions
        if each.error_code == NONE and each.committed_offset != NO_OFFSET
    }


def commit(
    kafka: Kafka,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    *,
    member: tuple[str, int] = NO_MEMBER_ID,
) -> dict[TopicPartition, int]:
    """Commit for a group without members, or as a member with its epoch; returns an error code per partition."""
    Topic = OffsetCommitRequest.Topic
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member[0],
        generation_id_or_member_epoch=member[1],
        topics=[
            Topic(
                name=name,
                partitions=[
                    Topic.Partition(
                        partition_index=index,
                        committed_offset=offsets[TopicPartition(name, index)].offset,
                        committed_leader_epoch=offsets[TopicPartition(name, index)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(name, index)].metadata,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(offsets)
        ],
    )
    answer = kafka.ask_coordinator(
        group,
        request,
        lambda result: [each.error_code for topic in result.topics for each in topic.partitions],
        at_most=BY_NAME["offsets"],
    )
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }


def forget(kafka: Kafka, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Delete a group's committed offsets of these partitions; returns an error code per partition."""
    wanted = list(partitions)
    Topic = OffsetDeleteRequest.Topic
    topics = [
        Topic(name=name, partitions=[Topic.Partition(partition_index=index) for index in indexes])
        for name, indexes in by_topic(wanted)
    ]
    answer = kafka.ask_coordinator(
        group, OffsetDeleteRequest(group_id=group, topics=topics), lambda result: [result.error_code]
    )
    if answer.error_code != NONE:
        return dict.fromkeys(wanted, answer.error_code)
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }


def fetch_topics(
    partitions: Iterable[TopicPartition], places: Mapping[TopicPartition, int], max_bytes: int
) -> list[FetchRequest.Topic]:
    """The topics field of a Fetch request that reads each partition from the given offset on."""
    Topic = FetchRequest.Topic
    return [
        Topic(
            topic=name,
            partitions=[
                Topic.Partition(
                    partition=index,
                    fetch_offset=places[TopicPartition(name, index)],
                    partition_max_bytes=max_bytes,
                )
                for index in indexes
            ],
        )
        for name, indexes in by_topic(partitions)
    ]


def written_at(kafka: Kafka, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The timestamp of the record at each offset, or of the next record; leaves out partitions that cannot be read."""
    found: dict[TopicPartition, int] = {}
    for leader, partitions in kafka.leaders(places).items():
        if leader == NO_NODE:
            continue
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=fetch_topics(partitions, places, READ_BYTES))
        for topic in kafka.ask_node(leader, request, at_most=BY_NAME["fetch"]).responses:
            for result in topic.partitions:
                place = TopicPartition(topic.topic, result.partition_index)
                timestamp = _first_timestamp(bytes(result.records or b""), places[place])
                if result.error_code == NONE and timestamp is not None:
                    found[place] = timestamp
    return found


def _first_timestamp(data: bytes, offset: int) -> int | None:
    try:
        for header in batch.headers(data, partial_tail=True):
            if header.last_offset < offset or header.is_control:
                continue
            return next((each.timestamp for each in batch.records(data, header) if each.offset >= offset), None)
        # Less than a whole batch came: its header has the timestamp of its oldest record.
        first = batch.read_header(data) if len(data) >= batch.HEADER_SIZE else None
    except (KafkaError, ProtocolError):
        return None
    return None if first is None or first.is_control else first.base_timestamp
