"""The records of a consumer group, each made here and nowhere else."""

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

from .assignors import Assignment
from .consumer_member import ConsumerMember
from .decision import Kept


def member(group_id: str, told: ConsumerMember) -> Kept:
    return Kept(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=told.id), told.metadata_value())


def placed(group_id: str, moved: ConsumerMember) -> Kept:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=moved.id)
    return Kept(key, moved.assignment_value())


def target(group_id: str, member_id: str, assignment: Assignment) -> Kept:
    topic_partition = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    return Kept(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                topic_partition(topic_id=topic, partitions=sorted(assignment[topic])) for topic in sorted(assignment)
            ]
        ),
    )


def target_epoch(group_id: str, epoch: int, at_ms: int) -> Kept:
    return Kept(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=at_ms),
    )


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Kept:
    return Kept(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def expression(group_id: str, pattern: str, topics: Iterable[str], version: int, at_ms: int) -> Kept:
    return Kept(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=at_ms),
    )


def expression_gone(group_id: str, pattern: str) -> Kept:
    return Kept(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None)


def partition_metadata_gone(group_id: str) -> Kept:
    """Brokers before 4.1 kept the partitions of subscribed topics here, where a hash does now."""
    return Kept(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_gone(group_id: str, member_id: str) -> list[Kept]:
    return [
        Kept(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Kept(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Kept(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_gone(group_id: str, members: Iterable[str], patterns: Iterable[str]) -> list[Kept]:
    """In an order in which nothing stands without what it refers to: first what members have, then they, then all."""
    leaving = list(members)
    return [
        *(Kept(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=gone), None) for gone in leaving),
        *(Kept(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=gone), None) for gone in leaving),
        Kept(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(Kept(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=gone), None) for gone in leaving),
        *(expression_gone(group_id, pattern) for pattern in patterns),
        partition_metadata_gone(group_id),
        Kept(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
