"""Forged and broken bearer tokens, key sets and first messages: each is refused, and for the reason that it is bad."""

import hashlib
import hmac
import json
import re
from types import ModuleType
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from mutants.plant import Rule, assert_noticed
from security.tokens import (
    AUDIENCE,
    ISSUER,
    NOW_S,
    base64url,
    claims,
    ec_jwk,
    ec_key,
    ed_jwk,
    ed_key,
    key_set,
    other_rsa_key,
    rsa_jwk,
    rsa_key,
    signed,
)

from trioka.protocol.sasl import jwt, oauthbearer
from trioka.protocol.sasl.exchange import Authenticated, Challenge, Computation, Failed, Step
from trioka.protocol.sasl.jwks import InvalidKeySet, read_key_set
from trioka.protocol.sasl.jwt import ALGORITHMS, MAX_TOKEN_BYTES, InvalidToken, Rules

RULES = Rules(issuer=ISSUER, audiences=frozenset({AUDIENCE, "another"}))


@pytest.fixture
def module() -> ModuleType:
    return jwt


def refused(module: ModuleType, token: str, reason: str, keys: bytes | None = None, rules: Rules = RULES) -> None:
    with pytest.raises((InvalidToken, module.InvalidToken), match=re.escape(reason)):
        module.verify(token, read_key_set(keys or key_set()), rules, NOW_S)


def accepted(module: ModuleType, token: str, keys: bytes | None = None, rules: Rules = RULES) -> Any:
    return module.verify(token, read_key_set(keys or key_set()), rules, NOW_S)


def test_every_algorithm_works_with_its_own_type_of_key_and_no_other(module: ModuleType) -> None:
    jwks = [
        rsa_jwk(rsa_key()),
        ec_jwk(ec_key()),
        ec_jwk(ec_key("P-384"), "p384"),
        ed_jwk(ed_key()),
    ]
    kid = {"RSA": "rsa", "EC": "ec", "OKP": "ed"}
    for alg, algorithm in ALGORITHMS.items():
        own = "p384" if alg == "ES384" else kid[algorithm.key_type]
        for jwk in jwks:
            token = signed(alg=alg, header={"kid": jwk["kid"]})
            if jwk["kid"] == own:
                assert accepted(module, token, key_set(*jwks)).subject == "ann", alg
            else:
                refused(module, token, "0 keys of the key set fit", key_set(*jwks))


def test_unsigned_tokens_and_those_with_a_shared_secret_are_refused(module: ModuleType) -> None:
    public = rsa_key().public_key()
    for alg in ("none", "None", "NONE", "", "HS256", "HS512", "RS1", "rs256", None, 5, ["RS256"], {"a": 1}, True):
        header = base64url(json.dumps({"alg": alg, "kid": "rsa"}).encode())
        body = f"{header}.{base64url(json.dumps(claims()).encode())}"
        secrets = [b""]
        for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER):
            secrets.append(public.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo))
        for secret in secrets:
            tag = hmac.digest(secret, body.encode(), hashlib.sha256)
            refused(module, f"{body}.{base64url(tag)}", "its algorithm is none of")
    refused(module, f"{base64url(b'{}')}.{base64url(b'{}')}.", "its algorithm is none of")
    refused(module, signed().rpartition(".")[0] + ".", "its signature is not base64url")


def test_a_token_that_another_key_has_signed_is_refused(module: ModuleType) -> None:
    refused(module, signed(key=other_rsa_key()), "the signature does not fit")
    header, body, signature = signed().split(".")
    forged = base64url(json.dumps(claims(sub="root")).encode())
    refused(module, f"{header}.{forged}.{signature}", "the signature does not fit")
    for alg in ("ES256", "EdDSA"):
        header, body, signature = signed(alg=alg).split(".")
        for wrong in (bytes(64), bytes(63), bytes(65), b"\xff" * 64, b"\0"):
            refused(module, f"{header}.{body}.{base64url(wrong)}", "the signature does not fit")
    refused(module, signed(header={"kid": "unknown"}), "no key of the key set has its key id")
    with pytest.raises(jwt.UnknownKey):
        jwt.verify(signed(header={"kid": "unknown"}), read_key_set(key_set()), RULES, NOW_S)


