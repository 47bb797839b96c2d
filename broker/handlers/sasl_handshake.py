"""SaslHandshake (17): agrees on a SASL mechanism, before a login or a re-authentication.

A connection that is not about to log in gets ILLEGAL_SASL_STATE.

v0 SASL messages follow without a header · v1 they follow in SaslAuthenticate
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import trio

from trioka.protocol.errors import NONE, IllegalSaslState, KafkaError, UnsupportedSaslMechanism
from trioka.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from trioka.protocol.sasl.exchange import Failed

from ..api import handles
from ..security.sasl.pre_auth import PreAuth, SaslState

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: SaslHandshakeRequest, error: KafkaError) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error.code, mechanisms=[])


@handles(SaslHandshakeRequest, error_response=error_response)
def sasl_handshake(
    broker: "Broker", call: "Call", request: SaslHandshakeRequest
) -> SaslHandshakeResponse | Coroutine[Any, Any, SaslHandshakeResponse]:
    gate = call.connection.gate
    if gate is None or gate.state is SaslState.COMPLETE:
        raise IllegalSaslState
    listener = call.connection.listener
    if gate.state is SaslState.AUTHENTICATE:
        failed = Failed("a second SaslHandshake during the login")
        return _fail(broker, call, gate, failed, error_response(request, IllegalSaslState()))
    enabled = list(broker.logins.mechanisms(listener))
    exchange = broker.logins.exchange(listener, request.mechanism)
    if exchange is None:
        answer = SaslHandshakeResponse(error_code=UnsupportedSaslMechanism.code, mechanisms=enabled)
        return _fail(broker, call, gate, Failed(f"mechanism {request.mechanism[:80]!r} is not enabled"), answer)
    answer = SaslHandshakeResponse(error_code=NONE, mechanisms=enabled)
    if not gate.agree(request.mechanism, exchange, is_raw=call.version == 0):
        return _fail(broker, call, gate, Failed("another mechanism than at the first login"), answer)
    if call.version == 0:
        call.connection.reader.min_bytes = 0
    return answer


async def _fail(
    broker: "Broker", call: "Call", gate: PreAuth, failed: Failed, answer: SaslHandshakeResponse
) -> SaslHandshakeResponse:
    """Sends the response after a delay, then closes the connection."""
    broker.logins.refuse(call.connection, gate, failed)
    await trio.sleep(broker.logins.failure_delay_s)
    call.connection.is_closing = True
    return answer
