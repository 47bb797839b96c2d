"""EndTxn (26): commits or aborts a transaction.

The response is sent when the decision is replicated and final. The transaction markers are written afterwards.

v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE · v5 each end bumps the producer epoch (KIP-890)
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.image.acls import AclOperation
from trioka.coordinator.decision import Producer
from trioka.coordinator.transaction import EPOCHS_PER_END, check_transactional_id
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..security.guard import TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_EPOCHS: Final = 5


def error_response(request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=error.code)


@handles(EndTxnRequest, error_response=error_response)
def end_txn(
    broker: "Broker", call: "Call", request: EndTxnRequest
) -> "Response | Pending | Coroutine[Any, Any, Response]":
    broker.guard.must(call, AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    name, producer = request.transactional_id, Producer(request.producer_id, request.producer_epoch)
    check_transactional_id(name)
    version = EPOCHS_PER_END if call.version >= FIRST_VERSION_WITH_EPOCHS else 0
    return broker.transactions.submit_fenced(
        call,
        request,
        error_response,
        name,
        lambda c, request_id, now, new: c.end(request_id, name, producer, request.committed, version, new, now),
        FIRST_VERSION_WITH_FENCED,
    )
