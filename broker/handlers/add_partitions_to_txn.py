"""AddPartitionsToTxn (24): partitions take part in a transaction, or it is asked whether they do.

All of a transaction's partitions are added or none: if one does not exist the others are OPERATION_NOT_ATTEMPTED.

v2 PRODUCER_FENCED · v3 flexible · v4 from brokers, for many transactions at once, and to verify only · v5
TRANSACTION_ABORTABLE
"""

from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster.acls import Operation
from trioka.cluster.topics import INTERNAL_TOPICS
from trioka.coordinator.decision import Decision, Moment, Producer, Ticket, answer
from trioka.coordinator.transaction import EPOCHS_PER_END, TopicPartition, must_be_named
from trioka.coordinator.transactions import TransactionCoordinator
from trioka.protocol.errors import (
    InvalidProducerEpoch,
    KafkaError,
    OperationNotAttempted,
    ProducerFenced,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    PartitionResult,
    Topic,
    TopicResult,
)
from trioka.protocol.schema import Response

from ..api import handles
from ..security.guard import TOPIC, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

Transaction = AddPartitionsToTxnRequest.Transaction
Errors = Mapping[TopicPartition, KafkaError | None]

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_FOR_BROKERS: Final = 4
ADDED: Final = AddPartitionsToTxnResponse(throttle_time_ms=0)


def refuse(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        error_code=error.code,
        results_by_topic_v3_and_below=_results(dict.fromkeys(_partitions(request.v3_and_below_topics), error)),
    )


@handles(AddPartitionsToTxnRequest, refuse=refuse)
def add_partitions_to_txn(
    broker: "Broker", call: "Call", request: AddPartitionsToTxnRequest
) -> "Response | Later | Coroutine[Any, Any, Response]":
    if call.version >= FIRST_VERSION_FOR_BROKERS:
        broker.guard.must(call, Operation.CLUSTER_ACTION)
        return _for_brokers(broker, request)
    broker.guard.must(call, Operation.WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    partitions = _partitions(request.v3_and_below_topics)
    # The brokers' own topics are not for clients to add, whatever they may do with them.
    names = {topic for topic, _ in partitions} - INTERNAL_TOPICS
    allowed = broker.guard.allowed(call, Operation.WRITE, TOPIC, names)
    unfit = _unfit(broker, partitions, {name for name in names if name in allowed})
    if unfit:
        return _told(unfit)
    name = request.v3_and_below_transactional_id
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    said = _told(dict.fromkeys(partitions))

    def refused(request: AddPartitionsToTxnRequest, error: KafkaError) -> Response:
        if isinstance(error, ProducerFenced) and call.version < FIRST_VERSION_WITH_FENCED:
            error = InvalidProducerEpoch()
        return refuse(request, error)

    must_be_named(name)
    return broker.transactions.ask(
        call,
        request,
        refused,
        name,
        lambda c, ticket, now: c.add_partitions(ticket, name, producer, partitions, 0, said, now),
    )


async def _for_brokers(broker: "Broker", request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Each waits until it is committed, and all of them at the same time."""
    errors: dict[int, Errors] = {}

    async def answer_one(number: int, transaction: Transaction) -> None:
        errors[number] = await _one(broker, transaction)

    async with trio.open_nursery() as nursery:
        for number, transaction in enumerate(request.transactions):
            nursery.start_soon(answer_one, number, transaction)
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_transaction=[
            AddPartitionsToTxnResponse.Transaction(
                transactional_id=transaction.transactional_id, topic_results=_results(errors[number])
            )
            for number, transaction in enumerate(request.transactions)
        ],
    )


async def _one(broker: "Broker", asked: Transaction) -> Errors:
    partitions = _partitions(asked.topics)
    unfit = _unfit(broker, partitions, {topic for topic, _ in partitions})
    if unfit:
        return unfit
    name, errors = asked.transactional_id, dict[TopicPartition, KafkaError | None]()
    errors.update(dict.fromkeys(partitions))
    try:
        must_be_named(name)
        await broker.transactions.answer(name, _decision(asked, partitions, errors))
    except KafkaError as error:
        return dict.fromkeys(partitions, error)
    return errors


def _decision(
    asked: Transaction, partitions: Sequence[TopicPartition], errors: dict[TopicPartition, KafkaError | None]
) -> Callable[[TransactionCoordinator, Ticket, Moment], Decision]:
    name, producer = asked.transactional_id, Producer(asked.producer_id, asked.producer_epoch)

    def decide(coordinator: TransactionCoordinator, ticket: Ticket, now: Moment) -> Decision:
        if not asked.verify_only:
            return coordinator.add_partitions(ticket, name, producer, partitions, EPOCHS_PER_END, ADDED, now)
        errors.update(coordinator.verify_partitions(name, producer, partitions))
        return answer(ticket, ADDED)

    return decide


def _unfit(broker: "Broker", partitions: Sequence[TopicPartition], allowed: Container[str]) -> Errors:
    """Empty if all of them may take part."""
    errors: dict[TopicPartition, KafkaError] = {}
    for name, index in partitions:
        topic = broker.metadata.topics.by_name(name)
        if name not in allowed:
            errors[name, index] = TopicAuthorizationFailed()
        elif topic is None or index not in topic.partitions:
            errors[name, index] = UnknownTopicOrPartition()
    if not errors:
        return {}
    return {partition: errors.get(partition, OperationNotAttempted()) for partition in partitions}


def _partitions(topics: Sequence[Topic]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _told(errors: Errors) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=_results(errors))


def _results(errors: Errors) -> list[TopicResult]:
    topics: dict[str, list[PartitionResult]] = {}
    for (name, index), error in errors.items():
        code = 0 if error is None else error.code
        topics.setdefault(name, []).append(PartitionResult(partition_index=index, partition_error_code=code))
    return [TopicResult(name=name, results_by_partition=results) for name, results in topics.items()]
