"""A broker under test with TLS and logins: its files, its settings, and the settings of clients."""

import secrets
from typing import Final

from trioka.cli.client.settings import Settings
from trioka.cli.node.secured import PASSWORD_BYTES, Access, scram_upsertion
from trioka.protocol.errors import NONE, error_class
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.sasl.scram import SALT_RANDOM_BYTES

from . import temp_dirs
from .client import TIMEOUT_S, Client

CA, SERVER = "ca.pem", "server.pem"
MECHANISMS: Final = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"


class Secured:
    """The user `admin` is a super user. It authenticates with SCRAM-SHA-512, and before that with PLAIN: only an
    authenticated client can create a SCRAM user.
    """

    def __init__(self, folder: str, *, tls: bool, sasl: bool) -> None:
        self._folder = folder
        authority = f"{folder}/{CA}" if tls else None
        self.access = Access(authority, secrets.token_urlsafe(PASSWORD_BYTES) if sasl else None)
        if tls:
            from trioka.cli.node.certificates import make_certificates

            made = make_certificates()
            temp_dirs.write(f"{folder}/{CA}", made.authority)
            temp_dirs.write(f"{folder}/{SERVER}", made.identity)

    def settings(self, listener: str) -> dict[str, str]:
        """Keys of server.properties."""
        settings = self.access.broker_settings(
            None if self.access.authority is None else f"{self._folder}/{SERVER}", listener
        )
        if self.access.password is not None:
            prefix = f"listener.name.{listener.lower()}"
            settings |= {
                "sasl.enabled.mechanisms": MECHANISMS,
                f"{prefix}.scram-sha-256.sasl.jaas.config": settings[f"{prefix}.scram-sha-512.sasl.jaas.config"],
            }
        return settings

    def client(self, host: str, port: int, *, by_plain: bool = False) -> Client:
        properties = self.access.client_config("java")
        if by_plain:
            properties["sasl.mechanism"] = "PLAIN"
        settings = Settings(((host, port),), properties, TIMEOUT_S)
        return Client((host, port), tls=settings.tls(), login=settings.login())

    def create_user(self, host: str, port: int) -> None:
        """Create the user's SCRAM credential."""
        if self.access.password is None:
            return
        upsertion = scram_upsertion(self.access.password, secrets.token_bytes(SALT_RANDOM_BYTES))
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
        with self.client(host, port, by_plain=True).kafka() as kafka:
            answer = kafka.ask_controller(request, lambda result: [each.error_code for each in result.results])
        for result in answer.results:
            if result.error_code != NONE:
                raise error_class(result.error_code)(result.error_message or "")
