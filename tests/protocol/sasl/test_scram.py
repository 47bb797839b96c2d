"""SCRAM: the example of RFC 7677, both sides against each other, and everything that a client may not do."""

from base64 import b64encode
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutants.plant import assert_noticed

from trioka.protocol.sasl import scram as scram_module
from trioka.protocol.sasl.client import client_exchange
from trioka.protocol.sasl.exchange import Authenticated, Challenge, Computation, Failed, ServerNotAuthenticated
from trioka.protocol.sasl.scram import SCRAM_MECHANISMS, SCRAM_SHA_256, ScramMechanism

SECRET = b"of the cluster"
SERVER_NONCE = "server"
RANDOM = bytes(24)
SALT = bytes.fromhex("5b6d99689d12358eeca04b141236fa81")
RFC_FIRST = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
RFC_CHALLENGE = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RFC_FINAL = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
RFC_VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.fixture
def scram() -> ModuleType:
    return scram_module


def credential(module: Any, password: str, mechanism: ScramMechanism = SCRAM_SHA_256, **fields: Any) -> Any:
    keys = module.scram_keys(mechanism, module.salted_password(mechanism, password, SALT, 4096))
    return module.Credential(SALT, keys.stored_key, keys.server_key, 4096, **fields)


def server(module: Any, users: dict[str, Any], nonce: str = SERVER_NONCE, **more: Any) -> Any:
    return module.ScramServer(SCRAM_SHA_256, users.get, nonce=nonce, secret=SECRET, **more)


def log_in(exchange: Any, client: Any) -> Any:
    """What the server says last."""
    step: Any = exchange.respond(client.respond(b""))
    while not isinstance(step, Failed):
        if isinstance(step, Computation):
            step = step.run()
            continue
        answer = client.respond(step.data)
        if answer is None:
            return step
        step = exchange.respond(answer)
    return step


def client(name: str, password: str, *, is_token: bool = False, mechanism: str = "SCRAM-SHA-256") -> Any:
    return client_exchange(mechanism, name, password, random=RANDOM, is_token=is_token)


