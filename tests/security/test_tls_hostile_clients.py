"""Clients of TLS listeners that do not go on, go away in the middle, or send what no client sends. Others are served
meanwhile."""

import contextlib
import gc
import inspect
import logging
import select
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
from mutants.plant import assert_noticed, planted, within
from support import tls_broker
from support.certificates import authority, client_tls, signed
from support.large_responses import produce
from support.serving import HOST, Client, broker_in_thread, on_trio, read_answer, request_frame, running_broker
from support.tls_broker import HELLO, SECURE, TIMEOUT_S, is_served, read_frame, tls_settings, tls_socket, until
from support.tls_records import RecordWriter, call_openssl
from support.topic_requests import topic

from trioka.broker import broker as broker_module
from trioka.broker.broker import Broker
from trioka.broker.network import handshake_pool, server, tls_handshakes
from trioka.broker.network.channel import Channel
from trioka.broker.network.handshake_pool import HandshakeProgress
from trioka.broker.network.tls_handshakes import MAX_HANDSHAKES, TlsHandshakes
from trioka.protocol.messages.create_topics import CreateTopicsRequest

AUTHORITY = authority()
SERVER = signed(AUTHORITY)
OTHER = "OTHER"
EMPTY_RECORDS = 100_000
KEY_UPDATES = 100
NEVER_S = 1000.0
QUEUED = 5
MISTAKE_S = 3.0  # the rules need less than one


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with broker_in_thread(tmp_path / "data", **tls_settings(SERVER, AUTHORITY, tmp_path)) as running:
        yield running


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    return client_tls(AUTHORITY, None, tmp_path)


def handshakes_of(broker: Broker) -> TlsHandshakes:
    assert broker.network.handshakes is not None
    return broker.network.handshakes


# -- handshakes that do not go on --------------------------------------------------------------------------------------


def two_listeners(directory: Path) -> dict[str, Any]:
    return tls_settings(
        SERVER,
        AUTHORITY,
        directory,
        listeners=f"PLAINTEXT://{HOST}:0,{SECURE}://{HOST}:0,{OTHER}://{HOST}:0,CONTROLLER://{HOST}:0",
        listener_security_protocol_map=f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{SECURE}:SSL,{OTHER}:SSL",
    )


def test_silent_clients_of_one_listener_do_not_fill_another(tmp_path: Path) -> None:
    tls = client_tls(AUTHORITY, None, tmp_path)
    with broker_in_thread(tmp_path / "data", **two_listeners(tmp_path)) as broker, contextlib.ExitStack() as silent:
        for _ in range(MAX_HANDSHAKES + 5):
            silent.enter_context(socket.create_connection(broker.addresses[OTHER], TIMEOUT_S))
        until(lambda: len(handshakes_of(broker)) == MAX_HANDSHAKES)
        assert is_served(broker, tls)


def test_a_handshake_ends_at_its_deadline(tmp_path: Path) -> None:
    ends_at_its_deadline(tmp_path)


def ends_at_its_deadline(directory: Path) -> None:
    """Not when idle connections are searched, whatever the client has sent."""
    settings = tls_settings(SERVER, AUTHORITY, directory, trioka_tls_handshake_timeout_ms="400")
    with pytest.MonkeyPatch.context() as patch, broker_in_thread(directory / "data", **settings) as broker:
        patch.setattr(broker_module, "IDLE_CHECK_S", NEVER_S)
        with contextlib.ExitStack() as clients:
            first = clients.enter_context(socket.create_connection(broker.addresses[SECURE], TIMEOUT_S))
            until(lambda: len(handshakes_of(broker)) == 1)
            for text in (b"\x16\x03\x01", b"\x16\x03\x01\x02\x00" + bytes(100), b""):
                time.sleep(0.2)  # so that their deadlines differ
                second = clients.enter_context(socket.create_connection(broker.addresses[SECURE], TIMEOUT_S))
                first.sendall(text)
                assert first.recv(1) == second.recv(1) == b""
                first = clients.enter_context(socket.create_connection(broker.addresses[SECURE], TIMEOUT_S))


def test_a_node_that_has_too_many_connections_closes_the_oldest_handshake(tmp_path: Path) -> None:
    closes_the_oldest_handshake(tmp_path)


