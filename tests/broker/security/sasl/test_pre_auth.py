"""The gate of a connection before, during and after its login, without a socket."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import assert_noticed, within

from trioka.broker.security.sasl import pre_auth as pre_auth_module
from trioka.protocol.errors import ProtocolError
from trioka.protocol.sasl.exchange import Challenge

METADATA, HANDSHAKE, VERSIONS, AUTHENTICATE = 3, 17, 18, 36
EXCHANGE: Any = type("Exchange", (), {"respond": lambda self, message: Challenge(b"")})()


@pytest.fixture
def pre_auth() -> ModuleType:
    return pre_auth_module


def is_closed(gate: Any, key: int, now: float = 0.0) -> bool:
    try:
        assert gate.admit(key, now) is True
    except ProtocolError:
        return True
    return False


def logged_in(module: ModuleType, expires_at: float | None) -> Any:
    gate = module.PreAuth(0.0)
    gate.agree("PLAIN", EXCHANGE, is_raw=False)
    gate.complete("User:ann", expires_at)
    return gate


def admitted(gate: Any) -> list[int]:
    return [key for key in range(100) if not is_closed(gate, key)]


def test_each_state_admits_its_own_requests(pre_auth: ModuleType) -> None:
    gate = pre_auth.PreAuth(0.0)
    assert admitted(gate) == [HANDSHAKE, VERSIONS]
    gate.versions_answered()
    assert admitted(gate) == [HANDSHAKE]
    assert gate.agree("PLAIN", EXCHANGE, is_raw=False)
    assert admitted(gate) == [HANDSHAKE, AUTHENTICATE]
    assert gate.is_before_login and not gate.admits_fast_path(0.0)
    gate.complete("User:ann", None)
    assert admitted(gate) == list(range(100))
    assert not gate.is_before_login and gate.admits_fast_path(0.0)
    gate.fail()
    assert not any(gate.admit(key, 0.0) for key in range(100))


def test_a_session_ends(pre_auth: ModuleType) -> None:
    gate = logged_in(pre_auth, 10.0)
    assert not is_closed(gate, METADATA, 9.9) and gate.admits_fast_path(9.9)
    assert not gate.admits_fast_path(10.0)
    with pytest.raises(pre_auth.SessionExpired):
        gate.admit(METADATA, 10.0)
    assert gate.admit(HANDSHAKE, 10.0) and gate.is_reauthentication


def test_a_re_authentication_needs_an_end_and_a_second(pre_auth: ModuleType) -> None:
    gate = logged_in(pre_auth, None)
    assert gate.admit(HANDSHAKE, 5.0) and not gate.is_reauthentication
    gate = logged_in(pre_auth, 100.0)
    assert gate.admit(HANDSHAKE, 5.0) and gate.is_reauthentication
    assert is_closed(gate, METADATA, 5.0)
    assert gate.agree("PLAIN", EXCHANGE, is_raw=False)
    gate.complete("User:ann", 100.0)
    assert gate.admit(HANDSHAKE, 5.5) and not gate.is_reauthentication
    assert gate.admit(HANDSHAKE, 6.0) and gate.is_reauthentication
    assert not gate.agree("SCRAM-SHA-256", EXCHANGE, is_raw=False)
    assert gate.admit(METADATA, 6.0) is False


def test_a_login_has_a_time_and_a_number_of_messages(pre_auth: ModuleType) -> None:
    gate = pre_auth.PreAuth(7.0)
    assert not gate.is_late(37.0) and gate.is_late(37.1)
    gate.agree("PLAIN", EXCHANGE, is_raw=False)
    for _ in range(8):
        gate.next_message()
    with pytest.raises(ProtocolError):
        gate.next_message()
    gate.complete("User:ann", 1000.0)
    assert not gate.is_late(500.0)
    assert gate.admit(HANDSHAKE, 500.0)
    assert gate.is_late(531.0)


MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    (
        "SaslState.HANDSHAKE: (SASL_HANDSHAKE_KEY,)",
        "SaslState.HANDSHAKE: (18, 17)",
        test_each_state_admits_its_own_requests,
    ),
    ("        if key not in _ADMITTED[self.state]:", "        if False:", test_each_state_admits_its_own_requests),
    ("        if self.state is SaslState.FAILED:", "        if False:", test_each_state_admits_its_own_requests),
    ("            elif self.is_expired(now):", "            elif False:", test_a_session_ends),
    ("and not self.is_expired(now)", "and True", test_a_session_ends),
    (
        within("PreAuth._may_reauthenticate", "self.expires_at is not None"),
        "True",
        test_a_re_authentication_needs_an_end_and_a_second,
    ),
    ("now - last >= MIN_REAUTH_INTERVAL_S", "True", test_a_re_authentication_needs_an_end_and_a_second),
    (
        "if self.is_reauthentication and mechanism != self.mechanism:",
        "if False:",
        test_a_re_authentication_needs_an_end_and_a_second,
    ),
    ("self.messages > MAX_MESSAGES", "False", test_a_login_has_a_time_and_a_number_of_messages),
    ("        self.deadline = None\n", "", test_a_login_has_a_time_and_a_number_of_messages),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(pre_auth_module, right, wrong, rule)
