"""Bearer tokens that nodes and commands request for their own logins, and what providers may answer."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from security.token_provider import CLIENT_ID, CLIENT_SECRET, OAUTH_MODULE, Provider, fresh_token, token_provider
from security.tokens import other_rsa_key, signed
from support.broker_cluster import on_cluster, running_cluster
from support.sasl import SASL, SASL_SETTINGS
from support.secured_cluster import NODES, works
from support.serving import HOST, SETTINGS, broker_in_thread, on_trio

from trioka.broker.config.layers import ConfigError
from trioka.broker.config.oauth_client import TokenSettings
from trioka.broker.config.sasl import NodeLogin, login_of
from trioka.broker.config.server import load
from trioka.broker.security.sasl.token_source import RETRY_S, TokenSource
from trioka.cli.client.connection import Connection
from trioka.cli.client.login import login_of as client_login
from trioka.cli.terminal.failure import Exit, Failure
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.sasl.jwt import MAX_TOKEN_BYTES
from trioka.protocol.sasl.oauthbearer import OAuthBearerClient
from trioka.protocol.sasl.token_request import ClientCredentials, NoToken, checked_token, token_in_response

PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
URL: Final = "sasl.oauthbearer.token.endpoint.url"
ID, SECRET = "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"
PATIENCE_S: Final = 30.0
METADATA: Final = MetadataRequest(topics=[], allow_auto_topic_creation=False)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with token_provider() as found:
        yield found


# --- the response of a provider


def test_a_token_comes_with_its_lifetime() -> None:
    assert token_in_response(200, b'{"access_token": " a.b-c_d.e ", "expires_in": 300}') == ("a.b-c_d.e", 300.0)
    assert token_in_response(201, b'{"access_token": "a.b.c="}') == ("a.b.c=", None)


@pytest.mark.parametrize("lifetime", [b"0", b"-1", b"1e999", b"NaN", b"true", b'"300"', b"null", b"[300]"])
def test_a_lifetime_that_is_none_means_that_the_token_is_not_kept(lifetime: bytes) -> None:
    assert token_in_response(200, b'{"access_token": "a.b.c", "expires_in": %s}' % lifetime).lifetime_s is None


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (401, b'{"access_token": "a.b.c"}'),
        (302, b'{"access_token": "a.b.c"}'),
        (200, b""),
        (200, b"null"),
        (200, b"[" * 100_000),
        (200, b'{"access_token": ["a.b.c"]}'),
        (200, b'{"access_token": ""}'),
        (200, b'{"access_token": "a b"}'),
        (200, b'{"access_token": "a\\u0001auth=b"}'),
        (200, b'{"access_token": "%s"}' % (b"a" * (MAX_TOKEN_BYTES + 1))),
    ],
)
def test_a_response_without_a_token_is_refused(status: int, data: bytes) -> None:
    with pytest.raises(NoToken) as refused:
        token_in_response(status, data)
    assert "a.b.c" not in str(refused.value)


def test_a_token_of_a_file_may_have_a_line_end() -> None:
    assert checked_token("a.b.c\r\n") == "a.b.c"
    with pytest.raises(NoToken):
        checked_token("a.b.c\na.b.c\n")


def test_secrets_are_not_printed() -> None:
    credentials = ClientCredentials("id", "the secret", "read")
    assert "secret" not in repr(credentials) and "a.b.c" not in repr(
        token_in_response(200, b'{"access_token":"a.b.c"}')
    )
    assert "the secret" not in repr(TokenSettings(url="https://p/t", credentials=credentials, refresh_factor=0.8))


def test_a_client_whose_token_is_refused_ends_the_exchange() -> None:
    client = OAuthBearerClient("a.b.c")
    assert client.respond(b"") == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert client.respond(b'{"status":"invalid_token"}') == b"\x01"
    granted = OAuthBearerClient("a.b.c")
    granted.respond(b"")
    assert granted.respond(b"") is None


# --- the configuration of a node

GOOD: Final = {
    URL: "https://provider.test/token",
    ID: CLIENT_ID,
    SECRET: CLIENT_SECRET,
    "trioka.oauth.allowed.urls": "https://provider.test/token",
    "trioka.oauth.allowed.files": "/run/token",
    "listener.name.nodes.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;",
}


def node_login(changes: dict[str, str | None]) -> NodeLogin:
    texts = {name: value for name, value in {**SETTINGS, **GOOD, **changes}.items() if value is not None}
    return login_of(load(texts).config, "NODES", "OAUTHBEARER")


def test_the_credentials_of_a_node_come_from_kafkas_keys() -> None:
    found = node_login({"sasl.oauthbearer.scope": "kafka", "sasl.login.refresh.window.factor": "0.6"}).token
    assert found == TokenSettings(
        url=GOOD[URL], credentials=ClientCredentials(CLIENT_ID, CLIENT_SECRET, "kafka"), refresh_factor=0.6
    )
    jaas = f'{OAUTH_MODULE} required clientId="old" clientSecret="way" scope="s";'
    found = node_login({ID: None, SECRET: None, "listener.name.nodes.oauthbearer.sasl.jaas.config": jaas}).token
    assert found is not None and found.credentials == ClientCredentials("old", "way", "s")
    found = node_login({URL: "file:///run/token", ID: None, SECRET: None}).token
    assert found is not None and found.credentials is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sasl.login.callback.handler.class", f"{PACKAGE}.OAuthBearerLoginCallbackHandler"),
        ("sasl.login.callback.handler.class", f"{PACKAGE}.secured.OAuthBearerLoginCallbackHandler"),
        ("sasl.oauthbearer.jwt.retriever.class", f"{PACKAGE}.ClientCredentialsJwtRetriever"),
    ],
)
def test_kafkas_classes_that_do_the_same_may_be_named(key: str, value: str) -> None:
    assert node_login({key: value}).token


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        (URL, None, URL),
        (URL, "http://provider.test/token", URL),
        (URL, "https://other.test/token", "trioka.oauth.allowed.urls"),
        (URL, "file:///etc/passwd", "trioka.oauth.allowed.files"),
        (ID, None, ID),
        (SECRET, None, SECRET),
        ("sasl.login.callback.handler.class", "com.evil.Handler", "sasl.login.callback.handler.class"),
        ("sasl.login.class", "com.evil.Login", "sasl.login.class"),
        (
            "sasl.oauthbearer.jwt.retriever.class",
            f"{PACKAGE}.JwtBearerJwtRetriever",
            "sasl.oauthbearer.jwt.retriever.class",
        ),
        (
            "listener.name.nodes.oauthbearer.sasl.jaas.config",
            f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="node";',
            "unsecuredLogin",
        ),
        ("listener.name.nodes.oauthbearer.sasl.jaas.config", None, "sasl.jaas.config"),
    ],
)
def test_a_node_without_a_safe_source_of_tokens_does_not_start(key: str, value: str | None, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        node_login({key: value})
    assert named in str(refused.value) and CLIENT_SECRET not in str(refused.value)


# --- where tokens come from


def source(provider: Provider, *, secret: str = CLIENT_SECRET) -> TokenSource:
    credentials = ClientCredentials(CLIENT_ID, secret, "kafka")
    return TokenSource(TokenSettings(url=provider.token_url, credentials=credentials, refresh_factor=0.8))


@on_trio
async def test_connections_that_log_in_together_share_a_token(provider: Provider) -> None:
    now = 0.0
    tokens = TokenSource(source(provider)._settings, lambda: now)
    found: list[str] = []

    async def take() -> None:
        found.append(await tokens.token())

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(take)
    assert len(set(found)) == provider.tokens == 1
    assert provider.scopes == {"kafka"}
    now = 10.0
    tokens.discard("another one")
    await take()
    assert provider.tokens == 1
    tokens.discard(found[0])
    await take()
    assert provider.tokens == 2
    tokens.discard(found[-1])
    await take()
    assert provider.tokens == 2  # it is new: another one would be refused, too
    now = 10.0 + RETRY_S
    await take()
    assert provider.tokens == 3


@on_trio
async def test_a_caller_that_gives_up_does_not_end_the_request(provider: Provider) -> None:
    tokens = source(provider)
    provider.may_answer.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tokens.token)
        await trio.to_thread.run_sync(provider.is_asked.wait)
        nursery.cancel_scope.cancel()
        provider.may_answer.set()
    await tokens.token()
    assert provider.tokens == 1


@on_trio
async def test_a_provider_that_refuses_is_not_asked_all_the_time(provider: Provider) -> None:
    now = 0.0
    tokens = TokenSource(source(provider, secret="wrong")._settings, lambda: now)
    for _ in range(5):
        with pytest.raises(NoToken, match="status 401"):
            await tokens.token()
    assert provider.refused == 1
    now = RETRY_S
    with pytest.raises(NoToken, match="status 401"):
        await tokens.token()
    assert provider.refused == 2


@on_trio
async def test_a_token_is_kept_for_a_part_of_its_lifetime(provider: Provider) -> None:
    now = 0.0
    settings = source(provider)._settings
    tokens = TokenSource(settings, lambda: now)
    await tokens.token()
    now = 0.79 * provider.lifetime_s
    await tokens.token()
    assert provider.tokens == 1
    now = 0.81 * provider.lifetime_s
    await tokens.token()
    assert provider.tokens == 2


@pytest.mark.parametrize(("status", "answer"), [(307, b""), (500, b""), (200, b"no JSON"), (200, b" " * 1_000_000)])
@on_trio
async def test_a_provider_that_does_not_answer_as_it_should_is_no_source(
    provider: Provider, status: int, answer: bytes
) -> None:
    provider.status, provider.answer = status, answer
    with pytest.raises(NoToken) as refused:
        await source(provider).token()
    assert CLIENT_SECRET not in str(refused.value)
    assert provider.tokens == 1  # the redirect leads to itself


@on_trio
async def test_a_token_of_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    path = tmp_path / "token"
    tokens = TokenSource(TokenSettings(url=f"file://{path}", credentials=None, refresh_factor=0.8))
    with pytest.raises(NoToken, match="No such file"):
        await tokens.token()
    for text in ("a.b.c\n", "d.e.f"):
        path.write_text(text)
        assert await tokens.token() == text.strip()


# --- nodes


def cluster_settings(provider: Provider) -> dict[str, Any]:
    return {
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{NODES}:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": NODES,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        **provider.listener(NODES.lower()),
        "listener.name.controller.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;",
        URL: provider.token_url,
        ID: CLIENT_ID,
        SECRET: CLIENT_SECRET,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{CLIENT_ID};User:ANONYMOUS",
    }


@on_cluster
async def test_nodes_log_in_to_each_other_with_tokens_and_renew_them(provider: Provider, tmp_path: Path) -> None:
    """A node whose requests are all rejected would not get into the cluster."""
    provider.lifetime_s = 4
    async with running_cluster(
        tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **cluster_settings(provider)
    ) as cluster:
        producer = await works(cluster)
        assert {each.principal for node in cluster.up for each in node.network.connections} >= {f"User:{CLIENT_ID}"}

        def renewals() -> int:
            counted = [node.login_counts.get(name) for node in cluster.up for name in (NODES, "CONTROLLER")]
            return sum(counts.reauthentications for counts in counted if counts is not None)

        await cluster.until(lambda: renewals() > 3)
        await producer.send(3)
        assert not any(counts.expired_killed for node in cluster.up for counts in node.login_counts.values())


@on_cluster
async def test_a_node_without_a_token_does_not_get_in_and_says_why(
    provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_cluster(
        tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **cluster_settings(provider)
    ) as cluster:
        await cluster.until(lambda: all(broker.alive == {1, 2, 3} for broker in cluster.up))
        await cluster.kill(3)
        await cluster.until(lambda: all(broker.alive == {1, 2} for broker in cluster.up))
        with caplog.at_level(logging.ERROR, "trioka.peers"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(cluster.start, 3, **{SECRET: "wrong-s3cret"}))
                await cluster.until(lambda: "by OAUTHBEARER: the token endpoint answers with status 401" in caplog.text)
                assert all(cluster[node].alive == {1, 2} for node in (1, 2))
                cluster[3].die()
                await cluster[3].stopped.wait()
                nursery.cancel_scope.cancel()
    assert provider.refused and "wrong-s3cret" not in caplog.text


# --- commands


def properties(**changes: str | None) -> dict[str, str]:
    found = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    found |= {name: value for name, value in changes.items() if value is not None}
    return found


def test_commands_log_in_with_a_token(provider: Provider, tmp_path: Path) -> None:
    settings = SASL_SETTINGS | {"sasl.enabled.mechanisms": "OAUTHBEARER"} | provider.listener(SASL.lower())
    file = tmp_path / "token"
    with broker_in_thread(tmp_path / "data", **settings) as broker:
        host, port = broker.addresses[SASL]

        def is_let_in(texts: dict[str, str]) -> bool:
            login = client_login("SASL_PLAINTEXT", texts)
            with closing(Connection(host, port, timeout_s=PATIENCE_S, log_in=login)) as connection:
                return bool(connection.ask(METADATA, 9).brokers)

        assert is_let_in(properties(**{URL: provider.token_url, ID: CLIENT_ID, SECRET: CLIENT_SECRET}))
        jaas = f'{OAUTH_MODULE} required clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}";'
        assert is_let_in(properties(**{URL: provider.token_url, "sasl.jaas.config": jaas}))
        file.write_text(fresh_token() + "\n")
        assert is_let_in(properties(**{URL: f"file://{file}"}))
        file.write_text(signed(key=other_rsa_key()))
        with pytest.raises(Failure, match="does not let this bearer token in") as refused:
            is_let_in(properties(**{URL: f"file://{file}"}))
        assert refused.value.exit_code == Exit.UNAUTHORISED
        file.write_text(fresh_token())
        config = tmp_path / "client.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in properties(**{URL: f"file://{file}"}).items()))
        where = ["--bootstrap-server", f"{host}:{port}", "--command-config", str(config)]
        command = [sys.executable, "-m", "trioka"]
        subprocess.run([*command, "produce", "by-a-command", *where], input=b"value\n", check=True, timeout=PATIENCE_S)
        read = [*command, "consume", "by-a-command", "-o", "start", "-e", *where]
        assert b"value" in subprocess.run(read, check=True, capture_output=True, timeout=PATIENCE_S).stdout


@pytest.mark.parametrize(
    ("changes", "message", "exit_code"),
    [
        ({}, "token.endpoint.url is not set", Exit.USAGE),
        ({URL: "http://provider.test/token"}, "must begin with https", Exit.USAGE),
        ({URL: "file:///nowhere/token"}, "No such file", Exit.UNREACHABLE),
        ({URL: "http://127.0.0.1:1/token"}, "are not both set", Exit.USAGE),
        ({URL: "http://127.0.0.1:1/token", ID: "a", SECRET: "b"}, "refused", Exit.UNREACHABLE),
    ],
)
def test_a_command_without_a_token_says_why(changes: dict[str, str], message: str, exit_code: Exit) -> None:
    with pytest.raises(Failure, match=message) as refused:
        client_login("SASL_PLAINTEXT", properties(**changes))
    assert refused.value.exit_code == exit_code


@pytest.mark.parametrize("status", [302, 307, 401, 500])
def test_a_command_follows_no_redirect_and_repeats_no_secret(provider: Provider, status: int) -> None:
    provider.status = status
    with pytest.raises(Failure, match=f"answers with status {status}") as refused:
        client_login("SASL_PLAINTEXT", properties(**{URL: provider.token_url, ID: CLIENT_ID, SECRET: CLIENT_SECRET}))
    assert provider.tokens == 1 and CLIENT_SECRET not in str(refused.value)
