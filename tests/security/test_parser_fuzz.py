"""Valid inputs of every parser that reads untrusted input or an operator's files, with parts changed, cut, doubled and
moved: each is read or refused, in less than a second of CPU and with little memory.

    TRIOKA_FUZZ_INPUTS=200000 python -m pytest tests/security/test_parser_fuzz.py      # by default a few hundred
"""

import hashlib
import json
import os
import signal
import struct
import tracemalloc
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from security import tokens
from support.certificates import authority, signed
from support.jaas_texts import JAAS_TEXTS

from trioka.broker.security.tls.certificate import read_certificate
from trioka.broker.security.tls.der import InvalidDer
from trioka.broker.security.tls.distinguished_name import name_text
from trioka.broker.security.tls.jks import MAGIC, InvalidJks, read_jks, recovered_key
from trioka.broker.security.tls.key_stores import key_store, trust_store
from trioka.broker.security.tls.principal_mapping import InvalidRules, NoRuleApplies, PrincipalMapping
from trioka.broker.security.tls.store_files import StoreError
from trioka.protocol.sasl import jwt
from trioka.protocol.sasl.client import client_exchange
from trioka.protocol.sasl.exchange import Authenticated, Challenge, Computation, Failed, ServerNotAuthenticated
from trioka.protocol.sasl.jaas import JaasError, parse_jaas, parse_jaas_file
from trioka.protocol.sasl.jwks import InvalidKeySet, read_key_set
from trioka.protocol.sasl.oauthbearer import OAuthBearerServer
from trioka.protocol.sasl.plain import PlainServer, PlainUsers
from trioka.protocol.sasl.scram import SCRAM_SHA_256, Credential, ScramServer, salted_password, scram_keys
from trioka.protocol.sasl.token_request import NoToken, token_in_response

INPUTS = int(os.environ.get("TRIOKA_FUZZ_INPUTS", "400"))
MOST_CPU_S = 1.0  # of one input; far above what any needs, on any machine
MOST_BYTES = 64 * 1024 * 1024
PASSWORD = "s3cret-pw"
AUTHORITY = authority()
SERVER = signed(AUTHORITY, "CN=ann,OU=Users,O=Example\\, Inc", names=("localhost", "127.0.0.1"))
SALT = bytes(16)
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)

Read = Callable[[bytes], object]


def text_of(data: bytes) -> str:
    return data.decode(errors="replace")


def jks_store() -> bytes:
    def entry(alias: str, der: bytes) -> bytes:
        name = alias.encode()
        return struct.pack(">iH", 2, len(name)) + name + struct.pack(">qH5si", 0, 5, b"X.509", len(der)) + der

    body = MAGIC + struct.pack(">ii", 2, 2) + entry("ca", AUTHORITY.der) + entry("own", SERVER.der)
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def read_jks_store(data: bytes) -> None:
    """Without its password, so that a changed store is not refused by its digest."""
    for key in read_jks(data, None).keys.values():
        recovered_key(key, PASSWORD)


def credential() -> Credential:
    keys = scram_keys(SCRAM_SHA_256, salted_password(SCRAM_SHA_256, PASSWORD, SALT, 4096))
    return Credential(SALT, keys.stored_key, keys.server_key, 4096)


ANN = credential()
KEYS = read_key_set(tokens.key_set())
RULES = jwt.Rules(issuer=tokens.ISSUER, audiences=frozenset({tokens.AUDIENCE}))


def scram_first(data: bytes) -> None:
    server = ScramServer(SCRAM_SHA_256, {"ann": ANN}.get, nonce="srv", secret=b"x" * 32)
    assert isinstance(server.respond(data), Challenge | Failed)


def scram_final(data: bytes) -> None:
    server = ScramServer(SCRAM_SHA_256, {"ann": ANN}.get, nonce="srv", secret=b"x" * 32)
    server.respond(b"n,,n=ann,r=abc")
    assert isinstance(server.respond(data), Failed)


def scram_challenge(data: bytes) -> None:
    """Of a server that is not ours."""
    client = client_exchange("SCRAM-SHA-256", "ann", PASSWORD, random=bytes(24), is_token=False)
    client.respond(b"")
    client.respond(data)


def plain_message(data: bytes) -> None:
    assert isinstance(PlainServer(PlainUsers({"ann": PASSWORD})).respond(data), Authenticated | Failed)


def oauth_message(data: bytes) -> None:
    server = OAuthBearerServer(RULES, lambda: KEYS, lambda: tokens.NOW_S, lambda: None)
    step = server.respond(data)
    while isinstance(step, Computation):
        step = step.run()
    assert isinstance(step, Authenticated | Challenge | Failed)


def pkcs12_store() -> bytes:
    key = SERVER.key
    return bytes(
        pkcs12.serialize_key_and_certificates(
            b"own", key, SERVER.certificate, [AUTHORITY.certificate], BestAvailableEncryption(PASSWORD.encode())
        )
    )


