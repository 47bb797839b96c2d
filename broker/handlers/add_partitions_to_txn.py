"""AddPartitionsToTxn (24): adds partitions to a transaction, or verifies that they were added.

Either all partitions of a transaction are added or none: if one does not exist, the others get OPERATION_NOT_ATTEMPTED.

v2 PRODUCER_FENCED · v3 flexible · v4 sent by brokers, for several transactions, and verify_only · v5
TRANSACTION_ABORTABLE
"""

from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster.image.acls import AclOperation
from trioka.cluster.image.topics import INTERNAL_TOPICS
from trioka.coordinator.decision import Decision, Now, Producer, RequestId, reply
from trioka.coordinator.transaction import EPOCHS_PER_END, TopicPartition, check_transactional_id
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
    from ..network.connection import Call, Pending

Transaction = AddPartitionsToTxnRequest.Transaction
Errors = Mapping[TopicPartition, KafkaError | None]

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_FOR_BROKERS: Final = 4
ADDED: Final = AddPartitionsToTxnResponse(throttle_time_ms=0)


def error_response(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        error_code=error.code,
        results_by_topic_v3_and_below=_results(dict.fromkeys(_partitions(request.v3_and_below_topics), error)),
    )


@handles(AddPartitionsToTxnRequest, error_response=error_response)
def add_partitions_to_txn(
    broker: "Broker", call: "Call", request: AddPartitionsToTxnRequest
) -> "Response | Pending | Coroutine[Any, Any, Response]":
    if call.version >= FIRST_VERSION_FOR_BROKERS:
        broker.guard.must(call, AclOperation.CLUSTER_ACTION)
        return _for_brokers(broker, request)
    broker.guard.must(call, AclOperation.WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    partitions = _partitions(request.v3_and_below_topics)
    # Clients cannot add internal topics, whatever their ACLs allow.
    names = {topic for topic, _ in partitions} - INTERNAL_TOPICS
    allowed = broker.guard.allowed(call, AclOperation.WRITE, TOPIC, names)
    errors = _validation_errors(broker, partitions, {name for name in names if name in allowed})
    if errors:
        return _to_response(errors)
    name = request.v3_and_below_transactional_id
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    added = _to_response(dict.fromkeys(partitions))

    def fenced_response(request: AddPartitionsToTxnRequest, error: KafkaError) -> Response:
        if isinstance(error, ProducerFenced) and call.version < FIRST_VERSION_WITH_FENCED:
            error = InvalidProducerEpoch()
        return error_response(request, error)

    check_transactional_id(name)
    return broker.transactions.submit(
        call,
        request,
        fenced_response,
        name,
        lambda c, request_id, now: c.add_partitions(request_id, name, producer, partitions, 0, added, now),
    )


async def _for_brokers(broker: "Broker", request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Adds or verifies all transactions concurrently; each waits until its change is committed."""
    errors: dict[int, Errors] = {}

    async def add_or_verify(number: int, transaction: Transaction) -> None:
        errors[number] = await _add_or_verify(broker, transaction)

    async with trio.open_nursery() as nursery:
        for number, transaction in enumerate(request.transactions):
            nursery.start_soon(add_or_verify, number, transaction)
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_transaction=[
            AddPartitionsToTxnResponse.Transaction(
                transactional_id=transaction.transactional_id, topic_results=_results(errors[number])
            )
            for number, transaction in enumerate(request.transactions)
        ],
    )


async def _add_or_verify(broker: "Broker", transaction: Transaction) -> Errors:
    partitions = _partitions(transaction.topics)
    invalid = _validation_errors(broker, partitions, {topic for topic, _ in partitions})
    if invalid:
        return invalid
    name, errors = transaction.transactional_id, dict[TopicPartition, KafkaError | None]()
    errors.update(dict.fromkeys(partitions))
    try:
        check_transactional_id(name)
        await broker.transactions.submit_async(name, _decision(transaction, partitions, errors))
    except KafkaError as error:
        return dict.fromkeys(partitions, error)
    return errors


def _decision(
    transaction: Transaction, partitions: Sequence[TopicPartition], errors: dict[TopicPartition, KafkaError | None]
) -> Callable[[TransactionCoordinator, RequestId, Now], Decision]:
    name, producer = transaction.transactional_id, Producer(transaction.producer_id, transaction.producer_epoch)

    def decide(coordinator: TransactionCoordinator, request_id: RequestId, now: Now) -> Decision:
        if not transaction.verify_only:
            return coordinator.add_partitions(request_id, name, producer, partitions, EPOCHS_PER_END, ADDED, now)
        errors.update(coordinator.verify_partitions(name, producer, partitions))
        return reply(request_id, ADDED)

    return decide


def _validation_errors(broker: "Broker", partitions: Sequence[TopicPartition], allowed: Container[str]) -> Errors:
    """The error of each partition; empty if all partitions are valid."""
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


def _to_response(errors: Errors) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=_results(errors))


def _results(errors: Errors) -> list[TopicResult]:
    topics: dict[str, list[PartitionResult]] = {}
    for (name, index), error in errors.items():
        code = 0 if error is None else error.code
        topics.setdefault(name, []).append(PartitionResult(partition_index=index, partition_error_code=code))
    return [TopicResult(name=name, results_by_partition=results) for name, results in topics.items()]
