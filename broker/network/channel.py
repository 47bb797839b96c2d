"""A connection with its transport. Sends responses: small parts by one `sendmsg`, large file ranges by zero-copy
`sendfile` (decision 13).

The outgoing queue of a connection holds buffers and file ranges. Everything up to the next large range is sent by one
`sendmsg`: a small range is read into memory first, a larger one is sent from a memory map. A range above `BULK_BYTES`
is sent by `sendfile`, corked together with the parts before and behind it, so that it leaves in full TCP segments. A
transport without `sendfile` (TLS) gets the bytes of all ranges, `CHUNK_BYTES` at a time.
"""

import errno
import os
import select
from typing import Final, Protocol

from trioka.storage.files.file_pool import FileRange

from .connection import Connection
from .transport import Buffer, Transport

MAX_IOVECS: Final = min(os.sysconf("SC_IOV_MAX"), 256)
SMALL_RANGE_BYTES: Final = 32 * 1024
BULK_BYTES: Final = 512 * 1024
CHUNK_BYTES: Final = 256 * 1024  # of a large response, sent at once while other clients wait

READ: Final = select.EPOLLIN | select.EPOLLRDHUP


class SendPolicy(Protocol):
    """Tells a channel with much to send whether other connections are waiting."""

    @property
    def has_small_clients(self) -> bool: ...

    def has_other_events(self, channel: "Channel") -> bool: ...


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
        "transport",
    )

    def __init__(self, transport: Transport, connection: Connection) -> None:
        self.transport = transport
        self.receive = transport.receive_into
        self.send = transport.send
        self.descriptor = transport.descriptor
        self.connection = connection
        self.interest = READ
        self.range_sent = 0  # of the file range at the head of the queue
        self.held = 0  # bytes of an incomplete request
        self.is_corked = False  # TCP_CORK: the kernel holds back partial segments until all is sent

    def cork(self, is_corked: bool) -> None:
        self.is_corked = is_corked
        self.transport.cork(is_corked)

    def flush(self, policy: SendPolicy) -> None:
        """Sends what the kernel takes. The rest stays in the queue until the epoll reports the socket writable."""
        queue = self.connection.outgoing
        try:
            while queue:
                buffers = self._buffers()
                if not (self._send_buffers(buffers) if buffers else self._send_range(policy)):
                    return
                if (
                    queue
                    and not self.transport.can_sendfile
                    and policy.has_small_clients
                    and policy.has_other_events(self)
                ):
                    return
        except BlockingIOError:
            return
        if self.is_corked:
            self.cork(False)

    def _buffers(self) -> list[Buffer]:
        """The buffers of the next `sendmsg`: everything up to the next range for `sendfile`. Empty if that comes
        first."""
        buffers: list[Buffer] = []
        if self.range_sent:
            return buffers
        queue = self.connection.outgoing
        if not self.transport.can_sendfile:
            return self._read_buffers()
        for index, piece in enumerate(queue):
            if type(piece) is FileRange:
                if piece.size > BULK_BYTES:
                    break
                found = piece.read() if piece.size <= SMALL_RANGE_BYTES else piece.view()
                if found is None:
                    break
                piece = queue[index] = found
            buffers.append(piece)  # type: ignore[arg-type]
            if len(buffers) == MAX_IOVECS:
                break
        return buffers

    def _read_buffers(self) -> list[Buffer]:
        """The same for a transport without `sendfile`: up to the end of the first chunk of a file."""
        buffers: list[Buffer] = []
        queue = self.connection.outgoing
        for index, piece in enumerate(queue):
            if type(piece) is FileRange:
                if piece.size > CHUNK_BYTES:
                    first, queue[index] = piece.split(CHUNK_BYTES)
                    queue.insert(index, first.read())
                else:
                    queue[index] = piece.read()
                buffers.append(queue[index])  # type: ignore[arg-type]
                break
            buffers.append(piece)  # type: ignore[arg-type]
            if len(buffers) == MAX_IOVECS:
                break
        return buffers

    def _send_buffers(self, buffers: list[Buffer]) -> bool:
        """Sends the buffers by one call. False if the kernel did not take all of them."""
        queue = self.connection.outgoing
        sent = total = self.transport.send_pieces(buffers, len(queue) > len(buffers))
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

    def _send_range(self, policy: SendPolicy) -> bool:
        """Sends from the range at the head of the queue what the kernel takes. Whether to continue."""
        file, position, left = self._rest_of_range()
        if not policy.has_small_clients:
            return self._range_is_sent(self.transport.sendfile(file, position, left))
        portion = min(left, CHUNK_BYTES)
        sent = self.transport.sendfile(file, position, portion)
        return self._range_is_sent(sent) or (sent == portion and not policy.has_other_events(self))

    def _rest_of_range(self) -> tuple[int, int, int]:
        """Descriptor, position and size for `sendfile`. Corks the parts before and behind the range with it."""
        queue = self.connection.outgoing
        piece = queue[0]
        assert isinstance(piece, FileRange)
        if not self.is_corked and len(queue) > 1:
            self.cork(True)
        sent = self.range_sent
        return piece.file.fileno(), piece.position + sent, piece.size - sent

    def _range_is_sent(self, sent: int) -> bool:
        """Records that `sent` bytes were sent. Whether the range is finished."""
        connection = self.connection
        if sent == 0:
            raise OSError(errno.EIO, "the file ends before the range that the response announced")
        connection.sent(sent)
        self.range_sent += sent
        if self.range_sent < len(connection.outgoing[0]):
            return False
        self.range_sent = 0
        connection.outgoing.popleft()
        return True
