"""One connection's bytes, without the connection: frames come in, replies go out in the order of their requests.

    frame      int32 size · size bytes

The owner of the socket receives into `FrameReader.receive_buffer()`, reports the number of bytes, and takes every
complete frame: one `recv_into` may bring a hundred requests, each of them a view of the one buffer, not a copy.

That buffer is shared by all connections (`ReceiveBuffer`), since only one of them is served at a time: a thousand quiet
connections hold no memory. What is left when the complete frames are taken, the beginning of one that is not, moves to
a buffer of the connection's own. A connection that sends large frames keeps that buffer, and receives the rest of a
large frame together with only a little of the next one, so that little has to be moved. Large buffers that are empty,
because no frame is incomplete, are limited for all connections together: above the limit, a connection that needs one
gets the buffer that was empty for longest.

The buffer grows with the bytes that have arrived, never with the announced size: a client that announces one hundred
megabytes and sends none of them costs four bytes.
"""

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Final, Generic, TypeVar

from .codec import Encoder, decoder, encode, encoder
from .decoding import MAX_ELEMENTS, skip_tags
from .errors import ProtocolError
from .header import RequestHeader, request_header_version, response_header_version
from .messages import response_type
from .primitives import RecordBytes
from .schema import Request, Response

SIZE_BYTES: Final = 4
HEADER_KEY_BYTES: Final = 8  # key, version, correlation id: what every request header starts with
RECEIVE_BUFFER_BYTES: Final = 256 * 1024  # of the buffer that all connections share
KEPT_BYTES: Final = 64 * 1024  # so much may be copied without being noticed
SMALLEST_BUFFER_BYTES: Final = 1024
MAX_EMPTY_BYTES: Final = 2 * 1024 * 1024  # of the large buffers that are empty, of all connections together
MAX_REQUEST_BYTES: Final = 100 * 1024 * 1024  # socket.request.max.bytes

_SIZE: Final = Struct(">i")

# The first four bytes of other protocols, which a Kafka listener would read as the size of a frame.
FOREIGN_PROTOCOLS: Final = {
    b"GET ": "HTTP",
    b"POST": "HTTP",
    b"PUT ": "HTTP",
    b"HEAD": "HTTP",
    b"OPTI": "HTTP",
    b"PRI ": "HTTP/2",
    b"SSH-": "SSH",
}


class NotKafka(ProtocolError):
    """The client speaks another protocol."""

    def __init__(self, spoken: str) -> None:
        super().__init__(f"the client sent {spoken}, not Kafka's protocol")
        self.spoken = spoken


class ReceiveBuffer:
    """The buffer that all connections share: each receives into the part after `used`. A connection with a frame that
    is served later sets `used` to the end of that frame; one that has served all of its frames sets it back to 0.

    It also knows the large buffers of connections that are empty. One of them always stays, however large it is, so
    that a single connection with large frames does not allocate its buffer for each.
    """

    __slots__ = ("_empty", "_empty_bytes", "used", "view")

    def __init__(self, size: int = RECEIVE_BUFFER_BYTES) -> None:
        assert size > 2 * KEPT_BYTES
        self.view = memoryview(bytearray(size))
        self.used = 0  # at most half of the buffer when a receive starts
        self._empty: dict[FrameReader, int] = {}  # size of its buffer, oldest first
        self._empty_bytes = 0

    def note_empty(self, reader: "FrameReader") -> None:
        """The reader has a large buffer without an incomplete frame; it keeps the buffer if there is room."""
        self.forget(reader)
        assert reader.own is not None
        self._empty[reader] = len(reader.own)
        self._empty_bytes += len(reader.own)
        while self._empty_bytes > MAX_EMPTY_BYTES and len(self._empty) > 1:
            oldest = next(iter(self._empty))
            self.forget(oldest)
            oldest.shrink()

    def forget(self, reader: "FrameReader") -> None:
        """The reader receives into its buffer again, or has none any more."""
        if reader in self._empty:
            self._empty_bytes -= self._empty.pop(reader)

    def large_buffer(self, size: int) -> bytearray:
        """A buffer of this size or larger, which may have old bytes."""
        if self._empty_bytes + size > MAX_EMPTY_BYTES:
            for reader, found in self._empty.items():
                if size <= found <= 16 * size:
                    buffer = reader.own
                    reader.shrink()
                    assert buffer is not None
                    return buffer
        return bytearray(size)


