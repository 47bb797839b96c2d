"""A broker with a TLS listener beside its plaintext one, and a client that blocks."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.certificates import Identity
from support.serving import HOST, request_frame

from trioka.broker.broker import Broker
from trioka.protocol.messages.api_versions import ApiVersionsRequest

SECURE = "SECURE"
TIMEOUT_S = 20.0
HELLO = request_frame(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)


def tls_settings(identity: Identity, authority: Identity, directory: Path, **settings: str) -> dict[str, Any]:
    """For `running_broker` or `broker_in_thread`."""
    store, trusted = directory / "server.pem", directory / "authority.pem"
    identity.write(store)
    trusted.write_text(authority.chain_pem)
    return {
        "listeners": f"PLAINTEXT://{HOST}:0,{SECURE}://{HOST}:0,CONTROLLER://{HOST}:0",
        "listener_security_protocol_map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{SECURE}:SSL",
        "inter_broker_listener_name": "PLAINTEXT",
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(store),
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(trusted),
        **settings,
    }


@contextmanager
def tls_socket(broker: Broker, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """A connection after its handshake."""
    with (
        socket.create_connection(broker.addresses[SECURE], TIMEOUT_S) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as secured,
    ):
        yield secured


def is_served(broker: Broker, context: ssl.SSLContext) -> bool:
    """Whether a handshake succeeds and a request is answered. In TLS 1.3 a client learns of a refused certificate only
    when it reads."""
    try:
        with tls_socket(broker, context) as sock:
            sock.sendall(HELLO)
            return bool(read_frame(sock))
    except (ssl.SSLError, ConnectionError):
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition does not come true"
        time.sleep(0.01)


def read_frame(sock: socket.socket) -> bytes:
    """The next response, without its size; empty at the end of the stream."""
    size = read_exactly(sock, 4)
    return read_exactly(sock, int.from_bytes(size, "big")) if size else b""


def read_exactly(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(min(size - len(parts), 1 << 20))
        if not part:
            break
        parts += part
    return bytes(parts)
