"""Logins with delegation tokens and bearer tokens, over real connections, and how their sessions end."""

import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import trio
from security.sasl_client import SETTINGS, USERS, BearerExchange, by_password, log_in, logged_in
from security.test_issuer_keys import Issuer, issuer
from security.tokens import AUDIENCE, ISSUER, claims, key_set, other_rsa_key, rsa_jwk, rsa_key, signed
from support.serving import ClientConnection, on_trio, running_broker

from trioka.broker.broker import Broker
from trioka.broker.config.layers import ConfigError
from trioka.protocol.errors import (
    NONE,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    SaslAuthenticationFailed,
)
from trioka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from trioka.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from trioka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from trioka.protocol.messages.metadata import MetadataRequest

TOKENS: dict[str, Any] = {**SETTINGS, **USERS, "delegation_token_secret_key": "key of all nodes"}
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
METADATA = MetadataRequest(topics=[], allow_auto_topic_creation=False)
FAILED = SaslAuthenticationFailed.code
SOON_MS = 1500


def creation(lifetime_ms: int = -1, owner: str = "", owner_type: str = "") -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=owner_type, owner_principal_name=owner, renewers=[], max_lifetime_ms=lifetime_ms
    )


def password_of(token: Any) -> str:
    return b64encode(token.hmac).decode()


async def new_token(broker: Broker, lifetime_ms: int = -1) -> Any:
    async with logged_in(broker, "ann") as connection:
        created = await connection.ask(creation(lifetime_ms), 3)
        assert created.error_code == NONE
        assert (created.principal_name, created.token_requester_principal_name) == ("ann", "ann")
        return created


async def token_login(connection: ClientConnection, token: Any, mechanism: str = "SCRAM-SHA-256") -> Any:
    exchange = by_password(mechanism, token.token_id, password_of(token), is_token=True)
    return await log_in(connection, mechanism, exchange)


async def is_closed(connection: ClientConnection) -> bool:
    """Whether the broker closes the connection instead of serving another request."""
    try:
        return await connection.ask(METADATA, 9) is None
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return True


@on_trio
async def test_a_token_logs_in_as_its_owner(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **TOKENS) as broker:
        token = await new_token(broker)
        for mechanism in MECHANISMS:
            async with ClientConnection(broker, "PLAIN") as connection:
                response = await token_login(connection, token, mechanism)
                assert response.error_code == NONE
                left_ms = token.expiry_timestamp_ms - broker.clock.now_ms()
                assert left_ms <= response.session_lifetime_ms <= left_ms + 60_000
                (served,) = [each for each in broker.network.connections if each.token_id == token.token_id]
                assert (served.principal, served.is_token_authenticated) == ("User:ann", True)
                assert (await connection.ask(METADATA, 9)).brokers
                refused = await connection.ask(creation(), 3)
                assert refused.error_code == DelegationTokenRequestNotAllowed.code


@on_trio
async def test_only_the_right_password_of_a_token_that_exists_logs_in(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**TOKENS, "connection_failed_authentication_delay_ms": 0}
    async with running_broker(tmp_path, **settings) as broker:
        token = await new_token(broker)
        right = password_of(token)
        for name, password, is_token in (
            (token.token_id, right, False),
            (token.token_id, right[:-4], True),
            (token.token_id, "", True),
            ("ann", right, True),
            ("ann", "ann-password", True),
            ("unknown", right, True),
        ):
            async with ClientConnection(broker, "PLAIN") as connection:
                exchange = by_password("SCRAM-SHA-256", name, password or "x", is_token=is_token)
                assert (await log_in(connection, "SCRAM-SHA-256", exchange)).error_code == FAILED, name


@on_trio
async def test_the_session_of_a_token_ends_with_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **TOKENS) as broker:
        token = await new_token(broker, SOON_MS)
        async with ClientConnection(broker, "PLAIN") as connection:
            response = await token_login(connection, token)
            assert 0 < response.session_lifetime_ms <= SOON_MS
            while broker.clock.now_ms() <= token.expiry_timestamp_ms:
                await trio.sleep(0.05)
            assert await is_closed(connection)


@on_trio
async def test_a_token_that_is_expired_ends_its_open_sessions_and_no_others(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **TOKENS) as broker:
        token, other = await new_token(broker), await new_token(broker)
        async with (
            ClientConnection(broker, "PLAIN") as ending,
            ClientConnection(broker, "PLAIN") as staying,
            logged_in(broker, "ann") as owner,
        ):
            assert (await token_login(ending, token)).error_code == NONE
            assert (await token_login(staying, other)).error_code == NONE
            expired = await owner.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2)
            assert expired.error_code == NONE
            assert await is_closed(ending)
            assert not await is_closed(staying)
            assert not await is_closed(owner)


@on_trio
async def test_a_token_whose_end_comes_earlier_ends_its_open_sessions_then(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **TOKENS) as broker:
        token = await new_token(broker)
        async with ClientConnection(broker, "PLAIN") as connection, logged_in(broker, "ann") as owner:
            assert (await token_login(connection, token)).error_code == NONE
            request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=SOON_MS)
            ends_ms = (await owner.ask(request, 2)).expiry_timestamp_ms
            assert not await is_closed(connection)
            while broker.clock.now_ms() <= ends_ms:
                await trio.sleep(0.05)
            assert await is_closed(connection)


