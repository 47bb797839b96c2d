"""AddOffsetsToTxn (25): the partition that keeps a group's offsets takes part in a transaction.

v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE. Clients of the second generation do not ask: their
TxnOffsetCommit does it.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.acls import Operation
from trioka.coordinator.decision import Producer
from trioka.coordinator.transaction import must_be_named
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..controller.topic_creation import OFFSETS_TOPIC
from ..security.guard import GROUP, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

FIRST_VERSION_WITH_FENCED: Final = 2
ADDED: Final = AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=0)


def refuse(request: AddOffsetsToTxnRequest, error: KafkaError) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error.code)


@handles(AddOffsetsToTxnRequest, refuse=refuse)
def add_offsets_to_txn(
    broker: "Broker", call: "Call", request: AddOffsetsToTxnRequest
) -> "Response | Later | Coroutine[Any, Any, Response]":
    broker.guard.must(call, Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    broker.guard.must(call, Operation.READ, GROUP, request.group_id)
    name, producer = request.transactional_id, Producer(request.producer_id, request.producer_epoch)
    must_be_named(name)
    partitions = [(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))]
    return broker.transactions.ask_fenced(
        call,
        request,
        refuse,
        name,
        lambda c, ticket, now, new: c.add_partitions(ticket, name, producer, partitions, 0, ADDED, now),
        FIRST_VERSION_WITH_FENCED,
    )
