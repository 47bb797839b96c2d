"""Changed bytes of TLS handshakes: the broker closes the connection, logs no internal error, and serves others."""

import logging
import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from security.test_parser_fuzz import mutated
from support.certificates import authority, client_tls, signed
from support.serving import broker_in_thread
from support.tls_broker import HELLO, SECURE, TIMEOUT_S, is_served, tls_settings, until

HANDSHAKES = int(os.environ.get("TRIOKA_FUZZ_HANDSHAKES", "150"))
AUTHORITY = authority()
SERVER, ANN = signed(AUTHORITY), signed(AUTHORITY, "CN=ann")


def handshake_with(address: tuple[str, int], tls: ssl.SSLContext, random: Random) -> None:
    """The first message of the client is right and the second is changed, or the first is."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls.wrap_bio(incoming, outgoing, server_hostname="localhost")
    changed = random.randrange(2)
    with socket.create_connection(address, TIMEOUT_S) as sock, suppress(OSError):  # SSLError is one
        for number in range(3):
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
                client.write(HELLO)
            data = outgoing.read()
            sock.sendall(mutated(random, [data]) if number == changed and data else data)
            if number >= changed:
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65_536):
                    pass
                return
            incoming.write(sock.recv(65_536))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_changed_handshakes_are_closed(
    tmp_path: Path, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tls_settings(SERVER, AUTHORITY, tmp_path, ssl_client_auth="requested")
    random = Random(39)
    with broker_in_thread(tmp_path / "data", **settings) as broker, caplog.at_level(logging.WARNING):
        tls = client_tls(AUTHORITY, ANN, tmp_path)
        tls.minimum_version = tls.maximum_version = version
        for _ in range(HANDSHAKES):
            handshake_with(broker.addresses[SECURE], tls, random)
        until(lambda: not broker.network.connections)
        assert is_served(broker, client_tls(AUTHORITY, None, tmp_path))
    mistakes = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    assert not mistakes, mistakes[:3]
