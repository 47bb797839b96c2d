"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, after the group has accepted the request: records and
responses.

Partitions of unknown topics get UNKNOWN_TOPIC_OR_PARTITION (by name) or UNKNOWN_TOPIC_ID (by id); the others are
processed. Rejected topics come first in responses, as in Apache Kafka's.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from trioka.protocol.errors import (
    GroupSubscribedToTopic,
    KafkaError,
    OffsetMetadataTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from trioka.protocol.internal_records.classic_groups import OffsetCommitKey, OffsetCommitValue
from trioka.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from trioka.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from trioka.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from trioka.protocol.primitives import NULL_UUID

from .decision import StoredRecord
from .offsets import NO_EXPIRY, CommittedOffset, GroupOfOffsets, GroupTopicPartition, Offsets, tombstone
from .topics import Topic, Topics

PartitionRequest = OffsetCommitRequest.Topic.Partition | TxnOffsetCommitRequest.Topic.Partition
FetchedTopic = OffsetFetchResponse.Group.Topic
FetchedPartition = OffsetFetchResponse.Group.Topic.Partition

FIRST_WITH_TOPIC_IDS: Final = 10  # of OffsetCommit and of OffsetFetch
NO_OFFSET: Final = -1
NO_RETENTION_TIME: Final = -1


class CommitResults:
    """Error codes by topic and partition, in the order of the response."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, bytes], list[tuple[int, int]]] = {}

    def add(self, name: str, topic_id: bytes, partition: int, error: type[KafkaError] | None = None) -> None:
        self._topics.setdefault((name, topic_id), []).append((partition, 0 if error is None else error.code))

    def commit_response(self) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponse.Topic(
                    name=name,
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitResponse.Topic.Partition(partition_index=partition, error_code=code)
                        for partition, code in partitions
                    ],
                )
                for (name, topic_id), partitions in self._topics.items()
            ]
        )

    def txn_response(self) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            throttle_time_ms=0,
            topics=[
                TxnOffsetCommitResponse.Topic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitResponse.Topic.Partition(partition_index=partition, error_code=code)
                        for partition, code in partitions
                    ],
                )
                for (name, _), partitions in self._topics.items()
            ],
        )

    def delete_response(self) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(
            error_code=0,
            throttle_time_ms=0,
            topics=[
                OffsetDeleteResponse.Topic(
                    name=name,
                    partitions=[
                        OffsetDeleteResponse.Topic.Partition(partition_index=partition, error_code=code)
                        for partition, code in partitions
                    ],
                )
                for (name, _), partitions in self._topics.items()
            ],
        )


class PartitionCommit(NamedTuple):
    """A commit of a partition that exists. `requested_id` is the topic id in the request, if it has one."""

    topic: Topic
    requested_id: bytes
    requested: PartitionRequest


def existing(
    request: OffsetCommitRequest | TxnOffsetCommitRequest, topics: Topics, version: int
) -> tuple[list[PartitionCommit], CommitResults]:
    """The partitions that can be committed, and the results of the others."""
    results = CommitResults()
    commits: list[PartitionCommit] = []
    for topic in request.topics:
        by_id = isinstance(topic, OffsetCommitRequest.Topic) and version >= FIRST_WITH_TOPIC_IDS
        name, topic_id = ("", topic.topic_id) if by_id else (topic.name, NULL_UUID)  # type: ignore[union-attr]
        found = topics.by_id(topic_id) if by_id else topics.by_name(name)
        for requested in topic.partitions:
            if found is None and by_id:
                results.add(name, topic_id, requested.partition_index, UnknownTopicId)
            elif found is None or not 0 <= requested.partition_index < found.partitions:
                results.add(name, topic_id, requested.partition_index, UnknownTopicOrPartition)
            else:
                commits.append(PartitionCommit(found, topic_id, requested))
    return commits, results


def refuse_all(commits: list[PartitionCommit], results: CommitResults, error: KafkaError) -> None:
    for topic, requested_id, requested in commits:
        results.add(
            "" if requested_id != NULL_UUID else topic.name, requested_id, requested.partition_index, type(error)
        )


def commits(
    group: str,
    commits: list[PartitionCommit],
    results: CommitResults,
    *,
    retention_ms: int,
    max_metadata_bytes: int,
    now_ms: int,
) -> tuple[StoredRecord, ...]:
    """The records of a commit."""
    records = []
    expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION_TIME else now_ms + retention_ms
    for topic, requested_id, requested in commits:
        name = "" if requested_id != NULL_UUID else topic.name
        metadata = requested.committed_metadata or ""
        if _utf16_length(metadata) > max_metadata_bytes:
            results.add(name, requested_id, requested.partition_index, OffsetMetadataTooLarge)
            continue
        results.add(name, requested_id, requested.partition_index)
        key = OffsetCommitKey(group=group, topic=topic.name, partition=requested.partition_index)
        value = OffsetCommitValue(
            offset=requested.committed_offset,
            leader_epoch=requested.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=now_ms,
            expire_timestamp=expire_ms,
            topic_id=topic.id,
        )
        records.append(StoredRecord(key, value))
    return tuple(records)


def _utf16_length(text: str) -> int:
    """Whether the metadata is too long. Kafka's limit counts UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


