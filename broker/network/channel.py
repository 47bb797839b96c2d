"""A socket and its connection, and how bytes leave: by one call what is small, by sendfile what is large (decision 13).

What a connection has to say is a queue of buffers and ranges of files. Everything up to the next large range leaves by
one `sendmsg`: a small range of a file is read for it, a larger one is sent from a map. A range above `BULK_BYTES` goes
by sendfile, corked together with what stands before and behind it, so that it leaves in whole segments.
"""

import errno
import os
import select
import socket
from typing import Final, Protocol

from trioka.storage.file_pool import FileRange

from .connection import Connection

BUFFERS_AT_ONCE: Final = min(os.sysconf("SC_IOV_MAX"), 256)
SMALL_RANGE_BYTES: Final = 32 * 1024
BULK_BYTES: Final = 512 * 1024
PORTION_BYTES: Final = 256 * 1024  # of what is large, at a time, where others would wait for it

READ: Final = select.EPOLLIN | select.EPOLLRDHUP
CORK: Final = getattr(socket, "TCP_CORK", None)  # Linux has it

Buffer = bytes | bytearray | memoryview


class Turns(Protocol):
    """What a channel that has much to send wants to know of the others."""

    @property
    def is_shared(self) -> bool: ...

    def is_asked_by_others(self, channel: "Channel") -> bool: ...


class Channel:
    __slots__ = (
        "connection",
        "descriptor",
        "held",
        "interest",
        "is_corked",
        "range_sent",
        "receive",
        "send",
        "socket",
    )

    def __init__(self, sock: socket.socket, connection: Connection) -> None:
        self.socket = sock
        self.receive = sock.recv_into
        self.send = sock.send
        self.descriptor = sock.fileno()
        self.connection = connection
        self.interest = READ
        self.range_sent = 0  # of the file range at the head of the queue
        self.held = 0  # bytes, by a request that has begun
        self.is_corked = False  # the kernel keeps what does not fill a segment, until all has been sent

    def cork(self, is_corked: bool) -> None:
        self.is_corked = is_corked
        if CORK is not None:
            self.socket.setsockopt(socket.IPPROTO_TCP, CORK, is_corked)

    def flush(self, turns: Turns) -> None:
        """Sends what the kernel takes. What it does not take stays in the queue, and the epoll says when to go on."""
        queue = self.connection.outgoing
        try:
            while queue:
                buffers = self._buffers()
                if not (self._send_buffers(buffers) if buffers else self._send_range(turns)):
                    return
        except BlockingIOError:
            return
        if self.is_corked:
            self.cork(False)

    def _buffers(self) -> list[Buffer]:
        """What leaves by the next call: all up to the next range that is for sendfile. None, if that is the first."""
        buffers: list[Buffer] = []
        if self.range_sent:
            return buffers
        queue = self.connection.outgoing
        for index, piece in enumerate(queue):
            if type(piece) is FileRange:
                if piece.size > BULK_BYTES:
                    break
                found = piece.read() if piece.size <= SMALL_RANGE_BYTES else piece.view()
                if found is None:
                    break
                piece = queue[index] = found
            buffers.append(piece)  # type: ignore[arg-type]
            if len(buffers) == BUFFERS_AT_ONCE:
                break
        return buffers

    def _send_buffers(self, buffers: list[Buffer]) -> bool:
        """In one call. False if the kernel did not take all."""
        queue = self.connection.outgoing
        more = socket.MSG_MORE if len(queue) > len(buffers) else 0
        sent = total = self.socket.sendmsg(buffers, (), more)
        if total == self.connection.outgoing_bytes:
            queue.clear()
            sent = 0
        else:
            for buffer in buffers:
                if sent < len(buffer):
                    queue[0] = memoryview(buffer)[sent:]
                    break
                sent -= len(buffer)
                queue.popleft()
        self.connection.sent(total)
        return not sent

    def _send_range(self, turns: Turns) -> bool:
        """Of the range at the head of the queue, what the kernel takes. Whether to go on."""
        descriptor, file, position, left = self._rest_of_range()
        if not turns.is_shared:
            return self._range_is_sent(os.sendfile(descriptor, file, position, left))
        portion = min(left, PORTION_BYTES)
        sent = os.sendfile(descriptor, file, position, portion)
        return self._range_is_sent(sent) or (sent == portion and not turns.is_asked_by_others(self))

    def _rest_of_range(self) -> tuple[int, int, int, int]:
        """What sendfile is to be told. What comes before and behind leaves with it."""
        queue = self.connection.outgoing
        piece = queue[0]
        assert isinstance(piece, FileRange)
        if not self.is_corked and len(queue) > 1:
            self.cork(True)
        sent = self.range_sent
        return self.descriptor, piece.file.fileno(), piece.position + sent, piece.size - sent

    def _range_is_sent(self, sent: int) -> bool:
        """Takes note of so much. Whether that was all of the range."""
        connection = self.connection
        if sent == 0:
            raise OSError(errno.EIO, "a file ended before the range that was promised")
        connection.sent(sent)
        self.range_sent += sent
        if self.range_sent < len(connection.outgoing[0]):
            return False
        self.range_sent = 0
        connection.outgoing.popleft()
        return True
