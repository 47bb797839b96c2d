"""Fetching the keys of an issuer from servers that answer wrongly, slowly, with too much, or with other addresses."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from security.tokens import ed_jwk, ed_key, key_set, rsa_jwk, rsa_key
from support.serving import on_trio

from trioka.broker.config.layers import ConfigError
from trioka.broker.config.oauth import OAuthSettings, oauth_settings
from trioka.broker.config.server import load
from trioka.broker.security.sasl.issuer_keys import FetchFailed, FetchIntervals, IssuerKeys, key_set_document
from trioka.protocol.sasl.issuer_url import check_issuer_url
from trioka.protocol.sasl.jwks import MAX_KEY_SET_BYTES

Answer = Callable[[trio.SocketStream], Awaitable[None]]

LONG_S = 3600.0


class Issuer:
    """A server on loopback whose answer can be changed."""

    def __init__(self) -> None:
        self.answer: Answer = self.keys
        self.document = key_set()
        self.requests = 0
        self.url = ""

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                got = await stream.receive_some(4096)
                if not got:
                    return
                head += got
            self.requests += 1
            try:
                await self.answer(stream)
            except trio.BrokenResourceError:
                return

    async def keys(self, stream: trio.SocketStream) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.document)}\r\n\r\n"
        await stream.send_all(head.encode() + self.document)

    def says(self, text: bytes) -> None:
        async def answer(stream: trio.SocketStream) -> None:
            await stream.send_all(text)

        self.answer = answer


@asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    found = Issuer()
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, found.serve, 0, host="127.0.0.1"))
        found.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/keys"
        yield found
        nursery.cancel_scope.cancel()


@on_trio
async def test_the_document_comes_from_an_address_or_a_file(tmp_path: Path) -> None:
    async with issuer() as server:
        assert await key_set_document(server.url, None) == server.document
    path = tmp_path / "keys.json"
    path.write_bytes(b"{}")
    assert await key_set_document(f"file://{path}", None) == b"{}"
    with pytest.raises(FetchFailed):
        await key_set_document(f"file://{path}x", None)
    with pytest.raises(FetchFailed):
        await key_set_document("file:///dev/zero", None)


@on_trio
async def test_redirects_are_not_followed() -> None:
    async with issuer() as server, issuer() as trap:
        for status in (301, 302, 303, 307, 308):
            for place in (trap.url, "http://169.254.169.254/", "file:///etc/passwd"):
                server.says(f"HTTP/1.1 {status} Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())
                with pytest.raises(FetchFailed, match="redirects"):
                    await key_set_document(server.url, None)
        assert trap.requests == 0


@on_trio
async def test_answers_that_are_none_fail() -> None:
    async with issuer() as server:
        for text in (
            b"",
            b"SSH-2.0-x\r\n",
            b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 204 None\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
            b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_KEY_SET_BYTES + 1),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ):
            server.says(text)
            with pytest.raises(FetchFailed):
                await key_set_document(server.url, None)


@on_trio
async def test_an_answer_that_never_ends_is_given_up() -> None:
    async def drip(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send_all(b" ")
            await trio.sleep(0.01)

    async with issuer() as server:
        server.answer = drip
        with pytest.raises(FetchFailed, match="did not come within"):
            await key_set_document(server.url, None, timeout_s=0.2)


@asynccontextmanager
async def fetching(server: Issuer, *, max_retry_s: float = 0.001) -> AsyncIterator[IssuerKeys]:
    intervals = FetchIntervals(refresh_s=LONG_S, first_retry_s=0.001, max_retry_s=max_retry_s, timeout_s=0.5)
    keys = IssuerKeys(server.url, intervals)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keys.run)
        await keys.tried.wait()
        yield keys
        nursery.cancel_scope.cancel()


@on_trio
async def test_an_unknown_key_makes_it_fetch_and_a_failure_keeps_the_old_keys() -> None:
    async with issuer() as server, fetching(server) as keys:
        assert {key.key_id for key in keys.keys} == {"rsa", "ec", "ed"}
        for bad in (b"<html>", b"{}", b'{"keys": []}', b" " * (MAX_KEY_SET_BYTES + 1)):
            server.document, before = bad, server.requests
            await trio.to_thread.run_sync(keys.want)
            while server.requests < before + 2:  # it tries again and again
                await trio.sleep(0.001)
                keys.want()
            assert {key.key_id for key in keys.keys} == {"rsa", "ec", "ed"}
        server.document = key_set(rsa_jwk(rsa_key(), "new"))
        while [key.key_id for key in keys.keys] != ["new"]:
            await trio.sleep(0.001)


@on_trio
async def test_unknown_keys_do_not_make_it_fetch_more_often_than_allowed() -> None:
    async with issuer() as server, fetching(server, max_retry_s=LONG_S) as keys:
        for _ in range(1000):
            keys.want()
        await trio.testing.wait_all_tasks_blocked()
        assert server.requests == 1 == keys.fetches


@on_trio
async def test_without_any_keys_a_start_goes_on_and_takes_no_token() -> None:
    async with issuer() as server:
        server.says(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
        async with fetching(server) as keys:
            assert keys.keys == ()
            server.answer, server.document = server.keys, key_set(ed_jwk(ed_key()))
            while not keys.keys:
                await trio.sleep(0.001)


def test_only_some_addresses_may_have_keys() -> None:
    for good in (
        "https://issuer.test/keys",
        "https://issuer.test:8443/a/b?c=d",
        "http://127.0.0.1:80/keys",
        "http://[::1]:80/keys",
        "http://localhost/keys",
        "file:///etc/keys.json",
    ):
        check_issuer_url(good)
    for bad in (
        "http://issuer.test/keys",
        "http://127.0.0.1.evil.test/keys",
        "http://localhost.evil.test/keys",
        "http://169.254.169.254/keys",
        "ftp://issuer.test/keys",
        "https://",
        "https://user:secret@issuer.test/keys",
        "https://issuer.test:99999/keys",
        "https://issuer.test/a b",
        "file://host/keys",
        "file:keys",
        "jar:file:///x",
        "",
    ):
        with pytest.raises(ValueError, match=r"^(must|Port|Invalid)"):
            check_issuer_url(bad)


# --- the configuration


GOOD = {
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.test/keys",
    "sasl.oauthbearer.expected.issuer": "https://issuer.test",
    "sasl.oauthbearer.expected.audience": "kafka, other",
    "trioka.oauth.allowed.urls": "https://issuer.test/keys",
}


def settings(**changed: str | None) -> OAuthSettings:
    changes = {name.replace("_", "."): value for name, value in changed.items()}
    static = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        **{name: value for name, value in {**GOOD, **changes}.items() if value is not None},
    }
    config = load(static).config
    return oauth_settings(lambda key: config[key])


def test_the_rules_of_tokens_come_from_kafkas_keys() -> None:
    found = settings(sasl_oauthbearer_sub_claim_name="client_id", sasl_oauthbearer_clock_skew_seconds="5")
    assert found.jwks_url == "https://issuer.test/keys"
    assert found.rules.issuer == "https://issuer.test"
    assert found.rules.audiences == {"kafka", "other"}
    assert (found.rules.subject_claim, found.rules.scope_claim, found.rules.clock_skew_s) == ("client_id", "scope", 5)
    assert (found.refresh_ms, found.first_retry_ms, found.max_retry_ms) == (3_600_000, 100, 10_000)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("sasl_oauthbearer_jwks_endpoint_url", None, "sasl.oauthbearer.jwks.endpoint.url"),
        ("sasl_oauthbearer_expected_issuer", None, "sasl.oauthbearer.expected.issuer"),
        ("sasl_oauthbearer_expected_audience", None, "sasl.oauthbearer.expected.audience"),
        ("sasl_oauthbearer_jwks_endpoint_url", "https://other.test/keys", "trioka.oauth.allowed.urls"),
        ("sasl_oauthbearer_jwks_endpoint_url", "file:///etc/passwd", "trioka.oauth.allowed.files"),
        ("trioka_oauth_allowed_urls", None, "trioka.oauth.allowed.urls"),
        ("sasl_server_callback_handler_class", "com.evil.Handler", "sasl.server.callback.handler.class"),
        ("sasl_oauthbearer_jwt_validator_class", "com.evil.Validator", "sasl.oauthbearer.jwt.validator.class"),
        ("sasl_oauthbearer_sub_claim_name", " ", "sasl.oauthbearer.sub.claim.name"),
    ],
)
def test_what_is_not_safe_stops_the_start(key: str, value: str | None, named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")):
        settings(**{key: value})


def test_an_open_http_address_stops_the_start_even_if_it_is_allowed() -> None:
    url = "http://issuer.test/keys"
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url must begin with https"):
        settings(sasl_oauthbearer_jwks_endpoint_url=url, trioka_oauth_allowed_urls=url)


def test_issuer_and_audience_can_be_left_open_on_purpose() -> None:
    found = settings(
        sasl_oauthbearer_expected_issuer=None,
        sasl_oauthbearer_expected_audience=None,
        sasl_oauthbearer_allow_unverified_issuer="true",
        sasl_oauthbearer_allow_unverified_audience="true",
    )
    assert (found.rules.issuer, found.rules.audiences) == (None, frozenset())


def test_kafkas_own_classes_are_understood() -> None:
    package = "org.apache.kafka.common.security.oauthbearer"
    settings(sasl_server_callback_handler_class=f"{package}.OAuthBearerValidatorCallbackHandler")
    settings(sasl_oauthbearer_jwt_validator_class=f"{package}.BrokerJwtValidator")
