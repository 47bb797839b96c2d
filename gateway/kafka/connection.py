"""One connection to one broker: requests are pipelined, and responses come in their order.

    open(…)       connects, performs the TLS handshake, the login, and requests the broker's API versions
    request(…)    sends a request in the newest version that both sides support, and waits for the response

Small responses are received into a buffer of the connection, from which frames are cut; a frame that is not complete
there gets a buffer of its own size and is received straight into it, because a Fetch response is large. A view of
records in a response stays valid: its buffer is never used again.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Mapping
from ssl import SSLContext, SSLError
from struct import Struct
from typing import Any, Final

from trioka.protocol.errors import (
    NONE,
    NetworkException,
    ProtocolError,
    RequestTimedOut,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
    error_class,
)
from trioka.protocol.frame import frame_request, read_response
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from trioka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from trioka.protocol.sasl.client import CLIENT_MECHANISMS, client_exchange
from trioka.protocol.sasl.exchange import ClientExchange, ServerNotAuthenticated
from trioka.protocol.sasl.scram import NONCE_BYTES
from trioka.protocol.schema import Request, VersionRange

from ..cluster_access import OAUTHBEARER, Login

CLIENT_ID: Final = "trioka-gateway"
SIZE_BYTES: Final = 4
RECEIVE_BYTES: Final = 16 * 1024
MAX_RESPONSE_BYTES: Final = 128 * 1024 * 1024
MAX_IN_FLIGHT: Final = 1000  # requests of one connection that wait for a response
_SIZE: Final = Struct(">i")


class BearerClient:
    """The client side of OAUTHBEARER: one message with the token. A challenge is the server's refusal."""

    def __init__(self, token: str) -> None:
        self._message: bytes | None = f"n,,\x01auth=Bearer {token}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise ServerNotAuthenticated("the bearer token is refused")
        message, self._message = self._message, None
        return message