def test_the_example_of_the_rfc(scram: ModuleType) -> None:
    exchange = server(scram, {"user": credential(scram, "pencil")}, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert exchange.respond(RFC_FIRST.encode()) == Challenge(RFC_CHALLENGE.encode())
    assert exchange.respond(RFC_FINAL.encode()) == Authenticated("User:user", RFC_VERDICT)


def test_the_client_of_the_rfc(scram: ModuleType) -> None:
    exchange = scram.ScramClient(SCRAM_SHA_256, "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO", is_token=False)
    assert exchange.respond(b"") == RFC_FIRST.encode()
    assert exchange.respond(RFC_CHALLENGE.encode()) == RFC_FINAL.encode()
    assert exchange.respond(RFC_VERDICT) is None


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize("name", ["ann", "a=b,c", "Grüße", "CN=ann,O=Inc"])
def test_both_sides_agree(mechanism: str, name: str) -> None:
    chosen = SCRAM_MECHANISMS[mechanism]
    users = {name: credential(scram_module, "s=cr,et", chosen)}
    exchange = scram_module.ScramServer(chosen, users.get, nonce=SERVER_NONCE, secret=SECRET)
    assert log_in(exchange, client(name, "s=cr,et", mechanism=mechanism)).principal == f"User:{name}"


def test_a_wrong_password_and_an_unknown_user_fail_at_the_second_message(scram: ModuleType) -> None:
    users = {"ann": credential(scram, "right")}
    for name in ("ann", "nobody"):
        exchange, other = server(scram, users), client(name, "wrong")
        challenge = exchange.respond(other.respond(b""))
        assert isinstance(challenge, Challenge)
        failed = exchange.respond(other.respond(challenge.data))
        assert (failed.text, failed.claimed, failed.reason) == (None, name, "unknown user or wrong password")


def test_an_unknown_user_has_the_same_salt_each_time_and_no_password(scram: ModuleType) -> None:
    first = b"n,,n=nobody,r=abc"
    again = {server(scram, {}).respond(first) for _ in range(3)}
    assert len(again) == 1
    assert scram.unknown_user(SCRAM_SHA_256, "a", SECRET).salt != scram.unknown_user(SCRAM_SHA_256, "b", SECRET).salt
    assert scram.unknown_user(SCRAM_SHA_256, "a", SECRET).salt != scram.unknown_user(SCRAM_SHA_256, "a", b"x").salt
    salt = scram.unknown_user(SCRAM_SHA_256, "a", SECRET).salt
    assert salt.isalnum() and 20 <= len(salt) <= 26  # the form of Kafka's tools


def test_a_proof_that_fits_the_keys_of_an_unknown_user_is_refused(scram: Any) -> None:
    """Even who finds out the secret cannot log in as a user that does not exist."""
    unknown, scram.unknown_user = scram.unknown_user, lambda *_: credential(scram, "guessed")
    try:
        assert isinstance(log_in(server(scram, {}), client("nobody", "guessed")), Failed)
    finally:
        scram.unknown_user = unknown


def second(module: ModuleType, change: Callable[[str], str]) -> Any:
    exchange, other = server(module, {"ann": credential(module, "right")}), client("ann", "right")
    challenge = exchange.respond(other.respond(b""))
    return exchange.respond(change(other.respond(challenge.data).decode()).encode())


def proof(text: bytes) -> Callable[[str], str]:
    return lambda final: f"{final.rpartition(',p=')[0]},p={b64encode(text).decode()}"


def test_a_second_message_that_is_not_the_right_one_is_refused(scram: ModuleType) -> None:
    assert isinstance(second(scram, lambda final: final), Authenticated)
    own = f"r={b64encode(RANDOM).decode()}"
    changes: dict[str, Callable[[str], str]] = {
        "proof is not as long": proof(b"abc"),
        "is not as long as a": proof(bytes(64)),
        "unknown user or wrong": proof(bytes(32)),
        "no client-final-message": lambda final: final + ",x=y",
        "client-final": lambda final: final.partition(",p=")[0],
        "final-message": lambda final: final.replace(",p=", ",p=!"),
        "c= does not repeat": lambda final: final.replace("c=biws", "c=eSws"),
        "repeat the header": lambda final: final.replace("c=biws", "c=biwsbiws"),
        "nonce is wrong": lambda final: final.replace(f"{own}{SERVER_NONCE}", own),
        "nonce": lambda final: final.replace(own, f"{own}x"),
    }
    for reason, change in changes.items():
        failed = second(scram, change)
        assert isinstance(failed, Failed) and reason in failed.reason, (reason, failed)
    exchange = server(scram, {"ann": credential(scram, "right")})
    exchange.respond(b"n,,n=ann,r=x")
    assert isinstance(exchange.respond(bytes(9000)), Failed)


def test_the_nonce_of_old_librdkafka_is_explained(scram: ModuleType) -> None:
    own = b64encode(RANDOM).decode()
    for wrong in (own, f"{own}{own}{SERVER_NONCE}"):
        failed = second(scram, lambda final, wrong=wrong: final.replace(f"{own}{SERVER_NONCE}", wrong))  # type: ignore[misc]
        assert "librdkafka before 2.6.1" in failed.advice
    assert not second(scram, lambda final: final.replace(own, "x")).advice


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("p=tls-unique,,n=ann,r=x", "channel binding"),
        ("y,,n=ann,r=x", "channel binding"),
        ("n,,m=ext,n=ann,r=x", "mandatory extensions"),
        ("n,,n=,r=x", "no client-first-message"),
        ("n,,n=a=2Db,r=x", "no client-first-message"),
        ("n,,n=a\nb,r=x", "no client-first-message"),
        ("n,,n=a\x7f,r=x", "no client-first-message"),
        ("n,,n=ann,r=", "no client-first-message"),
        ("n,,n=ann,r=a b", "no client-first-message"),
        ("n,,n=ann", "no client-first-message"),
        ("", "no client-first-message"),
        ("n,,n=" + "a" * 1025 + ",r=x", "more than 1024 bytes"),
        ("n,a=ben,n=ann,r=x", "authorization id"),
        ("x" * 8193, "more than 8192"),
    ],
)
def test_a_first_message_that_is_none_is_refused(message: str, reason: str) -> None:
    failed = server(scram_module, {"ann": credential(scram_module, "right")}).respond(message.encode())
    assert isinstance(failed, Failed) and reason in failed.reason


def test_an_authorization_id_must_be_the_name(scram: ModuleType) -> None:
    users = {"ann": credential(scram, "right")}
    failed = server(scram, users).respond(b"n,a=root,n=ann,r=x")
    assert isinstance(failed, Failed) and "different from username" in (failed.text or "")
    assert isinstance(server(scram, users).respond(b"n,a=ann,n=ann,r=x"), Challenge)


def test_a_message_that_is_not_utf_8_is_refused() -> None:
    assert isinstance(server(scram_module, {}).respond(b"n,,n=\xff,r=x"), Failed)


