"""Servers that pose as a node of the cluster: what they do to a node that connects to them. They stall, answer
garbage, or cannot prove who they are. Each of these is a NetworkException, and one line in the log."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
import trio
from mutants.plant import planted
from support.certificates import Identity, authority, signed
from support.serving import HOST, on_trio, on_trio_patiently, running_broker
from support.tls_broker import SECURE, tls_settings

from trioka.broker.config.sasl import NodeLogin
from trioka.broker.config.values import Secret
from trioka.broker.peers import login as login_module
from trioka.broker.peers import peer as peer_module
from trioka.broker.security.peer_security import PeerSecurity
from trioka.broker.security.tls_context import ClientTls
from trioka.protocol.errors import NetworkException, SaslAuthenticationFailed, UnsupportedSaslMechanism
from trioka.protocol.frame import frame_response
from trioka.protocol.messages.list_groups import ListGroupsRequest
from trioka.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from trioka.protocol.messages.sasl_handshake import SaslHandshakeResponse
from trioka.protocol.schema import Response

SCRAM: Final = "SCRAM-SHA-512"
ASKED_S: Final = 30.0
QUESTION: Final = ListGroupsRequest(states_filter=[], types_filter=[])
STALL_S: Final = 0.2
Serve = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def posing(serve: Serve) -> AsyncIterator[int]:
    """A server that does to each connection what the test wants. Its port."""

    async def guarded(stream: trio.SocketStream) -> None:
        try:
            await serve(stream)
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError):
            await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, guarded, 0)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def request(stream: trio.abc.Stream) -> tuple[int, int]:
    """The API key and the correlation id of the next request."""
    size = int.from_bytes(await exactly(stream, 4))
    frame = await exactly(stream, size)
    return int.from_bytes(frame[:2]), int.from_bytes(frame[4:8])


async def exactly(stream: trio.abc.Stream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


async def answer(stream: trio.abc.Stream, correlation_id: int, response: Response, version: int) -> None:
    for piece in frame_response(correlation_id, response, version):
        await stream.send_all(bytes(piece))  # type: ignore[arg-type]


def agreeing(code: int = 0, mechanisms: Sequence[str] = (SCRAM,)) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code, mechanisms=list(mechanisms))


def challenge(data: bytes, *, code: int = 0, message: str | None = None, lifetime_ms: int = 0) -> Response:
    return SaslAuthenticateResponse(
        error_code=code, error_message=message, auth_bytes=data, session_lifetime_ms=lifetime_ms
    )


def with_login(mechanism: str = SCRAM, tls: ClientTls | None = None) -> Callable[..., PeerSecurity]:
    login = NodeLogin(mechanism, "node", Secret("node-s3cret"))
    return lambda **_: PeerSecurity("NODES", tls, login)


def trusting(trusted: Identity) -> ClientTls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted.chain_pem)
    return ClientTls(context, True, frozenset({"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"}))


async def refused(port: int, security: Callable[..., PeerSecurity], peers: ModuleType = peer_module) -> str:
    """Why a node does not ask a server."""
    with closing(peers.Peers("trioka-1", security=security)) as made:
        with pytest.raises(NetworkException) as raised:
            await made.peer(HOST, port, "test").send_request(
                ListGroupsRequest(states_filter=[], types_filter=[]), timeout_s=ASKED_S
            )
        return str(raised.value)


# -- stalls ------------------------------------------------------------------------------------------------------------


async def says_nothing(stream: trio.SocketStream) -> None:
    while await stream.receive_some(4096):
        pass


async def stops_in_the_login(stream: trio.SocketStream) -> None:
    _, correlation_id = await request(stream)
    await answer(stream, correlation_id, agreeing(), 1)
    await says_nothing(stream)


async def sends_a_byte_at_a_time(stream: trio.SocketStream) -> None:
    while True:
        await stream.send_all(b"\x16")
        await trio.sleep(STALL_S / 4)


@pytest.mark.parametrize("serve", [says_nothing, stops_in_the_login, sends_a_byte_at_a_time])
@pytest.mark.parametrize("has_tls", [False, True])
@on_trio
async def test_a_server_that_stalls_is_given_up(
    serve: Serve, has_tls: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(peer_module, "SECURE_S", STALL_S)
    ended = trio.Event()

    async def watched(stream: trio.SocketStream) -> None:
        try:
            await serve(stream)
        finally:
            ended.set()

    async with posing(watched) as port:
        await refused(port, with_login(tls=trusting(authority()) if has_tls else None))
        await ended.wait()  # the connection is closed


# -- answers that are none ---------------------------------------------------------------------------------------------

NONCE: Final = "A" * 32
SERVER_FIRSTS: Final = {
    "nothing": b"",
    "no message": b"\xff\xfe\x00garbage",
    "another nonce": f"r={NONCE},s=c2FsdA==,i=4096".encode(),
    "no salt": b"r=%s,s=,i=4096",
    "no iterations": b"r=%sX,s=c2FsdA==,i=0",
    "too many iterations": b"r=%sX,s=c2FsdA==,i=999999999",
    "a number without end": b"r=%sX,s=c2FsdA==,i=" + b"9" * 5000,
    "too long": b"r=%sX,s=c2FsdA==,i=4096,x=" + b"y" * 100_000,
}


@pytest.mark.parametrize("said", SERVER_FIRSTS.values(), ids=SERVER_FIRSTS)
@on_trio
async def test_a_server_that_does_not_know_the_password_is_not_believed(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        _, correlation_id = await request(stream)
        await answer(stream, correlation_id, agreeing(), 1)
        size = int.from_bytes(await exactly(stream, 4))
        frame = await exactly(stream, size)
        correlation_id = int.from_bytes(frame[4:8])
        nonce = frame.rpartition(b"r=")[2].rstrip(b"\0")
        await answer(stream, correlation_id, challenge(said.replace(b"%s", nonce)), 2)
        await says_nothing(stream)

    async with posing(serve) as port:
        assert "does not prove that it knows the password" in await refused(port, with_login())
    assert len(caplog.records) == 1


@on_trio
async def test_a_login_that_the_server_ends_too_early_is_none() -> None:
    """The server answers the proof with success, and has no proof of its own."""

    async def serve(stream: trio.SocketStream) -> None:
        _, correlation_id = await request(stream)
        await answer(stream, correlation_id, agreeing(), 1)
        frame = await exactly(stream, int.from_bytes(await exactly(stream, 4)))
        nonce = frame.rpartition(b"r=")[2].rstrip(b"\0")
        text = b"r=" + nonce + b"X,s=c2FsdA==,i=4096"
        await answer(stream, int.from_bytes(frame[4:8]), challenge(text), 2)
        _, correlation_id = await request(stream)
        await answer(stream, correlation_id, challenge(b""), 2)
        await says_nothing(stream)

    async with posing(serve) as port:
        assert "does not prove that it knows the password" in await refused(port, with_login())


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\0\x04\0\0\0\x63"])
@on_trio
async def test_garbage_for_an_answer_to_the_login_is_a_failure(garbage: bytes) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await request(stream)
        await stream.send_all(garbage)
        await stream.send_eof()
        await says_nothing(stream)

    async with posing(serve) as port:
        await refused(port, with_login())


@on_trio
async def test_no_weaker_mechanism_is_taken_for_the_one_that_is_set(caplog: pytest.LogCaptureFixture) -> None:
    """A server that wants the password in clear text does not get it. What it says makes no second line of the log."""
    heard: list[int] = []

    async def serve(stream: trio.SocketStream) -> None:
        while True:
            key, correlation_id = await request(stream)
            heard.append(key)
            offered = ["PLAIN", "FORGED\n2026-01-01 ERROR all is lost"]
            await answer(stream, correlation_id, agreeing(UnsupportedSaslMechanism.code, offered), 1)

    async with posing(serve) as port:
        assert "UNSUPPORTED_SASL_MECHANISM" in await refused(port, with_login())
    assert heard == [17]
    assert len(caplog.records) == 1 and "\n" not in caplog.records[0].getMessage()


def once(peers: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        requested = 0

        async def serve(stream: trio.SocketStream) -> None:
            nonlocal requested
            _, correlation_id = await request(stream)
            await answer(stream, correlation_id, agreeing(), 1)
            _, correlation_id = await request(stream)
            requested += 1
            text = "no\nsuch user" + "x" * 30_000
            await answer(stream, correlation_id, challenge(b"", code=SaslAuthenticationFailed.code, message=text), 2)
            await says_nothing(stream)

        async with posing(serve) as port:
            with closing(peers.Peers("trioka-1", security=with_login())) as made:
                for purpose in ("a", "b", "a", "b"):
                    with pytest.raises(NetworkException):
                        await made.peer(HOST, port, purpose).send_request(QUESTION, timeout_s=ASKED_S)
        assert requested == 4
        (record,) = caplog.records
        assert len(record.getMessage()) < 1000 and "\n" not in record.getMessage()

    trio.run(test)


def test_a_login_that_is_refused_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    once(peer_module, caplog)


def test_a_node_that_logs_each_refusal_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    wrong = planted(peer_module, "last is None or last[0] != why", "True or last[0] != why")
    with pytest.raises(ValueError, match="unpack"):
        once(wrong, caplog)


def test_a_forged_line_of_the_log_is_noticed(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    right = 'in_a_line(response.error_message or "")'
    wrong = planted(login_module, right, "response.error_message")
    monkeypatch.setattr(login_module, "log_in", wrong.log_in)
    monkeypatch.setattr(login_module, "LoginFailed", wrong.LoginFailed)
    with pytest.raises(AssertionError):
        once(peer_module, caplog)


# -- TLS ---------------------------------------------------------------------------------------------------------------


def serving_tls(context: ssl.SSLContext) -> Serve:
    async def serve(stream: trio.SocketStream) -> None:
        secured = trio.SSLStream(stream, context, server_side=True)
        await secured.do_handshake()
        while await secured.receive_some(4096):
            pass

    return serve


def server_context(identity: Identity, directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.write(directory / "server.pem"))
    return context


@pytest.mark.parametrize(
    ("subject", "names", "is_trusted", "why"),
    [
        ("CN=node", (HOST,), False, "certificate"),
        ("CN=alice", ("alice",), True, "IP address mismatch"),  # a client that poses as a node
    ],
)
@on_trio_patiently
async def test_a_server_without_the_name_of_the_node_gets_no_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, subject: str, names: tuple[str, ...], is_trusted: bool, why: str
) -> None:
    trusted = authority()
    identity = signed(trusted if is_trusted else authority(), subject, names=names)
    async with posing(serving_tls(server_context(identity, tmp_path))) as port:
        assert why in await refused(port, with_login("PLAIN", trusting(trusted)))
    assert len(caplog.records) == 1 and why in caplog.text


@on_trio_patiently
async def test_a_certificate_that_is_refused_after_the_handshake_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """TLS 1.3: this side believes the handshake complete, and hears of the refusal with the first answer."""
    trusted = authority()
    settings = tls_settings(signed(trusted), trusted, tmp_path, ssl_client_auth="required")
    async with running_broker(tmp_path / "data", **settings) as broker:
        caplog.clear()
        port = broker.addresses[SECURE][1]
        assert "certificate required" in await refused(port, lambda **_: PeerSecurity("NODES", trusting(trusted), None))
    assert len([record for record in caplog.records if record.name == "trioka.peers"]) == 1


async def answers_in_plain_text(stream: trio.SocketStream) -> None:
    await stream.receive_some(4096)
    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await says_nothing(stream)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@on_trio_patiently
async def test_an_old_version_of_tls_and_plain_text_are_refused(tmp_path: Path) -> None:
    trusted = authority()
    context = server_context(signed(trusted), tmp_path)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    for serve in (serving_tls(context), answers_in_plain_text):
        async with posing(serve) as port:
            assert "TLS failed" in await refused(port, with_login("PLAIN", trusting(trusted)))
