"""Delegation tokens are made, renewed and ended: by which principals, for how long, and what is written."""

from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed, within
from support.small_cluster import SmallCluster

from trioka.cluster.controller import token_changes
from trioka.cluster.image.delegation_tokens import TokenHmacs, TokenSettings, token_hmac
from trioka.cluster.image.metadata import Metadata
from trioka.protocol.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
    InvalidRequest,
    KafkaError,
    UnsupportedVersion,
)
from trioka.protocol.internal_records.metadata import FeatureLevelRecord

DAY_MS = 24 * 3600 * 1000
NOW_MS = 1_000_000
SECRET = b"key of all nodes"
SETTINGS = TokenSettings(secret_key=SECRET, max_lifetime_ms=7 * DAY_MS, expiry_time_ms=DAY_MS)
ANN, BOB, EVE = "User:ann", "User:bob", "User:eve"


class Tokens:
    """A cluster with tokens, as the controller of a module (or of a planted mistake) decides on them."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.cluster = SmallCluster()
        self.hmacs = TokenHmacs(SECRET)
        self.made = 0

    @property
    def metadata(self) -> Metadata:
        return self.cluster.metadata

    def create(
        self,
        owner: str = ANN,
        *renewers: str,
        lifetime_ms: int = -1,
        settings: TokenSettings = SETTINGS,
        now_ms: int = NOW_MS,
    ) -> type[KafkaError] | None:
        self.made += 1
        wanted = self.module.TokenCreation(owner=owner, requester=ANN, renewers=renewers, max_lifetime_ms=lifetime_ms)
        decision = self.module.create_token(
            self.metadata, settings, wanted, token_id=f"token-{self.made}", now_ms=now_ms
        )
        error: type[KafkaError] | None = self.cluster.do(decision)[0].outcome.error
        return error

    def renew(self, principal: str = ANN, period_ms: int = -1, now_ms: int = NOW_MS, hmac: bytes = b"") -> object:
        return self._change("renew_token", principal, period_ms, now_ms, hmac)

    def expire(self, principal: str = ANN, period_ms: int = -1, now_ms: int = NOW_MS, hmac: bytes = b"") -> object:
        return self._change("expire_token", principal, period_ms, now_ms, hmac)

    def _change(self, name: str, principal: str, period_ms: int, now_ms: int, hmac: bytes) -> object:
        change = self.module.TokenChange(
            hmac=hmac or token_hmac(SECRET, f"token-{self.made}"), principal=principal, period_ms=period_ms
        )
        decide = getattr(self.module, name)
        (reply,) = self.cluster.do(decide(self.metadata, SETTINGS, self.hmacs, change, now_ms=now_ms))
        return reply.outcome.error or reply.expiry_ms


@pytest.fixture
def module() -> ModuleType:
    return token_changes


def test_a_token_lives_as_long_as_asked_for_and_never_longer_than_allowed(module: ModuleType) -> None:
    for asked_ms, max_ms, expiry_ms in (
        (-1, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
        (DAY_MS // 2, DAY_MS // 2, DAY_MS // 2),
        (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
        (9 * DAY_MS, 7 * DAY_MS, DAY_MS),
        ((1 << 63) - 1, 7 * DAY_MS, DAY_MS),
    ):
        tokens = Tokens(module)
        assert tokens.create(lifetime_ms=asked_ms) is None
        (token,) = tokens.metadata.access.tokens.values()
        assert (token.max_ms - NOW_MS, token.expiry_ms - NOW_MS) == (max_ms, expiry_ms), asked_ms
        assert (token.owner, token.requester, token.issue_ms) == (ANN, ANN, NOW_MS)


def test_owners_and_renewers_are_users_with_a_name(module: ModuleType) -> None:
    tokens = Tokens(module)
    for owner, renewers in ((ANN, ("Group:bob",)), (ANN, ("User:",)), (ANN, (":bob",)), ("Group:ann", ()), ("", ())):
        assert tokens.create(owner, *renewers) is InvalidPrincipalType, (owner, renewers)
    assert tokens.create(ANN, *[BOB] * (token_changes.MAX_RENEWERS + 1)) is InvalidRequest
    assert not tokens.metadata.access.tokens
    assert tokens.create(ANN, BOB, "User:with:colons") is None


def test_a_token_is_renewed_up_to_its_maximum(module: ModuleType) -> None:
    tokens = Tokens(module)
    tokens.create(ANN, BOB, lifetime_ms=2 * DAY_MS)
    later = NOW_MS + DAY_MS // 2
    assert tokens.renew(now_ms=later) == later + DAY_MS
    assert tokens.renew(period_ms=5, now_ms=later) == later + 5
    assert tokens.renew(BOB, period_ms=3 * DAY_MS, now_ms=later) == later + DAY_MS
    assert tokens.renew(now_ms=later + DAY_MS) == NOW_MS + 2 * DAY_MS
    (token,) = tokens.metadata.access.tokens.values()
    assert token.expiry_ms == token.max_ms == NOW_MS + 2 * DAY_MS
    assert token.renewers == (BOB,)


def test_only_the_owner_and_the_renewers_change_a_token(module: ModuleType) -> None:
    tokens = Tokens(module)
    tokens.create(ANN, BOB)
    assert tokens.renew(EVE) is DelegationTokenOwnerMismatch
    assert tokens.expire(EVE) is DelegationTokenOwnerMismatch
    assert tokens.expire(EVE, period_ms=5) is DelegationTokenOwnerMismatch
    assert tokens.metadata.access.tokens["token-1"].expiry_ms == NOW_MS + DAY_MS
    assert tokens.expire(BOB, period_ms=5) == NOW_MS + 5
    assert tokens.metadata.access.tokens["token-1"].expiry_ms == NOW_MS + 5


def test_a_token_that_is_past_its_time_can_only_be_removed(module: ModuleType) -> None:
    tokens = Tokens(module)
    tokens.create()
    late = NOW_MS + DAY_MS + 1
    assert tokens.renew(now_ms=late) is DelegationTokenExpired
    assert tokens.expire(period_ms=5, now_ms=late) is DelegationTokenExpired
    assert tokens.renew(now_ms=late - 1) == late - 1 + DAY_MS  # its last millisecond
    tokens.expire(period_ms=0, now_ms=late)
    assert tokens.expire(now_ms=late + 5) == late + 5
    assert not tokens.metadata.access.tokens


def test_a_token_is_found_by_its_hmac_alone(module: ModuleType) -> None:
    tokens = Tokens(module)
    tokens.create()
    tokens.create()
    right = token_hmac(SECRET, "token-1")
    for hmac in (right[:-1], right + b"\0", b"token-1", token_hmac(b"another key", "token-1"), bytes(64)):
        assert tokens.renew(hmac=hmac) is DelegationTokenNotFound
        assert tokens.expire(hmac=hmac) is DelegationTokenNotFound
    assert tokens.expire(hmac=right) == NOW_MS
    assert set(tokens.metadata.access.tokens) == {"token-2"}
    assert tokens.expire(hmac=right) is DelegationTokenNotFound


def test_without_a_secret_key_or_on_old_metadata_there_are_no_tokens(module: ModuleType) -> None:
    tokens = Tokens(module)
    none = TokenSettings(secret_key=b"", max_lifetime_ms=DAY_MS, expiry_time_ms=DAY_MS)
    assert tokens.create(settings=none) is DelegationTokenAuthDisabled
    assert not tokens.metadata.access.tokens
    tokens.cluster.append([FeatureLevelRecord(name="metadata.version", feature_level=13)])
    assert tokens.create() is UnsupportedVersion
    assert tokens.renew() is UnsupportedVersion
    assert tokens.expire() is UnsupportedVersion


def test_tokens_past_their_time_are_removed_in_portions(module: ModuleType) -> None:
    tokens = Tokens(module)
    for _ in range(3):
        tokens.create(lifetime_ms=10)
    tokens.create()
    module.MAX_EXPIRED_AT_ONCE, before = 2, module.MAX_EXPIRED_AT_ONCE  # type: ignore[attr-defined]
    try:
        assert tokens.cluster.do(module.remove_expired(tokens.metadata, NOW_MS + 10)) == (False,)
        assert len(tokens.metadata.access.tokens) == 4
        assert tokens.cluster.do(module.remove_expired(tokens.metadata, NOW_MS + 11)) == (True,)
        assert tokens.cluster.do(module.remove_expired(tokens.metadata, NOW_MS + 11)) == (False,)
    finally:
        module.MAX_EXPIRED_AT_ONCE = before  # type: ignore[attr-defined]
    assert set(tokens.metadata.access.tokens) == {"token-4"}


def test_nothing_secret_is_printed_or_written(module: ModuleType) -> None:
    tokens = Tokens(module)
    tokens.create(ANN, BOB)
    hmac = token_hmac(SECRET, "token-1")
    change = module.TokenChange(hmac=hmac, principal=ANN, period_ms=-1)
    for shown in (SETTINGS, change, *tokens.metadata.access.token_records()):
        text = repr(shown)
        assert "key of all nodes" not in text and repr(hmac)[2:20] not in text


MISTAKES = [
    (within("renew_token", "if is_expired(token, now_ms):"), "if False:",
     test_a_token_that_is_past_its_time_can_only_be_removed),
    ("min(token.max_ms, wanted_ms)", "wanted_ms", test_a_token_is_renewed_up_to_its_maximum),
    ("if not is_owner_or_renewer(token, principal):", "if False:",
     test_only_the_owner_and_the_renewers_change_a_token),
    ("lifetime_ms = min(lifetime_ms, wanted.max_lifetime_ms)", "lifetime_ms = wanted.max_lifetime_ms",
     test_a_token_lives_as_long_as_asked_for_and_never_longer_than_allowed),
    ("    if kind != USER:\n", "    if False:\n", test_owners_and_renewers_are_users_with_a_name),
    ("    if not settings.secret_key:\n", "    if False:\n",
     test_without_a_secret_key_or_on_old_metadata_there_are_no_tokens),
    ("hmac: bytes = field(repr=False)", "hmac: bytes", test_nothing_secret_is_printed_or_written),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(token_changes, right, wrong, rule)