class FrameReader:
    """Cuts received bytes into frames.

    Bytes that were received and not yet taken are in `view`, from `start` to `end`. A caller that finds the end of a
    frame by itself (broker/fastpath/produce.py) may take the frame by moving `start` behind it.
    """

    __slots__ = ("end", "is_closed", "max_bytes", "min_bytes", "own", "scratch", "start", "view")

    def __init__(self, scratch: ReceiveBuffer, max_bytes: int = MAX_REQUEST_BYTES) -> None:
        self.scratch = scratch  # the shared buffer
        self.own: bytearray | None = None  # the connection's, if it has one
        self.view = scratch.view  # of the buffer in use
        self.start = 0  # of the first frame that is not complete
        self.end = 0  # the end of the received bytes
        self.max_bytes = max_bytes
        self.min_bytes = HEADER_KEY_BYTES  # less if frames are SASL messages without a header
        self.is_closed = False

    def receive_buffer(self) -> memoryview:
        """Where to receive. Frames that were taken before are not valid any more: their bytes may be overwritten."""
        if self.own is None:
            used = self.scratch.used
            if not used:
                return self.view
            self.start = self.end = used
            return self.view[used:]
        self.scratch.forget(self)  # no other connection gets the buffer now
        waiting = self.end - self.start
        if self.start and (waiting <= KEPT_BYTES or self.end == len(self.view)):
            self._move_to(self.own)
        if self.end == len(self.view) or len(self.view) < KEPT_BYTES:
            # Other objects may still hold views of the old buffer, so it is left to them and not resized.
            self._move_to(self.scratch.large_buffer(max(2 * len(self.view), KEPT_BYTES)))
        wanted = max(self._missing(), 0) + KEPT_BYTES  # of the next frames too
        return self.view[self.end : self.end + wanted]

    def _missing(self) -> int:
        """The number of missing bytes of the incomplete frame."""
        if self.end - self.start < SIZE_BYTES:
            return SIZE_BYTES
        (size,) = _SIZE.unpack_from(self.view, self.start)
        return int(size) + SIZE_BYTES - (self.end - self.start)

    def _move_to(self, buffer: bytearray) -> None:
        """Moves the pending bytes to the front of `buffer`, which may be the current one."""
        waiting = self.end - self.start
        buffer[:waiting] = bytes(self.view[self.start : self.end])
        if buffer is not self.own:
            self.own, self.view = buffer, memoryview(buffer)
        self.start, self.end = 0, waiting

    def received(self, size: int) -> None:
        assert 0 <= size <= len(self.view) - self.end
        self.end += size

    def frames(self) -> Iterator[memoryview]:
        """Yields every complete frame once. Frames that the caller does not take are yielded by the next call.
        `ProtocolError` for an invalid size."""
        view, end = self.view, self.end
        while end - self.start >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(view, self.start)
            if not self.min_bytes <= size <= self.max_bytes:
                self._refuse(size)
            body = self.start + SIZE_BYTES
            if end - body < size:
                break
            self.start = body + size
            yield view[body : body + size]

    def push_back(self, frame: memoryview) -> None:
        """Returns the last frame: the next call yields it again."""
        self.start -= SIZE_BYTES + len(frame)
        assert self.start >= 0

    def keep(self) -> None:
        """Call it after frames were taken, all or some: the shared buffer is free for another connection afterwards.
        Bytes that were not taken move to a buffer of this connection. An empty own buffer is released, or may be given
        to another connection if it is large."""
        waiting = self.end - self.start
        if waiting == 0:
            self.start = self.end = 0
            if self.own is None:
                return
            if self.is_closed or len(self.own) <= KEPT_BYTES:
                self.shrink()
            else:
                self.scratch.note_empty(self)
        elif self.own is None:
            size = 1 << (2 * waiting - 1).bit_length()
            large = size > KEPT_BYTES
            self._move_to(self.scratch.large_buffer(size) if large else bytearray(max(SMALLEST_BUFFER_BYTES, size)))

    def shrink(self) -> None:
        """Releases an empty buffer, for a connection that has been idle for a while."""
        if self.end == self.start:
            self.scratch.forget(self)
            self.own, self.view = None, self.scratch.view
            self.start = self.end = 0

    def close(self) -> None:
        """The connection is closed: its buffer is not kept."""
        self.is_closed = True
        self.scratch.forget(self)

    def _refuse(self, size: int) -> None:
        first = bytes(self.view[self.start : self.start + SIZE_BYTES])
        if first in FOREIGN_PROTOCOLS:
            raise NotKafka(FOREIGN_PROTOCOLS[first])
        if first[0] == 0x16 and first[1] == 0x03:
            raise NotKafka("TLS")
        if size < self.min_bytes:
            raise ProtocolError(f"a frame of {size} bytes, less than a request header has")
        raise ProtocolError(f"a frame of {size} bytes, more than {self.max_bytes}")

    @property
    def waiting_bytes(self) -> int:
        """The received bytes of an incomplete frame."""
        return self.end - self.start

    @property
    def held_bytes(self) -> int:
        """The size of the buffer that an incomplete frame takes."""
        return 0 if self.own is None or self.start == self.end else len(self.own)


