"""Authentication with a user name and a password (SASL PLAIN and SCRAM) or a bearer token (OAUTHBEARER), in messages of
Kafka's protocol.

The exchanges are those of protocol/sasl/, which brokers also use between each other.
"""

import secrets
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final

from trioka.protocol.errors import NONE, SaslAuthenticationFailed
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from trioka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from trioka.protocol.sasl.client import CLIENT_MECHANISMS, client_exchange
from trioka.protocol.sasl.exchange import ServerNotAuthenticated
from trioka.protocol.sasl.jaas import OAUTHBEARER, PLAIN_MODULE, JaasError, parse_jaas
from trioka.protocol.sasl.scram import NONCE_BYTES, TOKEN_EXTENSION

from .. import problems
from ..terminal.failure import Exit, Failure

if TYPE_CHECKING:
    from .connection import Connection

HINT: Final = f'such as: sasl.jaas.config={PLAIN_MODULE} required username="ann" password="…";'


@frozen
class Login:
    """A login; called with a connection, it authenticates it."""

    mechanism: str
    username: str  # empty with a bearer token
    password: str = field(repr=False)  # or the bearer token
    is_token: bool = False  # name and password are those of a delegation token

    def __call__(self, connection: "Connection") -> None:
        if self.mechanism not in CLIENT_MECHANISMS:
            known = ", ".join(CLIENT_MECHANISMS)
            raise Failure(f"sasl.mechanism is '{self.mechanism}', and {known} are known", exit_code=Exit.USAGE)
        response = connection.ask(SaslHandshakeRequest(mechanism=self.mechanism), 1)
        if response.error_code != NONE:
            offered = ", ".join(response.mechanisms) or "none"
            raise problems.from_error_code(
                response.error_code, f"{connection.address} does not take {self.mechanism}", offered
            )
        random = secrets.token_bytes(NONCE_BYTES)
        exchange = client_exchange(self.mechanism, self.username, self.password, random=random, is_token=self.is_token)
        try:
            challenge = b""
            while (message := exchange.respond(challenge)) is not None:
                challenge = self._say(connection, message)
        except ServerNotAuthenticated:
            what = f"{connection.address} does not prove that it knows the password of {self._name}"
            raise problems.from_error_code(SaslAuthenticationFailed.code, what) from None

    @property
    def _name(self) -> str:
        return f"'{self.username}'" if self.username else "this bearer token"

    def _say(self, connection: "Connection", data: bytes) -> bytes:
        response = connection.ask(SaslAuthenticateRequest(auth_bytes=data), 2)
        if response.error_code != NONE:
            what = f"{connection.address} does not let {self._name} in"
            raise problems.from_error_code(response.error_code, what, response.error_message)
        answer: bytes = bytes(response.auth_bytes)
        return answer


def login_of(protocol: str, properties: Mapping[str, str]) -> Login:
    """The login that the keys of a client.properties describe."""
    text = properties.get("sasl.jaas.config", "")
    try:
        options = parse_jaas(text).options if text else {}
    except JaasError as error:
        raise Failure(f"sasl.jaas.config {error}", exit_code=Exit.USAGE, hints=[HINT]) from None
    mechanism = properties.get("sasl.mechanism", "PLAIN").upper()
    if mechanism == OAUTHBEARER:
        from .bearer_token import bearer_token

        return Login(mechanism=mechanism, username="", password=bearer_token(properties, options))
    if not {"username", "password"} <= options.keys():
        what = f"{protocol} needs a username and a password, and sasl.jaas.config lacks them"
        raise Failure(what, exit_code=Exit.USAGE, hints=[HINT])
    return Login(
        mechanism=mechanism,
        username=options["username"],
        password=options["password"],
        is_token=options.get(TOKEN_EXTENSION, "").lower() == "true",
    )
