"""One connection to one broker, synchronous: a request goes out, its answer is waited for. All sockets of this room.

The messages are those of `trioka.protocol`. What versions the other side speaks is asked once, when it is first needed,
and each request then goes out in the newest that both know. Tests that want one version name it.

Whoever speaks to a wrong door should hear which door it is. The first four bytes of an answer are its size; read as
letters, they say who is there: `HTTP`, or a TLS alert (0x15 0x03). A listener that wants TLS may also just hang up.
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
from trioka.protocol.schema import Request, Span

from .. import problems
from .time_budget import Patience

if TYPE_CHECKING:
    from ssl import SSLContext as SSLContext

CLIENT_ID: Final = "trioka"
SIZE_BYTES: Final = 4
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024  # a list of every partition of a very large cluster, or a fetch
RECEIVE_BYTES: Final = 1 << 20  # at once
NO_TIME_S: Final = 0.001  # a timeout of 0 would mean: do not wait at all, and fail otherwise
TLS_ALERT, TLS_HANDSHAKE = 0x15, 0x16
TLS_MAJOR: Final = 0x03


class HungUp(Exception):
    """The connection ended before the answer did."""


class Connection:
    """Asks one thing at a time. It is made when the first question is asked."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float | Patience,
        tls: "SSLContext | None" = None,
        greet: "Callable[[Connection], None] | None" = None,
        client_id: str = CLIENT_ID,
    ) -> None:
        """`timeout_s`: how long each answer is waited for; or how long all are that others wait for too. `greet` is
        called on the open connection before anything else is asked: a login."""
        self.host, self.port = host, port
        self._has_own_patience = not isinstance(timeout_s, Patience)
        self._patience = timeout_s if isinstance(timeout_s, Patience) else Patience(timeout_s)
        self._tls = tls
        self._greet = greet
        self._client_id = client_id
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._versions: dict[int, Span] | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def open(self) -> None:
        """Connects, if it has not."""
        if self._socket is None:
            self._socket = self._connect()
            if self._greet is not None:
                try:
                    self._greet(self)
                except BaseException:
                    self.close()
                    raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, request: Request, version: int | None = None, *, at_most: int | None = None) -> Any:
        """The answer. `HungUp` if the other side closes the connection, which is closed then on this side too."""
        if version is None:
            version = self.version_of(type(request), at_most=at_most)
        self.say(request, version)
        return self.hear(request, version)

    def say(self, request: Request, version: int) -> int:
        """Sends without waiting for the answer. Several requests may be sent before the first answer is heard; the
        correlation id that is returned tells their answers apart."""
        if self._has_own_patience:
            self._patience.restore()
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
            raise HungUp from None
        return self._correlation_id

    def hear(self, request: Request, version: int, *, correlation_id: int | None = None) -> Any:
        expected = self._correlation_id if correlation_id is None else correlation_id
        frame = self._receive(self._size())
        try:
            return read_answer(request, version, frame, expected)
        except ProtocolError as problem:
            self.close()
            raise problems.met(
                problems.NOT_KAFKA, f"{self.address} did not answer in Kafka's protocol: {problem}"
            ) from None

    def version_of(self, request: type[Request], *, at_most: int | None = None) -> int:
        """The newest version that both sides know."""
        key = request.__key__
        assert key is not None
        ours = request.__versions__
        theirs = self.versions().get(key)
        last = min(ours.last, ours.last if at_most is None else at_most, -1 if theirs is None else theirs.last)
        if theirs is None or last < max(ours.first, theirs.first):
            name = request.__name__.removesuffix("Request")
            if theirs is None and name == "Metadata":
                raise problems.met(problems.CONTROLLER, f"{self.address} belongs to a controller and serves no clients")
            offered = "at all" if theirs is None else f"in a version that is known here (it has {theirs})"
            raise problems.met(problems.TOO_OLD, f"{self.address} does not offer {name} {offered}")
        return last

    def versions(self) -> dict[int, Span]:
        """What the other side offers, by the key of the API."""
        if self._versions is None:
            self._versions = self._negotiate()
        return self._versions

    def _negotiate(self) -> dict[int, Span]:
        asked = ApiVersionsRequest(client_software_name="trioka", client_software_version="cli")
        newest = ApiVersionsRequest.__versions__.last
        self.say(asked, newest)
        frame = self._receive(self._size())
        try:
            # Who does not know the version answers in version 0; the error stands in the same place in all of them.
            code = int.from_bytes(frame[4:6], signed=True)
            answer = read_answer(asked, 0 if code == UnsupportedVersion.code else newest, frame, self._correlation_id)
            if answer.error_code == UnsupportedVersion.code:
                answer = self.ask(asked, 0)
        except ProtocolError:
            self.close()
            raise problems.met(problems.NOT_KAFKA, f"{self.address} did not answer in Kafka's protocol") from None
        if answer.error_code != NONE:
            raise problems.refused(answer.error_code, f"{self.address} does not say what it offers")
        return {told.api_key: Span(told.min_version, told.max_version) for told in answer.api_keys}

    # -- the socket ----------------------------------------------------------------------------------------------------

    def _connect(self) -> socket.socket:
        try:
            sock = self._connect_to_one_of(socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM))
        except socket.gaierror:
            raise problems.met(problems.NO_SUCH_HOST, f"there is no host '{self.host}'") from None
        except ConnectionRefusedError:
            raise problems.met(problems.REFUSED, f"nobody listens on {self.address}") from None
        except TimeoutError:
            raise self._timed_out() from None
        except OSError as error:
            raise problems.met(
                problems.REFUSED, f"{self.address} cannot be reached: {error.strerror or error}"
            ) from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if self._tls is None else self._wrapped(sock, self._tls)

    def _connect_to_one_of(self, found: Sequence[Any]) -> socket.socket:
        """A name may stand for several addresses, and some of them may not answer."""
        problem = OSError("it has no address")
        addresses = list(dict.fromkeys(each[4][:2] for each in found))
        for number, address in enumerate(addresses):
            with self._patience.share(len(addresses) - number), self._patience.waiting():
                try:
                    return socket.create_connection(address, self._patience.left_s or NO_TIME_S)
                except OSError as error:
                    problem = error
        raise problem

    @contextmanager
    def _waiting(self, sock: socket.socket) -> Iterator[None]:
        """What is done with the socket meanwhile ends when the patience does."""
        sock.settimeout(self._patience.left_s or NO_TIME_S)
        with self._patience.waiting():
            yield

    def _wrapped(self, sock: socket.socket, tls: "SSLContext") -> socket.socket:
        from ssl import SSLCertVerificationError, SSLError

        try:
            with self._waiting(sock):
                return tls.wrap_socket(sock, server_hostname=self.host)
        except SSLCertVerificationError as error:
            sock.close()
            why = f"the certificate of {self.address} is not trusted: {error.verify_message}"
            raise problems.met(problems.NOT_TRUSTED, why) from None
        except TimeoutError:
            sock.close()
            raise self._timed_out() from None
        except (SSLError, OSError):
            sock.close()
            raise problems.met(problems.NO_TLS_HERE, f"{self.address} does not speak TLS") from None

    def _timed_out(self) -> Exception:
        self.close()
        return problems.met(problems.TIMED_OUT, f"{self.address} did not answer within {self._patience.timeout_s:g} s")

    def _size(self) -> int:
        first = self._receive(SIZE_BYTES)
        size = int.from_bytes(first, signed=True)
        if 0 < size <= MAX_ANSWER_BYTES and first[0] != TLS_ALERT:
            return size
        self.close()
        if first == b"HTTP":
            raise problems.met(problems.SPEAKS_HTTP, f"{self.address} speaks HTTP, not Kafka's protocol")
        if first[0] in (TLS_ALERT, TLS_HANDSHAKE) and first[1] == TLS_MAJOR:
            raise problems.met(problems.EXPECTS_TLS, f"{self.address} expects TLS, and was spoken to in plain text")
        raise problems.met(
            problems.NOT_KAFKA, f"{self.address} does not speak Kafka's protocol: it began with {first!r}"
        )

    def _receive(self, size: int) -> bytes:
        assert self._socket is not None, "say something first"
        received = bytearray()
        while len(received) < size:
            try:
                with self._waiting(self._socket):
                    more = self._socket.recv(min(size - len(received), RECEIVE_BYTES))
            except TimeoutError:
                raise self._timed_out() from None
            except OSError:
                more = b""
            if not more:
                self.close()
                raise HungUp
            received += more
        self._patience.restore()
        return bytes(received)


