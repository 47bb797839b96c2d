"""DescribeDelegationToken (41): returns the tokens of the requested owners, or of all, that the client may see.

Owners and renewers may see their tokens. Other principals need DESCRIBE on the token or DESCRIBE_TOKENS on its owner.

v2 flexible · v3 the principal that requested each token
"""

from typing import TYPE_CHECKING, Final

from trioka.cluster.image.acls import AclOperation, AclResourceType
from trioka.cluster.image.delegation_tokens import is_owner_or_renewer
from trioka.cluster.image.security_image import DelegationToken
from trioka.protocol.errors import NONE, DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed, KafkaError
from trioka.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

from ..api import handles
from ..security.sasl.token_credentials import is_allowed_to_ask

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

FIRST_WITH_REQUESTER: Final = 3

Token = DescribeDelegationTokenResponse.Token


def error_response(request: DescribeDelegationTokenRequest, error: KafkaError) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error.code, tokens=[], throttle_time_ms=0)


@handles(DescribeDelegationTokenRequest, error_response=error_response)
def describe_delegation_token(
    broker: "Broker", call: "Call", request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    if not is_allowed_to_ask(call):
        raise DelegationTokenRequestNotAllowed
    if not broker.tokens.settings.secret_key:
        raise DelegationTokenAuthDisabled
    owners: set[str] | None = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    tokens = [
        _described(broker, token, has_requester=call.version >= FIRST_WITH_REQUESTER)
        for token in broker.metadata.access.tokens.values()
        if (owners is None or not owners.isdisjoint((token.owner, *token.renewers))) and _may_know(broker, call, token)
    ]
    return DescribeDelegationTokenResponse(error_code=NONE, tokens=tokens, throttle_time_ms=0)


def _may_know(broker: "Broker", call: "Call", token: DelegationToken) -> bool:
    if is_owner_or_renewer(token, call.connection.principal):
        return True
    may = broker.guard.may
    return may(call, AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id, is_attempt=False) or may(
        call, AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, token.owner, is_attempt=False
    )


def _described(broker: "Broker", token: DelegationToken, *, has_requester: bool) -> Token:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = (token.requester if has_requester else "").partition(":")
    return Token(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=broker.tokens.hmacs.of(token.token_id),
        renewers=[
            Token.Renewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )
