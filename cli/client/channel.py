"""A connection to a broker that never waits: requests are queued, and responses are taken as they come.

`Connection` opens the socket, with TLS and login; a channel then owns it. Its owner waits until the socket is ready and
calls `flush` and `receive`.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from trioka.protocol.errors import ProtocolError
from trioka.protocol.schema import Request

from .. import problems
from .connection import (
    MAX_RESPONSE_BYTES,
    RECEIVE_BYTES,
    SIZE_BYTES,
    Connection,
    ConnectionClosed,
    read_answer,
    request_frame,
)

SENT_AT_ONCE: Final = 1 << 20


class Channel:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection  # for its address and versions
        self._socket = connection.release()
        self._socket.setblocking(False)
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        self._expected: deque[tuple[int, Request, int]] = deque()
        self._correlation_id = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    def send(self, request: Request, version: int, *, has_answer: bool = True) -> int:
        """Queue a request; returns its correlation id."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._out.append(memoryview(request_frame(request, version, self._correlation_id)))
        if has_answer:
            self._expected.append((self._correlation_id, request, version))
        return self._correlation_id

    def flush(self) -> None:
        """Send what the socket takes."""
        while self._out:
            try:
                sent = self._socket.send(self._out[0][:SENT_AT_ONCE])
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if _is_unready(error):
                    return
                raise ConnectionClosed from None
            self._out[0] = self._out[0][sent:]
            if not self._out[0]:
                self._out.popleft()

    def receive(self) -> Iterator[tuple[int, Any]]:
        """The responses that have arrived, each with the correlation id of its request."""
        is_closed = False
        while not is_closed:
            try:
                received = self._socket.recv(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if _is_unready(error):
                    break
                received = b""
            is_closed = not received
            self._in += received
        while (frame := self._next_frame()) is not None:
            if not self._expected:
                raise self._not_kafka("a response to no request")
            correlation_id, request, version = self._expected.popleft()
            try:
                answer = read_answer(request, version, frame, correlation_id)
            except ProtocolError as problem:
                raise self._not_kafka(str(problem)) from None
            yield correlation_id, answer
        if is_closed:
            raise ConnectionClosed

    def _next_frame(self) -> bytes | None:
        if len(self._in) < SIZE_BYTES:
            return None
        size = int.from_bytes(self._in[:SIZE_BYTES], signed=True)
        if not 0 < size <= MAX_RESPONSE_BYTES:
            raise self._not_kafka(f"a response of {size} bytes")
        if len(self._in) < SIZE_BYTES + size:
            return None
        frame = bytes(self._in[SIZE_BYTES : SIZE_BYTES + size])
        del self._in[: SIZE_BYTES + size]
        return frame

    def _not_kafka(self, problem: str) -> Exception:
        what = f"{self.connection.address} did not answer in Kafka's protocol: {problem}"
        return problems.failure_for(problems.NOT_KAFKA, what)

    def close(self) -> None:
        self._socket.close()


def _is_unready(error: OSError) -> bool:
    """Whether a TLS connection waits for the other direction."""
    return type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")
