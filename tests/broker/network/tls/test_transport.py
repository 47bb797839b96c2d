"""The TLS transport by itself: what it reports as sent, and what a hostile peer can make it hold."""

import contextlib
import random
import select
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import assert_noticed
from support.certificates import authority, client_tls, signed
from support.tls_records import call_openssl

from trioka.broker.network.tls import transport as transport_module

AUTHORITY = authority()
SERVER = signed(AUTHORITY)
VIEW_BYTES = 50_000


@pytest.fixture
def module() -> ModuleType:
    return transport_module


class Pair:
    """A transport, and a client's socket; the handshake is done."""

    def __init__(self, module: ModuleType, directory: Path) -> None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(SERVER.write(directory / "server.pem"))
        context = client_tls(AUTHORITY, None, directory)
        ours, self.client = socket.socketpair()
        for sock, size in ((ours, 8192), (self.client, 1 << 20)):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = server.wrap_bio(incoming, outgoing, server_side=True)
        self.received, self.said = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.received, self.said, server_hostname="localhost")
        waits = [tls, self.tls]
        while waits:
            for each in list(waits):
                try:
                    each.do_handshake()
                    waits.remove(each)
                except ssl.SSLWantReadError:
                    pass
                incoming.write(self.said.read())
                self.received.write(outgoing.read())
        self.calls = 0
        self.transport: Any = module.TlsTransport(ours, tls, incoming, outgoing, module.TlsReceiveBuffer())
        self.transport.on_more = self._count

    def _count(self) -> None:
        self.calls += 1

    def read(self) -> bytes:
        """What the client can read now."""
        try:
            while data := self.client.recv(1 << 20):
                self.received.write(data)
        except BlockingIOError:
            pass
        found = b""
        try:
            while True:
                found += self.tls.read(1 << 20)
        except ssl.SSLWantReadError:
            return found

    def write(self, data: bytes, record_bytes: int = 16_384) -> None:
        """The client sends, as far as the kernel takes it."""
        for start in range(0, len(data), record_bytes):
            self.tls.write(data[start : start + record_bytes])
        self.flush()

    def flush(self) -> None:
        rest = self.said.read()
        while rest:
            rest = rest[self.client.send(rest) :]

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_: object) -> None:
        self.transport._socket.close()
        self.client.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


def sends_every_byte_once(module: ModuleType, directory: Path) -> None:
    """Through a kernel that takes little at a time. What is not reported as sent is given again, and more behind it."""
    with Pair(module, directory) as pair:
        chance = random.Random(1)
        queue = [chance.randbytes(chance.choice((1, 100, 16_384, 40_000, 200_000))) for _ in range(60)]
        wanted, got = b"".join(queue), b""
        while queue:
            pieces = queue[: chance.randint(1, len(queue))]
            try:
                sent = pair.transport.send_pieces(pieces, False)
            except BlockingIOError:
                sent = 0
            while sent:
                taken = min(sent, len(queue[0]))
                queue[0], sent = queue[0][taken:], sent - taken
                if not queue[0]:
                    queue.pop(0)
            if chance.random() < 0.7:
                got += pair.read()
        assert got + pair.read() == wanted


def receives_every_byte_once(module: ModuleType, directory: Path) -> None:
    """Into buffers of any size; without an event, as long as the transport says that there is more."""
    with Pair(module, directory) as pair:
        chance = random.Random(2)
        wanted, got = b"", b""
        view = memoryview(bytearray(VIEW_BYTES))
        for _ in range(60):
            data = chance.randbytes(chance.choice((1, 100, 5000, 100_000)))
            wanted += data
            pair.write(data, chance.choice((3000, 16_384)))
            while True:
                before = pair.calls
                try:
                    size = pair.transport.receive_into(view[: chance.choice((1, 3000, 16_484, 20_000, VIEW_BYTES))])
                except BlockingIOError:
                    if not select.select([pair.transport._socket], [], [], 0)[0]:
                        break
                    continue
                got += view[:size]
                if pair.calls == before:
                    assert not pair.transport.has_more
                    if not select.select([pair.transport._socket], [], [], 0)[0]:
                        break
            assert got == wanted


def reports_the_end(module: ModuleType, directory: Path) -> None:
    with Pair(module, directory) as pair:
        view = memoryview(bytearray(VIEW_BYTES))
        pair.write(b"last")
        with contextlib.suppress(ssl.SSLWantReadError):
            pair.tls.unwrap()  # the client ends TLS, and leaves its socket open: the epoll says nothing of that
        pair.flush()
        assert pair.transport.receive_into(view) == 4
        assert pair.calls == 1
        assert pair.transport.receive_into(view) == 0


def test_every_byte_is_sent_once(module: ModuleType, directory: Path) -> None:
    sends_every_byte_once(module, directory)


def test_every_byte_is_received_once(module: ModuleType, directory: Path) -> None:
    receives_every_byte_once(module, directory)


def test_the_end_of_the_stream_is_reported(module: ModuleType, directory: Path) -> None:
    reports_the_end(module, directory)


def test_small_pieces_are_joined_into_one_record() -> None:
    records = list(transport_module._records([b"a" * 10, memoryview(b"b" * 20), bytes(40_000)], 5))
    assert [len(record) for record in records] == [16_384, 16_384, 7257]
    assert bytes(records[0][:25]) == b"a" * 5 + b"b" * 20


def request_key_update(tls: ssl.SSLObject) -> None:
    assert call_openssl("SSL_key_update", tls, 1) == 1


def test_requests_for_new_keys_are_answered_or_closed(module: ModuleType, directory: Path) -> None:
    """A peer that reads is answered; one that does not is closed before much waits for it."""
    with Pair(module, directory) as pair:
        view = memoryview(bytearray(VIEW_BYTES))
        for _ in range(10):
            request_key_update(pair.tls)
            pair.write(b"x")
            assert pair.transport.receive_into(view) == 1
            assert pair.read() == b""
        assert not pair.transport._unsent

        def request_for_ever() -> None:
            while True:
                request_key_update(pair.tls)
                pair.write(b"x")
                pair.transport.receive_into(view)

        with pytest.raises(OSError, match="does not read the answers"):
            request_for_ever()


MISTAKES: list[tuple[str, str, Callable[[ModuleType, Path], None]]] = [
    ("records = _records(pieces, done)", "records = _records(pieces, 0)", sends_every_byte_once),
    ("            done += plain\n", "            done += taken\n", sends_every_byte_once),
    ("self._rest = memoryview(bytes(ciphertext[at:]))", 'self._rest = memoryview(b"")', receives_every_byte_once),
    ("total == len(view) or bool(self._rest)", "bool(self._rest)", receives_every_byte_once),
    ("or (self._is_ended and total > 0)", "", reports_the_end),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    right: str, wrong: str, rule: Callable[[ModuleType, Path], None], directory: Path
) -> None:
    assert_noticed(transport_module, right, wrong, lambda module: rule(module, directory))
