"""Registration, heartbeats, fencing, controlled shutdown and removal of brokers and controllers.

A broker is in one of four states. The request in its heartbeat determines the next state:

    state                 wants to serve      wants to be fenced   wants to shut down
    FENCED                UNFENCED, once it   FENCED               SHUTDOWN_NOW
                          has caught up
    UNFENCED              UNFENCED            FENCED               CONTROLLED_SHUTDOWN while it leads anything,
                                                                   else SHUTDOWN_NOW; with fencing SHUTDOWN_NOW
    CONTROLLED_SHUTDOWN   (any request)       CONTROLLED_SHUTDOWN until it leads nothing and all others know that,
                                              then SHUTDOWN_NOW
    SHUTDOWN_NOW          after a controlled shutdown it stays so until its next registration

A broker that enters FENCED or SHUTDOWN_NOW leaves every ISR and leads nothing; so does CONTROLLED_SHUTDOWN, but it may
still be fetched from. A broker that becomes UNFENCED may lead the partitions that have no leader.
"""

from collections.abc import Iterator, Sequence
from enum import Enum

from trioka.protocol.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidRegistration,
    StaleBrokerEpoch,
    UnsupportedVersion,
)
from trioka.protocol.internal_records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from trioka.protocol.messages.broker_registration import BrokerRegistrationRequest
from trioka.protocol.messages.controller_registration import ControllerRegistrationRequest
from trioka.protocol.primitives import uuid_text

from ..decision import DONE, Decision, ItemResult
from ..image.brokers import FENCE, SHUTTING_DOWN, UNFENCE, Broker
from ..image.features import METADATA_VERSION
from ..image.metadata import Metadata
from ..image.partition import is_reserved_directory
from ..placement.memory_topics import on_directories_lost
from ..quorum.metadata_log import MetadataRecord
from ..settings import ControllerSettings
from .elections import on_broker_fenced, on_broker_removed, on_broker_unfenced, on_directories_offline


class State(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "may go now"


@frozen
class HeartbeatReply:
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


def check_broker_epoch(metadata: Metadata, broker_id: int, epoch: int) -> Broker:
    """The broker with the latest registration under this id; StaleBrokerEpoch for an earlier registration."""
    broker = metadata.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        known = "is not registered" if broker is None else f"has the epoch {broker.epoch}"
        raise StaleBrokerEpoch(f"broker {broker_id} {known}, and the request has epoch {epoch}")
    return broker


# --- registration


def register_broker(
    metadata: Metadata,
    settings: ControllerSettings,
    request: BrokerRegistrationRequest,
    next_offset: int,
    has_session: bool,
) -> Decision[int]:
    _check_registration(metadata, settings, request)
    before = metadata.brokers.get(request.broker_id)
    is_same = before is not None and before.incarnation_id == request.incarnation_id
    if before is not None and not is_same and has_session:
        raise DuplicateBrokerRegistration(
            f"another broker is registered as {request.broker_id}, and alive. If it was this one a moment ago, its "
            "session ends soon"
        )
    records: list[MetadataRecord] = []
    if before is not None and not is_same:
        # A broker that stopped cleanly knows its former epoch; any other may have lost records.
        is_clean = request.previous_broker_epoch == before.epoch
        keeps_elr = metadata.features.has_eligible_leader_replicas
        leave = on_broker_fenced if is_clean or not keeps_elr else on_broker_removed
        records += leave(metadata, settings, request.broker_id)
    if not is_same:
        lost = list(on_directories_lost(metadata, settings, request.broker_id, before, request.log_dirs))
        records = [*_without_same_partitions(records, lost), *lost]
    epoch = before.epoch if before is not None and is_same else next_offset + len(records)
    records.append(_registration(request, before if is_same else None, epoch))
    return Decision(records=tuple(records), replies=(epoch,))


def _without_same_partitions(
    records: Sequence[MetadataRecord], lost: Sequence[MetadataRecord]
) -> Iterator[MetadataRecord]:
    """A partition changes once, since each change is decided from the image: a loss includes that the broker left."""
    named = {(record.topic_id, record.partition_id) for record in lost if isinstance(record, PartitionChangeRecord)}
    for record in records:
        if not isinstance(record, PartitionChangeRecord) or (record.topic_id, record.partition_id) not in named:
            yield record


def _check_registration(metadata: Metadata, settings: ControllerSettings, request: BrokerRegistrationRequest) -> None:
    if request.cluster_id != settings.cluster_id:
        raise InconsistentClusterId(f"this is cluster {settings.cluster_id}, not {request.cluster_id}")
    if request.is_migrating_zk_broker:
        raise BrokerIdNotRegistered("brokers of a cluster with ZooKeeper cannot join")
    if not request.log_dirs:
        raise InvalidRegistration("a broker must name its log directories")
    if any(is_reserved_directory(directory) for directory in request.log_dirs):
        raise InvalidRegistration("a log directory has a reserved id")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise InvalidRegistration("two log directories have the same id")
    for broker in metadata.brokers:
        shared = set(broker.directories) & set(request.log_dirs)
        if shared and broker.broker_id != request.broker_id:
            raise InvalidRegistration(
                f"broker {broker.broker_id} has the log directory {uuid_text(min(shared))} already"
            )
    ranges = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    if METADATA_VERSION not in ranges:
        raise InvalidRegistration(f"a broker must register the levels of {METADATA_VERSION} that it supports")
    for name, level in metadata.features.levels.items():
        first, last = ranges.get(name, (0, 0))
        if not first <= level <= last:
            raise UnsupportedVersion(f"the cluster works at {name} {level}, the broker understands {first} to {last}")


def _registration(request: BrokerRegistrationRequest, before: Broker | None, epoch: int) -> RegisterBrokerRecord:
    """A broker starts fenced; a broker that registers again in the same incarnation keeps its state."""
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            RegisterBrokerRecord.EndPoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=[
            RegisterBrokerRecord.Feature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in sorted(request.features, key=lambda each: each.name)
        ],
        rack=request.rack,
        fenced=True if before is None else before.fenced,
        in_controlled_shutdown=False if before is None else before.in_controlled_shutdown,
        log_dirs=list(request.log_dirs),
    )


