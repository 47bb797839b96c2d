"""A member of a consumer group, as in the group's log.

Two records describe it. ConsumerGroupMemberMetadata has its identity, client and subscription.
ConsumerGroupCurrentMemberAssignment has its epoch, the partitions that it owns and those that it has to revoke.

Each partition has the epoch in which the member got it. A commit with an older epoch than the member's is valid if it
is not older than that of the partition (KIP-1251).
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import IntEnum
from typing import Final, TypeAlias

from trioka.protocol.internal_records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)
from trioka.protocol.lazy_dataclass import frozen

# Values that a member sends in place of its epoch; its records then contain them.
JOINING: Final = 0
LEFT: Final = -1
LEFT_FOR_A_WHILE: Final = -2  # a static member that will return

# Partitions by topic id, each with the epoch in which the member got it. Topics without partitions are omitted.
Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]


class Phase(IntEnum):
    """The progress of a member. The numbers are those of its record."""

    STABLE = 0
    REVOKING = 1  # it has to revoke partitions before it may enter the next epoch
    WAITING = 2  # it is in the newest epoch; other members have not released all partitions of its target
    UNKNOWN = 127  # written by a newer broker with more phases

    @classmethod
    def _missing_(cls, value: object) -> "Phase":
        return cls.UNKNOWN


@frozen
class ConsumerMember:
    id: str
    epoch: int = 0
    previous_epoch: int = -1
    phase: Phase = Phase.STABLE
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str | None = ""  # as received; an empty one counts as none
    assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    classic: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None  # None: no classic member

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.phase is Phase.STABLE and self.epoch == epoch

    def moved(self, epoch: int, phase: Phase, assigned: Owned, revoking: Owned) -> "ConsumerMember":
        return replace(self, epoch=epoch, previous_epoch=self.epoch, phase=phase, assigned=assigned, revoking=revoking)

    def without_partitions(self) -> "ConsumerMember":
        """The member after the tombstone of its assignment; the tombstone of the member itself follows."""
        return replace(self, epoch=LEFT, previous_epoch=LEFT, assigned={}, revoking={})

    def away(self) -> "ConsumerMember":
        """A static member that leaves temporarily. Its partitions are kept for the next member with its instance id,
        which owns them from its first epoch on."""
        kept = {topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()}
        return replace(self, epoch=LEFT_FOR_A_WHILE, assigned=kept, revoking={})

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        return replace(
            self,
            instance_id=value.instance_id,
            rack=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            pattern=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def placed(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerMember":
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            phase=Phase(value.state),
            assigned=_read(value.assigned_partitions, value.member_epoch),
            revoking=_read(value.partitions_pending_revocation, value.member_epoch),
        )

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
            subscribed_topic_regex=self.pattern,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.phase),
            assigned_partitions=_written(self.assigned),
            partitions_pending_revocation=_written(self.revoking),
        )


def _read(written: Iterable[TopicPartitions], member_epoch: int) -> Owned:
    """Brokers before 4.3 wrote no epochs; the member's epoch replaces them, if it is valid."""
    instead = max(member_epoch, 0)
    owned: dict[bytes, dict[int, int]] = {}
    for topic in written:
        epochs = topic.assignment_epochs or []
        if len(epochs) != len(topic.partitions):
            epochs = [instead] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def _written(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic,
            partitions=(partitions := sorted(owned[topic])),
            assignment_epochs=[owned[topic][partition] for partition in partitions],
        )
        for topic in sorted(owned)
    ]
