"""Requests between brokers about transactions: a coordinator sends markers to the leaders of partitions
(WriteTxnMarkers), and a leader verifies a partition with a coordinator (AddPartitionsToTxn).

Both are batched: one request to a node is in flight at a time, and what arrives meanwhile goes with the next. A
response identifies its entries by producer or transactional id only, so a request has at most one entry of each.

Every entry is completed. After a network error it is unknown whether the request took effect; both kinds of request may
be repeated.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from trioka.coordinator.decision import Producer
from trioka.coordinator.transaction import TopicPartition
from trioka.protocol.errors import NONE, KafkaError, NetworkException, UnknownServerError, error_class
from trioka.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, Topic
from trioka.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from trioka.protocol.schema import Request

from ..config.network_keys import REQUEST_TIMEOUT_MS

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.transactions")

MAX_QUEUED: Final = 100_000  # requests that wait for one node
MAX_BATCH: Final = 1000  # items in one request

Codes = dict[TopicPartition, int]


class Marker(NamedTuple):
    producer: Producer
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerItem(NamedTuple):
    """One marker for one partition. `then` is called with the outcome."""

    partition: TopicPartition
    marker: Marker
    then: Callable[[KafkaError | None], None]

    @property
    def key(self) -> Hashable:
        return self.marker.producer.id

    @property
    def matter(self) -> Hashable:
        return self.marker

    def fail(self, error: KafkaError) -> None:
        self.then(error)


class PartitionsItem(NamedTuple):
    """Partitions of one transaction: verified if `is_question`, otherwise added."""

    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]
    is_question: bool
    then: Callable[[Mapping[TopicPartition, KafkaError | None]], None]

    @property
    def key(self) -> Hashable:
        return self.transactional_id

    @property
    def matter(self) -> Hashable:
        return id(self)  # each is separate

    def fail(self, error: KafkaError) -> None:
        self.then(dict.fromkeys(self.partitions, error))


class BatchItem(Protocol):
    @property
    def key(self) -> Hashable: ...

    @property
    def matter(self) -> Hashable: ...

    def fail(self, error: KafkaError) -> None: ...


BatchItemT = TypeVar("BatchItemT", bound=BatchItem)


def take(queue: Sequence[BatchItemT], limit: int = MAX_BATCH) -> tuple[list[BatchItemT], list[BatchItemT]]:
    """Splits the queue into the next request and the rest. Items with the same key share a request only if their
    matter is the same; otherwise the later one waits, and so do all behind it with that key."""
    batch: list[BatchItemT] = []
    left: list[BatchItemT] = []
    matters: dict[Hashable, Hashable] = {}
    for item in queue:
        if len(batch) < limit and matters.setdefault(item.key, item.matter) == item.matter:
            batch.append(item)
        else:
            matters[item.key] = None  # later items with this key must wait, too
            left.append(item)
    return batch, left


class SendRequest(Protocol):
    """A request to the node that a batch is for."""

    def __call__(self, request: Request) -> Awaitable[Any]: ...


Exchange = Callable[[SendRequest, list[BatchItemT]], Awaitable[None]]


class BatchedSender(Generic[BatchItemT]):
    """The queues of items for other nodes, with one task for each node that has any."""

    def __init__(
        self, broker: "Broker", purpose: str, exchange: Callable[["SendRequest", list[BatchItemT]], Awaitable[None]]
    ) -> None:
        self._broker = broker
        self._purpose = purpose
        self._exchange = exchange
        self._queues: dict[int, list[BatchItemT]] = {}

    def put(self, node_id: int, item: BatchItemT) -> None:
        queue = self._queues.get(node_id)
        if queue is None:
            self._queues[node_id] = [item]
            self._broker.nursery.start_soon(self._send_all, node_id)
        elif len(queue) < MAX_QUEUED:
            queue.append(item)
        else:
            item.fail(NetworkException(f"too many requests are queued for node {node_id}"))

    async def _send_all(self, node_id: int) -> None:
        while self._queues[node_id]:
            batch, self._queues[node_id] = take(self._queues[node_id])
            try:
                await self._exchange(lambda request: self._send(node_id, request), batch)
            except KafkaError as error:
                for item in batch:
                    item.fail(error)
            except Exception as mistake:  # must not end the broker; the waiting requests get an error
                log.error("internal error: %s of node %d", self._purpose, node_id, exc_info=mistake)
                for item in batch:
                    item.fail(UnknownServerError())
        del self._queues[node_id]

    async def _send(self, node_id: int, request: Request) -> Any:
        broker = self._broker
        node = broker.metadata.brokers.get(node_id)
        address = None if node is None or node.fenced else node.listener(broker.node.inter_broker)
        if address is None:
            raise NetworkException(f"node {node_id} is not available")
        peer = broker.peers.peer(address.host, address.port, self._purpose)
        return await peer.send_request(request, timeout_s=broker.config[REQUEST_TIMEOUT_MS] / 1000)


async def write_markers(send: SendRequest, items: Sequence[MarkerItem]) -> None:
    by_marker: dict[Marker, list[TopicPartition]] = {}
    for item in items:
        by_marker.setdefault(item.marker, []).append(item.partition)
    marker_type = WriteTxnMarkersRequest.Marker
    request = WriteTxnMarkersRequest(
        markers=[
            marker_type(
                producer_id=marker.producer.id,
                producer_epoch=marker.producer.epoch,
                transaction_result=marker.is_commit,
                topics=[
                    marker_type.Topic(name=name, partition_indexes=found) for name, found in _topics(partitions).items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            for marker, partitions in by_marker.items()
        ]
    )
    response: WriteTxnMarkersResponse = await send(request)
    codes: dict[int, Codes] = {
        result.producer_id: {
            (topic.name, found.partition_index): found.error_code
            for topic in result.topics
            for found in topic.partitions
        }
        for result in response.markers
    }
    for item in items:
        item.then(_error(codes.get(item.marker.producer.id, {}), item.partition))


async def send_partitions(send: SendRequest, items: Sequence[PartitionsItem]) -> None:
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequest.Transaction(
                transactional_id=item.transactional_id,
                producer_id=item.producer.id,
                producer_epoch=item.producer.epoch,
                verify_only=item.is_question,
                topics=[Topic(name=name, partitions=found) for name, found in _topics(item.partitions).items()],
            )
            for item in items
        ]
    )
    response: AddPartitionsToTxnResponse = await send(request)
    if response.error_code != NONE:
        raise error_class(response.error_code)()
    codes: dict[str, Codes] = {
        result.transactional_id: {
            (topic.name, found.partition_index): found.partition_error_code
            for topic in result.topic_results
            for found in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
    for item in items:
        found = codes.get(item.transactional_id, {})
        item.then({partition: _error(found, partition) for partition in item.partitions})


def _topics(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics


def _error(codes: Codes, partition: TopicPartition) -> KafkaError | None:
    """The error of a partition; None for success. If the response omits it, the outcome is unknown."""
    code = codes.get(partition)
    if code is None:
        return NetworkException(f"the response has no {partition[0]}-{partition[1]}")
    return None if code == NONE else error_class(code)()