def register_controller(request: ControllerRegistrationRequest) -> Decision[None]:
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            RegisterControllerRecord.EndPoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=[
            RegisterControllerRecord.Feature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in sorted(request.features, key=lambda each: each.name)
        ],
    )
    return Decision(records=(record,), replies=(None,))


def unregister_broker(metadata: Metadata, settings: ControllerSettings, broker_id: int) -> Decision[ItemResult]:
    broker = metadata.brokers.get(broker_id)
    if broker is None:
        message = f"there is no broker: ID {broker_id} is not currently registered"
        return Decision(records=(), replies=(ItemResult(error=BrokerIdNotRegistered, message=message),))
    removal = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    records = [*on_broker_removed(metadata, settings, broker_id), removal]
    return Decision(records=tuple(records), replies=(DONE,))


# --- heartbeats


def heartbeat(
    metadata: Metadata, settings: ControllerSettings, request: BrokerHeartbeatRequest, others_caught_up: bool
) -> Decision[HeartbeatReply]:
    broker = check_broker_epoch(metadata, request.broker_id, request.broker_epoch)
    is_caught_up = request.current_metadata_offset >= broker.epoch
    current = following = _state(broker)
    # One change at a time, since each is decided from the image: a change of the log directories comes first, and the
    # broker repeats its state request with its next heartbeat.
    records = _directory_changes(metadata, settings, broker, request)
    if not records:
        leads = any(partition.leader == broker.broker_id for _, partition in metadata.topics.partitions())
        following = _next_state(current, request, is_caught_up, leads, others_caught_up)
    if following is not current:
        if following is State.UNFENCED:
            records += _unfence(metadata, settings, broker)
        elif following is State.CONTROLLED_SHUTDOWN:
            records += _shut_down(metadata, settings, broker)
        elif not broker.fenced:
            records += _fence(metadata, settings, broker)
    reply = HeartbeatReply(
        is_caught_up=is_caught_up,
        is_fenced=following in (State.FENCED, State.SHUTDOWN_NOW),
        should_shut_down=following is State.SHUTDOWN_NOW,
    )
    return Decision(records=tuple(records), replies=(reply,))


def fence_broker(metadata: Metadata, settings: ControllerSettings, broker_id: int) -> Decision[None]:
    broker = metadata.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return Decision(records=(), replies=(None,))
    return Decision(records=tuple(_fence(metadata, settings, broker)), replies=(None,))


def _state(broker: Broker) -> State:
    if broker.fenced:
        return State.SHUTDOWN_NOW if broker.in_controlled_shutdown else State.FENCED
    return State.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else State.UNFENCED


def _next_state(
    state: State, request: BrokerHeartbeatRequest, is_caught_up: bool, leads: bool, others_caught_up: bool
) -> State:
    if state is State.SHUTDOWN_NOW:
        return state
    if state is State.CONTROLLED_SHUTDOWN:
        return State.SHUTDOWN_NOW if others_caught_up and not leads else State.CONTROLLED_SHUTDOWN
    if request.want_shut_down:
        if state is State.UNFENCED and leads and not request.want_fence:
            return State.CONTROLLED_SHUTDOWN
        return State.SHUTDOWN_NOW
    if request.want_fence:
        return State.FENCED
    return State.UNFENCED if state is State.UNFENCED or is_caught_up else State.FENCED


def _fence(metadata: Metadata, settings: ControllerSettings, broker: Broker) -> list[MetadataRecord]:
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE)
    return [*on_broker_fenced(metadata, settings, broker.broker_id), change]


def _unfence(metadata: Metadata, settings: ControllerSettings, broker: Broker) -> list[MetadataRecord]:
    change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE)
    return [change, *on_broker_unfenced(metadata, settings, broker.broker_id)]


def _shut_down(metadata: Metadata, settings: ControllerSettings, broker: Broker) -> list[MetadataRecord]:
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=SHUTTING_DOWN
    )
    return [change, *on_broker_fenced(metadata, settings, broker.broker_id)]


def _directory_changes(
    metadata: Metadata, settings: ControllerSettings, broker: Broker, request: BrokerHeartbeatRequest
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    offline = set(broker.directories) & set(request.offline_log_dirs)
    if offline:
        records += on_directories_offline(metadata, settings, broker.broker_id, offline)
        online = [directory for directory in broker.directories if directory not in offline]
        records.append(_changed_directories(broker, log_dirs=online))
    cordoned: Sequence[bytes] | None = request.cordoned_log_dirs
    if cordoned is not None and set(cordoned) != set(broker.cordoned_directories):
        records.append(_changed_directories(broker, cordoned_log_dirs=list(cordoned)))
    return records


def _changed_directories(
    broker: Broker, *, log_dirs: Sequence[bytes] = (), cordoned_log_dirs: list[bytes] | None = None
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        log_dirs=list(log_dirs),
        cordoned_log_dirs=cordoned_log_dirs,
    )
