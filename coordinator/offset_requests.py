"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, for a group that may do it: what is written, and what is
answered.

Topics that do not exist are refused one by one, by name (UNKNOWN_TOPIC_OR_PARTITION) or by id (UNKNOWN_TOPIC_ID), and
the rest is done. Answers name what was refused first, as Apache Kafka's do.
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

from .decision import Kept
from .offsets import NO_EXPIRY, Committed, GroupOfOffsets, Offsets, Place, tombstone
from .topics import Topic, Topics

Asked = OffsetCommitRequest.Topic.Partition | TxnOffsetCommitRequest.Topic.Partition
Fetched = OffsetFetchResponse.Group.Topic
FetchedPartition = OffsetFetchResponse.Group.Topic.Partition

FIRST_WITH_TOPIC_IDS: Final = 10  # of OffsetCommit and of OffsetFetch
NO_OFFSET: Final = -1
NO_RETENTION_TIME: Final = -1


class Told:
    """Error codes by topic and partition, in the order in which an answer names them."""

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


class Wanted(NamedTuple):
    """A commit of a partition that exists. `told_id` is how the asker named the topic, if it did so by id."""

    topic: Topic
    told_id: bytes
    asked: Asked


def existing(
    request: OffsetCommitRequest | TxnOffsetCommitRequest, topics: Topics, version: int
) -> tuple[list[Wanted], Told]:
    """What of a commit can be done, and what is said of the rest."""
    told = Told()
    wanted: list[Wanted] = []
    for topic in request.topics:
        by_id = isinstance(topic, OffsetCommitRequest.Topic) and version >= FIRST_WITH_TOPIC_IDS
        name, topic_id = ("", topic.topic_id) if by_id else (topic.name, NULL_UUID)  # type: ignore[union-attr]
        found = topics.by_id(topic_id) if by_id else topics.by_name(name)
        for asked in topic.partitions:
            if found is None and by_id:
                told.add(name, topic_id, asked.partition_index, UnknownTopicId)
            elif found is None or not 0 <= asked.partition_index < found.partitions:
                told.add(name, topic_id, asked.partition_index, UnknownTopicOrPartition)
            else:
                wanted.append(Wanted(found, topic_id, asked))
    return wanted, told


def refuse_all(wanted: list[Wanted], told: Told, error: KafkaError) -> None:
    for topic, told_id, asked in wanted:
        told.add("" if told_id != NULL_UUID else topic.name, told_id, asked.partition_index, type(error))


def commits(
    group: str, wanted: list[Wanted], told: Told, *, retention_ms: int, max_metadata_bytes: int, now_ms: int
) -> tuple[Kept, ...]:
    """The records of a commit."""
    records = []
    expire_ms = NO_EXPIRY if retention_ms == NO_RETENTION_TIME else now_ms + retention_ms
    for topic, told_id, asked in wanted:
        name = "" if told_id != NULL_UUID else topic.name
        metadata = asked.committed_metadata or ""
        if _java_length(metadata) > max_metadata_bytes:
            told.add(name, told_id, asked.partition_index, OffsetMetadataTooLarge)
            continue
        told.add(name, told_id, asked.partition_index)
        key = OffsetCommitKey(group=group, topic=topic.name, partition=asked.partition_index)
        value = OffsetCommitValue(
            offset=asked.committed_offset,
            leader_epoch=asked.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=now_ms,
            expire_timestamp=expire_ms,
            topic_id=topic.id,
        )
        records.append(Kept(key, value))
    return tuple(records)


