"""A client that logs in by SASL, on the connection of tests/support/serving.py."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.serving import ClientConnection

from trioka.broker.broker import Broker
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from trioka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from trioka.protocol.sasl.client import client_exchange
from trioka.protocol.sasl.exchange import ClientExchange
from trioka.protocol.sasl.oauthbearer import initial_response

SETTINGS = {
    "listeners": "PLAIN://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener_security_protocol_map": "PLAIN:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter_broker_listener_name": "PLAINTEXT",
}
PASSWORDS = {"ann": "ann-password", "bob": "bob-password"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{name}="{password}"' for name, password in PASSWORDS.items()
)
USERS = {
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "plain_sasl_jaas_config": f"{JAAS_PLAIN};",
    "scram-sha-256_sasl_jaas_config": f"{SCRAM} required;",
    "scram-sha-512_sasl_jaas_config": f"{SCRAM} required;",
}


class BearerExchange:
    """OAUTHBEARER, as clients do it."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._is_sent = False

    def respond(self, challenge: bytes) -> bytes | None:
        if challenge:
            return b"\x01"
        if self._is_sent:
            return None
        self._is_sent = True
        return initial_response(self._token)


async def log_in(connection: ClientConnection, mechanism: str, exchange: ClientExchange) -> Any:
    """The last response to SaslAuthenticate: with an error, or of the end of the login."""
    agreed = await connection.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert agreed.error_code == 0, agreed
    message = exchange.respond(b"")
    response: Any = None
    while message is not None:
        response = await connection.ask(SaslAuthenticateRequest(auth_bytes=message), 2)
        if response.error_code:
            return response
        message = exchange.respond(bytes(response.auth_bytes))
    return response


def by_password(mechanism: str, name: str, password: str, *, is_token: bool = False) -> ClientExchange:
    return client_exchange(mechanism, name, password, random=bytes(24), is_token=is_token)


@asynccontextmanager
async def logged_in(broker: Broker, name: str) -> AsyncIterator[ClientConnection]:
    async with ClientConnection(broker, "PLAIN") as connection:
        response = await log_in(connection, "PLAIN", by_password("PLAIN", name, PASSWORDS[name]))
        assert response.error_code == 0, response
        yield connection
