"""TLS listeners: real sockets, and Python's ssl as the client."""

import logging
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import trio
from support.certificates import authority, client_tls, signed
from support.large_responses import fetch, produce
from support.quotas import ANONYMOUS, set_quota
from support.serving import Client, broker_in_thread, read_answer, request_frame
from support.tls_broker import HELLO, SECURE, TIMEOUT_S, read_frame, tls_settings, tls_socket, until
from support.topic_requests import topic

from trioka.broker.broker import Broker
from trioka.broker.metrics import readings
from trioka.broker.metrics.series import TLS_CERTIFICATE_EXPIRY, TLS_HANDSHAKES
from trioka.broker.network.connection import MAX_OUTGOING_BYTES
from trioka.broker.network.tls.handshake_pool import Handshake, HandshakePool
from trioka.broker.network.tls.handshakes import CLIENT_HAS_GONE
from trioka.protocol.frame import MAX_EMPTY_BYTES
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.schema import Request

SIZE = 700_000
FETCHES = 40
AUTHORITY = authority()
SERVER = signed(AUTHORITY)
ANN = signed(AUTHORITY, "CN=ann,O=Example")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    settings = tls_settings(SERVER, AUTHORITY, tmp_path, ssl_client_auth="requested")
    with broker_in_thread(tmp_path / "data", **settings) as running:
        yield running


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    return client_tls(AUTHORITY, None, tmp_path)


def test_requests_are_answered_over_tls(broker: Broker, tls: ssl.SSLContext) -> None:
    with tls_socket(broker, tls) as sock:
        sock.sendall(HELLO * 3)
        assert len({read_frame(sock) for _ in range(3)}) == 1
        assert sock.version() == "TLSv1.3"


def test_connections_between_large_requests_hold_little_memory(broker: Broker, tls: ssl.SSLContext) -> None:
    """What they have received into is shared, though TLS is often asked for more when there is none."""
    create(broker)
    with ExitStack() as stack:
        for _ in range(12):
            sock = stack.enter_context(tls_socket(broker, tls))
            request = produce(SIZE, 1)
            assert ask(sock, request, 9).responses[0].partition_responses[0].error_code == 0
        until(lambda: sum(len(each.reader.own or b"") for each in broker.network.connections) <= MAX_EMPTY_BYTES)
        assert not any(each.held_bytes for each in broker.network.connections)


def test_a_connection_knows_version_suite_and_certificate(broker: Broker, tmp_path: Path) -> None:
    tls = client_tls(AUTHORITY, ANN, tmp_path)
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    with tls_socket(broker, tls) as sock:
        sock.sendall(HELLO)
        assert read_frame(sock)
        (connection,) = broker.network.connections
        assert connection.principal == "User:CN=ann,O=Example"
        assert connection.tls is not None
        assert connection.tls.version == "TLSv1.2"
        assert connection.tls.cipher.startswith("TLS_ECDHE_ECDSA_WITH_")
        assert connection.tls.peer_certificate == ANN.der


def test_a_client_without_a_certificate_is_anonymous(broker: Broker, tls: ssl.SSLContext) -> None:
    with tls_socket(broker, tls) as sock:
        sock.sendall(HELLO)
        assert read_frame(sock)
        assert [each.principal for each in broker.network.connections] == ["User:ANONYMOUS"]


def test_requests_in_records_of_one_byte_are_answered(broker: Broker, tls: ssl.SSLContext) -> None:
    with tls_socket(broker, tls) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in HELLO:
            sock.sendall(bytes((byte,)))
        assert read_frame(sock)


def test_a_request_that_comes_with_the_last_message_of_the_handshake_is_answered(
    broker: Broker, tls: ssl.SSLContext
) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(broker.addresses[SECURE], TIMEOUT_S) as sock:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        client.write(HELLO)
        sock.sendall(outgoing.read())  # Finished and the request, in one segment
        answer = b""
        while len(answer) < 4:
            try:
                answer += client.read(65536)
            except ssl.SSLWantReadError:
                received = sock.recv(65536)
                assert received, "the broker has hung up"
                incoming.write(received)


