"""How a partition changes: its next leader, its ISR, and its eligible leader replicas (ELR).

Every change of a partition is made here, for any reason: a broker left or came back, the leader proposed another
ISR, a user requested an election or a reassignment. The rules:

- A leader is elected from the ISR; if it is empty, from the eligible leader replicas (ELR, KIP-966), which then become
  the ISR; if both are empty, the last known leader. Another replica, which may lack acknowledged records, is elected
  only if the configuration or the request allows an unclean election.
- The ELR are replicas that have left the ISR when it was already too small to move the high watermark
  (min.insync.replicas). They hold everything that was acknowledged, unless they crashed.
- Naming a leader, even the same one, makes a new leader epoch. A reassignment that has ended does so too, so that the
  replicas that were removed cannot go on fetching.
- A reassignment ends when all remaining replicas are in sync.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum

from trioka.protocol.internal_records.metadata import PartitionChangeRecord
from trioka.protocol.lazy_dataclass import frozen

from ..image.metadata import Metadata
from ..image.partition import (
    LOST_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    Partition,
    RecoveryState,
    is_reserved_directory,
)
from ..image.topics import Topic
from ..settings import ControllerSettings
from .topic_overrides import min_insync_replicas

Replicas = tuple[int, ...]


class Election(Enum):
    PREFERRED = "the first replica, if it may"
    ONLINE = "the leader stays, or any eligible replica leads"
    UNCLEAN = "as ONLINE, and at worst any replica that is alive"


@frozen
class ElectionContext:
    """The settings and the state of the cluster for a change of a partition."""

    may_lead: Callable[[int], bool]
    min_isr: int
    has_elr: bool
    default_directory: Callable[[int], bytes]


@frozen
class PartitionTarget:
    """The requested changes; None leaves a field unchanged."""

    election: Election = Election.ONLINE
    isr: Replicas | None = None
    replicas: Replicas | None = None
    removing: Replicas | None = None
    adding: Replicas | None = None
    recovery_state: RecoveryState | None = None
    directories: Mapping[int, bytes] = field(default_factory=dict)
    crashed: Replicas = ()  # they are not fit to lead any more
    lost: Replicas = ()  # their records are gone: not even the last known leader may lead


def election_context(
    metadata: Metadata,
    settings: ControllerSettings,
    topic: Topic,
    partition: Partition,
    is_active: Callable[[int], bool] | None = None,
) -> ElectionContext:
    """`is_active` decides which brokers may lead, if it differs from the image: a broker shuts down, or comes back."""
    active = metadata.brokers.is_active if is_active is None else is_active

    def may_lead(broker_id: int) -> bool:
        return active(broker_id) and _is_online(metadata, partition, broker_id)

    return ElectionContext(
        may_lead=may_lead,
        min_isr=min_insync_replicas(metadata, settings, topic),
        has_elr=metadata.features.has_eligible_leader_replicas,
        default_directory=metadata.brokers.default_directory,
    )


def _is_online(metadata: Metadata, partition: Partition, broker_id: int) -> bool:
    """The replica is in an online directory, or in a directory that the broker has not chosen yet."""
    broker = metadata.brokers.get(broker_id)
    if broker is None or broker_id not in partition.replicas:
        return True
    directory = partition.directory(broker_id)
    if is_reserved_directory(directory):
        return directory != LOST_DIRECTORY
    return not broker.directories or directory in broker.directories


def change_partition(
    topic_id: bytes, partition: Partition, now: ElectionContext, target: PartitionTarget
) -> PartitionChangeRecord | None:
    """The record that brings the partition to the target, with all consequences; None if nothing changes."""
    isr = partition.isr if target.isr is None else target.isr
    replicas = partition.replicas if target.replicas is None else target.replicas
    removing = partition.removing_replicas if target.removing is None else target.removing
    adding = partition.adding_replicas if target.adding is None else target.adding
    if removing or adding:
        staying = tuple(replica for replica in replicas if replica not in removing)
        if staying and set(staying) <= set(isr):
            isr = tuple(replica for replica in isr if replica not in removing)
            replicas, removing, adding = staying, (), ()
    elr = _eligible_leaders(partition, isr, replicas, now, target)
    leader, unclean = _elect(partition, isr, elr, replicas, now, target)

    record = PartitionChangeRecord(partition_id=partition.index, topic_id=topic_id)
    if leader != partition.leader:
        _set(record, leader=leader)
        if leader in elr:
            isr, elr = (leader,), tuple(replica for replica in elr if replica != leader)
        if unclean:
            isr, elr = (leader,), ()
            if partition.leader_recovery_state is not RecoveryState.RECOVERING:
                _set(record, leader_recovery_state=int(RecoveryState.RECOVERING))
    elif not set(partition.replicas) <= set(replicas):
        _set(record, leader=partition.leader)
    if elr != partition.eligible_leader_replicas:
        _set(record, eligible_leader_replicas=list(elr))
    if isr != partition.isr and (isr or now.has_elr):
        _set(record, isr=list(isr))
    if now.has_elr:
        _remember_last_leader(record, partition, target.lost)
    _set_assignment(record, partition, replicas, removing, adding, now, target)
    if target.recovery_state is not None and target.recovery_state != partition.leader_recovery_state:
        _set(record, leader_recovery_state=int(target.recovery_state))
    return record if _has_changes(record) else None


def _eligible_leaders(
    partition: Partition, isr: Replicas, replicas: Replicas, now: ElectionContext, target: PartitionTarget
) -> Replicas:
    if not now.has_elr or len(isr) >= min(now.min_isr, len(replicas)):
        return ()
    candidates = {*partition.eligible_leader_replicas, *partition.isr} & set(replicas)
    return tuple(sorted(candidates - set(isr) - set(target.crashed)))


def _elect(
    partition: Partition,
    isr: Replicas,
    elr: Replicas,
    replicas: Replicas,
    now: ElectionContext,
    target: PartitionTarget,
) -> tuple[int, bool]:
    """The elected leader, and whether the election is unclean."""
    election, lost = target.election, target.lost
    fit = isr or elr
    order = dict.fromkeys((partition.leader, *replicas))
    if election is Election.PREFERRED:
        order = dict.fromkeys((replicas[0], *order))
    for replica in order:
        if replica in fit and now.may_lead(replica):
            return replica, False
    last = tuple(replica for replica in partition.last_known_elr if replica not in lost)
    if now.has_elr and not fit and len(last) == 1 and last[0] in replicas and now.may_lead(last[0]):
        return last[0], True
    if election is Election.UNCLEAN:
        for replica in replicas:
            if now.may_lead(replica):
                return replica, True
    return NO_LEADER, False


def _remember_last_leader(record: PartitionChangeRecord, partition: Partition, lost: Replicas) -> None:
    """The last leader of an empty ISR, unless its records are lost; cleared by the next election."""
    if partition.leader in lost or set(lost) & set(partition.last_known_elr):
        if partition.last_known_elr:
            _set(record, last_known_elr=[])
    elif record.isr == []:
        if partition.last_known_elr != (partition.leader,) and partition.leader != NO_LEADER:
            _set(record, last_known_elr=[partition.leader])
    elif partition.last_known_elr:
        leader = partition.leader if record.leader == NO_LEADER_CHANGE else record.leader
        if leader != NO_LEADER:
            _set(record, last_known_elr=[])


def _set_assignment(
    record: PartitionChangeRecord,
    partition: Partition,
    replicas: Replicas,
    removing: Replicas,
    adding: Replicas,
    now: ElectionContext,
    target: PartitionTarget,
) -> None:
    known = dict(zip(partition.replicas, partition.directories, strict=True)) | dict(target.directories)
    directories = tuple(known[r] if r in known else now.default_directory(r) for r in replicas)
    if directories != partition.directories:
        _set(record, directories=list(directories))
    if replicas != partition.replicas:
        _set(record, replicas=list(replicas))
    if removing != partition.removing_replicas:
        _set(record, removing_replicas=list(removing))
    if adding != partition.adding_replicas:
        _set(record, adding_replicas=list(adding))


def _set(record: PartitionChangeRecord, **fields: object) -> None:
    """Sets a field of a record that is still being built; afterwards records are frozen."""
    for name, value in fields.items():
        setattr(record, name, value)


def _has_changes(record: PartitionChangeRecord) -> bool:
    lists = (
        record.isr,
        record.replicas,
        record.removing_replicas,
        record.adding_replicas,
        record.directories,
        record.eligible_leader_replicas,
        record.last_known_elr,
    )
    return (
        record.leader != NO_LEADER_CHANGE
        or record.leader_recovery_state != NO_RECOVERY_CHANGE
        or any(each is not None for each in lists)
    )
