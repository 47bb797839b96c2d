"""Any requests as a load: encoded once, sent repeatedly over one connection, with several in flight.

It is Python, and slower than a broker, so it measures the broker's CPU and not its throughput. All responses to a
request must be equal except for the correlation id; the first ones are checked for errors.
"""

import socket
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from load_generator import LoadFailed
from nodes import Node, cpu_seconds

from trioka.cli.client.connection import SIZE_BYTES, read_answer, request_frame
from trioka.protocol.schema import Request

ANSWER_SECONDS = 120.0
WARMUP_SHARE = 0.3
BUFFER_BYTES = 1 << 20
CORRELATION_BYTES = 4
# The CPU clock of a process has a resolution of 10 ms; so a measure continues until the broker has used this much, but
# at most for this multiple of its length.
MIN_CPU_SECONDS = 0.25
LONGEST = 6


def cpu_micros(node: Node, requests: Sequence[Request], version: int, *, in_flight: int, seconds: float) -> float:
    """CPU time of the broker per request, in µs."""
    frames = [request_frame(request, version, number + 1) for number, request in enumerate(requests)]
    with socket.create_connection(("127.0.0.1", node.port), ANSWER_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection.makefile("rb", buffering=BUFFER_BYTES) as stream:
            expected = _first(connection, stream, requests, frames, version)
            warm_until = time.perf_counter() + seconds * WARMUP_SHARE
            _many(connection, stream, frames, in_flight, warm_until, expected)
            before, began, count, used = cpu_seconds(node.pid), time.perf_counter(), 0, 0.0
            for n in range(1, LONGEST + 1):
                count += _many(connection, stream, frames, in_flight, began + n * seconds, expected)
                used = cpu_seconds(node.pid) - before
                if used >= MIN_CPU_SECONDS:
                    break
            return used / count * 1e6


def _first(
    connection: socket.socket, stream: BinaryIO, requests: Sequence[Request], frames: Sequence[bytes], version: int
) -> bytes:
    """Send each request once; the response to the last one is the reference for all later ones."""
    answer = b""
    for number, (request, frame) in enumerate(zip(requests, frames, strict=True)):
        connection.sendall(frame)
        answer = _answer(stream)
        if code := worst_code(read_answer(request, version, answer, number + 1)):
            raise LoadFailed(f"{type(request).__name__}: error {code}")
    return answer[CORRELATION_BYTES:]


def worst_code(answer: Any) -> int:
    """Any error code in a response, at any depth; 0 if there is none."""
    code = getattr(answer, "error_code", 0)
    if code:
        return int(code)
    names = getattr(type(answer), "__slots__", ()) or ()
    parts = [getattr(answer, name, None) for name in names]
    below = [one for part in parts if isinstance(part, list | tuple) for one in part if hasattr(one, "__slots__")]
    return next(filter(None, map(worst_code, below)), 0)


def _many(
    connection: socket.socket,
    stream: BinaryIO,
    frames: Sequence[bytes],
    in_flight: int,
    until: float,
    expected: bytes,
) -> int:
    count = 0
    while time.perf_counter() < until or not count:
        connection.sendall(b"".join(frames[(count + n) % len(frames)] for n in range(in_flight)))
        for _ in range(in_flight):
            if _answer(stream)[CORRELATION_BYTES:] != expected:
                raise LoadFailed("an answer differs from the first one")
        count += in_flight
    return count


def _answer(stream: BinaryIO) -> bytes:
    size = stream.read(SIZE_BYTES)
    answer = stream.read(int.from_bytes(size, "big")) if len(size) == SIZE_BYTES else b""
    if len(answer) < CORRELATION_BYTES:
        raise LoadFailed("the broker hung up")
    return answer
