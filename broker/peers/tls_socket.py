"""TLS on a client socket to another node.

An SSLObject works on two memory buffers (ssl.MemoryBIO), one for each direction. The socket stays a `PeerSocket`, so
waiting costs no more checkpoints than without TLS. The handshake computes for milliseconds, so it runs in a worker
thread.
"""

import errno
import ssl
from contextlib import suppress
from typing import Final

import trio

from ..security.tls.context import ClientTls
from .peer_socket import NotSecured, PeerSocket

SLICE_BYTES: Final = 16 * 1024  # a TLS record; a MemoryBIO never shrinks


class TlsSocket:
    __slots__ = ("_encrypted", "_incoming", "_outgoing", "_socket", "_tls")

    def __init__(self, sock: PeerSocket, tls: ClientTls, host: str) -> None:
        self._socket = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = tls.context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._encrypted = memoryview(bytearray(SLICE_BYTES))

    async def handshake(self, tls: ClientTls) -> None:
        """Raises NotSecured if the node cannot prove its name or refuses this one."""
        while True:
            try:
                await trio.to_thread.run_sync(self._tls.do_handshake)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive_encrypted()
            except ssl.SSLError as error:
                with suppress(OSError):  # the other node may have closed the connection; its reason is `error`
                    await self._flush()  # sends the alert, which tells the other node the reason
                raise _not_secured(error) from None
            else:
                break
        await self._flush()
        cipher = self._tls.cipher()
        if self._tls.version() == "TLSv1.3" and (cipher is None or cipher[0] not in tls.tls_1_3_suites):
            raise NotSecured(errno.EPROTO, "the node chose a cipher suite that ssl.cipher.suites does not have")

    async def send(self, data: memoryview) -> int:
        """Sends all of a slice. Returns its size."""
        size = self._tls.write(data[:SLICE_BYTES])
        await self._flush()
        return size

    async def recv_into(self, buffer: memoryview) -> int:
        """Returns how many bytes were received; 0 if the peer closed the connection."""
        while True:
            try:
                size = self._tls.read(min(len(buffer), SLICE_BYTES), buffer)
            except ssl.SSLWantReadError:
                if self._outgoing.pending:  # the response to a key update
                    await self._flush()
                if not await self._receive_encrypted():
                    return 0
            except ssl.SSLZeroReturnError:
                return 0
            except ssl.SSLError as error:  # in TLS 1.3 a certificate is rejected after the handshake
                raise _not_secured(error) from None
            else:
                return int(size)

    async def _flush(self) -> None:
        while self._outgoing.pending:
            left = memoryview(self._outgoing.read(SLICE_BYTES))
            while left:
                left = left[await self._socket.send(left) :]

    async def _receive_encrypted(self) -> int:
        """Returns 0 at the end of the stream. During the handshake that is an error."""
        size = await self._socket.recv_into(self._encrypted)
        if size:
            self._incoming.write(self._encrypted[:size])
        else:
            self._incoming.write_eof()
        return size

    def getsockopt(self, level: int, option: int) -> int:
        return self._socket.getsockopt(level, option)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._socket.setsockopt(level, option, value)

    def close(self) -> None:
        """Tasks that wait for this socket get a ClosedResourceError."""
        self._socket.close()


def _not_secured(error: ssl.SSLError) -> NotSecured:
    why = getattr(error, "verify_message", "") or (error.reason or str(error)).replace("_", " ").lower()
    return NotSecured(errno.EPROTO, f"TLS failed: {why}")