def test_a_key_serves_only_the_algorithm_that_its_issuer_names(module: ModuleType) -> None:
    keys = key_set(rsa_jwk(rsa_key(), alg="PS256"))
    refused(module, signed(alg="RS256"), "0 keys of the key set fit", keys)
    assert accepted(module, signed(alg="PS256"), keys).subject == "ann"


def test_a_token_without_a_key_id_needs_a_key_set_with_one_key(module: ModuleType) -> None:
    token = signed(header={"kid": None})
    assert accepted(module, token).subject == "ann"  # of the three keys, one fits the algorithm
    refused(module, token, "2 keys", key_set(rsa_jwk(rsa_key()), rsa_jwk(other_rsa_key(), "other")))


def test_a_header_that_brings_or_names_a_key_is_refused(module: ModuleType) -> None:
    jwk = {"kty": "RSA", "n": "AQAB", "e": "AQAB"}
    for name, value in {
        "jku": "https://evil.test/keys",
        "x5u": "https://evil.test/chain",
        "jwk": jwk,
        "x5c": ["MIIB"],
        "crit": ["exp"],
        "b64": False,
        "zip": "DEF",
    }.items():
        for result in (value, None, []):
            header = {"alg": "RS256", "kid": "rsa", name: result}
            text = f"{base64url(json.dumps(header).encode())}.{base64url(json.dumps(claims()).encode())}"
            refused(module, f"{text}.{base64url(b'x')}", f"its header has {name}")
    for kid in ("", 5, ["rsa"], "x" * 257, True):
        refused(module, signed(header={"kid": kid}), "its key id (kid) is not a text")
    refused(module, signed(header={"typ": "logout+jwt"}), "its type (typ)")
    refused(module, signed(header={"typ": ["JWT"]}), "its type (typ)")


def test_times_are_numbers_and_within_the_clock_skew(module: ModuleType) -> None:
    now = NOW_S
    no_times: list[Any] = ["9999999999", True, [now + 60], {}, -1, 1 << 40, 10**30]
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"exp": None}, "no exp or no iat"),
        ({"iat": None}, "no exp or no iat"),
        ({"exp": now - 31}, "it expired"),
        ({"iat": now + 40}, "issued in the future"),
        ({"nbf": now + 40}, "not valid yet"),
        *(({name: value}, f"{name} is not a time")
          for name in ("exp", "iat", "nbf")
          for value in no_times),
    )  # fmt: skip
    for changed, reason in wrong:
        refused(module, signed(claims(**changed)), reason)
    right: list[dict[str, Any]] = [{"exp": now - 20}, {"iat": now + 20}, {"nbf": now + 20}, {"exp": now + 0.5}]
    for changed in right:
        assert accepted(module, signed(claims(**changed))).subject == "ann"
    assert accepted(module, signed(claims(exp=now + 100))).expires_at_ms == (now + 100) * 1000
    for number in (b"1e999", b"NaN", b"Infinity", b"9" * 5000):
        text = json.dumps(claims()).encode().replace(b'"exp": ' + str(now + 600).encode(), b'"exp": ' + number)
        refused(module, signed(text), "its claims is no JSON")


def test_issuer_and_audience_are_compared_whole(module: ModuleType) -> None:
    for issuer in ("https://issuer.test/", "https://issuer.tes", "", [ISSUER], {"iss": ISSUER}, 5, True, None):
        refused(module, signed(claims(iss=issuer)), "its issuer (iss) is another one")
    for audience in ("kafk", "kafka ", "", [], ["other"], None, 5, {AUDIENCE: 1}, [AUDIENCE, 5], [[AUDIENCE]]):
        refused(module, signed(claims(aud=audience)), "its audience (aud)")
    for right in (AUDIENCE, [AUDIENCE], ["other", "another"]):
        assert accepted(module, signed(claims(aud=right))).subject == "ann"