TARGETS: dict[str, tuple[Read, tuple[type[Exception], ...], Callable[[], list[bytes]]]] = {
    "JAAS text": (
        lambda data: (parse_jaas(text_of(data)), parse_jaas_file(text_of(data))),
        (JaasError,),
        lambda: [text.encode() for text in JAAS_TEXTS],
    ),
    "JAAS file": (
        lambda data: parse_jaas_file(text_of(data)),
        (JaasError,),
        lambda: [b"KafkaServer { " + text.encode() + b" };" for text in JAAS_TEXTS],
    ),
    "JKS": (read_jks_store, (InvalidJks,), lambda: [jks_store()]),
    "trust store": (
        lambda data: trust_store(data or b"x", None),
        (StoreError,),
        lambda: [jks_store(), pkcs12_store(), SERVER.chain_pem.encode()],
    ),
    "key store": (
        lambda data: key_store(data or b"x", PASSWORD, PASSWORD),
        (StoreError,),
        lambda: [pkcs12_store(), SERVER.pem.encode(), SERVER.key_pem("x").encode()],
    ),
    "certificate": (read_certificate, (InvalidDer,), lambda: [SERVER.der, AUTHORITY.der]),
    "distinguished name": (
        name_text,
        (InvalidDer,),
        lambda: [SERVER.certificate.subject.public_bytes(), AUTHORITY.certificate.subject.public_bytes()],
    ),
    "mapping rules": (
        lambda data: PrincipalMapping(text_of(data)).user_name("CN=ann,OU=Users,O=Example"),
        (InvalidRules, NoRuleApplies),
        lambda: [b"RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L,DEFAULT", rb"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.\-]*).*$/$1/U"],
    ),
    "SCRAM, first message": (scram_first, (), lambda: [b"n,,n=ann,r=abc", b"n,a=b=2Cc,n==3D,r=abc,x=y"]),
    "SCRAM, second message": (scram_final, (), lambda: [b"c=biws,r=abcsrv,p=" + b64encode(bytes(32))]),
    "SCRAM, challenge": (
        scram_challenge,
        (ServerNotAuthenticated,),
        lambda: [b"r=" + b64encode(bytes(24)) + b"srv,s=AAAA,i=1"],
    ),
    "PLAIN": (plain_message, (), lambda: [b"\0ann\0" + PASSWORD.encode(), b"ann\0ann\0x"]),
    "OAUTHBEARER": (
        oauth_message,
        (),
        lambda: [b"n,a=ann,\x01auth=Bearer " + tokens.signed().encode() + b"\x01a=b\x01\x01"],
    ),
    "JWT": (
        lambda data: jwt.verify(text_of(data), KEYS, RULES, tokens.NOW_S),
        (jwt.InvalidToken,),
        lambda: [tokens.signed().encode(), tokens.signed(alg="ES256").encode(), tokens.signed(alg="EdDSA").encode()],
    ),
    "JWT, signed claims": (
        lambda data: jwt.verify(tokens.signed(data, alg="EdDSA"), KEYS, RULES, tokens.NOW_S),
        (jwt.InvalidToken,),
        lambda: [json.dumps(tokens.claims()).encode(), json.dumps(tokens.claims(aud=["a", "kafka"])).encode()],
    ),
    "token response": (
        lambda data: token_in_response(200, data),
        (NoToken,),
        lambda: [b'{"access_token": "a.b.c", "expires_in": 300}', b'{"access_token": "%s"}' % tokens.signed().encode()],
    ),
    "JWKS": (read_key_set, (InvalidKeySet,), lambda: [tokens.key_set()]),
}


def mutated(random: Random, corpus: list[bytes]) -> bytes:
    """One to four changes of an input: bits, numbers of a length, pieces that are cut, doubled, moved or from another
    input."""
    data = bytearray(random.choice(corpus))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        end = min(at + random.choice((1, 2, 4, random.randint(1, len(data) + 1))), len(data))
        match random.randrange(8):
            case 0:
                del data[at:end]
            case 1:
                data[at:at] = data[at:end]
            case 2:
                data[at:end] = random.choice(NUMBERS).to_bytes(4)[-(end - at) :] if end - at in (1, 2, 4) else b""
            case 3:
                data[at:at] = random.choice((b"\0", b",", b"=", b'"', b"\\", b"{", b"[", b".", b"\xff", b"\n", b"$9"))
            case 4 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 5:
                data[at:end] = random.randbytes(end - at)
            case 6:
                other = random.choice(corpus)
                data[at:] = other[random.randrange(len(other) + 1) :]
            case _:
                data[at:end] = bytes(data[at:end]) * random.choice((2, 3, 50))
    return bytes(data)


@contextmanager
def within_its_cpu_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError("an input took more than a second of CPU")

    former = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


@pytest.mark.parametrize("target", TARGETS)
def test_every_input_is_read_or_refused(target: str) -> None:
    read, refusals, make = TARGETS[target]
    corpus, random = make(), Random(target)
    tracemalloc.start()
    try:
        for number in range(INPUTS):
            data = mutated(random, corpus)
            with within_its_cpu_time():
                try:
                    read(data)
                except refusals:
                    continue
                except Exception as mistake:
                    raise AssertionError(f"input {number} of {target}: {data!r}") from mistake
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