def test_a_token_is_not_a_user_and_a_user_is_not_a_token(scram: ModuleType) -> None:
    users = {"ann": credential(scram, "right")}
    token = credential(scram, "hmac", principal="User:owner", expires_at_ms=7)
    tokens = {"id": token}.get
    result = log_in(server(scram, users, tokens=tokens), client("id", "hmac", is_token=True))
    assert (result.principal, result.expires_at_ms, result.is_token) == ("User:owner", 7, True)
    for name, password, is_token in (("id", "hmac", False), ("ann", "right", True)):
        assert isinstance(
            log_in(server(scram, users, tokens=tokens), client(name, password, is_token=is_token)), Failed
        )
    assert isinstance(log_in(server(scram, users), client("ann", "right", is_token=True)), Failed)


@pytest.mark.parametrize(
    "challenge",
    [
        "",
        "r=x,s=AAAA,i=4096",
        "r={n},s=AAAA,i=4096",
        "r={n}y,s=AAAA,i=0",
        "r={n}y,s=AAAA,i=1000001",
        "r={n}y,s=,i=4096",
    ],
)
def test_a_client_does_not_answer_a_strange_server(challenge: str) -> None:
    asking = client("ann", "right")
    asking.respond(b"")
    with pytest.raises(ServerNotAuthenticated):
        asking.respond(challenge.replace("{n}", b64encode(RANDOM).decode()).encode())


def test_a_client_checks_the_server(scram: ModuleType) -> None:
    asking = scram.ScramClient(SCRAM_SHA_256, "ann", "right", nonce="abc", is_token=False)
    asking.respond(b"")
    asking.respond(b"r=abcd,s=AAAA,i=4096")
    with pytest.raises(ServerNotAuthenticated):
        asking.respond(b"v=AAAA")


def test_keys_are_not_shown() -> None:
    shown = repr(credential(scram_module, "right"))
    assert "stored_key" not in shown and "salt" not in shown


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_no_first_message_breaks_the_server(message: bytes) -> None:
    assert isinstance(server(scram_module, {}).respond(message), Challenge | Failed)


@given(st.text(alphabet="cprn=,biws+/A1", max_size=80))
@settings(max_examples=300, deadline=None)
def test_no_second_message_lets_a_client_in(message: str) -> None:
    exchange = server(scram_module, {"ann": credential_of_ann})
    exchange.respond(b"n,,n=ann,r=abc")
    assert isinstance(exchange.respond(message.encode()), Failed)


credential_of_ann = credential(scram_module, "right")

MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    ("is_proved and self._is_known", "is_proved", test_a_proof_that_fits_the_keys_of_an_unknown_user_is_refused),
    ("is_proved and self._is_known", "self._is_known", test_a_second_message_that_is_not_the_right_one_is_refused),
    (
        "if _decoded(binding) != self._gs2.encode():",
        "if False:",
        test_a_second_message_that_is_not_the_right_one_is_refused,
    ),
    (
        "if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):",
        "if not self._nonce.startswith(nonce):",
        test_a_second_message_that_is_not_the_right_one_is_refused,
    ),
    (
        "if given is None or len(given) != self._mechanism.digest_bytes:",
        "if given is None:",
        test_a_second_message_that_is_not_the_right_one_is_refused,
    ),
    (
        "is_old_librdkafka = nonce in (self._client_nonce, self._client_nonce + self._nonce)",
        "is_old_librdkafka = True",
        test_the_nonce_of_old_librdkafka_is_explained,
    ),
    ("_unescaped(authorization_id) != self._name", "False", test_an_authorization_id_must_be_the_name),
    (
        "None if self._is_token else self._credentials(self._name)",
        "self._credentials(self._name)",
        test_a_token_is_not_a_user_and_a_user_is_not_a_token,
    ),
    (
        "principal = credential.principal or user_principal(self._name)",
        "principal = user_principal(self._name)",
        test_a_token_is_not_a_user_and_a_user_is_not_a_token,
    ),
    (
        'hmac.digest(secret, f"{mechanism.name} {name}".encode(), "sha512")',
        'hmac.digest(b"x", f"{mechanism.name} {name}".encode(), "sha512")',
        test_an_unknown_user_has_the_same_salt_each_time_and_no_password,
    ),
    ("if not hmac.compare_digest(challenge, self._expected):", "if not challenge:", test_a_client_checks_the_server),
    (
        'server_key=hmac.digest(salted, b"Server Key", mechanism.hash)',
        'server_key=hmac.digest(salted, b"Client Key", mechanism.hash)',
        test_the_example_of_the_rfc,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(scram_module, right, wrong, rule)
