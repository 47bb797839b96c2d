"""A login as a user that does not exist takes the same steps as one with a wrong password: neither its answers nor the
work behind them tell which users exist. Steps are counted and compared; times would depend on the machine.
"""

import hashlib
import hmac
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import pytest
from mutants.plant import Rule, assert_noticed, within

from trioka.protocol.sasl import plain as plain_module
from trioka.protocol.sasl import scram as scram_module
from trioka.protocol.sasl.client import client_exchange
from trioka.protocol.sasl.exchange import Challenge, Computation, Failed

SALT, ITERATIONS, SECRET = b"0123456789abcdefghijklmnop", 4096, b"secret"
# Names of one length, whose salts as unknown users are as long as SALT: that length follows from the name alone.
NAMES = [f"user{number}" for number in range(1000, 2000)]
KNOWN, UNKNOWN, *_ = (
    name for name in NAMES if len(scram_module.unknown_user(scram_module.SCRAM_SHA_256, name, SECRET).salt) == len(SALT)
)


@pytest.fixture
def plain() -> ModuleType:
    return plain_module


@pytest.fixture
def scram() -> ModuleType:
    return scram_module


def steps(action: Callable[[], object]) -> list[tuple[str, str]]:
    """All calls of functions, also of those that are written in C, in their order."""
    found: list[tuple[str, str]] = []

    def record(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            found.append((event, frame.f_code.co_name))
        elif event == "c_call":
            found.append((event, argument.__qualname__))

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        action()
    finally:
        sys.setprofile(before)
    return found[:-1]  # without setprofile itself


class Hashes:
    """Counts hashes and HMACs, with the sizes of what they are made of."""

    def __init__(self) -> None:
        self.made: Counter[tuple[str, int, int]] = Counter()

    def digest(self, key: bytes, message: bytes, digest: str) -> bytes:
        self.made["hmac", len(key), len(message)] += 1
        return hmac.digest(key, message, digest)

    def compare_digest(self, one: bytes, other: bytes) -> bool:
        self.made["compare", len(one), len(other)] += 1
        return hmac.compare_digest(one, other)

    def new(self, name: str, data: bytes) -> Any:
        self.made["hash", 0, len(data)] += 1
        return hashlib.new(name, data)

    def sha256(self, data: bytes) -> Any:
        return self.new("sha256", data)

    def pbkdf2_hmac(self, *arguments: Any) -> bytes:
        self.made["pbkdf2", 0, 0] += 1
        return hashlib.pbkdf2_hmac(*arguments)


def counted(module: Any, action: Callable[[], object]) -> Counter[tuple[str, int, int]]:
    hashes, before = Hashes(), (module.hmac, module.hashlib)
    module.hmac = module.hashlib = hashes
    try:
        action()
    finally:
        module.hmac, module.hashlib = before
    return hashes.made


def a_plain_login_takes_the_same_steps(module: Any) -> None:
    users = module.PlainUsers({KNOWN: "right", "carol": "r"})

    def log_in(name: str) -> None:
        failed = module.PlainServer(users).respond(f"\0{name}\0wrong".encode())
        assert failed == Failed("unknown user or wrong password", module.INVALID, name)

    assert steps(lambda: log_in(KNOWN)) == steps(lambda: log_in(UNKNOWN))
    made = counted(module, lambda: log_in(KNOWN))
    assert made == counted(module, lambda: log_in(UNKNOWN)) == {("hash", 0, 5): 1, ("compare", 32, 32): 1}


def scram_login(module: Any, name: str, *, is_token: bool = False) -> Callable[[], None]:
    """The server's part of a login that fails, as a function to be measured."""
    keys = module.scram_keys(
        module.SCRAM_SHA_256, module.salted_password(module.SCRAM_SHA_256, "right", SALT, ITERATIONS)
    )
    users = {KNOWN: module.Credential(SALT, keys.stored_key, keys.server_key, ITERATIONS)}

    def server() -> Any:
        found = users.get
        return module.ScramServer(module.SCRAM_SHA_256, found, nonce="server", secret=SECRET, tokens=found)

    client = client_exchange("SCRAM-SHA-256", name, "wrong", random=bytes(24), is_token=is_token)
    first = client.respond(b"")
    assert first is not None
    final = client.respond(_challenge(server(), first).data)
    assert final is not None

    def log_in() -> None:
        exchange = server()
        _challenge(exchange, first)
        failed = exchange.respond(final)
        assert failed == Failed("unknown user or wrong password", None, name)

    return log_in


def _challenge(exchange: Any, first: bytes) -> Any:
    step = exchange.respond(first)
    if isinstance(step, Computation):
        step = step.run()
    assert isinstance(step, Challenge) or type(step).__name__ == "Challenge"
    return step


def a_scram_login_takes_the_same_steps(module: Any) -> None:
    for is_token in (False, True):
        known = scram_login(module, KNOWN, is_token=is_token)
        unknown = scram_login(module, UNKNOWN, is_token=is_token)
        made = counted(module, known)
        assert made == counted(module, unknown)
        # The salt of the name as an unknown user, the signatures of both sides, the stored key, nonce and verdict.
        assert Counter(kind for kind, _, _ in made.elements()) == {"hmac": 3, "hash": 2, "compare": 2}
        assert steps(known) == steps(unknown)


def test_attack_17_a_plain_login_takes_the_same_steps_for_unknown_users(plain: ModuleType) -> None:
    a_plain_login_takes_the_same_steps(plain)


def test_attack_20_a_scram_login_takes_the_same_steps_for_unknown_users(scram: ModuleType) -> None:
    a_scram_login_takes_the_same_steps(scram)


def test_steps_that_differ_are_seen() -> None:
    assert steps(lambda: sorted([1])) != steps(lambda: len([1]))


PLAIN_MISTAKES = [
    (
        within("PlainUsers.verify", "expected = self._digests.get(name, _UNKNOWN)"),
        "if name not in self._digests:\n    return False\nexpected = self._digests[name]",
        a_plain_login_takes_the_same_steps,
    ),
]
SCRAM_MISTAKES = [
    (
        "self._credential = unknown if found is None else found",
        "self._credential = unknown_user(self._mechanism, self._name, self._secret) if found is None else found",
        a_scram_login_takes_the_same_steps,
    ),
    (
        "is_proved = hmac.compare_digest(stored_key, credential.stored_key)",
        "is_proved = self._is_known and hmac.compare_digest(stored_key, credential.stored_key)",
        a_scram_login_takes_the_same_steps,
    ),
    (
        "client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))",
        "client_key = given if not self._is_known else bytes(a ^ b for a, b in zip(given, signature, strict=True))",
        a_scram_login_takes_the_same_steps,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), PLAIN_MISTAKES)
def test_a_planted_mistake_in_plain_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(plain_module, right, wrong, rule)


@pytest.mark.parametrize(("right", "wrong", "rule"), SCRAM_MISTAKES)
def test_a_planted_mistake_in_scram_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(scram_module, right, wrong, rule)
