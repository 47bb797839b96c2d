"""A cluster without a network: an image, a controller, and a log that keeps every record. For tests of cluster/."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from trioka.cluster.controller.controller import Controller
from trioka.cluster.decision import Decision
from trioka.cluster.image.brokers import FeatureRange
from trioka.cluster.image.features import SUPPORTED
from trioka.cluster.image.image_delta import Change
from trioka.cluster.image.metadata import Metadata
from trioka.cluster.image.partition import Partition
from trioka.cluster.image.topics import Topic
from trioka.cluster.quorum.metadata_log import MetadataRecord
from trioka.cluster.settings import ControllerSettings
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from trioka.protocol.messages.broker_registration import BrokerRegistrationRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest

CLUSTER_ID = "a-cluster-of-the-tests"

T = TypeVar("T")


class SmallCluster:
    """`brokers` are registered and unfenced; each has one log directory, `directory(id)`."""

    def __init__(
        self, brokers: int = 1, *, racks: Mapping[int, str] | None = None, seed: int = 0, **settings: Any
    ) -> None:
        self.metadata = Metadata()
        self.settings = ControllerSettings(node_id=1, cluster_id=CLUSTER_ID, **settings)
        self.controller = Controller(self.metadata, self.settings, Random(seed))
        self.log: list[MetadataRecord] = []
        self.changes: list[Change] = []
        self.append(self.controller.bootstrap())
        for broker_id in range(1, brokers + 1):
            self.start(broker_id, rack=(racks or {}).get(broker_id))

    @property
    def next_offset(self) -> int:
        return len(self.log)

    def append(self, records: Iterable[MetadataRecord]) -> list[Change]:
        """Writes and replays records; returns the changes."""
        changes = []
        for record in records:
            changes += self.metadata.replay(record, self.next_offset, 1)
            self.log.append(record)
        self.changes += changes
        return changes

    def do(self, decision: Decision[T]) -> tuple[T, ...]:
        """Applies a decision; returns its replies."""
        self.append(decision.records)
        return decision.replies

    # --- brokers

    def start(self, broker_id: int, *, rack: str | None = None, life: int = 1, previous_epoch: int = -1) -> int:
        """A broker registers and is let in; its epoch."""
        epoch = self.register(broker_id, rack=rack, life=life, previous_epoch=previous_epoch)
        self.heartbeat(broker_id)
        return epoch

    def register(self, broker_id: int, *, rack: str | None = None, life: int = 1, previous_epoch: int = -1) -> int:
        request = registration(broker_id, rack=rack, life=life, previous_epoch=previous_epoch)
        decision = self.controller.register_broker(request, next_offset=self.next_offset, has_session=False)
        (epoch,) = self.do(decision)
        return epoch

    def heartbeat(self, broker_id: int, **fields: Any) -> Any:
        broker = self.metadata.brokers.get(broker_id)
        assert broker is not None
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=broker.epoch,
            current_metadata_offset=fields.pop("at", self.next_offset),
            want_fence=fields.pop("want_fence", False),
            want_shut_down=fields.pop("want_shut_down", False),
            **fields,
        )
        (reply,) = self.do(self.controller.heartbeat(request))
        return reply

    def fence(self, broker_id: int) -> None:
        self.do(self.controller.fence_broker(broker_id))

    # --- topics

    def create(
        self,
        name: str,
        partitions: int = 1,
        replicas: int = 1,
        *,
        assignments: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """A topic that can be created."""
        wanted = new_topic(name, partitions, replicas, assignments=assignments, configs=configs or {})
        (reply,) = self.do(self.controller.create_topics([wanted]))
        assert reply.outcome.error is None, reply
        return self.topic(name)

    def topic(self, name: str) -> Topic:
        topic = self.metadata.topics.by_name(name)
        assert topic is not None, name
        return topic

    def partition(self, name: str, index: int = 0) -> Partition:
        return self.topic(name).partitions[index]


def directory(broker_id: int, number: int = 0) -> bytes:
    return bytes([broker_id, number]) * 8


def registration(
    broker_id: int,
    *,
    rack: str | None = None,
    life: int = 1,
    previous_epoch: int = -1,
    cluster_id: str = CLUSTER_ID,
    directories: Sequence[bytes] | None = None,
    features: Iterable[FeatureRange] = SUPPORTED.values(),
) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=bytes([broker_id, life]) * 8,
        listeners=[
            BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)
        ],
        features=[
            BrokerRegistrationRequest.Feature(name=f.name, min_supported_version=f.first, max_supported_version=f.last)
            for f in features
        ],
        rack=rack,
        log_dirs=[directory(broker_id)] if directories is None else list(directories),
        previous_broker_epoch=previous_epoch,
    )


def new_topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: Sequence[Sequence[int]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> CreateTopicsRequest.Topic:
    wanted = CreateTopicsRequest.Topic
    return wanted(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else replicas,
        assignments=[
            wanted.Assignment(partition_index=index, broker_ids=list(ids)) for index, ids in enumerate(assignments)
        ],
        configs=[wanted.Config(name=key, value=value) for key, value in (configs or {}).items()],
    )


def quota(entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> AlterClientQuotasRequest.Entry:
    """None removes."""
    entry = AlterClientQuotasRequest.Entry
    return entry(
        entity=[entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[entry.Op(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def errors(replies: Iterable[Any]) -> list[type[KafkaError] | None]:
    return [reply.outcome.error for reply in replies]
