"""EndTxn (26): a transaction is committed or aborted.

The answer comes when the verdict is committed: nothing can change it then. The markers follow.

v2 PRODUCER_FENCED · v3 flexible · v4 TRANSACTION_ABORTABLE · v5 the producer gets a new epoch with each end (KIP-890)
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.acls import Operation
from trioka.coordinator.decision import Producer
from trioka.coordinator.transaction import EPOCHS_PER_END, must_be_named
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..security.guard import TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

FIRST_VERSION_WITH_FENCED: Final = 2
FIRST_VERSION_WITH_EPOCHS: Final = 5


def refuse(request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=error.code)


@handles(EndTxnRequest, refuse=refuse)
def end_txn(
    broker: "Broker", call: "Call", request: EndTxnRequest
) -> "Response | Later | Coroutine[Any, Any, Response]":
    broker.guard.must(call, Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    name, producer = request.transactional_id, Producer(request.producer_id, request.producer_epoch)
    must_be_named(name)
    version = EPOCHS_PER_END if call.version >= FIRST_VERSION_WITH_EPOCHS else 0
    return broker.transactions.ask_fenced(
        call,
        request,
        refuse,
        name,
        lambda c, ticket, now, new: c.end(ticket, name, producer, request.committed, version, new, now),
        FIRST_VERSION_WITH_FENCED,
    )