def test_large_requests_and_responses_pass_through_tls(broker: Broker, tls: ssl.SSLContext) -> None:
    create(broker)
    with tls_socket(broker, tls) as sock:
        for number in range(4):
            written = ask(sock, produce(SIZE, number), 9).responses[0].partition_responses[0]
            assert (written.error_code, written.base_offset) == (0, number)
        answer = ask(sock, fetch(4 * SIZE + 65536), 12)
    records = answer.responses[0].partitions[0].records
    assert len(records) > 4 * SIZE


def test_a_client_that_does_not_read_holds_no_more_than_the_limit(broker: Broker, tls: ssl.SSLContext) -> None:
    create(broker)
    with tls_socket(broker, tls) as sock:
        ask(sock, produce(SIZE, 0), 9)
        sock.sendall(request_frame(fetch(SIZE + 65536), 12) * FETCHES)
        (connection,) = [each for each in broker.network.connections if each.tls is not None]
        deadline = time.monotonic() + TIMEOUT_S
        while connection.outgoing_bytes <= MAX_OUTGOING_BYTES and time.monotonic() < deadline:
            time.sleep(0.01)
        assert MAX_OUTGOING_BYTES < connection.outgoing_bytes < MAX_OUTGOING_BYTES + SIZE + 2 * 65536
        sizes = {len(read_frame(sock)) for _ in range(FETCHES)}  # then it reads, and gets all
        assert len(sizes) == 1
        assert sizes.pop() > SIZE
        assert connection.outgoing_bytes == 0


def test_a_client_that_resets_while_the_thread_has_its_handshake_is_in_the_audit_log(
    broker: Broker, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "trioka.audit")
    is_begun, may_go_on = Event(), Event()
    advance = HandshakePool._advance

    def advance_late(pool: HandshakePool, handshake: Handshake) -> None:
        is_begun.set()
        assert may_go_on.wait(TIMEOUT_S)
        advance(pool, handshake)

    monkeypatch.setattr(HandshakePool, "_advance", advance_late)
    outgoing = ssl.MemoryBIO()
    client = tls.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    with socket.create_connection(broker.addresses[SECURE], TIMEOUT_S) as sock:
        sock.sendall(outgoing.read())
        assert is_begun.wait(TIMEOUT_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets
    until(lambda: any("handshake failed" in line and CLIENT_HAS_GONE in line for line in caplog.messages))
    may_go_on.set()


def test_metrics_tell_handshakes_and_the_end_of_the_certificate(broker: Broker, tls: ssl.SSLContext) -> None:
    with tls_socket(broker, tls) as sock:
        sock.sendall(HELLO)
        assert read_frame(sock)
        found = dict(each for each in readings._connections(broker) if each is not None)
    (left,) = found[TLS_CERTIFICATE_EXPIRY]
    assert left.labels == {"listener": SECURE}
    assert 29 * 86_400 < left.value <= 30 * 86_400
    assert [(each.labels, each.value) for each in found[TLS_HANDSHAKES]] == [({"listener": SECURE}, 1)]


def ask(sock: ssl.SSLSocket, request: Request, version: int) -> Any:
    sock.sendall(request_frame(request, version))
    return read_answer(request, version, read_frame(sock))


def create(broker: Broker) -> None:
    client = Client(*broker.addresses["PLAINTEXT"])
    client.ask(CreateTopicsRequest(topics=[topic("t")]), 7)
    client.close()


def test_what_a_throttled_client_has_sent_meanwhile_is_answered(broker: Broker, tls: ssl.SSLContext) -> None:
    """More than the receive buffer holds, so that TLS records wait decrypted, encrypted and in the kernel."""
    trio.run(partial(set_quota, broker, ANONYMOUS, request_percentage=1e-6))
    many = 20_000
    with tls_socket(broker, tls) as sock:
        sock.sendall(HELLO)
        read_frame(sock)
        (connection,) = [each for each in broker.network.connections if each.listener == SECURE]
        muted = connection.muted
        assert muted is not None
        with socket_thread(sock, HELLO * many):
            trio.run(partial(set_quota, broker, ANONYMOUS, request_percentage=None))
            for _ in range(many):
                assert read_frame(sock)
        assert broker.clock.now() >= muted.until


@contextmanager
def socket_thread(sock: ssl.SSLSocket, data: bytes) -> Iterator[None]:
    """Sends meanwhile."""
    thread = Thread(target=sock.sendall, args=(data,))
    thread.start()
    yield
    thread.join()
