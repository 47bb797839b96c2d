"""CreateDelegationToken (38): makes a token with which its owner's processes can log in.

v2 flexible · v3 on behalf of another owner, with CREATE_TOKENS on that owner
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.controller.token_changes import NEVER_MS, TokenCreation
from trioka.cluster.image.acls import AclOperation, AclResourceType
from trioka.cluster.image.delegation_tokens import USER
from trioka.cluster.image.partition import random_uuid
from trioka.protocol.errors import (
    NONE,
    DelegationTokenAuthorizationFailed,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    KafkaError,
)
from trioka.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from trioka.protocol.primitives import uuid_text

from ..api import handles
from ..security.audit import audited_change
from ..security.guard import ANONYMOUS
from ..security.sasl.token_credentials import is_allowed_to_ask

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call


FIRST_WITH_REQUESTER: Final = 3


def error_response(request: CreateDelegationTokenRequest, error: KafkaError) -> CreateDelegationTokenResponse:
    return _without_token(error.code, ANONYMOUS, "", NEVER_MS)


def refusal(
    broker: "Broker", call: "Call", request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | None:
    owner, requester = _owner(call, request), call.connection.principal
    error: type[KafkaError] | None = None
    if not is_allowed_to_ask(call):
        error = DelegationTokenRequestNotAllowed
    elif owner != requester and not broker.guard.may(call, AclOperation.CREATE_TOKENS, AclResourceType.USER, owner):
        error = DelegationTokenAuthorizationFailed
    elif any(renewer.principal_type != USER for renewer in request.renewers):
        error = InvalidPrincipalType
    return None if error is None else _without_token(error.code, owner, _requester(call), NEVER_MS)


@handles(CreateDelegationTokenRequest, error_response=error_response, forwards=True, refusal=refusal)
async def create_delegation_token(
    broker: "Broker", call: "Call", request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    owner, requester = _owner(call, request), call.connection.principal
    wanted = TokenCreation(
        owner=owner,
        requester=requester,
        renewers=tuple(f"{each.principal_type}:{each.principal_name}" for each in request.renewers),
        max_lifetime_ms=request.max_lifetime_ms,
    )
    token_id, now_ms = uuid_text(random_uuid(broker.random)), broker.clock.now_ms()
    decision = await audited_change(
        broker,
        call,
        lambda controller: controller.create_token(broker.tokens.settings, wanted, token_id=token_id, now_ms=now_ms),
    )
    (reply,) = decision.replies
    if reply.token is None:
        return _without_token(reply.outcome.code, owner, _requester(call), 0)
    token = reply.token
    times = (token.issue_ms, token.expiry_ms, token.max_ms)
    return _response(owner, _requester(call), times, token_id=token_id, hmac=broker.tokens.hmacs.of(token_id))


def _owner(call: "Call", request: CreateDelegationTokenRequest) -> str:
    if not request.owner_principal_name:
        return call.connection.principal
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


def _requester(call: "Call") -> str:
    """The requesting principal, for the response; earlier versions lack the field."""
    return call.connection.principal if call.version >= FIRST_WITH_REQUESTER else ""


def _response(
    owner: str,
    requester: str,
    times_ms: tuple[int, int, int],
    *,
    error_code: int = NONE,
    token_id: str = "",
    hmac: bytes = b"",
) -> CreateDelegationTokenResponse:
    """`times_ms` are those of issue, expiry and maximum lifetime."""
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    issue_ms, expiry_ms, max_ms = times_ms
    return CreateDelegationTokenResponse(
        error_code=error_code,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=issue_ms,
        expiry_timestamp_ms=expiry_ms,
        max_timestamp_ms=max_ms,
        token_id=token_id,
        hmac=hmac,
        throttle_time_ms=0,
    )


def _without_token(error_code: int, owner: str, requester: str, timestamp_ms: int) -> CreateDelegationTokenResponse:
    return _response(owner, requester, (timestamp_ms,) * 3, error_code=error_code)
