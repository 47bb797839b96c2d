"""Connections of TLS listeners until their handshake is complete, and channels that are to be served again.

    accept → hello arrives → do_handshake in the thread ⇄ messages sent and received → Channel, or closed

A connection becomes a channel, which is served, only when its handshake is complete, its cipher suite and certificate
are accepted, and its principal is known. Until then no byte reaches Kafka's protocol: a failure closes the connection
and never falls back to plaintext.

Limits: `MAX_HANDSHAKES` of a listener at once, later connections stay in the listen backlog; `MAX_HELLO_BYTES` received
for each; trioka.tls.handshake.timeout.ms for each. The limit is per listener, so silent clients of one listener do not
delay brokers at another.
"""

import contextlib
import logging
import select
import socket
import ssl
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, cast

from trioka.protocol.frame import FOREIGN_PROTOCOLS

from ..logs.lines import in_a_line
from ..security.certificate import read_certificate
from ..security.cipher_suites import TLS_1_3, java_name
from ..security.der import InvalidDer
from ..security.principal_mapping import NoRuleApplies
from ..security.tls_context import MAX_CHAIN_DEPTH, ServerTls, TlsSession
from .channel import READ, Channel
from .connection import Connection
from .handshake_pool import HandshakePool, HandshakeProgress
from .listener import Listener
from .tls_transport import TlsReceiveBuffer, TlsTransport

if TYPE_CHECKING:
    from .server import SocketServer

log = logging.getLogger("trioka.network")
audit = logging.getLogger("trioka.audit")

MAX_HANDSHAKES: Final = 256
MAX_HELLO_BYTES: Final = 160 * 1024  # of a certificate chain OpenSSL accepts at most 100 KiB
RECEIVE_BYTES: Final = 16 * 1024
FAILURE_INTERVAL_S: Final = 1.0  # between audit lines about failures of one host
MAX_FAILED_HOSTS: Final = 1000
HANDSHAKE_RECORD: Final = 0x16
WRITE: Final = select.EPOLLOUT
GONE: Final = select.EPOLLERR | select.EPOLLHUP
CLIENT_HAS_GONE: Final = "the client has gone"


class PendingHandshake:
    __slots__ = (
        "connection",
        "deadline",
        "error",
        "incoming",
        "is_closed",
        "is_in_thread",
        "outgoing",
        "progress",
        "received",
        "server",
        "sock",
        "tls",
        "unsent",
    )

    def __init__(self, sock: socket.socket, connection: Connection, server: ServerTls, deadline: float) -> None:
        self.sock = sock
        self.connection = connection
        self.server = server
        self.deadline = deadline
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = server.context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.progress = HandshakeProgress.NEEDS_BYTES
        self.error: Exception | None = None
        self.is_in_thread = False
        self.is_closed = False
        self.received = 0
        self.unsent = b""


