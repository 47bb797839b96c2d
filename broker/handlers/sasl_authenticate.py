"""SaslAuthenticate (36): processes one message of a SASL login and returns the mechanism's reply.

v1 the lifetime of the session, after which the client must authenticate again (KIP-368) · v2 flexible
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import trio

from trioka.protocol.errors import NONE, IllegalSaslState, KafkaError, SaslAuthenticationFailed
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from trioka.protocol.sasl.exchange import Challenge, Computation

from ..api import handles
from ..security.sasl.pre_auth import LoggedIn, PreAuth, Refused, SaslState

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: SaslAuthenticateRequest, error: KafkaError) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error.code, error_message=str(error), auth_bytes=b"")


@handles(SaslAuthenticateRequest, error_response=error_response)
def sasl_authenticate(
    broker: "Broker", call: "Call", request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Coroutine[Any, Any, SaslAuthenticateResponse]:
    gate = call.connection.gate
    if gate is None or gate.state is not SaslState.AUTHENTICATE:
        raise IllegalSaslState("SaslAuthenticate request received after successful authentication")
    outcome = broker.logins.step(call.connection, gate, bytes(request.auth_bytes))
    if isinstance(outcome, Computation):
        return _compute(broker, call, gate, outcome)
    if isinstance(outcome, Refused):
        return _refuse(broker, call, outcome)
    return _answer(outcome)


async def _compute(broker: "Broker", call: "Call", gate: PreAuth, step: Computation) -> SaslAuthenticateResponse:
    """Runs a step that takes milliseconds of CPU time in a worker thread, so that other clients are not delayed."""
    computed = await trio.to_thread.run_sync(step.run)
    outcome = broker.logins.outcome(call.connection, gate, computed)
    if isinstance(outcome, Refused):
        return await _refuse(broker, call, outcome)
    assert not isinstance(outcome, Computation), "a computation yields no other"
    return _answer(outcome)


def _answer(outcome: Challenge | LoggedIn) -> SaslAuthenticateResponse:
    lifetime_ms = outcome.lifetime_ms if isinstance(outcome, LoggedIn) else 0
    return SaslAuthenticateResponse(
        error_code=NONE, error_message="", auth_bytes=outcome.data, session_lifetime_ms=lifetime_ms
    )


async def _refuse(broker: "Broker", call: "Call", refused: Refused) -> SaslAuthenticateResponse:
    """Sends the response after a delay, then closes the connection."""
    await trio.sleep(broker.logins.failure_delay_s)
    call.connection.is_closing = True
    return SaslAuthenticateResponse(
        error_code=SaslAuthenticationFailed.code, error_message=refused.text, auth_bytes=b""
    )
