"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): a login by a password that neither side sends.

    client   n,[a=authzid],n=name,r=client nonce [,tokenauth=true]
    server   r=client nonce + server nonce,s=base64 of the salt,i=iterations
    client   c=base64 of "n,[a=authzid],",r=both nonces,p=base64 of the proof
    server   v=base64 of the server's signature

    salted password  =  PBKDF2(password, salt, iterations)
    client key       =  HMAC(salted password, "Client Key")
    stored key       =  H(client key)
    server key       =  HMAC(salted password, "Server Key")
    proof            =  client key XOR HMAC(stored key, all messages)

The server keeps salt, stored key and server key. It follows RFC 5802 where Apache Kafka 4.3.1 does not: `c=` must
repeat the header of the first message, and a mandatory extension (`m=`) is refused. Users that do not exist get a salt
that looks like any other and stays the same for the name (`unknown_user`); their login fails where a wrong password
does.

Passwords and names are not normalized (SASLprep), as Kafka does not.
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from .exchange import Authenticated, Challenge, Computation, Failed, ServerNotAuthenticated, user_principal
from .plain import OTHER_AUTHZID

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
MAX_CLIENT_ITERATIONS: Final = 1_000_000  # a server that demands more keeps the client busy for seconds
MAX_MESSAGE_BYTES: Final = 8 * 1024
MAX_NAME_BYTES: Final = 1024
NONCE_BYTES: Final = 24
SALT_RANDOM_BYTES: Final = 17  # for the 130 bits of a salt
TOKEN_EXTENSION: Final = "tokenauth"
LIBRDKAFKA_ADVICE: Final = "The client's nonce is wrong, as that of librdkafka before 2.6.1 is: update the client."

_SALT_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(NamedTuple):
    name: str
    number: int  # in Kafka's records and requests
    hash: str
    digest_bytes: int


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
SCRAM_MECHANISMS: Final = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}


class ScramKeys(NamedTuple):
    """What a server stores of a password."""

    stored_key: bytes
    server_key: bytes


class Credential(NamedTuple):
    """What the server stores for a user name. `principal` and the fields after it are for delegation tokens, whose
    principal is their owner."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    principal: str = ""  # empty: the user of the name
    expires_at_ms: int | None = None

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds of CPU."""
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def scram_keys(mechanism: ScramMechanism, salted: bytes) -> ScramKeys:
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash)
    return ScramKeys(
        stored_key=hashlib.new(mechanism.hash, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.hash),
    )


def salt_text(random: bytes) -> bytes:
    """A salt in the form of Kafka's tools: 130 random bits in base 36. All salts of a cluster should look alike, those
    of users that do not exist included."""
    number = int.from_bytes(random) >> (8 * len(random) - _SALT_BITS)
    digits = []
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode()


def unknown_user(mechanism: ScramMechanism, name: str, secret: bytes, iterations: int = MIN_ITERATIONS) -> Credential:
    """The credential of a user that does not exist: the same for the same name, as long as the secret is the same."""
    drawn = hmac.digest(secret, f"{mechanism.name} {name}".encode(), "sha512")
    key = hashlib.new(mechanism.hash, drawn).digest()
    return Credential(salt_text(drawn[:SALT_RANDOM_BYTES]), key, key, iterations)


# Names are UTF-8 without control characters, "," and "="; these two are written =2C and =3D.
_NAME: Final = r"(?:[^\x00-\x1f\x7f-\x9f=,]|=2C|=3D)+"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^\x00,]+)*"
_BASE64: Final = r"[A-Za-z0-9+/]*={0,2}"
_CLIENT_FIRST: Final = rf"(n,(?:a=({_NAME}))?,)(n=({_NAME}),r=({_NONCE})({_EXTENSIONS}))"
_CLIENT_FINAL: Final = rf"(c=({_BASE64}),r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})"
_SERVER_FIRST: Final = rf"r=({_NONCE}),s=({_BASE64}),i=([0-9]{{1,9}}){_EXTENSIONS}"


