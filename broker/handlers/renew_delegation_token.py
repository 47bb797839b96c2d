"""RenewDelegationToken (39): extends the life of a token, up to its maximum.

v2 flexible
"""

from typing import TYPE_CHECKING

from trioka.cluster.controller.token_changes import NEVER_MS, TokenChange
from trioka.protocol.errors import DelegationTokenRequestNotAllowed, KafkaError
from trioka.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

from ..api import handles
from ..security.audit import audited_change
from ..security.sasl.token_credentials import is_allowed_to_ask

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


def error_response(request: RenewDelegationTokenRequest, error: KafkaError) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=0, throttle_time_ms=0)


def refusal(
    broker: "Broker", call: "Call", request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse | None:
    if is_allowed_to_ask(call):
        return None
    return RenewDelegationTokenResponse(
        error_code=DelegationTokenRequestNotAllowed.code, expiry_timestamp_ms=NEVER_MS, throttle_time_ms=0
    )


@handles(RenewDelegationTokenRequest, error_response=error_response, forwards=True, refusal=refusal)
async def renew_delegation_token(
    broker: "Broker", call: "Call", request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    tokens, now_ms = broker.tokens, broker.clock.now_ms()
    change = TokenChange(
        hmac=bytes(request.hmac), principal=call.connection.principal, period_ms=request.renew_period_ms
    )
    decision = await audited_change(
        broker, call, lambda controller: controller.renew_token(tokens.settings, tokens.hmacs, change, now_ms=now_ms)
    )
    (reply,) = decision.replies
    return RenewDelegationTokenResponse(
        error_code=reply.outcome.code, expiry_timestamp_ms=reply.expiry_ms, throttle_time_ms=0
    )
