"""What brokers say to each other about transactions: a coordinator orders markers from the leaders of partitions
(WriteTxnMarkers), and a leader asks a coordinator whether a partition takes part (AddPartitionsToTxn).

Both go out in batches: one request to a node is under way at a time, and what comes meanwhile goes with the next. An
answer names producers or transactional ids and nothing else, so that only one matter of each goes with a request.

Whoever asks is always answered. If it is with an error of the network, nobody knows whether it was done; both questions
may be asked again.
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

MAX_QUEUED: Final = 100_000  # questions that wait for one node
MAX_BATCH: Final = 1000  # of them in one request

Codes = dict[TopicPartition, int]


class Marker(NamedTuple):
    producer: Producer
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerItem(NamedTuple):
    """One marker for one partition. `then` is told what became of it."""

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
    """Partitions of one transaction: do they take part, or, unless `is_question`, they do from now on."""

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
        return id(self)  # each by itself

    def fail(self, error: KafkaError) -> None:
        self.then(dict.fromkeys(self.partitions, error))


class Item(Protocol):
    @property
    def key(self) -> Hashable: ...

    @property
    def matter(self) -> Hashable: ...

    def fail(self, error: KafkaError) -> None: ...


ItemT = TypeVar("ItemT", bound=Item)


def take(queue: Sequence[ItemT], limit: int = MAX_BATCH) -> tuple[list[ItemT], list[ItemT]]:
    """What goes with the next request, and what is left. Of two matters with the same key, the later one waits; and so
    does what comes behind it with that key."""
    batch: list[ItemT] = []
    left: list[ItemT] = []
    matters: dict[Hashable, Hashable] = {}
    for item in queue:
        if len(batch) < limit and matters.setdefault(item.key, item.matter) == item.matter:
            batch.append(item)
        else:
            matters[item.key] = None  # nothing overtakes it
            left.append(item)
    return batch, left


class Ask(Protocol):
    """A request to the node that a batch is for."""

    def __call__(self, request: Request) -> Awaitable[Any]: ...


Exchange = Callable[[Ask, list[ItemT]], Awaitable[None]]


class Batches(Generic[ItemT]):
    """Items for other nodes, and one task for each node that has any."""

    def __init__(
        self, broker: "Broker", purpose: str, exchange: Callable[["Ask", list[ItemT]], Awaitable[None]]
    ) -> None:
        self._broker = broker
        self._purpose = purpose
        self._exchange = exchange
        self._queues: dict[int, list[ItemT]] = {}

    def put(self, node_id: int, item: ItemT) -> None:
        queue = self._queues.get(node_id)
        if queue is None:
            self._queues[node_id] = [item]
            self._broker.nursery.start_soon(self._send_all, node_id)
        elif len(queue) < MAX_QUEUED:
            queue.append(item)
        else:
            item.fail(NetworkException(f"too much waits for node {node_id}"))

    async def _send_all(self, node_id: int) -> None:
        while self._queues[node_id]:
            batch, self._queues[node_id] = take(self._queues[node_id])
            try:
                await self._exchange(lambda request: self._ask(node_id, request), batch)
            except KafkaError as error:
                for item in batch:
                    item.fail(error)
            except Exception as mistake:  # the broker goes on, and so does whoever waits
                log.error("a mistake of ours: %s of node %d", self._purpose, node_id, exc_info=mistake)
                for item in batch:
                    item.fail(UnknownServerError())
        del self._queues[node_id]

    async def _ask(self, node_id: int, request: Request) -> Any:
        broker = self._broker
        node = broker.metadata.brokers.get(node_id)
        address = None if node is None or node.fenced else node.listener(broker.node.inter_broker)
        if address is None:
            raise NetworkException(f"node {node_id} is not there")
        peer = broker.peers.peer(address.host, address.port, self._purpose)
        return await peer.ask(request, timeout_s=broker.config[REQUEST_TIMEOUT_MS] / 1000)


async def write_markers(ask: Ask, items: Sequence[MarkerItem]) -> None:
    by_marker: dict[Marker, list[TopicPartition]] = {}
    for item in items:
        by_marker.setdefault(item.marker, []).append(item.partition)
    said = WriteTxnMarkersRequest.Marker
    request = WriteTxnMarkersRequest(
        markers=[
            said(
                producer_id=marker.producer.id,
                producer_epoch=marker.producer.epoch,
                transaction_result=marker.is_commit,
                topics=[said.Topic(name=name, partition_indexes=found) for name, found in _topics(partitions).items()],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            for marker, partitions in by_marker.items()
        ]
    )
    response: WriteTxnMarkersResponse = await ask(request)
    codes: dict[int, Codes] = {
        told.producer_id: {
            (topic.name, found.partition_index): found.error_code for topic in told.topics for found in topic.partitions
        }
        for told in response.markers
    }
    for item in items:
        item.then(_error(codes.get(item.marker.producer.id, {}), item.partition))


async def ask_for_partitions(ask: Ask, items: Sequence[PartitionsItem]) -> None:
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
    response: AddPartitionsToTxnResponse = await ask(request)
    if response.error_code != NONE:
        raise error_class(response.error_code)()
    codes: dict[str, Codes] = {
        told.transactional_id: {
            (topic.name, found.partition_index): found.partition_error_code
            for topic in told.topic_results
            for found in topic.results_by_partition
        }
        for told in response.results_by_transaction
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
    """Of what the answer does not speak of, nothing is known."""
    code = codes.get(partition)
    if code is None:
        return NetworkException(f"no word of {partition[0]}-{partition[1]}")
    return None if code == NONE else error_class(code)()