def test_without_an_expected_issuer_or_audience_any_will_do(module: ModuleType) -> None:
    any_issuer = Rules(issuer=None, audiences=frozenset())
    assert accepted(module, signed(claims(iss=None, aud=None)), rules=any_issuer).subject == "ann"


def test_the_subject_is_a_name(module: ModuleType) -> None:
    for subject in (None, "", 5, ["ann"], {"sub": "ann"}, True, " ann", "ann\n", "a\0nn", "x" * 256, "   ", "a\u2028b"):
        refused(module, signed(claims(sub=subject)), "sub is not" if not _is_name(subject) else "sub has")
    named = RULES._replace(subject_claim="client_id")
    assert accepted(module, signed(claims(client_id="service")), rules=named).subject == "service"
    refused(module, signed(), "client_id is not", rules=named)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 255


def test_scopes_are_texts(module: ModuleType) -> None:
    assert accepted(module, signed(claims(scope=["a", "b"]))).scopes == ("a", "b")
    assert accepted(module, signed(claims(scope=None))).scopes == ()
    for scope in (5, {"a": 1}, [5], [["a"]], [""], [" "], ["a", "a"], True):
        refused(module, signed(claims(scope=scope)), "scope n") if scope == ["a", "a"] else refused(
            module, signed(claims(scope=scope)), "scope is neither"
        )


def test_what_has_not_the_form_of_a_token_is_refused(module: ModuleType) -> None:
    whole = signed()
    header, body, signature = whole.split(".")
    for token, reason in (
        ("", "segments"),
        ("a.b", "segments"),
        (f"{whole}.x", "segments"),
        (f"{header}.{body}", "segments"),
        (f".{body}.{signature}", "its header"),
        (f"{header}..{signature}", "the signature does not fit"),
        (f"{header}=.{body}.{signature}", "its header is not base64url"),
        (f"{header}.{body}.{signature}=", "its signature is not base64url"),
        (f"{header}.{body}.{signature} ", "its signature is not base64url"),
        (f"{header}\n.{body}.{signature}", "its header is not base64url"),
        (f"é.{body}.{signature}", "other characters than ASCII"),
        (f"{header}.é.{signature}", "other characters than ASCII"),
        ("x" * (MAX_TOKEN_BYTES + 1), "more than"),
        (f"{base64url(b'[' * 6000)}.{body}.{signature}", "its header is no JSON"),
        (f"{base64url(b'[]')}.{body}.{signature}", "its header is no JSON object"),
        (f"{base64url(bytes([255]))}.{body}.{signature}", "its header is no JSON in UTF-8"),
    ):
        refused(module, token, reason)
    twice = json.dumps(claims()).replace('"sub": "ann"', '"sub": "ann", "sub": "root"')
    refused(module, signed(twice.encode()), "has a name twice")
    refused(module, signed(b"[" * 4000), "its claims is no JSON")


def test_the_last_letter_of_a_segment_has_one_spelling(module: ModuleType) -> None:
    """Base64 leaves bits of the last letter unused: with them set, the same token would have other texts."""
    head, _, signature = signed().rpartition(".")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = letters[letters.index(signature[-1]) ^ 1]
    refused(module, f"{head}.{signature[:-1]}{other}", "its signature is not base64url")


# --- key sets


def test_keys_that_cannot_be_trusted_are_left_out() -> None:
    good = rsa_jwk(rsa_key(), "good")
    for bad in (
        {"kty": "oct", "kid": "bad", "k": "c2VjcmV0"},
        rsa_jwk(rsa_key(1024), "bad"),
        rsa_jwk(rsa_key(), "bad", use="enc"),
        rsa_jwk(rsa_key(), "bad", alg="HS256"),
        rsa_jwk(rsa_key(), "bad", alg="RSA-OAEP"),
        rsa_jwk(rsa_key(), "bad", d="AQAB"),
        rsa_jwk(rsa_key(), "bad", e="AQ"),
        rsa_jwk(rsa_key(), "bad", key_ops=["encrypt"]),
        rsa_jwk(rsa_key(), "bad", n="A" * 4000),
        rsa_jwk(rsa_key(), "bad", n=5),
        ec_jwk(ec_key(), "bad", crv="P-384"),
        ec_jwk(ec_key(), "bad", y=ec_jwk(ec_key())["x"]),
        ec_jwk(ec_key(), "bad", crv="secp256k1"),
        ed_jwk(ed_key(), "bad", x="AAAA"),
        {"kty": ["RSA"], "kid": "bad"},
        {"kid": "bad"},
    ):
        assert [key.key_id for key in read_key_set(key_set(good, bad))] == ["good"], bad
        with pytest.raises(InvalidKeySet):
            read_key_set(key_set(bad))


