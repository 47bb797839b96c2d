"""Attack 55 over the wire: who may make tokens on which listener, also through a node that is not the controller; and
sessions of a token that has been expired."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.certificates import authority, client_tls, signed
from support.sasl import PASSWORDS, SASL, SASL_SETTINGS, SaslClient
from support.serving import HOST, ClientConnection, on_trio, running_broker
from support.tls_broker import SECURE, tls_settings

from trioka.broker.broker import Broker
from trioka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from trioka.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from trioka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from trioka.protocol.messages.metadata import MetadataRequest
from trioka.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from trioka.protocol.sasl.client import client_exchange
from trioka.protocol.schema import Request

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECRET = "key of all nodes"
NOT_FOUND, OWNER_MISMATCH, NOT_ALLOWED, NOT_AUTHORIZED = 62, 63, 64, 65
SCRAM = "SCRAM-SHA-256"
ASKED = MetadataRequest(topics=[])
CREATION = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
FOR_BOB = CreateDelegationTokenRequest(
    owner_principal_type="User", owner_principal_name="bob", renewers=[], max_lifetime_ms=-1
)


def about(hmac: bytes) -> list[tuple[Request, int]]:
    return [
        (RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), 2),
        (ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), 2),
    ]


async def log_in_with_token(client: SaslClient, token: Any) -> Any:
    assert (await client.handshake(SCRAM)).error_code == 0
    password = b64encode(bytes(token.hmac)).decode()
    exchange = client_exchange(SCRAM, token.token_id, password, random=bytes(24), is_token=True)
    challenge, result = b"", None
    while (message := exchange.respond(challenge)) is not None:
        result = await client.authenticate(message)
        if result is None or result.error_code:
            return result
        challenge = bytes(result.auth_bytes)
    return result


@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
@on_trio
async def test_attack_55_over_one_way_tls_there_are_no_tokens(tmp_path: Path, client_auth: str) -> None:
    """A client with a certificate may ask; one without it is not known, whatever the listener asks for."""
    trusted = authority()
    settings = tls_settings(signed(trusted), trusted, tmp_path, ssl_client_auth=client_auth)
    settings["delegation_token_secret_key"] = SECRET
    async with running_broker(tmp_path / "data", **settings) as broker:
        with_own = client_tls(trusted, signed(trusted, "CN=ann"), tmp_path)
        if client_auth != "required":
            without = client_tls(trusted, None, tmp_path)
            async with SaslClient(broker, SECURE, without) as client:
                assert (await client.ask(CREATION, 3)).error_code == NOT_ALLOWED
                for request, version in about(b"x" * 64):
                    assert (await client.ask(request, version)).error_code == NOT_ALLOWED
                assert (await client.ask(DescribeDelegationTokenRequest(owners=None), 3)).error_code == NOT_ALLOWED
        async with SaslClient(broker, SECURE, with_own) as client:
            made = await client.ask(CREATION, 3)
            assert made.error_code == (NOT_ALLOWED if client_auth == "none" else 0)
            assert len(broker.metadata.access.tokens) == (client_auth != "none")


def cluster_settings() -> dict[str, Any]:
    settings: dict[str, Any] = {
        **{key: value for key, value in SASL_SETTINGS.items() if key != "listeners"},
        "authorizer.class.name": STANDARD,
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": SECRET,
    }
    return settings


async def other_node(cluster: Cluster) -> Broker:
    """One that must forward."""
    active = await cluster.wait_active()
    return next(broker for broker in cluster.up if broker is not active)


@on_cluster
async def test_attack_55_requests_through_another_node_are_judged_as_at_the_controller(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, more_listeners=[f"{SASL}://{HOST}:0"], **cluster_settings()) as cluster:
        node = await other_node(cluster)
        async with ClientConnection(node) as open_client:  # over PLAINTEXT
            assert (await open_client.ask(CREATION, 3)).error_code == NOT_ALLOWED
        async with SaslClient(node) as alice, SaslClient(node) as bob:
            await alice.log_in("PLAIN", "alice", PASSWORDS["alice"])
            await bob.log_in("PLAIN", "bob", PASSWORDS["bob"])
            token = await alice.ask(CREATION, 3)
            assert (token.error_code, token.principal_name) == (0, "alice")
            assert (await alice.ask(FOR_BOB, 3)).error_code == NOT_AUTHORIZED
            for request, version in about(bytes(token.hmac)):
                assert (await bob.ask(request, version)).error_code == OWNER_MISMATCH
            for request, version in about(b"x" * 64):
                assert (await alice.ask(request, version)).error_code == NOT_FOUND
            await cluster.until(lambda: all(token.token_id in each.metadata.access.tokens for each in cluster.up))
            for broker in cluster.up:  # the active one, and those that forward
                async with SaslClient(broker) as by_token:
                    assert (await log_in_with_token(by_token, token)).error_code == 0
                    for request, version in [(CREATION, 3), *about(bytes(token.hmac))]:
                        assert (await by_token.ask(request, version)).error_code == NOT_ALLOWED
            assert [*node.metadata.access.tokens] == [token.token_id]
            renewed = await alice.ask(about(bytes(token.hmac))[0][0], 2)
            assert renewed.error_code == 0


@on_cluster
async def test_attack_55_sessions_end_on_all_nodes_when_their_token_is_expired(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, more_listeners=[f"{SASL}://{HOST}:0"], **cluster_settings()) as cluster:
        node = await other_node(cluster)
        async with SaslClient(node) as alice:
            await alice.log_in("PLAIN", "alice", PASSWORDS["alice"])
            token = await alice.ask(CREATION, 3)
            await cluster.until(lambda: all(token.token_id in each.metadata.access.tokens for each in cluster.up))
            sessions = [SaslClient(broker) for broker in cluster.up]
            for session in sessions:
                await session.__aenter__()
                assert (await log_in_with_token(session, token)).error_code == 0
                assert (await session.ask(ASKED, 12)).cluster_id == cluster.cluster_id
            (_, (expiry, version)) = about(bytes(token.hmac))
            assert (await alice.ask(expiry, version)).error_code == 0
            for session in sessions:
                assert await session.is_closed()
                await session.__aexit__(None, None, None)
            for broker in cluster.up:
                async with SaslClient(broker) as late:
                    assert (await log_in_with_token(late, token)).error_code == 58