def closes_the_oldest_handshake(tmp_path: Path) -> None:
    """So that silent clients do not keep brokers away, and other clients stay."""
    settings = tls_settings(SERVER, AUTHORITY, tmp_path, max_connections="2")
    with broker_in_thread(tmp_path / "data", **settings) as broker, contextlib.ExitStack() as silent:
        for _ in range(2):
            silent.enter_context(socket.create_connection(broker.addresses[SECURE], TIMEOUT_S))
        until(lambda: len(handshakes_of(broker)) == 2)
        with contextlib.closing(Client(*broker.addresses["PLAINTEXT"])):  # the inter-broker listener
            until(lambda: len(handshakes_of(broker)) == 1)


# -- while the thread has a handshake ----------------------------------------------------------------------------------


class HeldTls:
    """A handshake that lasts until the test ends it."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def do_handshake(self) -> None:
        self.began.set()
        assert self.may_end.wait(TIMEOUT_S)


class HeldHandshake:
    is_closed = is_in_thread = True
    error = None

    def __init__(self) -> None:
        self.tls = HeldTls()
        self.progress = HandshakeProgress.NEEDS_BYTES
        self.sock = self
        self.is_forgotten = False

    def close(self) -> None:
        """As a socket."""
        self.is_forgotten = True


def test_a_client_that_resets_while_the_thread_has_its_handshake_is_forgotten(tmp_path: Path) -> None:
    forgets_who_resets(tmp_path)


def forgets_who_resets(directory: Path) -> None:
    with broker_in_thread(directory / "data", **tls_settings(SERVER, AUTHORITY, directory)) as broker:
        _forgets_who_resets(broker, client_tls(AUTHORITY, None, directory))


def _forgets_who_resets(broker: Broker, tls: ssl.SSLContext) -> None:
    handshakes, held = handshakes_of(broker), HeldHandshake()
    handshakes._pool.submit(held)  # type: ignore[arg-type]
    assert held.tls.began.wait(TIMEOUT_S)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    sock = socket.create_connection(broker.addresses[SECURE], TIMEOUT_S)
    sock.sendall(outgoing.read())
    until(lambda: any(each.is_in_thread for each in list(handshakes._pending.values())))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    until(lambda: len(handshakes) == 0)
    held.tls.may_end.set()
    assert is_served(broker, tls)
    until(lambda: not broker.network.connections)
    until(lambda: held.is_forgotten)


def test_a_stop_waits_for_one_handshake_at_most() -> None:
    stops_soon(handshake_pool)


def stops_soon(module: ModuleType) -> None:
    pool, held = module.HandshakePool(), HeldHandshake()
    later = [HeldHandshake() for _ in range(QUEUED)]
    pool.submit(held)
    assert held.tls.began.wait(TIMEOUT_S)
    for each in later:
        each.tls.may_end.set()
        pool.submit(each)
    closing = threading.Thread(target=pool.close)
    closing.start()
    until(lambda: pool._is_closing)
    held.tls.may_end.set()
    closing.join(TIMEOUT_S)
    assert not closing.is_alive()
    assert not any(each.tls.began.is_set() for each in later)
    assert pool.take_finished() == [held, *later]
    assert all(each.progress is HandshakeProgress.NEEDS_BYTES for each in later)


def test_a_broker_stops_while_handshakes_are_in_progress(tmp_path: Path) -> None:
    with (
        contextlib.ExitStack() as clients,
        broker_in_thread(tmp_path / "data", **tls_settings(SERVER, AUTHORITY, tmp_path)) as broker,
    ):
        for text in (b"", b"\x16\x03\x01"):
            clients.enter_context(socket.create_connection(broker.addresses[SECURE], TIMEOUT_S)).sendall(text)
        until(lambda: len(handshakes_of(broker)) == 2)
    assert len(handshakes_of(broker)) == 0


# -- what no client sends ----------------------------------------------------------------------------------------------


def test_records_without_content_end_the_connection(
    broker: Broker, tls: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls.keylog_filename = str(tmp_path / "keys")
    with tls_socket(broker, tls) as sock:
        writer = RecordWriter(tmp_path / "keys")
        raw = socket.socket(fileno=sock.detach())
    with raw:
        raw.settimeout(TIMEOUT_S)
        raw.sendall(b"".join(writer.record(HELLO[at : at + 9]) for at in range(0, len(HELLO), 9)))
        assert raw.recv(1)  # these records are right: the request is answered
        with contextlib.suppress(ConnectionError):
            raw.sendall(b"".join(writer.record(b"") for _ in range(EMPTY_RECORDS)))
        until(lambda: not broker.network.connections)
    assert is_served(broker, client_tls(AUTHORITY, None, tmp_path))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_requests_for_new_keys_without_end_disturb_no_other_client(
    broker: Broker, tls: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """TLS 1.3, attack 45: one client reads the answers and is served; for the other, little is kept."""
    with tls_socket(broker, tls) as reader, tls_socket(broker, tls) as writer:
        for _ in range(KEY_UPDATES):
            assert call_openssl("SSL_key_update", reader, 1) == 1
            reader.sendall(HELLO)
            assert read_frame(reader)
        writer.settimeout(TIMEOUT_S)
        with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
            for _ in range(100 * KEY_UPDATES):
                assert call_openssl("SSL_key_update", writer, 1) == 1
                writer.sendall(HELLO[:1])  # it sends the update, too
        held = [each.outgoing_bytes for each in broker.network.connections]
        assert all(size <= 1 << 20 for size in held)
        reader.sendall(HELLO)
        assert read_frame(reader)
    assert is_served(broker, client_tls(AUTHORITY, None, tmp_path))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_renegotiation_is_refused(
    broker: Broker, tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    with tls_socket(broker, tls) as sock:
        sock.sendall(HELLO)
        assert read_frame(sock)
        assert call_openssl("SSL_renegotiate", sock) == 1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            sock.do_handshake()
    assert is_served(broker, client_tls(AUTHORITY, None, tmp_path))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_half_a_record_keeps_no_connection_alive(
    tmp_path: Path, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only bytes of requests count, not those of TLS."""
    monkeypatch.setattr(broker_module, "IDLE_CHECK_S", 0.02)
    settings = tls_settings(SERVER, AUTHORITY, tmp_path, connections_max_idle_ms="200")
    with broker_in_thread(tmp_path / "data", **settings) as broker, tls_socket(broker, tls) as sock:
        until(lambda: len(broker.network.connections) == 1)
        raw = socket.socket(fileno=sock.detach())
        with raw, contextlib.suppress(ConnectionError):
            raw.sendall(struct.pack(">BHH", 0x17, 0x0303, 16_000))
            raw.settimeout(0.01)
            while True:  # until the broker closes it
                raw.sendall(b"x")
                with contextlib.suppress(TimeoutError):
                    while raw.recv(4096):
                        pass
                    break