def test_a_document_that_is_no_key_set_is_refused() -> None:
    good = rsa_jwk(rsa_key())
    for document in (
        b"",
        b"{}",
        b"[]",
        b"<html>",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [5, null, []]}',
        b"\xff",
        b"[" * 100_000,
        key_set(good, good),
        key_set(*[rsa_jwk(rsa_key(), str(index)) for index in range(101)]),
        b" " * ((1 << 20) + 1),
    ):
        with pytest.raises(InvalidKeySet):
            read_key_set(document)


# --- the exchange


class Login:
    def __init__(self, keys: bytes | None = None) -> None:
        self.unknown = 0
        found = read_key_set(keys or key_set())
        self.server = oauthbearer.OAuthBearerServer(RULES, lambda: found, lambda: NOW_S, self._unknown_key)

    def _unknown_key(self) -> None:
        self.unknown += 1

    def say(self, message: bytes) -> Step:
        step = self.server.respond(message)
        return step.run() if isinstance(step, Computation) else step


def first(token: str, header: str = "n,,", extensions: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def test_a_good_token_logs_its_subject_in_until_it_ends() -> None:
    now = NOW_S
    for message in (
        first(signed(claims(exp=now + 50))),
        first(signed(claims(exp=now + 50)), "n,a=ann,", "traceid=5\x01"),
        oauthbearer.initial_response(signed(claims(exp=now + 50))),
    ):
        assert Login().say(message) == Authenticated("User:ann", expires_at_ms=(now + 50) * 1000)


def test_a_bad_token_is_answered_by_a_challenge_and_then_refused() -> None:
    for answer in (b"\x01", b"", first(signed()), b"\x01\x01"):
        login = Login()
        challenge = login.say(first(signed(claims(iss="x"))))
        assert isinstance(challenge, Challenge) and challenge.data == b'{"status":"invalid_token"}'
        assert challenge.refused == "the token is refused: its issuer (iss) is another one"
        refused = login.say(answer)
        assert isinstance(refused, Failed) and refused.text == '{"status":"invalid_token"}'
        assert isinstance(login.say(first(signed())), Failed)


def test_an_unknown_key_is_reported_to_every_fetch() -> None:
    login = Login()
    assert isinstance(login.say(first(signed(header={"kid": "new"}))), Challenge)
    assert login.unknown == 1
    for token in (signed(key=other_rsa_key()), signed(claims(iss="x")), "garbage"):
        login = Login()
        assert isinstance(login.say(first(token)), Challenge)
        assert login.unknown == 0


def test_another_authorization_id_than_the_subject_is_refused() -> None:
    refused = Login().say(first(signed(), "n,a=root,"))
    assert isinstance(refused, Failed) and refused.text is not None
    assert "authorization id (root)" in refused.text and "(ann)" in refused.text
    comma = signed(claims(sub="a,b=c"))
    assert isinstance(Login().say(first(comma, "n,a=a=2Cb=3Dc,")), Authenticated)


def test_what_is_no_first_message_is_refused() -> None:
    token = signed()
    good = first(token)
    for message in (
        b"",
        b"\x01",
        b"n,,",
        good[:-1],
        good + b"\x01",
        good + b"x",
        good.replace(b"n,,", b"y,,"),
        good.replace(b"n,,", b"p=tls-unique,,"),
        good.replace(b"n,,", b"n,a=,"),
        good.replace(b"n,,", b"n,a=x=2D,"),
        good.replace(b"Bearer ", b"Basic "),
        good.replace(b"Bearer ", b"Bearer"),
        good.replace(b"auth=", b"Auth="),
        good.replace(b"auth=", b"auth"),
        first(token, extensions="auth=Bearer x\x01"),
        first(token, extensions="a=1\x01a=2\x01"),
        first(token, extensions="a1=2\x01"),
        first(token, extensions="a=\x01"),
        first(token, extensions="a=\xe9\x01"),
        first(token, extensions="".join(f"{'a' * n}=1\x01" for n in range(1, 30))),
        first("x" * (oauthbearer.MAX_MESSAGE_BYTES + 1)),
        b"\xff" + good,
    ):
        step = Login().say(message)
        assert isinstance(step, Failed) and step.text is None, message[:60]
        assert token not in step.reason


MISTAKES = [
    ("if not _is_signed(header[\"alg\"], key, signed, signature):", "if False:",
     test_a_token_that_another_key_has_signed_is_refused),
    ("key.key_type != algorithm.key_type or", "False or",
     test_every_algorithm_works_with_its_own_type_of_key_and_no_other),
    ("    return key.algorithm in (None, name)", "    return True",
     test_a_key_serves_only_the_algorithm_that_its_issuer_names),
    ("algorithm not in ALGORITHMS", "algorithm == \"none\"",
     test_unsigned_tokens_and_those_with_a_shared_secret_are_refused),
    ("if expires_at_s + skew_s <= now_s:", "if False:", test_times_are_numbers_and_within_the_clock_skew),
    ("isinstance(value, bool) or", "False or", test_times_are_numbers_and_within_the_clock_skew),
    ("if not isinstance(issuer, str) or issuer != rules.issuer:", "if rules.issuer not in str(issuer):",
     test_issuer_and_audience_are_compared_whole),
    ("if rules.audiences.isdisjoint(named):", "if False:", test_issuer_and_audience_are_compared_whole),
    ("if urlsafe_b64encode(data).rstrip(b\"=\").decode() != segment:", "if False:",
     test_the_last_letter_of_a_segment_has_one_spelling),
    ("if len(found) != len(pairs):", "if False:", test_what_has_not_the_form_of_a_token_is_refused),
    ("if len(fitting) != 1:", "if not fitting:", test_a_token_without_a_key_id_needs_a_key_set_with_one_key),
    ('"x5u", "x5c"', '"x5u"', test_a_header_that_brings_or_names_a_key_is_refused),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(jwt, right, wrong, rule)


# --- anything at all


@given(st.binary(max_size=300) | st.text(max_size=100).map(lambda text: first(text)))
def test_any_first_message_is_answered_without_a_mistake(message: bytes) -> None:
    step = Login().say(message)
    assert isinstance(step, Failed | Challenge)


@given(st.text(max_size=200), st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.floats() | st.text()))
def test_any_token_is_refused_without_a_mistake(text: str, header: dict[str, Any]) -> None:
    keys = read_key_set(key_set())
    encoded = base64url(json.dumps({"alg": "RS256", "kid": "rsa", **header}).encode())
    for token in (text, f"{encoded}.{base64url(text.encode(errors='replace'))}.{base64url(b'x' * 256)}"):
        with pytest.raises(InvalidToken):
            jwt.verify(token, keys, RULES, 0.0)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
                    max_leaves=20))  # fmt: skip
def test_any_claims_of_a_signed_token_are_judged_without_a_mistake(found: Any) -> None:
    keys = read_key_set(key_set(ed_jwk(ed_key())))
    line = found if isinstance(found, dict) else {"sub": found, "aud": found, "exp": found}
    with pytest.raises(InvalidToken):
        jwt.verify(signed(json.dumps(line).encode(), alg="EdDSA"), keys, RULES, 0.0)


@given(st.binary(max_size=300))
def test_any_key_set_is_read_or_refused(document: bytes) -> None:
    with pytest.raises(InvalidKeySet):
        read_key_set(document)
