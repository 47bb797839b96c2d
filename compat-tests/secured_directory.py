"""Settings of a node that wants logins on all listeners and has an authorizer and delegation tokens, for both programs
in one data directory; and clients that log in to it."""

from typing import Any, Final

from trioka.cli.client.connection import Connection
from trioka.cli.client.login import Login
from trioka.protocol.schema import Request

HOST: Final = "127.0.0.1"
TIMEOUT_S: Final = 60.0
SECURITY: Final = "org.apache.kafka.common.security"
JAAS: Final = f'{SECURITY}.plain.PlainLoginModule required username="admin" password="admin-password" ' + " ".join(
    f'user_{name}="{name}-password"' for name in ("admin", "ann", "bob", "eve")
)
SECURED: Final[dict[str, object]] = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{JAAS};",
    "listener.name.controller.plain.sasl.jaas.config": f"{JAAS};",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "delegation.token.secret.key": "key of all nodes",
}


class Clients:
    """Of one broker, by name."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._open: dict[str, Connection] = {}

    def ask(self, name: str, request: Request, version: int) -> Any:
        if name not in self._open:
            self.log_in(name, Login(mechanism="PLAIN", username=name, password=f"{name}-password"))
        return self._open[name].ask(request, version)

    def log_in(self, name: str, login: Login) -> None:
        """From now on requests of that name go over a connection with this login. Failure if it is refused."""
        if (earlier := self._open.pop(name, None)) is not None:
            earlier.close()
        made = Connection(HOST, self.port, timeout_s=TIMEOUT_S, log_in=login)
        made.open()
        self._open[name] = made

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
