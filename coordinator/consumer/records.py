"""The records of a consumer group; no other module creates them."""

from collections.abc import Iterable

from trioka.protocol.internal_records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

from ..assignors import Assignment
from ..decision import StoredRecord
from .member import ConsumerMember


def member(group_id: str, value: ConsumerMember) -> StoredRecord:
    return StoredRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=value.id), value.metadata_value())


def placed(group_id: str, moved: ConsumerMember) -> StoredRecord:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=moved.id)
    return StoredRecord(key, moved.assignment_value())


def target(group_id: str, member_id: str, assignment: Assignment) -> StoredRecord:
    topic_partition = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    return StoredRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                topic_partition(topic_id=topic, partitions=sorted(assignment[topic])) for topic in sorted(assignment)
            ]
        ),
    )


def target_epoch(group_id: str, epoch: int, at_ms: int) -> StoredRecord:
    return StoredRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=at_ms),
    )


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    return StoredRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def expression(group_id: str, pattern: str, topics: Iterable[str], version: int, at_ms: int) -> StoredRecord:
    return StoredRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=at_ms),
    )


def expression_tombstone(group_id: str, pattern: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None)


def partition_metadata_tombstone(group_id: str) -> StoredRecord:
    """Tombstones of the partition metadata that brokers before 4.1 stored; now a hash is stored."""
    return StoredRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[StoredRecord]:
    return [
        StoredRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, members: Iterable[str], patterns: Iterable[str]) -> list[StoredRecord]:
    """All tombstones, in an order that keeps references valid: assignments, then members, then the group."""
    leaving = list(members)
    return [
        *(
            StoredRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=gone), None)
            for gone in leaving
        ),
        *(
            StoredRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=gone), None)
            for gone in leaving
        ),
        StoredRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(StoredRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=gone), None) for gone in leaving),
        *(expression_tombstone(group_id, pattern) for pattern in patterns),
        partition_metadata_tombstone(group_id),
        StoredRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