def _java_length(text: str) -> int:
    """Kafka's limit counts the units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


# -- OffsetFetch -------------------------------------------------------------------------------------------------------


def fetch(
    asked: OffsetFetchRequest.Group,
    offsets: Offsets,
    topics: Topics,
    *,
    exists: bool,
    require_stable: bool,
    version: int,
) -> OffsetFetchResponse.Group:
    """Where a group is, in some topics or in all. Of a group that does not exist, nowhere."""
    by_id = version >= FIRST_WITH_TOPIC_IDS

    def told(topic: str, topic_id: bytes, partition: int) -> FetchedPartition:
        if require_stable and offsets.is_pending(asked.group_id, topic, partition):
            return _fetched(partition, None, UnstableOffsetCommit.code)
        committed = offsets.get(asked.group_id, topic, partition) if exists else None
        if committed is not None and NULL_UUID != committed.topic_id != topic_id != NULL_UUID:
            committed = None  # of a topic that had the same name
        return _fetched(partition, committed, 0)

    if asked.topics is None:
        found = _all(asked.group_id, offsets, topics, told, by_id) if exists else iter(())
    else:
        found = _some(asked.topics, topics, told, by_id)
    return OffsetFetchResponse.Group(group_id=asked.group_id, topics=list(found))


Tell = Callable[[str, bytes, int], FetchedPartition]


def _some(asked: list[OffsetFetchRequest.Group.Topic], topics: Topics, told: Tell, by_id: bool) -> Iterator[Fetched]:
    unknown = []
    for topic in asked:
        name = topic.name
        if by_id:
            found = topics.by_id(topic.topic_id)
            if found is None:
                unknown.append(topic)
                continue
            name = found.name
        partitions = [told(name, topic.topic_id, partition) for partition in topic.partition_indexes]
        yield Fetched(name=name, topic_id=topic.topic_id, partitions=partitions)
    for topic in unknown:
        partitions = [_fetched(partition, None, UnknownTopicId.code) for partition in topic.partition_indexes]
        yield Fetched(name="", topic_id=topic.topic_id, partitions=partitions)


def _all(group: str, offsets: Offsets, topics: Topics, told: Tell, by_id: bool) -> Iterator[Fetched]:
    for name, partitions in offsets.of_group(group):
        topic_id = NULL_UUID
        if by_id:
            found = topics.by_name(name)
            if found is None:
                continue  # it has no name that could be said
            topic_id = found.id
        yield Fetched(
            name=name, topic_id=topic_id, partitions=[told(name, topic_id, partition) for partition in partitions]
        )


def _fetched(partition: int, committed: Committed | None, error_code: int) -> FetchedPartition:
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


def fetch_refused(asked: OffsetFetchRequest.Group, error: KafkaError, version: int) -> OffsetFetchResponse.Group:
    """An error of the whole group. The first version has no place for it but the partitions."""
    if version > 1:
        return OffsetFetchResponse.Group(group_id=asked.group_id, topics=[], error_code=error.code)
    return OffsetFetchResponse.Group(
        group_id=asked.group_id,
        topics=[
            Fetched(
                name=topic.name, partitions=[_fetched(index, None, error.code) for index in topic.partition_indexes]
            )
            for topic in asked.topics or ()
        ],
    )


# -- OffsetDelete ------------------------------------------------------------------------------------------------------


def delete(
    request: OffsetDeleteRequest, group: GroupOfOffsets, offsets: Offsets, topics: Topics
) -> tuple[tuple[Kept, ...], OffsetDeleteResponse]:
    told = Told()
    existing_ones = []
    for topic in request.topics:
        found = topics.by_name(topic.name)
        for asked in topic.partitions:
            if found is None or not 0 <= asked.partition_index < found.partitions:
                told.add(topic.name, NULL_UUID, asked.partition_index, UnknownTopicOrPartition)
            else:
                existing_ones.append(Place(request.group_id, topic.name, asked.partition_index))
    records = []
    for place in existing_ones:
        if group.is_subscribed_to(place.topic):
            told.add(place.topic, NULL_UUID, place.partition, GroupSubscribedToTopic)
            continue
        told.add(place.topic, NULL_UUID, place.partition)
        if offsets.get(*place) is not None or offsets.is_pending(*place):
            records.append(tombstone(*place))
    return tuple(records), told.delete_response()