def frame_response(correlation_id: int, response: Response, version: int) -> list[RecordBytes]:
    """The pieces of a whole response, its size first. Records are among them by reference."""
    cls = type(response)
    known = _framings.get((cls, version))
    if known is None:
        start = _RESPONSE_HEAD[response_header_version(cls, version)]
        known = _framings[cls, version] = start, encoder(cls, version)
    head = bytearray(known[0])
    pieces = known[1](response, head)
    assert pieces[0] is head
    size = len(head) if len(pieces) == 1 else sum(map(len, pieces))
    SIZE_AND_CORRELATION_ID.pack_into(head, 0, size - SIZE_BYTES, correlation_id)
    return pieces


def frame_request(correlation_id: int, client_id: str, request: Request, version: int) -> bytes:
    """A whole request, its size first."""
    cls = type(request)
    assert cls.__key__ is not None
    header = RequestHeader(
        request_api_key=cls.__key__, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    frame = encode(header, request_header_version(cls, version)) + encode(request, version)
    return _SIZE.pack(len(frame)) + frame


def read_response(request: type[Request], version: int, frame: memoryview, correlation_id: int) -> Response:
    """The answer to a request, from a frame without its size. Records in it are views of the frame."""
    assert request.__key__ is not None
    answer = response_type(request.__key__)
    position = SIZE_BYTES + response_header_version(answer, version)
    if len(frame) < position or _SIZE.unpack_from(frame, 0)[0] != correlation_id:
        raise ProtocolError(f"a response that begins with {bytes(frame[:8])!r}, where {correlation_id} was expected")
    if position > SIZE_BYTES and frame[SIZE_BYTES]:
        position = skip_tags(frame, position, frame[SIZE_BYTES])
    message: Response = decoder(answer, version)(frame, position, MAX_ELEMENTS)[0]
    return message


class ResponseTemplate:
    """A response that is constant except for a run of numbers: encoded once, and packed around the numbers each time.

    It is made from a response in which the numbers are `marks`; their bytes must occur in it exactly once.
    """

    __slots__ = ("head", "pack", "rest", "size")

    def __init__(self, response: Response, version: int, numbers: Struct, *marks: int) -> None:
        (whole,) = frame_response(0, response, version)
        marked = numbers.pack(*marks)
        assert isinstance(whole, bytearray)
        assert whole.count(marked) == 1
        at = whole.index(marked)
        self.size = len(whole) - SIZE_BYTES
        self.head = bytes(whole[SIZE_AND_CORRELATION_ID.size : at])
        self.rest = bytes(whole[at + len(marked) :])
        # The size, the correlation id, the head, all numbers, the rest.
        self.pack = Struct(f">ii{len(self.head)}s{numbers.format[1:]}{len(self.rest)}s").pack

    def fill(self, correlation_id: int, *numbers: int) -> bytes:
        """The whole frame."""
        return self.pack(self.size, correlation_id, self.head, *numbers, self.rest)


# By version of the header: size, correlation id, and in version 1 the count of tagged fields, which is 0.
SIZE_AND_CORRELATION_ID: Final = Struct(">ii")
_RESPONSE_HEAD: Final = (bytes(8), bytes(9))

# The header and the encoder of each response. Every response needs both, so one look-up returns them together.
_framings: dict[tuple[type[Response], int], tuple[bytes, Encoder]] = {}

T = TypeVar("T")


class OrderedReplies(Generic[T]):
    """Replies leave in the order of their requests, whichever is ready first."""

    __slots__ = ("_first", "_slots")

    _WAITING: Final = object()

    def __init__(self) -> None:
        self._first = 0
        self._slots: deque[object] = deque()

    def expect(self) -> int:
        """Registers a request; returns its ticket."""
        self._slots.append(self._WAITING)
        return self._first + len(self._slots) - 1

    def ready(self, ticket: int, reply: T | None) -> None:
        """Its reply is there; None for a request that gets none."""
        assert self._slots[ticket - self._first] is self._WAITING, "a request is answered once"
        self._slots[ticket - self._first] = reply

    def take(self) -> list[T]:
        """The replies that may leave now."""
        leaving: list[T] = []
        while self._slots and self._slots[0] is not self._WAITING:
            reply = self._slots.popleft()
            self._first += 1
            if reply is not None:
                leaving.append(reply)  # type: ignore[arg-type]
        return leaving

    def __len__(self) -> int:
        """The number of requests that are unanswered, or answered behind an unanswered one."""
        return len(self._slots)
