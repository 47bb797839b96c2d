"""InitProducerId (22): assigns a producer id and an epoch to an idempotent or transactional producer.

Without a transactional id the producer always gets a new id, also after it was fenced. With one, the transaction
coordinator fences the previous producer and aborts its open transaction; until that is done the error is
CONCURRENT_TRANSACTIONS.

v2 flexible · v3 the producer's current id and epoch (KIP-360) · v4 PRODUCER_FENCED · v5 KIP-890. Version 6, for
two-phase commit, is unstable and not served, as in Kafka.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.image.acls import AclOperation
from trioka.coordinator.decision import Producer
from trioka.coordinator.transaction import check_transaction_timeout, check_transactional_id
from trioka.protocol.errors import ClusterAuthorizationFailed, InvalidRequest, KafkaError
from trioka.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from trioka.protocol.schema import Response

from ..api import handles
from ..config.coordinator_keys import TRANSACTION_MAX_TIMEOUT_MS
from ..security.guard import TOPIC, TRANSACTIONAL_ID

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending

NO_PRODUCER: Final = -1
FIRST_EPOCH: Final = 0
FIRST_VERSION_WITH_FENCED: Final = 4


def error_response(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=error.code, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER
    )


@handles(InitProducerIdRequest, error_response=error_response)
def init_producer_id(
    broker: "Broker", call: "Call", request: InitProducerIdRequest
) -> "Response | Pending | Coroutine[Any, Any, Response]":
    if request.transactional_id is not None:
        broker.guard.must(call, AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    elif not broker.guard.may(call, AclOperation.IDEMPOTENT_WRITE, is_attempt=False) and not broker.guard.may_on_any(
        call, AclOperation.WRITE, TOPIC
    ):
        raise ClusterAuthorizationFailed()
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_PRODUCER):
        raise InvalidRequest("producer id and producer epoch must be set together")
    if request.transactional_id is not None:
        return _init_transactional(broker, call, request, request.transactional_id)
    producer_id = broker.producer_ids.take_nowait()
    return _wait_for_id(broker) if producer_id is None else _response(producer_id)


def _init_transactional(
    broker: "Broker", call: "Call", request: InitProducerIdRequest, name: str
) -> "Response | Pending | Coroutine[Any, Any, Response]":
    check_transactional_id(name)
    check_transaction_timeout(request.transaction_timeout_ms, broker.config[TRANSACTION_MAX_TIMEOUT_MS])
    has_id = request.producer_id != NO_PRODUCER
    expected = Producer(request.producer_id, request.producer_epoch) if has_id else None
    timeout_ms = request.transaction_timeout_ms
    return broker.transactions.submit_fenced(
        call,
        request,
        error_response,
        name,
        lambda c, request_id, now, new: c.init_producer_id(request_id, name, timeout_ms, expected, new, now),
        FIRST_VERSION_WITH_FENCED,
    )


async def _wait_for_id(broker: "Broker") -> InitProducerIdResponse:
    return _response(await broker.producer_ids.take())


def _response(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=FIRST_EPOCH)