class ScramServer:
    """The server side of one login. `tokens` finds the credential of a delegation token, and is called in a worker
    thread: the credential of a token is derived when it is first used."""

    __slots__ = (
        "_auth_start",
        "_client_nonce",
        "_credential",
        "_credentials",
        "_gs2",
        "_is_known",
        "_is_token",
        "_mechanism",
        "_name",
        "_nonce",
        "_secret",
        "_server_nonce",
        "_tokens",
        "_usual_iterations",
    )

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Callable[[str], Credential | None],
        *,
        nonce: str,
        secret: bytes,
        usual_iterations: int = MIN_ITERATIONS,
        tokens: Callable[[str], Credential | None] | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._server_nonce = nonce
        self._secret = secret  # of salts of users that do not exist
        self._usual_iterations = usual_iterations  # of users that do not exist
        self._credential: Credential | None = None
        self._is_known = self._is_token = False
        self._name = self._nonce = self._client_nonce = self._gs2 = self._auth_start = ""

    def respond(self, message: bytes) -> Challenge | Authenticated | Failed | Computation:
        if len(message) > MAX_MESSAGE_BYTES:
            return self._failed(f"the message has {len(message)} bytes, more than {MAX_MESSAGE_BYTES}")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            return self._failed("the message is not UTF-8")
        return self._first(text) if self._credential is None else self._final(text, self._credential)

    def _failed(self, reason: str, text: str | None = None, advice: str = "") -> Failed:
        return Failed(reason, text, self._name, advice)

    def _first(self, text: str) -> Challenge | Failed | Computation:
        found = re.fullmatch(_CLIENT_FIRST, text)
        if found is None:
            return self._failed(_invalid_first_reason(text))
        self._gs2, authorization_id, bare, name, self._client_nonce, extensions = found.groups()
        self._name = _unescaped(name)
        if len(self._name.encode()) > MAX_NAME_BYTES:
            return self._failed(f"the name has more than {MAX_NAME_BYTES} bytes")
        if authorization_id is not None and _unescaped(authorization_id) != self._name:
            return self._failed("the authorization id is not the user name", OTHER_AUTHZID)
        self._is_token = _value_of(TOKEN_EXTENSION, extensions).lower() == "true"
        self._auth_start = bare
        if self._is_token and self._tokens is not None:
            return Computation(lambda: self._challenge(self._tokens and self._tokens(self._name)))
        return self._challenge(None if self._is_token else self._credentials(self._name))

    def _challenge(self, found: Credential | None) -> Challenge:
        unknown = unknown_user(
            self._mechanism, self._name, self._secret, self._usual_iterations
        )  # in both cases, which take the same time
        self._is_known = found is not None
        self._credential = unknown if found is None else found
        self._nonce = self._client_nonce + self._server_nonce
        salt = b64encode(self._credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._auth_start = f"{self._auth_start},{challenge}"
        return Challenge(challenge.encode())

    def _final(self, text: str, credential: Credential) -> Authenticated | Failed:
        found = re.fullmatch(_CLIENT_FINAL, text)
        if found is None:
            return self._failed("the second message is no client-final-message")
        without_proof, binding, nonce, proof = found.groups()
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            is_old_librdkafka = nonce in (self._client_nonce, self._client_nonce + self._nonce)
            return self._failed("the nonce is wrong", advice=LIBRDKAFKA_ADVICE if is_old_librdkafka else "")
        if _decoded(binding) != self._gs2.encode():
            return self._failed("c= does not repeat the header of the first message")
        signed = f"{self._auth_start},{without_proof}".encode()
        given = _decoded(proof)
        if given is None or len(given) != self._mechanism.digest_bytes:
            return self._failed("the proof is not as long as a digest")
        signature = hmac.digest(credential.stored_key, signed, self._mechanism.hash)
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        stored_key = hashlib.new(self._mechanism.hash, client_key).digest()
        verdict = b"v=" + b64encode(hmac.digest(credential.server_key, signed, self._mechanism.hash))
        is_proved = hmac.compare_digest(stored_key, credential.stored_key)
        if not (is_proved and self._is_known):
            return self._failed("unknown user or wrong password")
        principal = credential.principal or user_principal(self._name)
        token_id = self._name if self._is_token else ""
        return Authenticated(principal, verdict, credential.expires_at_ms, self._is_token, token_id)


def _invalid_first_reason(text: str) -> str:
    if text.startswith(("p=", "y,")):
        return "channel binding is not supported"
    if re.match(r"n,[^,]*,m=", text):
        return "mandatory extensions (m=) are not supported"
    return "the first message is no client-first-message"


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _value_of(name: str, extensions: str) -> str:
    """The value of an extension, from `,name=value,…`; empty if it is not there."""
    pairs = (part.partition("=") for part in extensions.split(",")[1:])
    return next((value for each, _, value in pairs if each == name), "")


def _decoded(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


class ScramClient:
    """The client side of one login. The second call of `respond` derives the salted password, which takes milliseconds
    of CPU."""

    __slots__ = ("_bare", "_expected", "_mechanism", "_nonce", "_password", "_step")

    def __init__(self, mechanism: ScramMechanism, name: str, password: str, *, nonce: str, is_token: bool) -> None:
        escaped = name.replace("=", "=3D").replace(",", "=2C")
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={escaped},r={nonce}" + (f",{TOKEN_EXTENSION}=true" if is_token else "")
        self._expected = b""
        self._step = 0

    def respond(self, challenge: bytes) -> bytes | None:
        self._step += 1
        if self._step == 1:
            return f"n,,{self._bare}".encode()
        if self._step == 2:
            return self._prove(challenge)
        if not hmac.compare_digest(challenge, self._expected):
            raise ServerNotAuthenticated("the server does not prove that it knows the password")
        return None

    def _prove(self, challenge: bytes) -> bytes:
        text = challenge.decode(errors="replace")
        found = re.fullmatch(_SERVER_FIRST, text)
        if found is None or len(challenge) > MAX_MESSAGE_BYTES:
            raise ServerNotAuthenticated("the first message of the server is no server-first-message")
        nonce, salt, iterations = found[1], _decoded(found[2]), int(found[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ServerNotAuthenticated("the nonce of the server does not begin with that of the client")
        if not salt or not 0 < iterations <= MAX_CLIENT_ITERATIONS:
            raise ServerNotAuthenticated(f"the server sent {iterations} iterations or an empty salt")
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        keys = scram_keys(self._mechanism, salted)
        final = f"c=biws,r={nonce}"
        signed = f"{self._bare},{text},{final}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._mechanism.hash)
        signature = hmac.digest(keys.stored_key, signed, self._mechanism.hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = b"v=" + b64encode(hmac.digest(keys.server_key, signed, self._mechanism.hash))
        return f"{final},p={b64encode(proof).decode()}".encode()