def tls_context(
    *, authorities: str | None, certificate: str | None, password: str | None, check_host: bool
) -> "SSLContext":
    """From PEM files: who is trusted (the machine's own list, if not told), and who we are."""
    import ssl

    context = ssl.create_default_context(cafile=authorities)
    context.check_hostname = check_host
    if certificate is not None:
        context.load_cert_chain(certificate, password=password)
    return context


def free_ports(host: str, count: int) -> list[int]:
    """Ports that nobody listens on at the moment, all of them different."""
    taken = [socket.create_server((host, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


class Reserved:
    """A port that nobody else is given. It is bound and not listened at, which leaves it free for who knows it."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((host, 0))
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()


def request_frame(request: Request, version: int, correlation_id: int, client_id: str = CLIENT_ID) -> bytes:
    """A request as it goes out, its size first."""
    key = type(request).__key__
    assert key is not None
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    frame = encode(header, request_header_version(type(request), version)) + encode(request, version)
    return len(frame).to_bytes(SIZE_BYTES) + frame


def read_answer(request: Request, version: int, frame: bytes, correlation_id: int) -> Any:
    """The answer to a request, from a frame without its size."""
    key = type(request).__key__
    assert key is not None
    answer = response_type(key)
    head = encode(ResponseHeader(correlation_id=correlation_id), response_header_version(answer, version))
    if frame[: len(head)] != head:
        raise ProtocolError(f"an answer that begins with {frame[: len(head)]!r}, where {head!r} was expected")
    return decode(answer, version, frame[len(head) :])