def test_a_produce_in_records_of_one_byte_is_served(broker: Broker, tls: ssl.SSLContext) -> None:
    client = Client(*broker.addresses["PLAINTEXT"])
    client.ask(CreateTopicsRequest(topics=[topic("t")]), 7)
    client.close()
    request = produce(1000, 0)
    with tls_socket(broker, tls) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request_frame(request, 9):
            sock.sendall(bytes((byte,)))
        written = read_answer(request, 9, read_frame(sock)).responses[0].partition_responses[0]
    assert (written.error_code, written.base_offset) == (0, 0)


def test_a_certificate_signed_with_sha_1_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The cryptography package does not sign with SHA-1, openssl does."""
    ann = signed(AUTHORITY, "CN=ann")
    (tmp_path / "key.pem").write_text(ann.key_pem())
    (tmp_path / "ca-key.pem").write_text(AUTHORITY.key_pem())
    (tmp_path / "ca.pem").write_text(AUTHORITY.chain_pem)

    def certificate(digest: str) -> ssl.SSLContext:
        run("req", "-new", "-key", "key.pem", "-subj", "/CN=ann", "-out", "ann.csr")
        run("x509", "-req", f"-{digest}", "-in", "ann.csr", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-out", "ann.pem")
        context = client_tls(AUTHORITY, None, tmp_path)
        context.set_ciphers("ALL:@SECLEVEL=0")  # else the client does not load it
        context.load_cert_chain(tmp_path / "ann.pem", tmp_path / "key.pem")
        return context

    def run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)

    settings = tls_settings(SERVER, AUTHORITY, tmp_path, ssl_client_auth="required")
    with broker_in_thread(tmp_path / "data", **settings) as broker, caplog.at_level(logging.INFO, "trioka.audit"):
        assert is_served(broker, certificate("sha256"))
        caplog.clear()
        assert not is_served(broker, certificate("sha1"))
        until(lambda: any("algorithm too weak" in record.getMessage() for record in caplog.records))


# -- two races ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def idle_channel(directory: Path) -> AsyncIterator[tuple[Broker, Channel]]:
    """A broker, and the channel of a TLS client that has got its answer."""
    tls = client_tls(AUTHORITY, None, directory)
    settings = tls_settings(SERVER, AUTHORITY, directory)

    def connect(address: tuple[str, int]) -> ssl.SSLSocket:
        sock = tls.wrap_socket(socket.create_connection(address, TIMEOUT_S), server_hostname="localhost")
        sock.sendall(HELLO)
        assert read_frame(sock)
        return sock

    async with running_broker(directory / "data", **settings) as broker:
        with await trio.to_thread.run_sync(connect, broker.addresses[SECURE]):
            (channel,) = [each for each in broker.network._channels.values() if each.connection.tls is not None]
            yield broker, channel


@on_trio
async def test_a_channel_in_its_turn_is_served_again_after_the_turn(tmp_path: Path) -> None:
    await serves_after_the_turn(tmp_path)


async def serves_after_the_turn(directory: Path) -> None:
    """Before a large request is served, others are. Bytes of its own connection must not be received then, because its
    buffer is in use; they are received in the next round, without an event of the socket."""
    async with idle_channel(directory) as (broker, channel):
        network, handshakes = broker.network, handshakes_of(broker)
        received = trio.Event()

        def receive(view: memoryview) -> int:
            received.set()
            raise BlockingIOError

        channel.receive = receive
        network._is_serving_small = True
        handshakes.serve_again(channel)
        handshakes.serve(handshakes._pool.descriptor, select.EPOLLIN)
        assert not received.is_set()
        network._is_serving_small = False
        with trio.fail_after(tls_broker.TIMEOUT_S):
            await received.wait()


@on_trio
async def test_a_deferred_request_is_served_before_its_buffer_is_received_into(tmp_path: Path) -> None:
    await serves_deferred_first(tmp_path)


async def serves_deferred_first(directory: Path) -> None:
    async with idle_channel(directory) as (broker, channel):
        network, connection, steps = broker.network, channel.connection, []

        def receive(view: memoryview) -> int:
            steps.append("receive")
            raise BlockingIOError

        def flush() -> None:
            steps.append("serve")
            connection.deferred = None

        channel.receive, network._flush_deferred = receive, flush  # type: ignore[method-assign]
        connection.deferred = b"answer"
        network.serve_without_event(channel)
        connection.deferred = None
        assert steps == ["serve", "receive"]


# -- planted mistakes --------------------------------------------------------------------------------------------------

Rule = Callable[..., object]

HANDSHAKE_MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "self._counts.get(listener, 0) < MAX_HANDSHAKES",
        "len(self._pending) < MAX_HANDSHAKES",
        test_silent_clients_of_one_listener_do_not_fill_another,
    ),
    (
        "self._server.after(self._server.handshake_timeout_s, self._close_late)",
        "pass",
        ends_at_its_deadline,
    ),
    (within("TlsHandshakes._close_late", "self._is_timed = False"), "pass", ends_at_its_deadline),
    ("self._server.after(handshake.deadline - now, self._close_late)", "pass", ends_at_its_deadline),
    (within("TlsHandshakes._advance", "if handshake.is_closed:"), "if False:", forgets_who_resets),
    ("if not self._server.is_in_turn:", "if True:", serves_after_the_turn),
    (within("TlsHandshakes.serve", "self._pool.wake()"), "pass", serves_after_the_turn),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), HANDSHAKE_MISTAKES)
def test_a_mistake_in_handshakes_is_noticed(
    tmp_path: Path, right: str, wrong: str, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_handshakes, "TlsHandshakes", planted(tls_handshakes, right, wrong).TlsHandshakes)
    is_noticed(rule, tmp_path, monkeypatch)


SERVER_MISTAKES: list[tuple[str, str, Rule]] = [
    (
        within("SocketServer.serve_without_event", "if channel.connection.deferred is not None:"),
        "if False:",
        serves_deferred_first,
    ),
    (within("SocketServer.close_longest_idle", "self.handshakes is not None"), "False", closes_the_oldest_handshake),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), SERVER_MISTAKES)
def test_a_mistake_in_the_server_is_noticed(
    tmp_path: Path, right: str, wrong: str, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "SocketServer", planted(server, right, wrong).SocketServer)
    is_noticed(rule, tmp_path, monkeypatch)


def test_a_stop_that_waits_for_all_handshakes_is_noticed() -> None:
    assert_noticed(handshake_pool, "if not self._is_closing:", "if True:", stops_soon)


def is_noticed(rule: Rule, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tls_broker, sys.modules[__name__]):
        monkeypatch.setattr(module, "TIMEOUT_S", MISTAKE_S)
    runs = partial(trio.run, rule) if inspect.iscoroutinefunction(rule) else rule
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a mistake may forget to close a socket
        with pytest.raises((Exception, BaseExceptionGroup)):
            runs(directory)
        gc.collect()
