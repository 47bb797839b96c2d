"""Delegation tokens are made, renewed and ended: CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken.

Checks, their order and errors are those of Apache Kafka 4.3.1, but for three: the owner must be a user, as renewers
must (Kafka takes any type, and lets the token log in as the user of that name); a token has at most `MAX_RENEWERS`
renewers; and a cluster at most `MAX_TOKENS` tokens.
"""

from dataclasses import field, replace
from typing import Final

from trioka.protocol.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
    InvalidRequest,
    KafkaError,
    PolicyViolation,
    UnsupportedVersion,
)
from trioka.protocol.internal_records.metadata import RemoveDelegationTokenRecord
from trioka.protocol.lazy_dataclass import frozen

from ..decision import DONE, Decision, ItemResult
from ..image.delegation_tokens import USER, TokenHmacs, TokenSettings, is_expired, is_owner_or_renewer
from ..image.metadata import Metadata
from ..image.security_image import DelegationToken, token_record

FIRST_METADATA_VERSION: Final = 14  # 3.6-IV2
MAX_TOKENS: Final = 100_000  # each costs a node 1 KiB, and 2 microseconds when their HMACs are computed
MAX_RENEWERS: Final = 1000
MAX_EXPIRED_AT_ONCE: Final = 1000  # as in Kafka
MAX_MS: Final = (1 << 63) - 1
NEVER_MS: Final = -1  # in a response: no such time


@frozen
class TokenCreation:
    """A client's request for a token. Principals have the form `User:ann`."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    max_lifetime_ms: int


@frozen
class TokenChange:
    """A client's request to renew or to expire a token, and the period."""

    hmac: bytes = field(repr=False)
    principal: str
    period_ms: int


@frozen
class CreatedToken:
    outcome: ItemResult
    token: DelegationToken | None = None


@frozen
class TokenExpiry:
    outcome: ItemResult
    expiry_ms: int = 0


def create_token(
    metadata: Metadata,
    settings: TokenSettings,
    wanted: TokenCreation,
    *,
    token_id: str,
    now_ms: int,
) -> Decision[CreatedToken]:
    """`token_id` is new and random."""
    try:
        _check_enabled(metadata, settings)
        for principal in (wanted.owner, *wanted.renewers):
            check_user(principal)
        if len(wanted.renewers) > MAX_RENEWERS:
            raise InvalidRequest(f"a delegation token can have {MAX_RENEWERS} renewers, not {len(wanted.renewers)}")
        if len(metadata.access.tokens) >= MAX_TOKENS:
            raise PolicyViolation(f"there are {MAX_TOKENS} delegation tokens already; expire some of them")
    except KafkaError as error:
        return Decision(records=(), replies=(CreatedToken(outcome=ItemResult.of(error)),))
    assert token_id not in metadata.access.tokens
    lifetime_ms = settings.max_lifetime_ms
    if wanted.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, wanted.max_lifetime_ms)
    max_ms = min(now_ms + lifetime_ms, MAX_MS)
    token = DelegationToken(
        token_id=token_id,
        owner=wanted.owner,
        requester=wanted.requester,
        renewers=wanted.renewers,
        issue_ms=now_ms,
        max_ms=max_ms,
        expiry_ms=min(max_ms, now_ms + settings.expiry_time_ms),
    )
    return Decision(records=(token_record(token),), replies=(CreatedToken(outcome=DONE, token=token),))


def renew_token(
    metadata: Metadata,
    settings: TokenSettings,
    hmacs: TokenHmacs,
    change: TokenChange,
    *,
    now_ms: int,
) -> Decision[TokenExpiry]:
    try:
        token = _token(metadata, settings, hmacs, change.hmac)
        if is_expired(token, now_ms):
            raise DelegationTokenExpired
        _check_renewer(token, change.principal)
    except KafkaError as error:
        return _refused(error)
    longest_ms = settings.expiry_time_ms
    if change.period_ms > 0:
        longest_ms = min(longest_ms, change.period_ms)
    return _with_expiry(token, now_ms + longest_ms)


def expire_token(
    metadata: Metadata,
    settings: TokenSettings,
    hmacs: TokenHmacs,
    change: TokenChange,
    *,
    now_ms: int,
) -> Decision[TokenExpiry]:
    """With a negative period the token ends now, even if it is past its time already."""
    try:
        token = _token(metadata, settings, hmacs, change.hmac)
        _check_renewer(token, change.principal)
        if change.period_ms < 0:
            removal = RemoveDelegationTokenRecord(token_id=token.token_id)
            return Decision(records=(removal,), replies=(TokenExpiry(outcome=DONE, expiry_ms=now_ms),))
        if is_expired(token, now_ms):
            raise DelegationTokenExpired
    except KafkaError as error:
        return _refused(error)
    return _with_expiry(token, now_ms + change.period_ms)


def remove_expired(metadata: Metadata, now_ms: int) -> Decision[bool]:
    """The reply is whether there may be more of them."""
    expired = [token.token_id for token in metadata.access.tokens.values() if is_expired(token, now_ms)]
    records = tuple(RemoveDelegationTokenRecord(token_id=token_id) for token_id in expired[:MAX_EXPIRED_AT_ONCE])
    return Decision(records=records, replies=(len(expired) > MAX_EXPIRED_AT_ONCE,))


def check_user(principal: str) -> None:
    kind, _, name = principal.partition(":")
    if kind != USER:
        raise InvalidPrincipalType("owners and renewers of delegation tokens are users")
    if not name:
        raise InvalidPrincipalType("an owner or renewer of a delegation token has no name")


def _check_enabled(metadata: Metadata, settings: TokenSettings) -> None:
    if not settings.secret_key:
        raise DelegationTokenAuthDisabled
    if metadata.features.metadata_version < FIRST_METADATA_VERSION:
        raise UnsupportedVersion


def _token(metadata: Metadata, settings: TokenSettings, hmacs: TokenHmacs, hmac: bytes) -> DelegationToken:
    _check_enabled(metadata, settings)
    token = hmacs.find(metadata.access.tokens, hmac)
    if token is None:
        raise DelegationTokenNotFound
    return token


def _check_renewer(token: DelegationToken, principal: str) -> None:
    if not is_owner_or_renewer(token, principal):
        raise DelegationTokenOwnerMismatch


def _refused(error: KafkaError) -> Decision[TokenExpiry]:
    return Decision(records=(), replies=(TokenExpiry(outcome=ItemResult.of(error)),))


def _with_expiry(token: DelegationToken, wanted_ms: int) -> Decision[TokenExpiry]:
    changed = replace(token, expiry_ms=min(token.max_ms, wanted_ms))
    return Decision(records=(token_record(changed),), replies=(TokenExpiry(outcome=DONE, expiry_ms=changed.expiry_ms),))