class Connection(asyncio.BufferedProtocol):
    """Made by `open`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.versions: Mapping[int, VersionRange] = {}
        self._transport: asyncio.Transport | None = None
        self._pending: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._correlation_id = 0
        self._buffer = bytearray(RECEIVE_BYTES)
        self._start = self._end = 0  # of the received bytes in it
        self._frame: bytearray | None = None  # of an incomplete frame, without its size
        self._filled = 0
        self._failure: Exception | None = None
        self._may_send = asyncio.Event()  # not while the broker leaves what was sent unread
        self._may_send.set()

    # -- the protocol of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        if self._start:
            rest = self._buffer[self._start : self._end]
            self._buffer = bytearray(RECEIVE_BYTES)  # views of the old one may be in use
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is not None:
            self._filled += nbytes
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._take(memoryview(frame))
            return
        self._end += nbytes
        while self._end - self._start >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(self._buffer, self._start)
            body = self._start + SIZE_BYTES
            if not SIZE_BYTES <= size <= MAX_RESPONSE_BYTES:
                self._fail(ProtocolError(f"{self.address} sent a frame of {size} bytes; is it a Kafka listener?"))
                return
            if self._end - body < size:
                if body + size > len(self._buffer):
                    self._frame = bytearray(size)
                    self._filled = self._end - body
                    self._frame[: self._filled] = self._buffer[body : self._end]
                    self._start = self._end
                return
            self._start = body + size
            self._take(memoryview(self._buffer)[body : body + size])

    def _take(self, frame: memoryview) -> None:
        if not self._pending:
            self._fail(ProtocolError(f"{self.address} sent a response without a request"))
            return
        _, future = self._pending.popleft()
        if not future.done():
            future.set_result(frame)

    def pause_writing(self) -> None:
        self._may_send.clear()

    def resume_writing(self) -> None:
        self._may_send.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(NetworkException(f"{self.address} closed the connection" + (f": {exc}" if exc else "")))

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self._may_send.set()
        pending, self._pending = self._pending, deque()
        for _, future in pending:
            if not future.done():
                future.set_exception(self._failure)
        self.close()

    # -- what callers use

    @property
    def is_open(self) -> bool:
        return self._failure is None and self._transport is not None and not self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close without waiting for responses."""
        if self._transport is not None:
            self._transport.abort()

    def version_of(self, request: type[Request], at_most: int | None = None) -> int:
        """The newest version that both sides support. Raises UnsupportedVersion."""
        key, own = request.__key__, request.__versions__
        assert key is not None
        theirs = self.versions.get(key)
        newest = own.last if at_most is None else min(at_most, own.last)
        if theirs is None or min(newest, theirs.last) < max(own.first, theirs.first):
            raise UnsupportedVersion(f"{self.address} does not support {request.__name__.removesuffix('Request')}")
        return min(newest, theirs.last)

    async def request(self, request: Request, *, timeout_s: float, version: int | None = None) -> Any:
        """The response. Raises NetworkException if the connection is lost, RequestTimedOut (and closes, because later
        responses would wait behind this one) after `timeout_s`, and ProtocolError for a response that is none."""
        if version is None:
            version = self.version_of(type(request))
        if self._failure is not None:
            raise NetworkException(str(self._failure))
        assert self._transport is not None
        if len(self._pending) >= MAX_IN_FLIGHT:
            raise NetworkException(f"{self.address} leaves {MAX_IN_FLIGHT} requests without a response")
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = frame_request(correlation_id, CLIENT_ID, request, version)
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._pending.append((correlation_id, future))
        self._transport.write(frame)
        try:
            async with asyncio.timeout(timeout_s):
                data = await future
        except TimeoutError:
            self._fail(RequestTimedOut(f"{self.address} did not answer within {timeout_s:g} s"))
            raise RequestTimedOut(f"{self.address} did not answer within {timeout_s:g} s") from None
        try:
            return read_response(type(request), version, data, correlation_id)
        except ProtocolError as error:
            self._fail(error)
            raise

    async def send(self, request: Request, version: int, *, timeout_s: float) -> None:
        """Send a request that has no response: a Produce with acks=0. Waits while the broker does not read."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._may_send.wait()
        except TimeoutError:
            self._fail(RequestTimedOut(f"{self.address} did not read what was sent within {timeout_s:g} s"))
            self.abort()
        if self._failure is not None:
            raise NetworkException(str(self._failure))
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._transport.write(frame_request(self._correlation_id, CLIENT_ID, request, version))

    async def _greet(self, login: Login | None, timeout_s: float) -> None:
        response = await self.request(
            ApiVersionsRequest(client_software_name="trioka-gateway", client_software_version="1"),
            timeout_s=timeout_s,
            version=3,
        )
        if response.error_code != NONE:
            raise error_class(response.error_code)(f"{self.address} refuses ApiVersions")
        self.versions = {each.api_key: VersionRange(each.min_version, each.max_version) for each in response.api_keys}
        if login is not None:
            await self._log_in(login, timeout_s)

    async def _log_in(self, login: Login, timeout_s: float) -> None:
        response = await self.request(SaslHandshakeRequest(mechanism=login.mechanism), timeout_s=timeout_s, version=1)
        if response.error_code != NONE:
            offered = ", ".join(response.mechanisms) or "none"
            raise UnsupportedSaslMechanism(f"{self.address} does not offer {login.mechanism}, but {offered}")
        exchange = _exchange(login)
        challenge = b""
        try:
            while (message := exchange.respond(challenge)) is not None:
                request = SaslAuthenticateRequest(auth_bytes=message)
                response = await self.request(request, timeout_s=timeout_s, version=2)
                if response.error_code != NONE:
                    raise error_class(response.error_code)(response.error_message or "the login is refused")
                challenge = bytes(response.auth_bytes)
        except ServerNotAuthenticated as error:
            raise SaslAuthenticationFailed(str(error)) from None


def _exchange(login: Login) -> ClientExchange:
    if login.mechanism == OAUTHBEARER:
        return BearerClient(login.password)
    if login.mechanism not in CLIENT_MECHANISMS:
        raise UnsupportedSaslMechanism(f"sasl.mechanism {login.mechanism} is not among {', '.join(CLIENT_MECHANISMS)}")
    return client_exchange(login.mechanism, login.username, login.password, random=secrets.token_bytes(NONCE_BYTES))


async def open_connection(
    host: str, port: int, *, tls: SSLContext | None, login: Login | None, timeout_s: float
) -> Connection:
    """Raises NetworkException if the broker cannot be reached, and the error of a refused login."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                lambda: Connection(address),
                host,
                port,
                ssl=tls,
                server_hostname=host if tls is not None and tls.check_hostname else ("" if tls is not None else None),
            )
    except TimeoutError:
        raise NetworkException(f"{address} could not be connected to within {timeout_s:g} s") from None
    except SSLError as error:
        raise NetworkException(f"the TLS handshake with {address} failed: {error.reason or error}") from None
    except OSError as error:
        raise NetworkException(f"{address} cannot be connected to: {error.strerror or error}") from None
    try:
        await connection._greet(login, timeout_s)
    except BaseException:
        connection.abort()
        raise
    return connection
