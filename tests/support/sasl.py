"""A broker with a SASL listener, and clients that log in to it: rightly, or byte by byte."""

import ssl
from contextlib import suppress
from struct import Struct
from types import TracebackType
from typing import Any, Final

import trio

from trioka.broker.broker import Broker
from trioka.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from trioka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from trioka.protocol.sasl.client import client_exchange
from trioka.protocol.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from trioka.protocol.sasl.scram import SCRAM_MECHANISMS, salted_password
from trioka.protocol.schema import Request

from .serving import HOST, ask, read_answer, request_frame

Upsertion = AlterUserScramCredentialsRequest.Upsertion

SASL: Final = "SASL"  # the listener
PASSWORDS: Final = {"alice": "alice-s3cret", "bob": "bob-s3cret", "root": "root-s3cret"}
PLAIN_JAAS: Final = f"{PLAIN_MODULE} required " + " ".join(
    f'user_{name}="{password}"' for name, password in PASSWORDS.items()
)
SASL_SETTINGS: Final[dict[str, Any]] = {
    "listeners": f"PLAINTEXT://{HOST}:0,{SASL}://{HOST}:0,CONTROLLER://{HOST}:0",
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{SASL}:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": f"{PLAIN_JAAS};",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
}
FAILED: Final = 58
_SIZE: Final = Struct(">i")
CLOSED_S: Final = 10.0  # a connection that is to be closed is closed long before


def upsertion(name: str, mechanism: str, password: str, /, **changes: Any) -> Upsertion:
    chosen = SCRAM_MECHANISMS[mechanism]
    salt, iterations = b"a salt of the test", 4096
    return Upsertion(
        **{
            "name": name,
            "mechanism": chosen.number,
            "iterations": iterations,
            "salt": salt,
            "salted_password": salted_password(chosen, password, salt, iterations),
            **changes,
        }
    )


async def add_scram_user(broker: Broker, name: str, mechanism: str, password: str) -> None:
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion(name, mechanism, password)])
    (result,) = (await ask(broker, request, 0)).results
    assert result.error_code == 0, result.error_message


class SaslClient:
    """One connection to the SASL listener, or to another one; with a context, over TLS."""

    def __init__(self, broker: Broker, listener: str = SASL, context: ssl.SSLContext | None = None) -> None:
        self._address = {**broker.addresses, **broker.controller_addresses}[listener]
        self._context = context
        self._stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]

    async def __aenter__(self) -> "SaslClient":
        stream = await trio.open_tcp_stream(*self._address)
        self._stream = stream
        if self._context is not None:
            self._stream = trio.SSLStream(stream, self._context, server_hostname="localhost", https_compatible=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(trio.BrokenResourceError):
            await self._stream.aclose()

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def send_frame(self, data: bytes) -> None:
        await self.send(_SIZE.pack(len(data)) + data)

    async def receive_frame(self) -> bytes | None:
        """None if the broker closes the connection instead."""
        with suppress(trio.BrokenResourceError):
            size = await self._receive(4)
            return None if size is None else await self._receive(_SIZE.unpack(size)[0])
        return None

    async def _receive(self, size: int) -> bytes | None:
        received = b""
        while len(received) < size:
            more = await self._stream.receive_some(size - len(received))
            if not more:
                return None
            received += more
        return received

    async def ask(self, request: Request, version: int) -> Any:
        """The answer; None if the broker closes the connection instead."""
        with suppress(trio.BrokenResourceError):
            await self.send(request_frame(request, version))
            frame = await self.receive_frame()
            return None if frame is None else read_answer(request, version, frame)
        return None

    async def is_closed(self) -> bool:
        """Waits until the broker closes the connection; False if it sends something instead, or nothing happens."""
        with trio.move_on_after(CLOSED_S):
            try:
                return not await self._stream.receive_some(1)
            except trio.BrokenResourceError:
                return True
        return False

    async def handshake(self, mechanism: str, version: int = 1) -> Any:
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    async def authenticate(self, message: bytes, version: int = 2) -> Any:
        return await self.ask(SaslAuthenticateRequest(auth_bytes=message), version)

    async def log_in(self, mechanism: str, name: str, password: str) -> Any:
        """The last answer of the broker."""
        response = await self.handshake(mechanism)
        assert response is not None and response.error_code == 0, response
        exchange = client_exchange(mechanism, name, password, random=bytes(24))
        challenge = b""
        while (message := exchange.respond(challenge)) is not None:
            response = await self.authenticate(message)
            if response is None or response.error_code:
                return response
            challenge = bytes(response.auth_bytes)
        return response
