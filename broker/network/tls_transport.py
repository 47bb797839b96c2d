"""A transport that encrypts: an SSLObject between a non-blocking socket and the channel.

OpenSSL has no socket. Ciphertext is received into a buffer that all TLS connections share, passed to OpenSSL in slices
of 16 KB, and decrypted into the connection's buffer; responses are encrypted in records of 16 KB and sent by one
`sendmsg`. A memory BIO never shrinks, so with larger slices each connection would keep half a megabyte.

**Sending.** A record is reported as sent when the kernel has taken the last byte of its ciphertext. Until then its
plain bytes stay at the head of the connection's queue and are passed to the transport again, which skips the
`_encrypted` bytes that it has encrypted already. So all code that checks the queue (EPOLLOUT, closing, limits of
outgoing bytes) also accounts for unsent ciphertext, and no other code handles ciphertext.

**Receiving.** The epoll does not see bytes that are in OpenSSL or in `_rest`. If the connection's buffer is full before
they are read, the transport calls `on_more`, and the server serves the connection again without an event.

A read may produce output: the response to a KeyUpdate of TLS 1.3, or an alert. It is sent at once, or with the next
response.
"""

import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from .transport import Buffer

RECORD_BYTES: Final = 16 * 1024
RECEIVE_BYTES: Final = 256 * 1024
BATCH_RECORDS: Final = 16  # encrypted before each send
MAX_PIECES: Final = 64  # in one call; the kernel accepts 1024
MAX_CONTROL_BYTES: Final = 64 * 1024  # responses to KeyUpdates that the kernel has not taken


class TlsReceiveBuffer:
    """Buffer for received ciphertext, shared by all TLS connections: it is empty between two calls."""

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = memoryview(bytearray(RECEIVE_BYTES))


