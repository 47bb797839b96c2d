"""Where transactions are coordinated: the coordinators of this broker's partitions of `__transaction_state`, and the
markers that they order.

A marker ends a producer's transaction in one partition. Whoever leads that partition writes it, and it counts when it
is committed. What fails is tried again, until the marker is there, the partition is gone, or somebody else has become
the coordinator: that one orders the markers anew, with a higher epoch.

Loaded when there is a transaction to look after, or somebody asks for one: a broker's start does not wait for it.
"""

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import trio

from trioka.cluster.features import TRANSACTION_VERSION
from trioka.coordinator.decision import Decision, MarkerOrder, Moment, Ticket
from trioka.coordinator.record_codec import TRANSACTIONS
from trioka.coordinator.transaction import TopicPartition
from trioka.coordinator.transactions import NeedsProducerId, TransactionCoordinator, TransactionSettings
from trioka.protocol.batch import build_marker
from trioka.protocol.errors import (
    InvalidProducerEpoch,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    ProducerFenced,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from trioka.protocol.record import EndTxnMarker
from trioka.protocol.schema import Request, Response
from trioka.storage.append_validation import Origin

from ..config import coordinator_keys as keys
from ..config.network_keys import REQUEST_TIMEOUT_MS
from ..controller.topic_creation import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ..replication.commit_wait import when_committed
from ..replication.partitions import ALL_REPLICAS
from .runtime import Shards
from .txn_rpc import Batches, Marker, MarkerItem, write_markers

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

log = logging.getLogger("trioka.transactions")

FIRST_PAUSE_S: Final = 0.05  # before a marker is tried again
LONGEST_PAUSE_S: Final = 1.0
NOT_TRIED_AGAIN: Final = (InvalidProducerEpoch, TransactionCoordinatorFenced)

R = TypeVar("R", bound=Request)
Then = Callable[[KafkaError | None], None]


class MarkerWriter(Protocol):
    """Writes a marker to a partition, wherever its leader is, and says what became of it, perhaps at once."""

    def __call__(self, partition: TopicPartition, marker: Marker, then: Then) -> None: ...


class TransactionShards(Shards[TransactionCoordinator]):
    def ask_fenced(
        self,
        call: "Call",
        request: R,
        refuse: Callable[[R, KafkaError], Response],
        name: str,
        decide: "Callable[[TransactionCoordinator, Ticket, Moment, int | None], Decision]",
        first_with_fenced: int,
    ) -> "Response | Later | Coroutine[Any, Any, Response]":
        """For requests that may need a new producer id: only those who do are given one. A client before the first
        version that knows PRODUCER_FENCED is told INVALID_PRODUCER_EPOCH."""

        def said(response: Response) -> Response:
            if call.version < first_with_fenced and response.error_code == ProducerFenced.code:  # type: ignore[attr-defined]
                response.error_code = InvalidProducerEpoch.code  # type: ignore[attr-defined]
            return response

        def ask(producer_id: int | None) -> "Response | Later":
            return self.ask(
                call, request, refuse, name, lambda c, ticket, now: decide(c, ticket, now, producer_id), said
            )

        async def wait_and_ask() -> Response:
            producer_id = await self._broker.producer_ids.take()
            try:
                answer = await self.answer(name, lambda c, ticket, now: decide(c, ticket, now, producer_id))
            except KafkaError as error:
                answer = refuse(request, error)
            return said(answer)

        try:
            return ask(None)
        except NeedsProducerId:
            producer_id = self._broker.producer_ids.take_nowait()
        return wait_and_ask() if producer_id is None else ask(producer_id)


def transaction_shards(broker: "Broker") -> TransactionShards:
    def settings() -> TransactionSettings:
        config = broker.config
        return TransactionSettings(
            max_timeout_ms=config[keys.TRANSACTION_MAX_TIMEOUT_MS],
            expiration_ms=config[keys.TRANSACTIONAL_ID_EXPIRATION_MS],
            clean_up_interval_ms=config[keys.TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS],
            version=broker.metadata.features.level(TRANSACTION_VERSION),
        )

    return TransactionShards(
        broker,
        TRANSACTIONS_TOPIC,
        TRANSACTIONS,
        lambda epoch: TransactionCoordinator(epoch, settings),
        lambda: broker.config[keys.TRANSACTION_STATE_LOG_NUM_PARTITIONS],
        on_order=Markers(broker, MarkerCarrier(broker)).order,
    )


class MarkerCarrier:
    """Brings a marker to the leader of its partition, which may be this broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._batches = Batches[MarkerItem](broker, "markers", write_markers)

    def __call__(self, partition: TopicPartition, marker: Marker, then: Then) -> None:
        topic = self._broker.metadata.topics.by_name(partition[0])
        known = None if topic is None else topic.partitions.get(partition[1])
        if known is None:
            then(UnknownTopicOrPartition())
        elif not known.has_leader:
            then(NotLeaderOrFollower(f"nobody leads {partition[0]}-{partition[1]}"))
        elif known.leader == self._broker.node_id:
            write_marker(self._broker, partition, marker, then)
        else:
            self._batches.put(known.leader, MarkerItem(partition, marker, then))


def write_marker(broker: "Broker", partition: TopicPartition, marker: Marker, then: Then) -> None:
    """As the leader of the partition; if this broker is not, that is the error."""
    if marker.producer.id < 0 or marker.producer.epoch < 0:
        then(InvalidRequest("a marker of nobody"))
        return
    topic, index = partition
    now_ms = broker.clock.now_ms()
    built = build_marker(
        EndTxnMarker(marker.is_commit, marker.coordinator_epoch),
        offset=0,
        timestamp=now_ms,
        leader_epoch=0,
        producer_id=marker.producer.id,
        producer_epoch=marker.producer.epoch,
    )
    try:
        replica = broker.partitions.get(topic, index)
        appended = replica.append(built, ALL_REPLICAS, now_ms, Origin.COORDINATOR, marker.transaction_version)
    except KafkaError as error:
        then(error)
        return
    broker.verification.ended(replica, marker.producer, marker.transaction_version)
    if topic == OFFSETS_TOPIC:
        broker.groups.ended(index, marker.producer, marker.is_commit)
    broker.delayed.touch(replica)
    when_committed(broker, replica, appended.last_offset + 1, broker.config[REQUEST_TIMEOUT_MS] / 1000, then)


class Markers:
    """Carries out the orders of coordinators."""

    def __init__(self, broker: "Broker", write: MarkerWriter) -> None:
        self._broker = broker
        self._write = write

    def order(self, order: MarkerOrder) -> None:
        for partition in order.partitions:
            self._try(order, partition, FIRST_PAUSE_S)

    def _try(self, order: MarkerOrder, partition: TopicPartition, pause_s: float) -> None:
        marker = Marker(order.producer, order.is_commit, order.coordinator_epoch, order.transaction_version)
        self._write(partition, marker, partial(self._tried, order, partition, pause_s))

    def _tried(self, order: MarkerOrder, partition: TopicPartition, pause_s: float, error: KafkaError | None) -> None:
        if isinstance(error, UnknownTopicOrPartition) and not self._exists(partition):
            error = None  # nobody needs it
        if error is None:
            name = order.transactional_id
            self._broker.transactions.tell(name, lambda coordinator, now: coordinator.marked(order, [partition], now))
        elif isinstance(error, NOT_TRIED_AGAIN):
            log.error("%s does not take the marker of %r: %s", partition, order.transactional_id, error)
        else:
            self._broker.nursery.start_soon(self._again, order, partition, pause_s)

    async def _again(self, order: MarkerOrder, partition: TopicPartition, pause_s: float) -> None:
        await trio.sleep(pause_s)
        if self._broker.transactions.epoch_of(order.transactional_id) == order.coordinator_epoch:
            self._try(order, partition, min(2 * pause_s, LONGEST_PAUSE_S))

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self._broker.metadata.topics.by_name(partition[0])
        return topic is not None and partition[1] in topic.partitions
