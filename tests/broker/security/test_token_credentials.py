"""Which connections may ask for delegation tokens, and what happens to sessions when tokens change."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed

from trioka.broker.config.addresses import SecurityProtocol
from trioka.broker.security import token_credentials
from trioka.cluster.delegation_tokens import TokenHmacs, TokenSettings
from trioka.cluster.image_delta import TokenChanged
from trioka.cluster.security_image import DelegationToken
from trioka.protocol.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512

ANN, ANONYMOUS = "User:ann", "User:ANONYMOUS"
NOW_MS, NOW_S = 1_000_000, 50.0


@pytest.fixture
def module() -> ModuleType:
    return token_credentials


def token(token_id: str = "id", *, owner: str = ANN, expiry_ms: int = NOW_MS + 5000) -> DelegationToken:
    return DelegationToken(
        token_id=token_id, owner=owner, requester=ANN, renewers=(), issue_ms=0, max_ms=1 << 62, expiry_ms=expiry_ms
    )


def test_only_a_client_with_its_own_login_may_request_it(module: ModuleType) -> None:
    for protocol, principal, by_token, is_allowed in (
        (SecurityProtocol.PLAINTEXT, ANN, False, False),
        (SecurityProtocol.PLAINTEXT, ANONYMOUS, False, False),
        (SecurityProtocol.SSL, ANONYMOUS, False, False),
        (SecurityProtocol.SSL, "User:CN=ann", False, True),
        (SecurityProtocol.SASL_PLAINTEXT, ANN, False, True),
        (SecurityProtocol.SASL_SSL, ANN, False, True),
        (None, ANN, False, True),  # forwarded by the node that has the connection
        (None, ANN, True, False),
        (None, ANONYMOUS, False, False),
        (SecurityProtocol.SASL_SSL, ANN, True, False),
        (SecurityProtocol.SASL_PLAINTEXT, ANN, True, False),
    ):
        connection = SimpleNamespace(security_protocol=protocol, principal=principal, is_token_authenticated=by_token)
        assert module.is_allowed_to_ask(SimpleNamespace(connection=connection)) is is_allowed, (protocol, principal)


class Session:
    def __init__(self, token_id: str | None) -> None:
        self.token_id = token_id
        self.ends: object = "later"

    def abort(self) -> None:
        self.ends = "now"

    def shorten_session(self, at: float) -> None:
        self.ends = at


def tokens_of(module: ModuleType, **tokens: DelegationToken) -> Any:
    """Without a broker: what it uses of one."""
    made = module.DelegationTokens.__new__(module.DelegationTokens)
    clock = SimpleNamespace(now=lambda: NOW_S, now_ms=lambda: NOW_MS)
    image = SimpleNamespace(access=SimpleNamespace(tokens=tokens))
    made._broker = SimpleNamespace(clock=clock, metadata=image)
    made.settings = TokenSettings(secret_key=b"key", max_lifetime_ms=1, expiry_time_ms=1)
    made.hmacs = TokenHmacs(b"key")
    made._keys, made._lock = module.OrderedDict(), module.Lock()
    return made


def test_sessions_end_with_their_token_and_others_go_on(module: ModuleType) -> None:
    removed, shortened, past, other, anonymous = (Session(each) for each in ("a", "b", "c", "d", None))
    changes = [
        TokenChanged(token_id="a", after=None),
        TokenChanged(token_id="b", after=token("b")),
        TokenChanged(token_id="c", after=token("c", expiry_ms=NOW_MS - 1)),
    ]
    tokens_of(module).end_sessions(changes, [removed, shortened, past, other, anonymous])
    assert [each.ends for each in (removed, shortened, past, other, anonymous)] == [
        "now", NOW_S + 5.0, "now", "later", "later",
    ]  # fmt: skip


def test_a_login_needs_a_token_that_is_there_and_in_its_time(module: ModuleType) -> None:
    late = token("late", expiry_ms=NOW_MS - 1)
    tokens = tokens_of(
        module, id=token(), late=late, odd=token("odd", owner="Group:x"), none=token("none", owner="User:")
    )
    found = tokens.credential(SCRAM_SHA_256, "id")
    assert (found.principal, found.expires_at_ms) == (ANN, NOW_MS + 5000)
    for name in ("late", "unknown", "odd", "none", ""):
        assert tokens.credential(SCRAM_SHA_256, name) is None, name
    tokens.settings = TokenSettings(secret_key=b"", max_lifetime_ms=1, expiry_time_ms=1)
    assert tokens.credential(SCRAM_SHA_256, "id") is None


def test_keys_are_derived_once_and_their_number_is_bounded(module: ModuleType) -> None:
    module.MAX_CACHED_CREDENTIALS, before = 3, module.MAX_CACHED_CREDENTIALS  # type: ignore[attr-defined]
    try:
        tokens = tokens_of(module, **{name: token(name) for name in "abcd"})
        first = tokens.credential(SCRAM_SHA_256, "a")
        assert tokens.credential(SCRAM_SHA_256, "a").stored_key is first.stored_key
        assert tokens.credential(SCRAM_SHA_512, "a").stored_key != first.stored_key
        for name in "bcd":
            tokens.credential(SCRAM_SHA_256, name)
        assert list(tokens._keys) == [(name, "SCRAM-SHA-256") for name in "bcd"]
        assert tokens.credential(SCRAM_SHA_256, "a") == first  # with the same salt
    finally:
        module.MAX_CACHED_CREDENTIALS = before  # type: ignore[attr-defined]


MISTAKES = [
    ("connection.is_token_authenticated or", "False or",
     test_only_a_client_with_its_own_login_may_request_it),
    ("is_named or connection.principal != ANONYMOUS", "True",
     test_only_a_client_with_its_own_login_may_request_it),
    ("-1 if token is None else ends_at_ms(token) - clock.now_ms()",
     "5 if token is None else ends_at_ms(token) - clock.now_ms()",
     test_sessions_end_with_their_token_and_others_go_on),
    ("            if left_ms < 0:\n", "            if token is None:\n",
     test_sessions_end_with_their_token_and_others_go_on),
    ("            if len(self._keys) > MAX_CACHED_CREDENTIALS:\n", "            if False:\n",
     test_keys_are_derived_once_and_their_number_is_bounded),
    ("return None if token is None else token_credential(keys, token, self._broker.clock.now_ms())",
     "return token_credential(keys, token, 0)", test_a_login_needs_a_token_that_is_there_and_in_its_time),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(token_credentials, right, wrong, rule)
