"""What the audit log says of a failed TLS handshake stands in the runbook (docs/OPERATIONS.md), with what to do."""

import logging
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from support.certificates import Identity, authority, client_tls, signed
from support.serving import broker_in_thread
from support.tls_broker import SECURE, TIMEOUT_S, tls_settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "OPERATIONS.md"
AUTHORITY, OTHER = authority(), authority("CN=Other")
SERVER = signed(AUTHORITY)
GONE = "the client has gone"
PATIENCE_S = 20.0

Client = Callable[[Path], ssl.SSLContext]


def trusting(trusted: Identity, own: Identity | None = None) -> Client:
    return lambda folder: client_tls(trusted, own, folder)


def without_a_common_suite(folder: Path) -> ssl.SSLContext:
    context = client_tls(AUTHORITY, None, folder)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("DHE-RSA-AES128-GCM-SHA256")
    return context


def refused(reason: str, own: Identity) -> "Case":
    message = f"the client's certificate is refused: {reason}"
    return Case((message,), trusting(AUTHORITY, own), client_auth="required")


class Case(NamedTuple):
    reasons: tuple[str, ...]  # one of them is logged: the alert of a client may be lost with its connection
    client: Client
    host: str = "localhost"
    client_auth: str = "none"


CASES: dict[str, Case] = {
    "the client trusts another authority": Case(("alert unknown ca", GONE), trusting(OTHER)),
    "the certificate is for another host": Case(("alert bad certificate", GONE), trusting(AUTHORITY), "kafka.example"),
    "the broker trusts another authority": refused(
        "self-signed certificate in certificate chain", signed(OTHER, "CN=ann")
    ),
    "the client's certificate has ended": refused("certificate has expired", signed(AUTHORITY, days=(-9, -1))),
    "the client has no certificate": Case(
        ("peer did not return a certificate",), trusting(AUTHORITY), client_auth="required"
    ),
    "no suite is common": Case(("no shared cipher",), without_a_common_suite),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_reason_of_a_failed_handshake_stands_in_the_runbook(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "trioka.audit")
    settings = tls_settings(SERVER, AUTHORITY, tmp_path, ssl_client_auth=case.client_auth)
    with broker_in_thread(tmp_path / "data", None, **settings) as broker:
        with (
            suppress(ssl.SSLError, ConnectionError),
            socket.create_connection(broker.addresses[SECURE], TIMEOUT_S) as sock,
            case.client(tmp_path).wrap_socket(sock, server_hostname=case.host) as secured,
        ):
            secured.recv(1)
        deadline = time.monotonic() + PATIENCE_S
        while not (message := [text for text in caplog.messages if "handshake failed" in text]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert any(reason in message[0] for reason in case.reasons), message[0]
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"{reason}`" in page for reason in case.reasons)
