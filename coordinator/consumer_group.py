"""A group of the next-generation protocol (KIP-848): the broker assigns partitions, members report theirs.

Three epochs track the progress of a rebalance:

    group epoch     grows when anything changes that the assignment depends on: a member, a subscription, a topic
    target epoch    the group epoch for which the newest target was computed
    member epoch    the target epoch that a member has reached; it moves with the member's heartbeats

A group is Assigning while its target epoch is behind its group epoch, Reconciling while a member has not reached its
target, otherwise Stable.

This module answers requests about a group. `consumer_state.py` has the durable state, `consumer_heartbeat.py` decides
heartbeats, `consumer_expiry.py` deadlines, and `reconciliation.py` the steps of a member towards its target.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from trioka.protocol.errors import (
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnsupportedVersion,
)
from trioka.protocol.messages.consumer_group_describe import (
    Assignment as DescribedAssignment,
)
from trioka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse, TopicPartitions
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.list_groups import ListGroupsResponse

from . import consumer_expiry, consumer_heartbeat, consumer_records
from .client import Client
from .consumer_heartbeat import check_heartbeat as check_heartbeat
from .consumer_member import ConsumerMember
from .consumer_state import ConsumerState
from .decision import Decision, Now, RequestId, StoredRecord

PROTOCOL_TYPE: Final = "consumer"
GROUP_TYPE: Final = "consumer"
FIRST_COMMIT_WITH_EPOCHS: Final = 9  # from this version on OffsetCommit supports members of this protocol
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1

# Raises StaleMemberEpoch (IllegalGeneration for a member of the classic protocol) if this partition must not be
# committed. Its arguments are the name of the topic, its id, and the partition.
CheckPartition: TypeAlias = Callable[[str, bytes, int], None]


class ConsumerGroup(ConsumerState):
    # -- time ----------------------------------------------------------------------------------------------------------

    def begin(self, now: Now) -> Decision:
        """After loading: gives every member a session deadline."""
        return consumer_expiry.begin(self, now)

    # -- requests: a KafkaError is raised before any change ------------------------------------------------------------

    def heartbeat(
        self, request_id: RequestId, request: ConsumerGroupHeartbeatRequest, client: Client, now: Now
    ) -> Decision:
        """Joins (epoch 0), stays, or leaves (-1, -2). The caller has called `check_heartbeat`, and raised
        GroupIdNotFound for an unknown group unless the epoch is 0."""
        return consumer_heartbeat.heartbeat(self, request_id, request, client, now)

    def expire(self, key: tuple[str, ...], now: Now) -> Decision:
        """Handles a deadline: (group, "session", member) · (group, "rebalance", member) · (group, "regex")"""
        return consumer_expiry.expire(self, key, now)

    def forget(self) -> None:
        """The group is deleted: cancels its deadlines."""
        for member_id in self.members:
            consumer_expiry.cancel(self, member_id)
        self.forget_patterns()

    def forget_patterns(self) -> None:
        """Stop the resolution of subscription patterns."""
        self.context.deadlines.cancel((self.id, consumer_expiry.REGEX))
        self.context.pattern_askers.pop(self.id, None)

    # -- queries -------------------------------------------------------------------------------------------------------

    def describe(self) -> ConsumerGroupDescribeResponse.Group:
        return ConsumerGroupDescribeResponse.Group(
            error_code=0,
            group_id=self.id,
            group_state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.target_epoch,
            assignor_name=self.assignor(),
            members=[self._described(member) for member in self.members.values()],
        )

    def _described(self, member: ConsumerMember) -> ConsumerGroupDescribeResponse.Group.Member:
        has = {topic: set(partitions) for topic, partitions in member.assigned.items()}
        for topic, partitions in member.revoking.items():  # partitions still to be revoked also belong to the member
            has.setdefault(topic, set()).update(partitions)
        return ConsumerGroupDescribeResponse.Group.Member(
            member_id=member.id,
            instance_id=member.instance_id,
            rack_id=member.rack,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            subscribed_topic_regex=member.pattern,
            assignment=self._described_assignment(has),
            target_assignment=self._described_assignment(self.targets.get(member.id, {})),
            member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )

    def _described_assignment(self, partitions: Mapping[bytes, Iterable[int]]) -> DescribedAssignment:
        """Topics of an assignment; deleted topics have no name and are omitted."""
        known = [(topic, self.context.topics.by_id(topic)) for topic in sorted(partitions)]
        return DescribedAssignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id]))
                for topic_id, topic in known
                if topic is not None
            ]
        )

    def list(self) -> ListGroupsResponse.Group:
        return ListGroupsResponse.Group(
            group_id=self.id, protocol_type=PROTOCOL_TYPE, group_state=self.state, group_type=GROUP_TYPE
        )

    def tombstones(self) -> tuple[StoredRecord, ...]:
        """The tombstones of the group and its members."""
        return tuple(consumer_records.group_tombstones(self.id, self.members, self.subscriptions.resolved))

    # -- offsets -------------------------------------------------------------------------------------------------------

    def validate_offset_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, is_transactional: bool, version: int
    ) -> CheckPartition | None:
        """Checks a commit; `version` is the request's. None: every partition may be committed."""
        if epoch < 0 and not self.members:
            return None  # a manual commit to an empty group
        if is_transactional and epoch == -1 and not member_id and instance_id is None:
            return None  # old producers do not send their member id
        member = self.member(member_id)
        if not is_transactional and member.classic is None and version < FIRST_COMMIT_WITH_EPOCHS:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        if epoch == member.epoch:
            return None
        if epoch > member.epoch:
            raise _stale(
                member, f"Received {_epoch_name(member)} {epoch} is newer than current member epoch {member.epoch}."
            )
        return lambda name, topic, partition: _check_partition(member, epoch, name, topic, partition)

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise _stale(
                member,
                f"The received {_epoch_name(member)} {epoch} does not match the expected member epoch {member.epoch}.",
            )

    def validate_offset_delete(self) -> None:
        """The group allows it; each topic with a subscriber is rejected by `is_subscribed_to`."""

    def validate_delete(self) -> None:
        if self.members:
            raise NonEmptyGroup()

    def is_subscribed_to(self, topic: str) -> bool:
        return self.subscriptions.includes(topic)

    def offsets_expire_since(self, commit_ms: int) -> int | None:
        """Always the commit time: an offset is kept while its topic has a subscriber."""
        return commit_ms


def _check_partition(member: ConsumerMember, epoch: int, name: str, topic: bytes, partition: int) -> None:
    """A late commit, with an older epoch, is valid for partitions that the member has had since that epoch."""
    since = member.assigned.get(topic, {}).get(partition, member.revoking.get(topic, {}).get(partition))
    if since is None:
        raise _stale(member, f"Partition {name}-{partition} is not assigned or pending revocation for member.")
    if epoch < since:
        older = f"Received {_epoch_name(member)} {epoch} is older than assignment epoch {since}"
        raise _stale(member, f"{older} for partition {name}-{partition}.")


def _epoch_name(member: ConsumerMember) -> str:
    return "member epoch" if member.classic is None else "generation id"


def _stale(member: ConsumerMember, reason: str) -> StaleMemberEpoch | IllegalGeneration:
    return StaleMemberEpoch(reason) if member.classic is None else IllegalGeneration(reason)
