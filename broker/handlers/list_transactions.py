"""ListTransactions (66): the transactional ids that this broker coordinates.

A state that nobody knows is told back, and matches nothing. v1 filters by how long ago a transaction began: one that
has not begun is older than all · v2 by a pattern (RE2) that the whole id must match
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.acls import Operation
from trioka.coordinator.decision import Moment
from trioka.coordinator.subscription_pattern import name_matcher
from trioka.coordinator.transaction import Phase
from trioka.coordinator.transactions import Wanted
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

from ..api import handles
from ..security.guard import TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

Told = ListTransactionsResponse.TransactionState

PHASES: Final = {phase.text: phase for phase in Phase}


def refuse(request: ListTransactionsRequest, error: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=error.code, unknown_state_filters=[], transaction_states=[]
    )


@handles(ListTransactionsRequest, refuse=refuse)
async def list_transactions(
    broker: "Broker", call: "Call", request: ListTransactionsRequest
) -> ListTransactionsResponse:
    states = dict.fromkeys(request.state_filters)
    wanted = Wanted(
        phases=frozenset(PHASES[state] for state in states if state in PHASES) if states else None,
        producer_ids=frozenset(request.producer_id_filters),
        longer_than_ms=request.duration_filter,
        matches=name_matcher(request.transactional_id_pattern) if request.transactional_id_pattern else None,
    )
    now = Moment(0, broker.clock.now_ms())
    found = await broker.transactions.look_at_all(lambda coordinator: coordinator.list_transactions(wanted, now))
    names = [name for some in found for name, _ in some]
    allowed = broker.guard.allowed(call, Operation.DESCRIBE, TRANSACTIONAL_ID, names)
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=0,
        unknown_state_filters=[state for state in states if state not in PHASES],
        transaction_states=[
            Told(transactional_id=name, producer_id=transaction.producer_id, transaction_state=transaction.phase.text)
            for some in found
            for name, transaction in some
            if name in allowed
        ],
    )
