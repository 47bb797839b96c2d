"""DescribeTransactions (65): what transactional ids are up to.

After the verdict, the partitions that are told are those that have not heard of it.
"""

from typing import TYPE_CHECKING

from trioka.cluster.acls import Operation
from trioka.coordinator.transaction import Transaction, must_be_named
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

from ..api import handles
from ..security.guard import TRANSACTIONAL_ID, take_denied

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = DescribeTransactionsResponse.TransactionState


def refuse(request: DescribeTransactionsRequest, error: KafkaError) -> DescribeTransactionsResponse:
    return _answer([_refused(name, error) for name in request.transactional_ids])


@handles(DescribeTransactionsRequest, refuse=refuse)
async def describe_transactions(
    broker: "Broker", call: "Call", request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return _answer([await _describe(broker, call, name) for name in request.transactional_ids])


async def _describe(broker: "Broker", call: "Call", name: str) -> Told:
    try:
        broker.guard.must(call, Operation.DESCRIBE, TRANSACTIONAL_ID, name)
        must_be_named(name)
        told = _told(name, await broker.transactions.look(name, lambda coordinator: coordinator.describe(name)))
        take_denied(broker, call, Operation.DESCRIBE, told.topics, lambda topic: topic.topic)
        return told
    except KafkaError as error:
        return _refused(name, error)


def _told(name: str, found: Transaction) -> Told:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(found.partitions):
        topics.setdefault(topic, []).append(partition)
    return Told(
        error_code=0,
        transactional_id=name,
        transaction_state=found.phase.text,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[Told.Topic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def _refused(name: str, error: KafkaError) -> Told:
    return Told(
        error_code=error.code,
        transactional_id=name,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def _answer(told: list[Told]) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=told)
