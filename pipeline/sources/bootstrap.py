"""Checks that the brokers of a pipeline are reachable, before Spark starts.

Spark fails late: an address without a listener costs a minute of retries and ends in a Java stack trace. So this module
first sends one ApiVersions request, and reports an error in one sentence.
"""

import socket

from trioka.protocol.codec import decode, encode
from trioka.protocol.header import RequestHeader, ResponseHeader, request_header_version, response_header_version
from trioka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

from ..installation.cache import Unreachable

DEFAULT_PORT = 9092
DEFAULT_BOOTSTRAP = f"localhost:{DEFAULT_PORT}"
REACH_TIMEOUT_SECONDS = 5.0
# A response to ApiVersions has about a kilobyte; four letters of HTTP read as a size of more than a gigabyte.
ANSWER_LIMIT_BYTES = 1 << 20
API_VERSIONS_VERSION = 0
CORRELATION_ID = 1


class InvalidAddress(ValueError):
    """Not of the form host:port,host:port. The message is one sentence."""


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """`a:9092,[::1]:9093` as hosts and ports; the default is Kafka's port."""
    found = []
    for text in bootstrap.split(","):
        host, colon, port = text.strip().rpartition(":")
        if not colon or port.endswith("]"):
            host, port = text.strip(), str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise InvalidAddress(f"{bootstrap!r} is not a list of brokers such as host:9092,other:9092.")
        found.append((host, int(port)))
    return found


def reach(bootstrap: str, *, is_plain: bool = True) -> None:
    """Return when one of the brokers has answered; `Unreachable` if none does.

    With TLS or a login (`is_plain=False`) an open port is sufficient.
    """
    reasons = []
    for host, port in addresses(bootstrap):
        try:
            with socket.create_connection((host, port), REACH_TIMEOUT_SECONDS) as connection:
                if is_plain:
                    _ask(connection)
            return
        except (OSError, EOFError, ValueError) as error:
            reasons.append(f"{host}:{port} {_reason(error)}")
    raise Unreachable(f"No broker answers: {', '.join(reasons)}. Is it running? Start one with: trioka dev")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"is silent for {REACH_TIMEOUT_SECONDS:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections"
    if isinstance(error, EOFError | ValueError | ConnectionError):
        return "does not speak Kafka in plain text"
    return f"cannot be reached ({getattr(error, 'strerror', None) or error})"


def _ask(connection: socket.socket) -> None:
    key = ApiVersionsRequest.__key__
    assert key is not None
    header = RequestHeader(
        request_api_key=key,
        request_api_version=API_VERSIONS_VERSION,
        correlation_id=CORRELATION_ID,
        client_id="trioka-pipeline",
    )
    frame = encode(header, request_header_version(ApiVersionsRequest, API_VERSIONS_VERSION))
    frame += encode(ApiVersionsRequest(), API_VERSIONS_VERSION)
    connection.sendall(len(frame).to_bytes(4) + frame)
    answer = _receive(connection, int.from_bytes(_receive(connection, 4)))
    version = response_header_version(ApiVersionsResponse, API_VERSIONS_VERSION)
    head = encode(ResponseHeader(correlation_id=CORRELATION_ID), version)
    if not answer.startswith(head):
        raise ValueError("this answers another question")
    decode(ApiVersionsResponse, API_VERSIONS_VERSION, answer[len(head) :])


def _receive(connection: socket.socket, size: int) -> bytes:
    if size > ANSWER_LIMIT_BYTES:
        raise ValueError("no answer is that long")
    pieces: list[bytes] = []
    missing = size
    while missing:
        piece = connection.recv(missing)
        if not piece:
            raise EOFError
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)
