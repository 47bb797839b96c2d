"""DescribeTransactions (65): returns the state of transactional ids.

After a commit or abort, only the partitions that do not have their marker yet are listed.
"""

from typing import TYPE_CHECKING

from trioka.cluster.image.acls import AclOperation
from trioka.coordinator.transaction import Transaction, check_transactional_id
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

from ..api import handles
from ..security.guard import TRANSACTIONAL_ID, pop_denied

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TransactionResult = DescribeTransactionsResponse.TransactionState


def error_response(request: DescribeTransactionsRequest, error: KafkaError) -> DescribeTransactionsResponse:
    return _response([_error_result(name, error) for name in request.transactional_ids])


@handles(DescribeTransactionsRequest, error_response=error_response)
async def describe_transactions(
    broker: "Broker", call: "Call", request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return _response([await _describe(broker, call, name) for name in request.transactional_ids])


async def _describe(broker: "Broker", call: "Call", name: str) -> TransactionResult:
    try:
        broker.guard.must(call, AclOperation.DESCRIBE, TRANSACTIONAL_ID, name)
        check_transactional_id(name)
        result = _to_result(name, await broker.transactions.read(name, lambda coordinator: coordinator.describe(name)))
        pop_denied(broker, call, AclOperation.DESCRIBE, result.topics, lambda topic: topic.topic)
        return result
    except KafkaError as error:
        return _error_result(name, error)


def _to_result(name: str, transaction: Transaction) -> TransactionResult:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return TransactionResult(
        error_code=0,
        transactional_id=name,
        transaction_state=transaction.phase.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[TransactionResult.Topic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _error_result(name: str, error: KafkaError) -> TransactionResult:
    return TransactionResult(
        error_code=error.code,
        transactional_id=name,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def _response(results: list[TransactionResult]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=results)
