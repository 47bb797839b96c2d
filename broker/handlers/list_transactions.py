"""ListTransactions (66): lists the transactional ids that this broker coordinates.

Unknown states in the filter match nothing and are returned. v1 filter by duration, which always matches transactional
ids without an open transaction · v2 filter by a pattern (RE2) that must match the whole id
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.image.acls import AclOperation
from trioka.coordinator.consumer.subscription_pattern import name_matcher
from trioka.coordinator.decision import Now
from trioka.coordinator.transaction import Phase
from trioka.coordinator.transactions import ListFilter
from trioka.protocol.errors import KafkaError
from trioka.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

from ..api import handles
from ..security.guard import TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

TransactionResult = ListTransactionsResponse.TransactionState

PHASES: Final = {phase.text: phase for phase in Phase}


def error_response(request: ListTransactionsRequest, error: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=error.code, unknown_state_filters=[], transaction_states=[]
    )


@handles(ListTransactionsRequest, error_response=error_response)
async def list_transactions(
    broker: "Broker", call: "Call", request: ListTransactionsRequest
) -> ListTransactionsResponse:
    states = dict.fromkeys(request.state_filters)
    list_filter = ListFilter(
        phases=frozenset(PHASES[state] for state in states if state in PHASES) if states else None,
        producer_ids=frozenset(request.producer_id_filters),
        longer_than_ms=request.duration_filter,
        matches=name_matcher(request.transactional_id_pattern) if request.transactional_id_pattern else None,
    )
    now = Now(0, broker.clock.now_ms())
    shards = await broker.transactions.read_all(lambda coordinator: coordinator.list_transactions(list_filter, now))
    names = [name for shard in shards for name, _ in shard]
    allowed = broker.guard.allowed(call, AclOperation.DESCRIBE, TRANSACTIONAL_ID, names)
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=0,
        unknown_state_filters=[state for state in states if state not in PHASES],
        transaction_states=[
            TransactionResult(
                transactional_id=name, producer_id=transaction.producer_id, transaction_state=transaction.phase.text
            )
            for shard in shards
            for name, transaction in shard
            if name in allowed
        ],
    )