class TlsHandshakes:
    def __init__(self, server: "SocketServer", epoll: select.epoll, open_channel: Callable[[Channel], None]) -> None:
        self._server = server
        self._epoll = epoll
        self._open_channel = open_channel
        self._pool = HandshakePool()
        self._pending: dict[int, PendingHandshake] = {}  # ordered by deadline
        self._counts: dict[str, int] = {}  # of `_pending`, by listener
        self._is_timed = False  # `_close_late` is scheduled for the first deadline
        self._paused_listeners: dict[int, Listener] = {}
        self._again: dict[int, Channel] = {}  # channels to be served without an event
        self._buffer = TlsReceiveBuffer()
        self._failures: dict[str, tuple[float, int]] = {}  # by host: time of the last line, and failures since
        self.succeeded: dict[str, int] = {}  # by listener
        self.failed: dict[str, int] = {}
        epoll.register(self._pool.descriptor, select.EPOLLIN)

    def __len__(self) -> int:
        return len(self._pending)

    # -- what the server calls -----------------------------------------------------------------------------------------

    def may_accept(self, listener: Listener) -> bool:
        """Whether one more handshake may start. If not, the listener waits."""
        if self._has_place(listener.name):
            return True
        self._epoll.modify(listener.socket.fileno(), 0)
        self._paused_listeners[listener.socket.fileno()] = listener
        return False

    def forget_listener(self, listener: Listener) -> None:
        self._paused_listeners.pop(listener.socket.fileno(), None)

    def begin(self, sock: socket.socket, connection: Connection, server: ServerTls) -> None:
        deadline = self._server.now() + self._server.handshake_timeout_s
        self._pending[sock.fileno()] = PendingHandshake(sock, connection, server, deadline)
        self._counts[connection.listener] = self._counts.get(connection.listener, 0) + 1
        self._epoll.register(sock.fileno(), READ)
        if not self._is_timed:
            self._is_timed = True
            self._server.after(self._server.handshake_timeout_s, self._close_late)

    def serve(self, ready: int, events: int) -> None:
        """Handles an event of a descriptor that does not belong to a channel."""
        if ready == self._pool.descriptor:
            self._pool.acknowledge()
            for finished in self._pool.take_finished():
                handshake = cast(PendingHandshake, finished)
                handshake.is_in_thread = False
                self._guarded(handshake, self._advance)
            if not self._server.is_in_turn:
                self._serve_again()
            elif self._again:  # one of them may be being served: its buffer must not be received into
                self._pool.wake()
            return
        found = self._pending.get(ready)
        if found is None:
            return
        if found.is_in_thread or events & GONE:  # the epoll reports HUP and ERR while the thread has the handshake, too
            self._fail(found, CLIENT_HAS_GONE)
        elif found.unsent:
            self._guarded(found, self._flush)
        else:
            self._guarded(found, self._receive)

    def close_oldest(self, except_for: Collection[str], before: float) -> bool:
        """Makes room: closes the oldest handshake if it began before this time."""
        for handshake in self._pending.values():
            connection = handshake.connection
            if connection.listener not in except_for and connection.last_active <= before:
                self._fail(handshake, "the broker has too many connections")
                return True
        return False

    def close_all(self, listener: str | None = None) -> None:
        for handshake in list(self._pending.values()):
            if listener is None or handshake.connection.listener == listener:
                self._close(handshake)

    def close(self) -> None:
        self.close_all()
        self._epoll.unregister(self._pool.descriptor)
        self._pool.close()
        for finished in self._pool.take_finished():
            cast(PendingHandshake, finished).sock.close()

    def serve_again(self, channel: Channel) -> None:
        """Serves the channel without an event: it has received bytes that the epoll does not know of."""
        self._again[channel.descriptor] = channel
        self._pool.wake()

    def _has_place(self, listener: str) -> bool:
        return self._counts.get(listener, 0) < MAX_HANDSHAKES

    def _remove(self, handshake: PendingHandshake) -> None:
        if self._pending.pop(handshake.sock.fileno(), None) is not None:
            self._counts[handshake.connection.listener] -= 1

    def _close_late(self) -> None:
        now = self._server.now()
        for handshake in list(self._pending.values()):
            if now < handshake.deadline:
                self._server.after(handshake.deadline - now, self._close_late)
                return
            self._fail(handshake, "it took too long")
        self._is_timed = False

    # -- one handshake -------------------------------------------------------------------------------------------------

    def _serve_again(self) -> None:
        channels, self._again = self._again, {}
        for channel in channels.values():
            self._server.serve_without_event(channel)

    def _guarded(self, handshake: PendingHandshake, step: Callable[[PendingHandshake], None]) -> None:
        """Runs a step; an error of one client must not affect others."""
        try:
            step(handshake)
        except ConnectionError:
            self._fail(handshake, CLIENT_HAS_GONE)
        except OSError as error:
            self._fail(handshake, str(error))
        except Exception:
            log.exception("internal error: TLS handshake of %s", handshake.connection.peer)
            self._fail(handshake, "internal error")

    def _receive(self, handshake: PendingHandshake) -> None:
        try:
            data = handshake.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._fail(handshake, CLIENT_HAS_GONE)
            return
        if not handshake.received and data[0] != HANDSHAKE_RECORD:
            self._refuse_foreign(handshake, data)
            return
        handshake.received += len(data)
        if handshake.received > MAX_HELLO_BYTES:
            self._fail(handshake, f"the client has sent more than {MAX_HELLO_BYTES} bytes")
            return
        handshake.incoming.write(data)
        self._continue(handshake)

    def _continue(self, handshake: PendingHandshake) -> None:
        handshake.is_in_thread = True
        self._epoll.modify(handshake.sock.fileno(), 0)
        self._pool.submit(handshake)

    def _advance(self, handshake: PendingHandshake) -> None:
        """The thread has a new result of the handshake."""
        if handshake.is_closed:
            handshake.sock.close()
            return
        handshake.unsent += handshake.outgoing.read()
        if handshake.progress is HandshakeProgress.FAILED:
            self._fail(handshake, _reason(handshake.error))
            return
        self._flush(handshake)

    def _flush(self, handshake: PendingHandshake) -> None:
        while handshake.unsent:
            try:
                sent = handshake.sock.send(handshake.unsent)
            except BlockingIOError:
                self._epoll.modify(handshake.sock.fileno(), WRITE)
                return
            handshake.unsent = handshake.unsent[sent:]
        if handshake.progress is HandshakeProgress.DONE:
            self._complete(handshake)
        else:
            self._epoll.modify(handshake.sock.fileno(), READ)

    def _complete(self, handshake: PendingHandshake) -> None:
        connection, tls = handshake.connection, handshake.tls
        version, suite = tls.version() or "", (tls.cipher() or ("",))[0]
        der = tls.getpeercert(binary_form=True)
        if suite in TLS_1_3 and suite not in handshake.server.tls_1_3_suites:
            self._fail(handshake, f"ssl.cipher.suites does not have {suite}")
            return
        if der is not None and (length := _chain_length(tls)) > MAX_CHAIN_DEPTH:
            self._fail(handshake, f"its certificate chain has {length} certificates, more than {MAX_CHAIN_DEPTH}")
            return
        if der is not None and not handshake.server.is_sasl:
            try:
                connection.principal = f"User:{handshake.server.mapping.user_name(read_certificate(der).subject)}"
            except (NoRuleApplies, InvalidDer) as error:
                self._fail(handshake, str(error), must_audit=True)
                return
        connection.tls = TlsSession(version, java_name(suite), der)
        self._remove(handshake)
        self.succeeded[connection.listener] = self.succeeded.get(connection.listener, 0) + 1
        if der is not None and not handshake.server.is_sasl:
            principal = in_a_line(connection.principal)
            audit.info("TLS login: %s from %s on %s", principal, connection.peer, connection.listener)
        transport = TlsTransport(handshake.sock, tls, handshake.incoming, handshake.outgoing, self._buffer)
        channel = Channel(transport, connection)
        transport.on_more = lambda: self.serve_again(channel)
        self._epoll.modify(channel.descriptor, READ)
        self._open_channel(channel)
        self.serve_again(channel)
        self._resume_listeners()

    def _refuse_foreign(self, handshake: PendingHandshake, data: bytes) -> None:
        spoken = FOREIGN_PROTOCOLS.get(data[:4])
        if spoken is None:
            spoken = "Kafka's protocol without TLS" if data[0] == 0 else "no TLS"
        connection = handshake.connection
        self._server.warn_once(
            connection.peer, "client %s sent %s to the TLS listener %s", connection.peer, spoken, connection.listener
        )
        self.failed[connection.listener] = self.failed.get(connection.listener, 0) + 1
        self._close(handshake)

    def _fail(self, handshake: PendingHandshake, reason: str, must_audit: bool = False) -> None:
        """Closes the connection, with a TLS alert if the kernel takes it at once."""
        if handshake.is_closed:
            return
        listener = handshake.connection.listener
        self.failed[listener] = self.failed.get(listener, 0) + 1
        if must_audit or handshake.received:
            self._audit_failure(handshake, reason)
        if handshake.unsent and not handshake.is_in_thread:
            with contextlib.suppress(OSError):
                handshake.sock.send(handshake.unsent)
        self._close(handshake)

    def _close(self, handshake: PendingHandshake) -> None:
        if handshake.is_closed:
            return
        handshake.is_closed = True
        descriptor = handshake.sock.fileno()
        self._remove(handshake)
        self._epoll.unregister(descriptor)
        if not handshake.is_in_thread:
            handshake.sock.close()
        handshake.connection.close()
        self._server.gone(handshake.connection)
        self._resume_listeners()

    def _resume_listeners(self) -> None:
        for descriptor, listener in list(self._paused_listeners.items()):
            if self._has_place(listener.name):
                del self._paused_listeners[descriptor]
                self._epoll.modify(descriptor, select.EPOLLIN)

    # -- audit ---------------------------------------------------------------------------------------------------------

    def _audit_failure(self, handshake: PendingHandshake, reason: str) -> None:
        host, now = handshake.connection.host, self._server.now()
        written_at, suppressed = self._failures.get(host, (-FAILURE_INTERVAL_S, 0))
        if now - written_at < FAILURE_INTERVAL_S:
            self._failures[host] = written_at, suppressed + 1
            return
        if len(self._failures) >= MAX_FAILED_HOSTS:
            self._failures.clear()
        self._failures[host] = now, 0
        more = f" ({suppressed} more failures of this address were not logged)" if suppressed else ""
        connection = handshake.connection
        audit.warning(
            "TLS handshake failed: %s on %s: %s%s", connection.peer, connection.listener, in_a_line(reason), more
        )


def _chain_length(tls: ssl.SSLObject) -> int:
    """The length of the chain that the client has sent. The method is public since Python 3.13."""
    chain = getattr(tls, "get_unverified_chain", None) or tls._sslobj.get_unverified_chain  # type: ignore[attr-defined]
    return len(chain() or ())


def _reason(error: Exception | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error)
