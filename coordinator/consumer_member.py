"""A member of a consumer group, as the group's log has it.

Two records tell of it. One says what it is: who it is, where, what it subscribes to (ConsumerGroupMemberMetadata). The
other says where it stands on its way to its target: which partitions are its own, which it has been asked to give up,
and in which epoch it is (ConsumerGroupCurrentMemberAssignment).

A partition comes with the epoch in which the member got it. A commit that was on its way while the member's epoch moved
on is still good if it is no older than that (KIP-1251).
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

# What a member says instead of its epoch, and what its records say of it then.
JOINING: Final = 0
LEFT: Final = -1
LEFT_FOR_A_WHILE: Final = -2  # a static member that is coming back

# Partitions by the id of their topic, each with the epoch in which the member got it. No topic without a partition.
Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]


class Phase(IntEnum):
    """How far a member has come. The numbers are those of its record."""

    STABLE = 0
    REVOKING = 1  # it has to give up partitions before it may enter the next epoch
    WAITING = 2  # it is in the newest epoch; others have not released all that will be its own
    UNKNOWN = 127  # written by a broker that knows more phases

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
    pattern: str | None = ""  # as it was said; empty is as good as none
    assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    classic: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None  # it speaks the classic protocol

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.phase is Phase.STABLE and self.epoch == epoch

    def moved(self, epoch: int, phase: Phase, assigned: Owned, revoking: Owned) -> "ConsumerMember":
        return replace(self, epoch=epoch, previous_epoch=self.epoch, phase=phase, assigned=assigned, revoking=revoking)

    def without_partitions(self) -> "ConsumerMember":
        """Its assignment's tombstone was read; that of the member itself follows."""
        return replace(self, epoch=LEFT, previous_epoch=LEFT, assigned={}, revoking={})

    def away(self) -> "ConsumerMember":
        """A static member that leaves for a while. What it has waits for whoever comes back under its instance id, and
        will be that one's from its first epoch on."""
        kept = {topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()}
        return replace(self, epoch=LEFT_FOR_A_WHILE, assigned=kept, revoking={})

    def told(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
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
    """Brokers before 4.3 wrote no epochs; the member's own stands in, so long as it is one."""
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