# -- OffsetFetch -------------------------------------------------------------------------------------------------------


def fetch(
    requested: OffsetFetchRequest.Group,
    offsets: Offsets,
    topics: Topics,
    *,
    exists: bool,
    require_stable: bool,
    version: int,
) -> OffsetFetchResponse.Group:
    """The offsets of a group, in some or all topics; none if the group does not exist."""
    by_id = version >= FIRST_WITH_TOPIC_IDS

    def lookup(topic: str, topic_id: bytes, partition: int) -> FetchedPartition:
        if require_stable and offsets.is_pending(requested.group_id, topic, partition):
            return _fetched(partition, None, UnstableOffsetCommit.code)
        committed = offsets.get(requested.group_id, topic, partition) if exists else None
        if committed is not None and NULL_UUID != committed.topic_id != topic_id != NULL_UUID:
            committed = None  # the commit was for an earlier topic with this name
        return _fetched(partition, committed, 0)

    if requested.topics is None:
        found = _all(requested.group_id, offsets, topics, lookup, by_id) if exists else iter(())
    else:
        found = _some(requested.topics, topics, lookup, by_id)
    return OffsetFetchResponse.Group(group_id=requested.group_id, topics=list(found))


PartitionLookup = Callable[[str, bytes, int], FetchedPartition]


def _some(
    requested: list[OffsetFetchRequest.Group.Topic], topics: Topics, lookup: PartitionLookup, by_id: bool
) -> Iterator[FetchedTopic]:
    unknown = []
    for topic in requested:
        name = topic.name
        if by_id:
            found = topics.by_id(topic.topic_id)
            if found is None:
                unknown.append(topic)
                continue
            name = found.name
        partitions = [lookup(name, topic.topic_id, partition) for partition in topic.partition_indexes]
        yield FetchedTopic(name=name, topic_id=topic.topic_id, partitions=partitions)
    for topic in unknown:
        partitions = [_fetched(partition, None, UnknownTopicId.code) for partition in topic.partition_indexes]
        yield FetchedTopic(name="", topic_id=topic.topic_id, partitions=partitions)


def _all(group: str, offsets: Offsets, topics: Topics, lookup: PartitionLookup, by_id: bool) -> Iterator[FetchedTopic]:
    for name, partitions in offsets.of_group(group):
        topic_id = NULL_UUID
        if by_id:
            found = topics.by_name(name)
            if found is None:
                continue  # the topic does not exist any more
            topic_id = found.id
        yield FetchedTopic(
            name=name, topic_id=topic_id, partitions=[lookup(name, topic_id, partition) for partition in partitions]
        )


def _fetched(partition: int, committed: CommittedOffset | None, error_code: int) -> FetchedPartition:
    if committed is None:
        return FetchedPartition(
            partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=error_code
        )
    return FetchedPartition(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error_code,
    )


def fetch_error(requested: OffsetFetchRequest.Group, error: KafkaError, version: int) -> OffsetFetchResponse.Group:
    """An error of the whole group. The first version has it in each partition."""
    if version > 1:
        return OffsetFetchResponse.Group(group_id=requested.group_id, topics=[], error_code=error.code)
    return OffsetFetchResponse.Group(
        group_id=requested.group_id,
        topics=[
            FetchedTopic(
                name=topic.name, partitions=[_fetched(index, None, error.code) for index in topic.partition_indexes]
            )
            for topic in requested.topics or ()
        ],
    )


# -- OffsetDelete ------------------------------------------------------------------------------------------------------


def delete(
    request: OffsetDeleteRequest, group: GroupOfOffsets, offsets: Offsets, topics: Topics
) -> tuple[tuple[StoredRecord, ...], OffsetDeleteResponse]:
    results = CommitResults()
    existing_ones = []
    for topic in request.topics:
        found = topics.by_name(topic.name)
        for requested in topic.partitions:
            if found is None or not 0 <= requested.partition_index < found.partitions:
                results.add(topic.name, NULL_UUID, requested.partition_index, UnknownTopicOrPartition)
            else:
                existing_ones.append(GroupTopicPartition(request.group_id, topic.name, requested.partition_index))
    records = []
    for place in existing_ones:
        if group.is_subscribed_to(place.topic):
            results.add(place.topic, NULL_UUID, place.partition, GroupSubscribedToTopic)
            continue
        results.add(place.topic, NULL_UUID, place.partition)
        if offsets.get(*place) is not None or offsets.is_pending(*place):
            records.append(tombstone(*place))
    return tuple(records), results.delete_response()
