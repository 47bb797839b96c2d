"""A partition as the metadata has it: its replicas, its ISR, its leader.

It is frozen; a change makes another one. `leader_epoch` counts leaders: requests with an older one are fenced.
`partition_epoch` counts every change, so that a proposal that was made from older knowledge is refused.
"""

from enum import IntEnum
from random import Random
from typing import Final

from trioka.protocol.internal_records.metadata import PartitionChangeRecord, PartitionRecord
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.primitives import uuid_text

from .replay_error import ReplayError

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_CHANGE: Final = -1

# Directory ids with a meaning of their own. Below 100 all are reserved.
MIGRATING_DIRECTORY: Final = bytes(16)  # the broker has not reported the directories of its replicas
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"  # the broker chooses one of its directories, and reports it
LOST_DIRECTORY: Final = bytes(15) + b"\x02"  # in a directory that is offline


def is_reserved_directory(directory: bytes) -> bool:
    return int.from_bytes(directory, "big") < 100


def random_uuid(random: Random) -> bytes:
    """A UUID that is not reserved, and does not begin with a dash in text form, which tools would parse as a flag."""
    while True:
        uuid = random.randbytes(16)
        if not is_reserved_directory(uuid) and not uuid_text(uuid).startswith("-"):
            return uuid


class RecoveryState(IntEnum):
    """After an unclean election the leader is RECOVERING until it has made up its mind about its log."""

    RECOVERED = 0
    RECOVERING = 1


@frozen
class Partition:
    index: int
    replicas: tuple[int, ...]  # the first is the preferred leader
    directories: tuple[bytes, ...]  # one for each replica
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: RecoveryState = RecoveryState.RECOVERED
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.replicas[0]

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    def directory(self, broker_id: int) -> bytes:
        """The log directory of a replica on its broker."""
        return self.directories[self.replicas.index(broker_id)]

    def may_lead_without_fetching(self, broker_id: int) -> bool:
        """Whether the replica counts as complete: it is in sync, eligible, or the last known leader."""
        return broker_id in (*self.isr, *self.eligible_leader_replicas, *self.last_known_elr)

    @classmethod
    def from_record(cls, record: PartitionRecord) -> "Partition":
        directories = tuple(record.directories) or (MIGRATING_DIRECTORY,) * len(record.replicas)
        partition = cls(
            index=record.partition_id,
            replicas=tuple(record.replicas),
            directories=directories,
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            leader_recovery_state=_recovery_state(record.leader_recovery_state),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )
        return _checked(partition)

    def record(self, topic_id: bytes) -> PartitionRecord:
        """The record that produces this partition in replay."""
        return PartitionRecord(
            partition_id=self.index,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=int(self.leader_recovery_state),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            eligible_leader_replicas=list(self.eligible_leader_replicas) or None,
            last_known_elr=list(self.last_known_elr) or None,
        )

    def changed_by(self, record: PartitionChangeRecord) -> "Partition":
        """Every change counts in the partition epoch; naming a leader, even the same, in the leader epoch too."""
        replicas = self.replicas if record.replicas is None else tuple(record.replicas)
        directories = self.directories if record.directories is None else tuple(record.directories)
        if record.directories is None and len(directories) != len(replicas):
            directories = (MIGRATING_DIRECTORY,) * len(replicas)
        has_new_leader = record.leader != NO_LEADER_CHANGE
        state = self.leader_recovery_state
        if record.leader_recovery_state != NO_RECOVERY_CHANGE:
            state = _recovery_state(record.leader_recovery_state)
        partition = Partition(
            index=self.index,
            replicas=replicas,
            directories=directories,
            isr=_or_default(record.isr, self.isr),
            leader=record.leader if has_new_leader else self.leader,
            leader_epoch=self.leader_epoch + has_new_leader,
            partition_epoch=self.partition_epoch + 1,
            removing_replicas=_or_default(record.removing_replicas, self.removing_replicas),
            adding_replicas=_or_default(record.adding_replicas, self.adding_replicas),
            leader_recovery_state=state,
            eligible_leader_replicas=_or_default(record.eligible_leader_replicas, self.eligible_leader_replicas),
            last_known_elr=_or_default(record.last_known_elr, self.last_known_elr),
        )
        return _checked(partition)


def _or_default(value: list[int] | None, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    return otherwise if value is None else tuple(value)


def _recovery_state(value: int) -> RecoveryState:
    if value not in (0, 1):
        raise ReplayError(f"a partition has the leader recovery state {value}")
    return RecoveryState(value)


def _checked(partition: Partition) -> Partition:
    if len(partition.directories) != len(partition.replicas) or not partition.replicas:
        count, places = len(partition.replicas), len(partition.directories)
        raise ReplayError(f"partition {partition.index} has {count} replicas in {places} directories")
    return partition
