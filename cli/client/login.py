"""Logging in with a name and a password: SASL PLAIN and SCRAM (RFC 5802), as messages of Kafka's protocol.

SCRAM proves that both sides know the password without sending it. The client sends a nonce, the server answers with
its own behind it, a salt and a number of iterations; the client proves, the server proves, and both are checked.
"""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from dataclasses import field
from typing import TYPE_CHECKING, Final

from trioka.protocol.errors import NONE, SaslAuthenticationFailed
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from trioka.protocol.messages.sasl_handshake import SaslHandshakeRequest

from .. import problems
from ..terminal.failure import Exit, Failure

if TYPE_CHECKING:
    from .connection import Connection

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MAX_ITERATIONS: Final = 1_000_000  # a server that asks for more wants to keep this machine busy
NONCE_BYTES: Final = 24


@frozen
class Login:
    """Called with a connection, it logs in there."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    def __call__(self, connection: "Connection") -> None:
        if self.mechanism != "PLAIN" and self.mechanism not in HASHES:
            known = ", ".join(["PLAIN", *HASHES])
            raise Failure(f"sasl.mechanism is '{self.mechanism}', and {known} are known", exit_code=Exit.USAGE)
        told = connection.ask(SaslHandshakeRequest(mechanism=self.mechanism), 1)
        if told.error_code != NONE:
            offered = ", ".join(told.mechanisms) or "none"
            raise problems.refused(told.error_code, f"{connection.address} does not take {self.mechanism}", offered)
        if self.mechanism == "PLAIN":
            self._say(connection, f"\0{self.username}\0{self.password}".encode())
        else:
            self._scram(connection, HASHES[self.mechanism])

    def _say(self, connection: "Connection", data: bytes) -> bytes:
        told = connection.ask(SaslAuthenticateRequest(auth_bytes=data), 2)
        if told.error_code != NONE:
            what = f"{connection.address} does not let '{self.username}' in"
            raise problems.refused(told.error_code, what, told.error_message)
        answer: bytes = bytes(told.auth_bytes)
        return answer

    def _scram(self, connection: "Connection", name: str) -> None:
        nonce = b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        user = self.username.replace("=", "=3D").replace(",", "=2C")
        first = f"n={user},r={nonce}"
        challenge = self._say(connection, f"n,,{first}".encode()).decode()
        fields = dict(part.split("=", 1) for part in challenge.split(",") if "=" in part)
        iterations = int(fields.get("i", "0"))
        if not fields.get("r", "").startswith(nonce) or not 0 < iterations <= MAX_ITERATIONS:
            raise self._liar(connection)
        salted = hashlib.pbkdf2_hmac(name, self.password.encode(), b64decode(fields["s"]), iterations)
        final = f"c=biws,r={fields['r']}"
        signed = f"{first},{challenge},{final}".encode()
        key = hmac.digest(salted, b"Client Key", name)
        stored = hashlib.new(name, key).digest()
        proof = bytes(a ^ b for a, b in zip(key, hmac.digest(stored, signed, name), strict=True))
        verdict = self._say(connection, f"{final},p={b64encode(proof).decode()}".encode())
        expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        if not hmac.compare_digest(verdict, b"v=" + b64encode(expected)):
            raise self._liar(connection)

    def _liar(self, connection: "Connection") -> Failure:
        what = f"{connection.address} does not prove that it knows the password of '{self.username}'"
        return problems.refused(SaslAuthenticationFailed.code, what)