class TlsTransport:
    __slots__ = (
        "_buffer",
        "_control_bytes",
        "_encrypted",
        "_incoming",
        "_is_ended",
        "_outgoing",
        "_rest",
        "_socket",
        "_tls",
        "_unsent",
        "descriptor",
        "has_more",
        "on_more",
    )

    can_sendfile = False

    def __init__(
        self,
        sock: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        buffer: TlsReceiveBuffer,
    ) -> None:
        self._socket = sock
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._buffer = buffer
        self._unsent: deque[tuple[memoryview, int]] = deque()  # ciphertext, completed plain bytes
        self._encrypted = 0  # plain bytes at the head of the connection's queue whose ciphertext is in `_unsent`
        self._control_bytes = 0  # of ciphertext in `_unsent` that completes no plain bytes
        self._rest = memoryview(b"")  # ciphertext that OpenSSL has not taken yet
        self._is_ended = False  # the client has closed its sending side
        self.descriptor = sock.fileno()
        self.has_more = True  # after the handshake: the first request may have arrived with its last message
        self.on_more: Callable[[], None] = _nothing  # set by the server

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive_into(self, view: memoryview) -> int:
        total = 0
        if self.has_more:
            total = self._read(view, 0)
            if total < len(view):
                total = self._feed(self._rest, view, total)
        if total < len(view) and not self._is_ended:
            shared = self._buffer.view
            wanted = max(len(view) - total, RECORD_BYTES)
            try:
                size = self._socket.recv_into(shared[:wanted])
            except BlockingIOError:
                size = -1
            if size > 0:
                total = self._feed(shared[:size], view, total)
            elif size == 0:
                self._is_ended = True
        # A full view says nothing about further bytes; and the end is reported by a separate call.
        self.has_more = total == len(view) or bool(self._rest) or (self._is_ended and total > 0)
        if self._outgoing.pending:
            self._send_control()
        if self.has_more:
            self.on_more()
        if total or self._is_ended:
            return total
        raise BlockingIOError

    def _feed(self, ciphertext: memoryview, view: memoryview, total: int) -> int:
        """Decrypts into `view` from `total` on, as much as fits. The rest of the ciphertext is kept."""
        at = 0
        while at < len(ciphertext) and total < len(view) and not self._is_ended:
            self._incoming.write(ciphertext[at : at + RECORD_BYTES])
            at += RECORD_BYTES
            total = self._read(view, total)
        self._rest = memoryview(bytes(ciphertext[at:]))
        return total

    def _read(self, view: memoryview, total: int) -> int:
        """Decrypts the complete records."""
        tls, incoming = self._tls, self._incoming
        while total < len(view):
            try:
                size: int = tls.read(len(view) - total, view[total:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                size = 0
            if not size:  # the client has closed its sending side
                self._is_ended = True
                break
            total += size
            if not incoming.pending and not tls.pending():
                break  # saves an exception
        return total

    def _send_control(self) -> None:
        control = self._outgoing.read()
        self._unsent.append((memoryview(control), 0))
        self._control_bytes += len(control)
        if self._control_bytes > MAX_CONTROL_BYTES:
            raise OSError("the client requests new keys, and does not read the answers")
        if not self._encrypted:  # otherwise it is sent after the unsent ciphertext
            with contextlib.suppress(BlockingIOError):
                self._flush()

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> int:
        return self.send_pieces((data,), False)

    def send_pieces(self, pieces: Sequence[Buffer], more: bool) -> int:
        total = done = self._flush() if self._unsent else 0
        if self._unsent:
            if total:
                return total
            raise BlockingIOError
        records = _records(pieces, done)
        while True:
            for record in records:
                self._tls.write(record)
                self._unsent.append((memoryview(self._outgoing.read()), len(record)))
                self._encrypted += len(record)
                if len(self._unsent) >= BATCH_RECORDS:
                    break
            if not self._unsent:
                return total
            total += self._flush()
            if self._unsent:
                if total:
                    return total
                raise BlockingIOError

    def _flush(self) -> int:
        """Sends ciphertext by one call. Returns how many plain bytes are completed by it."""
        unsent = self._unsent
        try:
            sent = self._socket.sendmsg([ciphertext for ciphertext, _ in islice(unsent, MAX_PIECES)])
        except BlockingIOError:
            return 0
        done = 0
        while sent:
            ciphertext, plain = unsent[0]
            taken = min(sent, len(ciphertext))
            sent -= taken
            if not plain:
                self._control_bytes -= taken
            if taken < len(ciphertext):
                unsent[0] = ciphertext[taken:], plain
                break
            unsent.popleft()
            done += plain
        self._encrypted -= done
        return done

    def sendfile(self, file: int, position: int, size: int) -> int:
        raise AssertionError("a TLS connection cannot send a file without reading it")

    def cork(self, is_corked: bool) -> None:
        pass  # records are always complete

    def close(self) -> None:
        """Sends a TLS close message, if the kernel takes it at once."""
        if not self._unsent:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            if close_notify := self._outgoing.read():
                with contextlib.suppress(OSError):
                    self._socket.send(close_notify)
        self._socket.close()


def _records(pieces: Sequence[Buffer], skipped: int) -> Iterator[Buffer]:
    """The bytes of the pieces, from `skipped` on, in records of 16 KB. Small pieces are joined: a record adds 22 bytes,
    and its encryption takes as long as a small request."""
    small: list[Buffer] = []
    small_bytes = 0
    for piece in pieces:
        size = len(piece)
        if skipped >= size:
            skipped -= size
            continue
        if not small and not skipped and size <= RECORD_BYTES and len(pieces) == 1:
            yield piece
            return
        view = memoryview(piece)
        at, skipped = skipped, 0
        while at < size:
            part = view[at : at + RECORD_BYTES - small_bytes]
            at += len(part)
            if len(part) == RECORD_BYTES:
                yield part
                continue
            small.append(part)
            small_bytes += len(part)
            if small_bytes == RECORD_BYTES:
                yield b"".join(small)
                small, small_bytes = [], 0
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)


def _nothing() -> None:
    pass
