"""The fast path is taken whatever secures the broker: encryption, logins that are renewed, rules, quotas, replicas."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from support.broker_cluster import on_cluster, running_cluster
from support.certificates import authority, client_tls, signed
from support.fast_path_pair import STANDARD, fetch
from support.fast_paths import counted_uses, framed, produce, records
from support.quotas import set_quota
from support.replicated_topics import create, leader
from support.sasl import PASSWORDS, PLAIN_JAAS, SaslClient
from support.secured_cluster import NODES, OTHER_USER, stores
from support.secured_cluster import PASSWORDS as OF_NODES
from support.secured_cluster import settings as of_cluster
from support.serving import CORRELATION_ID, HOST, ask, on_trio, read_answer, running_broker
from support.tls_broker import SECURE, tls_settings

from trioka.broker.broker import Broker
from trioka.broker.fastpath.fetch import FetchFastPath
from trioka.broker.fastpath.produce import ProduceFastPath
from trioka.cluster.image.acls import AclOperation, AclPermission, AclResourceType, PatternType
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.schema import Request

ALICE: Final = "alice"
REQUESTS: Final = 10
FIRST: Final = 2  # requests of a connection for a topic, before its fast path is there
ENOUGH: Final = {"producer_byte_rate": 1e9, "consumer_byte_rate": 1e9, "request_percentage": 1e6}
NEVER_MS: Final = 3_600_000
ACLS: Final = {"authorizer.class.name": STANDARD}
REAUTHENTICATION: Final = {"connections.max.reauth.ms": str(NEVER_MS)}
VERSION: Final = 12


PROTOCOLS: Final = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "open": {},
    "rules": ACLS,
    "sessions": REAUTHENTICATION,
    "rules and sessions": ACLS | REAUTHENTICATION,
}
ALL_OR_NOTHING: Final = (("open", False), ("rules and sessions", True))
CASES: Final = [
    pytest.param(
        protocol,
        SETTINGS[name],
        ENOUGH if has_quotas else {},
        id=f"{protocol}, {name}{', quotas' if has_quotas else ''}",
        marks=() if (name, has_quotas) in ALL_OR_NOTHING else pytest.mark.nightly,
    )
    for protocol in PROTOCOLS
    for name in SETTINGS
    for has_quotas in (False, True)
]


async def exchange(client: SaslClient, broker: Broker, acks: int) -> None:
    """Each request is answered without an error before the next one is sent."""
    for number in range(2 * REQUESTS):
        is_produce = number < REQUESTS
        request: Request = fetch(broker, VERSION, 0, 0)
        if is_produce:
            request = produce(broker, records(), VERSION, acks=acks)
        await client.send(framed(request, VERSION, CORRELATION_ID))
        frame = await client.receive_frame()
        assert frame is not None
        response = read_answer(request, VERSION, frame)
        (topic,) = response.responses
        (result,) = topic.partition_responses if is_produce else topic.partitions
        assert result.error_code == 0


async def allow(broker: Broker, name: str) -> None:
    """To write and read the topic, and no other topic."""
    rules = [
        CreateAclsRequest.Creation(
            resource_type=AclResourceType.TOPIC,
            resource_name="t",
            resource_pattern_type=PatternType.LITERAL,
            principal=f"User:{name}",
            host="*",
            operation=operation,
            permission_type=AclPermission.ALLOW,
        )
        for operation in (AclOperation.WRITE, AclOperation.READ)
    ]
    response = await ask(broker, CreateAclsRequest(creations=rules), 3)
    assert [each.error_code for each in response.results] == [0, 0]


@pytest.mark.parametrize(("protocol", "more", "quotas"), CASES)
@on_trio
async def test_the_fast_path_is_taken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
    more: Mapping[str, str],
    quotas: Mapping[str, float],
) -> None:
    issuer = authority()
    listener_map = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{SECURE}:{protocol}"
    settings: dict[str, Any] = {
        **tls_settings(signed(issuer), issuer, tmp_path, listener_security_protocol_map=listener_map),
        "ssl.client.auth": "required" if protocol == "SSL" else "none",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f"{PLAIN_JAAS};",
        **more,
    }
    own = signed(issuer, f"CN={ALICE}") if protocol == "SSL" else None
    context = client_tls(issuer, own, tmp_path) if protocol.endswith("SSL") else None
    user = {"PLAINTEXT": "ANONYMOUS", "SSL": f"CN={ALICE}"}.get(protocol, ALICE)
    uses = counted_uses(monkeypatch)
    async with running_broker(tmp_path / "data", **settings) as broker, SaslClient(broker, SECURE, context) as client:
        await broker.create_missing_topics({"t": 1})
        if "authorizer.class.name" in more:
            await allow(broker, user)
        if quotas:
            await set_quota(broker, {"user": user}, **quotas)
        logins = 2 if more.get("connections.max.reauth.ms") and protocol.startswith("SASL") else 1
        for _ in range(logins):
            if protocol.startswith("SASL"):
                assert (await client.log_in("PLAIN", ALICE, PASSWORDS[ALICE])).error_code == 0
            await exchange(client, broker, acks=1)
        for kind in (ProduceFastPath, FetchFastPath):
            assert uses[kind, f"User:{user}"] == logins * (REQUESTS - FIRST)


@on_cluster
async def test_the_fast_path_is_taken_on_three_secured_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SASL_SSL, rules, quotas, three replicas, acks=all, and a client that logs in again."""
    issuer = authority()
    secured = of_cluster("SASL_SSL", **ACLS, **REAUTHENTICATION, super_users="User:node;User:ANONYMOUS")
    secured |= stores(tmp_path, issuer, signed(issuer))
    context = client_tls(issuer, None, tmp_path)
    uses = counted_uses(monkeypatch)
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured) as cluster:
        await create(cluster, min_insync_replicas=3)
        await cluster.until(lambda: leader(cluster) is not None)
        broker = cluster[leader(cluster) or 0]
        await allow(broker, OTHER_USER)
        await set_quota(broker, {"user": OTHER_USER}, **ENOUGH)
        async with SaslClient(broker, NODES, context) as client:
            for logins in (1, 2):
                assert (await client.log_in("PLAIN", OTHER_USER, OF_NODES[OTHER_USER])).error_code == 0
                await exchange(client, broker, acks=-1)
                assert uses[ProduceFastPath, f"User:{OTHER_USER}"] == logins * (REQUESTS - FIRST)
                assert uses[FetchFastPath, f"User:{OTHER_USER}"] == logins * (REQUESTS - FIRST)
