"""The registered brokers and controllers of the cluster.

A broker's epoch is the offset of its registration record, so that it grows with every registration and no two are the
same; requests with an older epoch come from an earlier registration. A broker that registers is fenced: it leads
nothing and is in no ISR until it has caught up with the metadata and requests to be unfenced.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from trioka.protocol.internal_records.metadata import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from trioka.protocol.lazy_dataclass import frozen

from ..quorum.metadata_log import MetadataRecord
from .partition import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from .replay_error import ReplayError

# The meaning of the tagged fields of BrokerRegistrationChangeRecord. 0: no change.
UNFENCE: Final = -1
FENCE: Final = 1
SHUTTING_DOWN: Final = 1

NOT_REGISTERED: Final = -1
"""The broker epoch of a broker that is not registered yet."""


@frozen
class Listener:
    name: str
    host: str
    port: int
    security_protocol: int


@frozen
class FeatureRange:
    """The levels of a feature that a node understands, both ends included."""

    name: str
    first: int
    last: int

    def __contains__(self, level: int) -> bool:
        return self.first <= level <= self.last


def _listeners(record: RegisterBrokerRecord | RegisterControllerRecord) -> tuple[Listener, ...]:
    return tuple(
        Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
        for e in record.end_points
    )


def _features(record: RegisterBrokerRecord | RegisterControllerRecord) -> tuple[FeatureRange, ...]:
    found = (
        FeatureRange(name=f.name, first=f.min_supported_version, last=f.max_supported_version) for f in record.features
    )
    return tuple(sorted(found, key=lambda feature: feature.name))


@frozen
class Broker:
    broker_id: int
    epoch: int
    incarnation_id: bytes
    listeners: tuple[Listener, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] = ()  # they take no new replicas

    @property
    def is_active(self) -> bool:
        """It may lead and be in sync."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def default_directory(self) -> bytes:
        """The directory of a new replica: the only one, or unassigned, so that the broker chooses."""
        if not self.directories:
            return MIGRATING_DIRECTORY
        return self.directories[0] if len(self.directories) == 1 else UNASSIGNED_DIRECTORY

    def listener(self, name: str) -> Listener | None:
        return next((listener for listener in self.listeners if listener.name == name), None)

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> "Broker":
        return cls(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners=_listeners(record),
            features=_features(record),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            cordoned_directories=tuple(record.cordoned_log_dirs or ()),
        )

    def record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[
                RegisterBrokerRecord.EndPoint(
                    name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
                )
                for e in self.listeners
            ],
            features=[
                RegisterBrokerRecord.Feature(name=f.name, min_supported_version=f.first, max_supported_version=f.last)
                for f in self.features
            ],
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.directories),
            cordoned_log_dirs=list(self.cordoned_directories),
        )


@frozen
class ControllerNode:
    """A controller of the quorum, from its registration."""

    controller_id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    listeners: tuple[Listener, ...]
    features: tuple[FeatureRange, ...]

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> "ControllerNode":
        return cls(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            zk_migration_ready=record.zk_migration_ready,
            listeners=_listeners(record),
            features=_features(record),
        )

    def record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=[
                RegisterControllerRecord.EndPoint(
                    name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol
                )
                for e in self.listeners
            ],
            features=[
                RegisterControllerRecord.Feature(
                    name=f.name, min_supported_version=f.first, max_supported_version=f.last
                )
                for f in self.features
            ],
        )


class Brokers:
    """All registrations, in the order of ids."""

    def __init__(self) -> None:
        self._brokers: dict[int, Broker] = {}
        self._controllers: dict[int, ControllerNode] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def __iter__(self) -> Iterator[Broker]:
        return iter(self._brokers.values())

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self._brokers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Brokers):
            return NotImplemented
        return (self._brokers, self._controllers) == (other._brokers, other._controllers)

    __hash__ = None  # type: ignore[assignment]

    def get(self, broker_id: int) -> Broker | None:
        return self._brokers.get(broker_id)

    def is_active(self, broker_id: int) -> bool:
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.is_active

    def default_directory(self, broker_id: int) -> bytes:
        broker = self._brokers.get(broker_id)
        return UNASSIGNED_DIRECTORY if broker is None else broker.default_directory

    @property
    def controllers(self) -> tuple[ControllerNode, ...]:
        return tuple(self._controllers.values())

    def controller(self, controller_id: int) -> ControllerNode | None:
        return self._controllers.get(controller_id)

    def copy(self) -> "Brokers":
        brokers = Brokers()
        brokers._brokers.update(self._brokers)
        brokers._controllers.update(self._controllers)
        return brokers

    # --- replay

    def replay_registration(self, record: RegisterBrokerRecord) -> tuple[Broker | None, Broker]:
        before, after = self._brokers.get(record.broker_id), Broker.from_record(record)
        self._brokers[after.broker_id] = after
        if before is None:
            self._brokers = dict(sorted(self._brokers.items()))
        return before, after

    def replay_removal(self, record: UnregisterBrokerRecord) -> Broker:
        self._known(record.broker_id, record.broker_epoch)
        return self._brokers.pop(record.broker_id)

    def replay_fence(self, record: FenceBrokerRecord | UnfenceBrokerRecord) -> tuple[Broker, Broker]:
        before = self._known(record.id, record.epoch)
        after = self._brokers[record.id] = replace(before, fenced=isinstance(record, FenceBrokerRecord))
        return before, after

    def replay_change(self, record: BrokerRegistrationChangeRecord) -> tuple[Broker, Broker]:
        before = self._known(record.broker_id, record.broker_epoch)
        if record.fenced not in (UNFENCE, 0, FENCE) or record.in_controlled_shutdown not in (0, SHUTTING_DOWN):
            raise ReplayError(f"an impossible change of broker {record.broker_id}: {record}")
        after = before
        if record.fenced:
            after = replace(after, fenced=record.fenced == FENCE)
        if record.in_controlled_shutdown:
            after = replace(after, in_controlled_shutdown=True)
        if record.log_dirs:
            after = replace(after, directories=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            after = replace(after, cordoned_directories=tuple(record.cordoned_log_dirs))
        self._brokers[record.broker_id] = after
        return before, after

    def replay_controller(self, record: RegisterControllerRecord) -> tuple[ControllerNode | None, ControllerNode]:
        before, after = self._controllers.get(record.controller_id), ControllerNode.from_record(record)
        self._controllers[after.controller_id] = after
        self._controllers = dict(sorted(self._controllers.items()))
        return before, after

    def records(self) -> Iterator[MetadataRecord]:
        yield from (broker.record() for broker in self._brokers.values())
        yield from (controller.record() for controller in self._controllers.values())

    def _known(self, broker_id: int, epoch: int) -> Broker:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise ReplayError(f"broker {broker_id} is not registered with the epoch {epoch}, but: {broker}")
        return broker
