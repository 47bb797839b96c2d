"""The transaction coordinators of this broker's partitions of `__transaction_state`, and their transaction markers.

A marker ends a producer's transaction in one partition. The leader of that partition writes it, and it takes effect
when it is committed. A failed write is repeated until the marker is there, the partition is deleted, or another broker
has become the coordinator: that one requests the markers again, with a higher epoch.

Imported with the first transaction or the first request for one, so that it does not delay a broker's start.
"""

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import trio

from trioka.cluster.image.features import TRANSACTION_VERSION
from trioka.coordinator.decision import Decision, Now, RequestId, TxnMarkerRequest
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
from trioka.storage.append_validation import AppendOrigin

from ..config import coordinator_keys as keys
from ..config.network_keys import REQUEST_TIMEOUT_MS
from ..controller.topic_creation import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ..replication.commit_wait import on_committed
from ..replication.partitions import ALL_REPLICAS
from .runtime import CoordinatorRuntime
from .txn_rpc import BatchedSender, Marker, MarkerItem, write_markers

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending

log = logging.getLogger("trioka.transactions")

FIRST_PAUSE_S: Final = 0.05  # before a marker is sent again
MAX_PAUSE_S: Final = 1.0
NOT_RETRIABLE: Final = (InvalidProducerEpoch, TransactionCoordinatorFenced)

R = TypeVar("R", bound=Request)
OnDone = Callable[[KafkaError | None], None]


class MarkerWriter(Protocol):
    """Writes a marker to a partition on any broker. The callback gets the outcome, possibly at once."""

    def __call__(self, partition: TopicPartition, marker: Marker, then: OnDone) -> None: ...


class TransactionRuntime(CoordinatorRuntime[TransactionCoordinator]):
    def submit_fenced(
        self,
        call: "Call",
        request: R,
        error_response: Callable[[R, KafkaError], Response],
        name: str,
        decide: "Callable[[TransactionCoordinator, RequestId, Now, int | None], Decision]",
        first_with_fenced: int,
    ) -> "Response | Pending | Coroutine[Any, Any, Response]":
        """For requests that may need a new producer id: it is allocated only if it is needed. Versions without
        PRODUCER_FENCED get INVALID_PRODUCER_EPOCH."""

        def convert(response: Response) -> Response:
            if call.version < first_with_fenced and response.error_code == ProducerFenced.code:  # type: ignore[attr-defined]
                response.error_code = InvalidProducerEpoch.code  # type: ignore[attr-defined]
            return response

        def init_producer(producer_id: int | None) -> "Response | Pending":
            return self.submit(
                call,
                request,
                error_response,
                name,
                lambda c, request_id, now: decide(c, request_id, now, producer_id),
                convert,
            )

        async def allocate_and_init() -> Response:
            producer_id = await self._broker.producer_ids.take()
            try:
                answer = await self.submit_async(
                    name, lambda c, request_id, now: decide(c, request_id, now, producer_id)
                )
            except KafkaError as error:
                answer = error_response(request, error)
            return convert(answer)

        try:
            return init_producer(None)
        except NeedsProducerId:
            producer_id = self._broker.producer_ids.take_nowait()
        return allocate_and_init() if producer_id is None else init_producer(producer_id)


def new_transaction_runtime(broker: "Broker") -> TransactionRuntime:
    def settings() -> TransactionSettings:
        config = broker.config
        return TransactionSettings(
            max_timeout_ms=config[keys.TRANSACTION_MAX_TIMEOUT_MS],
            expiration_ms=config[keys.TRANSACTIONAL_ID_EXPIRATION_MS],
            clean_up_interval_ms=config[keys.TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS],
            version=broker.metadata.features.level(TRANSACTION_VERSION),
        )

    return TransactionRuntime(
        broker,
        TRANSACTIONS_TOPIC,
        TRANSACTIONS,
        lambda epoch: TransactionCoordinator(epoch, settings),
        lambda: broker.config[keys.TRANSACTION_STATE_LOG_NUM_PARTITIONS],
        on_marker_request=TxnMarkerSender(broker, RemoteMarkerWriter(broker)).order,
    )


class RemoteMarkerWriter:
    """Sends a marker to the leader of its partition, which may be this broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._batches = BatchedSender[MarkerItem](broker, "markers", write_markers)

    def __call__(self, partition: TopicPartition, marker: Marker, then: OnDone) -> None:
        topic = self._broker.metadata.topics.by_name(partition[0])
        known = None if topic is None else topic.partitions.get(partition[1])
        if known is None:
            then(UnknownTopicOrPartition())
        elif not known.has_leader:
            then(NotLeaderOrFollower(f"{partition[0]}-{partition[1]} has no leader"))
        elif known.leader == self._broker.node_id:
            write_marker(self._broker, partition, marker, then)
        else:
            self._batches.put(known.leader, MarkerItem(partition, marker, then))


def write_marker(broker: "Broker", partition: TopicPartition, marker: Marker, then: OnDone) -> None:
    """Writes the marker as the partition's leader; raises an error if this broker is not the leader."""
    if marker.producer.id < 0 or marker.producer.epoch < 0:
        then(InvalidRequest("a marker without a transaction"))
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
        appended = replica.append(built, ALL_REPLICAS, now_ms, AppendOrigin.COORDINATOR, marker.transaction_version)
    except KafkaError as error:
        then(error)
        return
    broker.verification.on_txn_end(replica, marker.producer, marker.transaction_version)
    if topic == OFFSETS_TOPIC:
        broker.groups.on_txn_end(index, marker.producer, marker.is_commit)
    broker.purgatory.notify(replica)
    on_committed(broker, replica, appended.last_offset + 1, broker.config[REQUEST_TIMEOUT_MS] / 1000, then)


class TxnMarkerSender:
    """Executes the marker requests of coordinators."""

    def __init__(self, broker: "Broker", write: MarkerWriter) -> None:
        self._broker = broker
        self._write = write

    def order(self, order: TxnMarkerRequest) -> None:
        for partition in order.partitions:
            self._try(order, partition, FIRST_PAUSE_S)

    def _try(self, order: TxnMarkerRequest, partition: TopicPartition, pause_s: float) -> None:
        marker = Marker(order.producer, order.is_commit, order.coordinator_epoch, order.transaction_version)
        self._write(partition, marker, partial(self._tried, order, partition, pause_s))

    def _tried(
        self, order: TxnMarkerRequest, partition: TopicPartition, pause_s: float, error: KafkaError | None
    ) -> None:
        if isinstance(error, UnknownTopicOrPartition) and not self._exists(partition):
            error = None  # the marker is no longer needed
        if error is None:
            name = order.transactional_id
            self._broker.transactions.notify(name, lambda coordinator, now: coordinator.marked(order, [partition], now))
        elif isinstance(error, NOT_RETRIABLE):
            log.error("%s refused the transaction marker of %r: %s", partition, order.transactional_id, error)
        else:
            self._broker.nursery.start_soon(self._again, order, partition, pause_s)

    async def _again(self, order: TxnMarkerRequest, partition: TopicPartition, pause_s: float) -> None:
        await trio.sleep(pause_s)
        if self._broker.transactions.epoch_of(order.transactional_id) == order.coordinator_epoch:
            self._try(order, partition, min(2 * pause_s, MAX_PAUSE_S))

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self._broker.metadata.topics.by_name(partition[0])
        return topic is not None and partition[1] in topic.partitions