@on_trio
async def test_every_version_of_the_requests_is_answered(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **TOKENS) as broker, logged_in(broker, "ann") as connection:
        for version in (1, 2, 3):
            token = await connection.ask(creation(), version)
            assert token.error_code == NONE and len(token.hmac) == 64
            described = await connection.ask(DescribeDelegationTokenRequest(owners=None), version)
            assert [each.hmac for each in described.tokens] == [token.hmac]
            refused = await connection.ask(creation(owner="bob", owner_type="Group"), 3)
            assert refused.error_code == InvalidPrincipalType.code
            expiry = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1)
            assert (await connection.ask(expiry, min(version, 2))).error_code == NONE
        async with ClientConnection(broker) as stranger:
            for version in (1, 2, 3):
                for requested in (creation(), DescribeDelegationTokenRequest(owners=None)):
                    response = await stranger.ask(requested, version)
                    assert response.error_code == DelegationTokenRequestNotAllowed.code


# --- OAUTHBEARER


def oauth(server: Issuer, **more: str) -> dict[str, Any]:
    return {
        **SETTINGS,
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "oauthbearer_sasl_jaas_config": f"{OAUTH_MODULE} required;",
        "sasl_oauthbearer_jwks_endpoint_url": server.url,
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": AUDIENCE,
        "trioka_oauth_allowed_urls": server.url,
        **more,
    }


def fresh(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    return claims(**{"iat": now, "exp": now + 600, **changed})


async def bearer_login(connection: ClientConnection, token: str) -> Any:
    return await log_in(connection, "OAUTHBEARER", BearerExchange(token))


@on_trio
async def test_a_bearer_token_logs_in_its_subject(tmp_path: Path) -> None:
    async with issuer() as server, running_broker(tmp_path, **oauth(server)) as broker:
        async with ClientConnection(broker, "PLAIN") as connection:
            response = await bearer_login(connection, signed(fresh()))
            assert response.error_code == NONE and 590_000 < response.session_lifetime_ms <= 600_000
            (served,) = [each for each in broker.network.connections if each.listener == "PLAIN"]
            assert served.principal == "User:ann"
            assert not await is_closed(connection)
        assert server.requests == 1


@on_trio
async def test_a_refused_bearer_token_gets_a_challenge_and_then_an_error(tmp_path: Path) -> None:
    async with issuer() as server, running_broker(tmp_path, **oauth(server)) as broker:
        for token in (signed(fresh(iss="x")), signed(fresh(exp=1)), "garbage", signed(fresh(), alg="ES384")):
            async with ClientConnection(broker, "PLAIN") as connection:
                response = await bearer_login(connection, token)
                assert (response.error_code, response.error_message) == (FAILED, '{"status":"invalid_token"}')
                assert await is_closed(connection)


@on_trio
async def test_attack_32_nobody_is_asked_for_the_key_that_a_token_brings_or_names(tmp_path: Path) -> None:
    async with issuer() as server, issuer() as trap, running_broker(tmp_path, **oauth(server)) as broker:
        for header in (
            {"jku": trap.url},
            {"x5u": trap.url, "kid": None},
            {"jwk": rsa_jwk(other_rsa_key())},
            {"x5c": ["MAA="]},
            {"jku": trap.url, "kid": "unknown"},
        ):
            async with ClientConnection(broker, "PLAIN") as connection:
                response = await bearer_login(connection, signed(fresh(), key=other_rsa_key(), header=header))
                assert (response.error_code, response.error_message) == (FAILED, '{"status":"invalid_token"}')
                assert await is_closed(connection)
        assert trap.requests == 0


@on_trio
async def test_the_session_ends_with_the_bearer_token_or_with_the_longest_session(tmp_path: Path) -> None:
    async with (
        issuer() as server,
        running_broker(tmp_path, **oauth(server)) as broker,
        ClientConnection(broker, "PLAIN") as connection,
    ):
        ends = int(time.time()) + 3
        response = await bearer_login(connection, signed(fresh(exp=ends)))
        assert 0 < response.session_lifetime_ms <= 3000
        while time.time() <= ends:
            await trio.sleep(0.05)
        assert await is_closed(connection)
    async with (
        issuer() as server,
        running_broker(tmp_path, **oauth(server, connections_max_reauth_ms="5000")) as broker,
        ClientConnection(broker, "PLAIN") as connection,
    ):
        assert (await bearer_login(connection, signed(fresh()))).session_lifetime_ms == 5000


@on_trio
async def test_a_new_key_of_the_issuer_is_fetched_when_a_token_names_it(tmp_path: Path) -> None:
    settings = {"sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms": "1"}
    async with issuer() as server, running_broker(tmp_path, **oauth(server, **settings)) as broker:
        server.document = key_set(rsa_jwk(rsa_key(), "new"))
        token = signed(fresh(), header={"kid": "new"})
        while True:
            async with ClientConnection(broker, "PLAIN") as connection:
                if (await bearer_login(connection, token)).error_code == NONE:
                    break
        assert server.requests == 2


@on_trio
async def test_while_the_issuer_is_not_reached_a_broker_runs_and_refuses_tokens(tmp_path: Path) -> None:
    async with issuer() as server:
        server.says(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
        async with (
            running_broker(tmp_path, **oauth(server)) as broker,
            ClientConnection(broker, "PLAIN") as connection,
        ):
            assert (await bearer_login(connection, signed(fresh()))).error_code == FAILED


@pytest.mark.parametrize("missing", ["jwks_endpoint_url", "expected_issuer", "expected_audience"])
def test_a_listener_that_could_not_check_tokens_stops_the_start(tmp_path: Path, missing: str) -> None:
    server = Issuer()
    server.url = "http://127.0.0.1:1/keys"
    settings = oauth(server)
    del settings[f"sasl_oauthbearer_{missing}"]

    async def start() -> None:
        async with running_broker(tmp_path, **settings):
            pass

    with pytest.raises(ConfigError, match=rf"sasl\.oauthbearer\.{missing.replace('_', '.')} is not set"):
        trio.run(start)
