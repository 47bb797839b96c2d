"""InitProducerId (22): an id and an epoch for a producer that numbers its records.

Without a transactional id it is an id that nobody has, always: a producer that was fenced, or has lost count, begins
again with another. With one, its coordinator is asked: whoever had it before is fenced, and what it left open is
aborted; meanwhile the answer is CONCURRENT_TRANSACTIONS.

v2 flexible · v3 says which id it had (KIP-360) · v4 PRODUCER_FENCED · v5 KIP-890. Version 6, about transactions that
are prepared and kept, is unstable, and not served, as in Kafka.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.acls import Operation
from trioka.coordinator.decision import Producer
from trioka.coordinator.transaction import must_be_allowed, must_be_named
from trioka.protocol.errors import ClusterAuthorizationFailed, InvalidRequest, KafkaError
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..config.coordinator_keys import TRANSACTION_MAX_TIMEOUT_MS
from ..security.guard import TOPIC, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

NO_PRODUCER: Final = -1
FIRST_EPOCH: Final = 0
FIRST_VERSION_WITH_FENCED: Final = 4


def refuse(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=error.code, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER
    )


@handles(InitProducerIdRequest, refuse=refuse)
def init_producer_id(
    broker: "Broker", call: "Call", request: InitProducerIdRequest
) -> "Response | Later | Coroutine[Any, Any, Response]":
    if request.transactional_id is not None:
        broker.guard.must(call, Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    elif not broker.guard.may(call, Operation.IDEMPOTENT_WRITE, is_attempt=False) and not broker.guard.may_with_some(
        call, Operation.WRITE, TOPIC
    ):
        raise ClusterAuthorizationFailed()
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER):
        raise InvalidRequest("an id without an epoch, or an epoch without an id")
    if request.transactional_id is not None:
        return _in_transactions(broker, call, request, request.transactional_id)
    producer_id = broker.producer_ids.take_nowait()
    return _wait_for_id(broker) if producer_id is None else _answer(producer_id)


def _in_transactions(
    broker: "Broker", call: "Call", request: InitProducerIdRequest, name: str
) -> "Response | Later | Coroutine[Any, Any, Response]":
    must_be_named(name)
    must_be_allowed(request.transaction_timeout_ms, broker.config[TRANSACTION_MAX_TIMEOUT_MS])
    has_been = request.producer_id != NO_PRODUCER
    expected = Producer(request.producer_id, request.producer_epoch) if has_been else None
    timeout_ms = request.transaction_timeout_ms
    return broker.transactions.ask_fenced(
        call,
        request,
        refuse,
        name,
        lambda c, ticket, now, new: c.init_producer_id(ticket, name, timeout_ms, expected, new, now),
        FIRST_VERSION_WITH_FENCED,
    )


async def _wait_for_id(broker: "Broker") -> InitProducerIdResponse:
    return _answer(await broker.producer_ids.take())


def _answer(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=FIRST_EPOCH)
