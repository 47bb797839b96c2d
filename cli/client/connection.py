"""One synchronous connection to one broker: it sends a request and waits for the response. The only module of this
package that opens sockets.

The messages are those of `trioka.protocol`. The connection asks for the broker's API versions once, when they are first
needed, and sends each request in the newest version that both sides support. Tests may pass a version.

A connection to the wrong port fails with an error that names what listens there. The first four bytes of a response are
its size; read as ASCII, they identify another protocol: `HTTP`, or a TLS alert (0x15 0x03). A listener that requires
TLS may also close the connection without an alert.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from trioka.protocol.codec import decode, encode
from trioka.protocol.errors import NONE, ProtocolError, UnsupportedVersion
from trioka.protocol.header import RequestHeader, ResponseHeader, request_header_version, response_header_version
from trioka.protocol.messages import response_type
from trioka.protocol.messages.api_versions import ApiVersionsRequest
from trioka.protocol.schema import Request, VersionRange

from .. import problems
from .time_budget import TimeoutBudget

if TYPE_CHECKING:
    from ssl import SSLContext as SSLContext

CLIENT_ID: Final = "trioka"
SIZE_BYTES: Final = 4
MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024  # a list of every partition of a very large cluster, or a Fetch response
RECEIVE_BYTES: Final = 1 << 20  # per read of the socket
NO_TIME_S: Final = 0.001  # a socket timeout of 0 means non-blocking, which fails in another way
TLS_ALERT, TLS_HANDSHAKE = 0x15, 0x16
TLS_MAJOR: Final = 0x03


class ConnectionClosed(Exception):
    """The connection ended before the response was complete."""


class Connection:
    """One request at a time. The connection is opened at the first request."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float | TimeoutBudget,
        tls: "SSLContext | None" = None,
        log_in: "Callable[[Connection], None] | None" = None,
        client_id: str = CLIENT_ID,
    ) -> None:
        """`timeout_s`: the time limit of each response; or a budget that several connections share. `log_in` is called
        on the open connection before any other request: a login.
        """
        self.host, self.port = host, port
        self._has_own_budget = not isinstance(timeout_s, TimeoutBudget)
        self._budget = timeout_s if isinstance(timeout_s, TimeoutBudget) else TimeoutBudget(timeout_s)
        self._tls = tls
        self._log_in = log_in
        self._client_id = client_id
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._versions: dict[int, VersionRange] | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def open(self) -> None:
        """Connect, unless connected."""
        if self._socket is None:
            self._socket = self._connect()
            if self._log_in is not None:
                try:
                    self._log_in(self)
                except BaseException:
                    self.close()
                    raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, request: Request, version: int | None = None, *, at_most: int | None = None) -> Any:
        """The response. Raises `ConnectionClosed` if the broker closes the connection, which is then closed on this
        side too.
        """
        if version is None:
            version = self.version_of(type(request), at_most=at_most)
        self.send(request, version)
        return self.receive(request, version)

    def send(self, request: Request, version: int) -> int:
        """Send without waiting for the response. Several requests may be sent before the first response is read; the
        returned correlation id identifies the response.
        """
        if self._has_own_budget:
            self._budget.restore()
        self.open()
        assert self._socket is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            with self._waiting(self._socket):
                self._socket.sendall(request_frame(request, version, self._correlation_id, self._client_id))
        except TimeoutError:
            raise self._timed_out() from None
        except OSError:
            self.close()
            raise ConnectionClosed from None
        return self._correlation_id

    def receive(self, request: Request, version: int, *, correlation_id: int | None = None) -> Any:
        expected = self._correlation_id if correlation_id is None else correlation_id
        frame = self._receive(self._size())
        try:
            return read_answer(request, version, frame, expected)
        except ProtocolError as problem:
            self.close()
            raise problems.failure_for(
                problems.NOT_KAFKA, f"{self.address} did not answer in Kafka's protocol: {problem}"
            ) from None

    def version_of(self, request: type[Request], *, at_most: int | None = None) -> int:
        """The newest version that both sides support."""
        key = request.__key__
        assert key is not None
        ours = request.__versions__
        theirs = self.versions().get(key)
        last = min(ours.last, ours.last if at_most is None else at_most, -1 if theirs is None else theirs.last)
        if theirs is None or last < max(ours.first, theirs.first):
            name = request.__name__.removesuffix("Request")
            if theirs is None and name == "Metadata":
                raise problems.failure_for(
                    problems.CONTROLLER, f"{self.address} belongs to a controller and serves no clients"
                )
            offered = "at all" if theirs is None else f"in a version that is known here (it has {theirs})"
            raise problems.failure_for(problems.TOO_OLD, f"{self.address} does not offer {name} {offered}")
        return last

    def versions(self) -> dict[int, VersionRange]:
        """The broker's version ranges, by API key."""
        if self._versions is None:
            self._versions = self._negotiate()
        return self._versions

    def _negotiate(self) -> dict[int, VersionRange]:
        requested = ApiVersionsRequest(client_software_name="trioka", client_software_version="cli")
        newest = ApiVersionsRequest.__versions__.last
        self.send(requested, newest)
        frame = self._receive(self._size())
        try:
            # A broker that does not know the version answers in version 0; the error has the same place in all
            # versions.
            code = int.from_bytes(frame[4:6], signed=True)
            answer = read_answer(
                requested, 0 if code == UnsupportedVersion.code else newest, frame, self._correlation_id
            )
            if answer.error_code == UnsupportedVersion.code:
                answer = self.ask(requested, 0)
        except ProtocolError:
            self.close()
            raise problems.failure_for(
                problems.NOT_KAFKA, f"{self.address} did not answer in Kafka's protocol"
            ) from None
        if answer.error_code != NONE:
            raise problems.from_error_code(answer.error_code, f"{self.address} did not return its API versions")
        return {result.api_key: VersionRange(result.min_version, result.max_version) for result in answer.api_keys}

    # -- the socket ----------------------------------------------------------------------------------------------------

    def _connect(self) -> socket.socket:
        try:
            sock = self._connect_to_one_of(socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM))
        except socket.gaierror:
            raise problems.failure_for(problems.NO_SUCH_HOST, f"there is no host '{self.host}'") from None
        except ConnectionRefusedError:
            raise problems.failure_for(problems.REFUSED, f"nothing listens on {self.address}") from None
        except TimeoutError:
            raise self._timed_out() from None
        except OSError as error:
            raise problems.failure_for(
                problems.REFUSED, f"{self.address} cannot be reached: {error.strerror or error}"
            ) from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if self._tls is None else self._wrapped(sock, self._tls)

    def _connect_to_one_of(self, found: Sequence[Any]) -> socket.socket:
        """Connect to one of the addresses of a name; some of them may not answer."""
        problem = OSError("it has no address")
        addresses = list(dict.fromkeys(each[4][:2] for each in found))
        for number, address in enumerate(addresses):
            with self._budget.share(len(addresses) - number), self._budget.waiting():
                try:
                    return socket.create_connection(address, self._budget.left_s or NO_TIME_S)
                except OSError as error:
                    problem = error
        raise problem

    @contextmanager
    def _waiting(self, sock: socket.socket) -> Iterator[None]:
        """Limit the socket calls in this block by the time budget."""
        sock.settimeout(self._budget.left_s or NO_TIME_S)
        with self._budget.waiting():
            yield

    def _wrapped(self, sock: socket.socket, tls: "SSLContext") -> socket.socket:
        from ssl import SSLCertVerificationError, SSLError

        try:
            with self._waiting(sock):
                return tls.wrap_socket(sock, server_hostname=self.host)
        except SSLCertVerificationError as error:
            sock.close()
            why = f"the certificate of {self.address} is not trusted: {error.verify_message}"
            raise problems.failure_for(problems.NOT_TRUSTED, why) from None
        except TimeoutError:
            sock.close()
            raise self._timed_out() from None
        except (SSLError, OSError) as error:
            sock.close()
            if isinstance(error, SSLError) and (failure := self._refused_by_alert(error)) is not None:
                raise failure from None
            raise problems.failure_for(problems.NO_TLS_HERE, f"{self.address} did not answer in TLS") from None

    def _refused_by_alert(self, error: OSError) -> Exception | None:
        """The failure for a TLS alert of the broker, which may also come after the handshake; None if there is no
        alert.
        """
        reason = getattr(error, "reason", None) or ""
        if "_ALERT_" not in reason:
            return None
        alert = reason.partition("_ALERT_")[2].replace("_", " ").lower()
        about_certificate = any(word in alert for word in ("certificate", "unknown ca", "access denied"))
        trouble = problems.CERTIFICATE_WANTED if about_certificate else problems.TLS_REFUSED
        return problems.failure_for(trouble, f"{self.address} refused the TLS connection: {alert}")

    def _timed_out(self) -> Exception:
        self.close()
        return problems.failure_for(
            problems.TIMED_OUT, f"{self.address} did not answer within {self._budget.timeout_s:g} s"
        )

    def _size(self) -> int:
        first = self._receive(SIZE_BYTES)
        size = int.from_bytes(first, signed=True)
        if 0 < size <= MAX_RESPONSE_BYTES and first[0] != TLS_ALERT:
            return size
        self.close()
        if first == b"HTTP":
            raise problems.failure_for(
                problems.SPEAKS_HTTP, f"{self.address} answered in HTTP, not in Kafka's protocol"
            )
        if first[0] in (TLS_ALERT, TLS_HANDSHAKE) and first[1] == TLS_MAJOR:
            raise problems.failure_for(problems.EXPECTS_TLS, f"{self.address} expects TLS and got plain text")
        raise problems.failure_for(
            problems.NOT_KAFKA, f"{self.address} did not answer in Kafka's protocol: the response begins with {first!r}"
        )

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None, "send a request first"
        received = bytearray()
        while len(received) < size:
            try:
                with self._waiting(self._socket):
                    more = self._socket.recv(min(size - len(received), RECEIVE_BYTES))
            except TimeoutError:
                raise self._timed_out() from None
            except OSError as error:
                if (failure := self._refused_by_alert(error)) is not None:
                    self.close()
                    raise failure from None
                more = b""
            if not more:
                self.close()
                raise ConnectionClosed
            received += more
        self._budget.restore()
        return bytes(received)


def free_ports(host: str, count: int) -> list[int]:
    """Ports that nothing listens on at the moment, all of them different."""
    taken = [socket.create_server((host, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


def is_port_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


class ReservedPort:
    """A reserved port: it is bound without listening, so no other process gets it until it is released."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((host, 0))
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


def request_frame(request: Request, version: int, correlation_id: int, client_id: str = CLIENT_ID) -> bytes:
    """A request frame, with its size prefix."""
    key = type(request).__key__
    assert key is not None
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    frame = encode(header, request_header_version(type(request), version)) + encode(request, version)
    return len(frame).to_bytes(SIZE_BYTES) + frame


def read_answer(request: Request, version: int, frame: bytes, correlation_id: int) -> Any:
    """Decode the response to a request, from a frame without its size prefix."""
    key = type(request).__key__
    assert key is not None
    answer = response_type(key)
    head = encode(ResponseHeader(correlation_id=correlation_id), response_header_version(answer, version))
    if frame[: len(head)] != head:
        raise ProtocolError(f"an answer that begins with {frame[: len(head)]!r}, where {head!r} was expected")
    return decode(answer, version, frame[len(head) :])
