"""AddOffsetsToTxn (25): adds a group's partition of __consumer_offsets to a transaction.

v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE. Clients with transaction version 2 (KIP-890) do not send
it: their TxnOffsetCommit adds the partition.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.image.acls import AclOperation
from trioka.coordinator.decision import Producer
from trioka.coordinator.transaction import check_transactional_id
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..controller.topic_creation import OFFSETS_TOPIC
from ..security.guard import GROUP, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending

FIRST_VERSION_WITH_FENCED: Final = 2
ADDED: Final = AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=0)


def error_response(request: AddOffsetsToTxnRequest, error: KafkaError) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error.code)


@handles(AddOffsetsToTxnRequest, error_response=error_response)
def add_offsets_to_txn(
    broker: "Broker", call: "Call", request: AddOffsetsToTxnRequest
) -> "Response | Pending | Coroutine[Any, Any, Response]":
    broker.guard.must(call, AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    broker.guard.must(call, AclOperation.READ, GROUP, request.group_id)
    name, producer = request.transactional_id, Producer(request.producer_id, request.producer_epoch)
    check_transactional_id(name)
    partitions = [(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))]
    return broker.transactions.submit_fenced(
        call,
        request,
        error_response,
        name,
        lambda c, request_id, now, new: c.add_partitions(request_id, name, producer, partitions, 0, ADDED, now),
        FIRST_VERSION_WITH_FENCED,
    )
