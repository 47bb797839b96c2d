"""A request that one broker passes on to the active controller is judged there as it would have been if it had come
straight: by who asks, and from where."""

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

import pytest
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.serving import LISTENER, ask

from trioka.broker.broker import Broker
from trioka.broker.network import server as network
from trioka.cluster import authorizer, host_address
from trioka.cluster.acls import AclFilter, AclOperation, AclPermission, AclResourceType
from trioka.protocol.errors import NONE, TopicAuthorizationFailed
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SIX, MAPPED = "SIX", "MAPPED"  # listeners of IPv6; one gets its clients by IPv4
TOPIC = "secret"
LONG = "0000:0000:0000:0000:0000:0000:0000:0001"

DENIED = TopicAuthorizationFailed.code

# By which listener clients come, how a rule may spell the address that they come from, and whether that is Java's way.
SPELLINGS = [
    (LISTENER, "127.0.0.1", True),
    (LISTENER, "::ffff:127.0.0.1", False),
    (MAPPED, "127.0.0.1", True),
    (SIX, "0:0:0:0:0:0:0:1", True),
    (SIX, "::1", False),
    (SIX, LONG, False),
]


def rule(
    kind: AclResourceType, name: str, operation: AclOperation, permission: AclPermission, host: str
) -> CreateAclsRequest.Creation:
    return CreateAclsRequest.Creation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:*",
        host=host,
        operation=operation,
        permission_type=permission,
    )


def all_but(host: str) -> list[CreateAclsRequest.Creation]:
    """Everybody may do everything, but create topics from that host."""
    places = [(AclResourceType.CLUSTER, "kafka-cluster"), (AclResourceType.TOPIC, "*")]
    return [
        *(rule(kind, name, AclOperation.ALL, AclPermission.ALLOW, "*") for kind, name in places),
        *(rule(kind, name, AclOperation.CREATE, AclPermission.DENY, host) for kind, name in places),
    ]


def none_but(host: str) -> list[CreateAclsRequest.Creation]:
    """Topics may be created only from that host."""
    return [
        rule(AclResourceType.CLUSTER, "kafka-cluster", AclOperation.CLUSTER_ACTION, AclPermission.ALLOW, "*"),
        rule(AclResourceType.TOPIC, "*", AclOperation.CREATE, AclPermission.ALLOW, host),
    ]


async def set_rules(cluster: Cluster, rules: list[CreateAclsRequest.Creation]) -> None:
    """By the controller itself, past the guard; and every node knows them."""
    active = await cluster.wait_active()
    await active.quorum.change(lambda controller: controller.delete_acls([AclFilter()]))
    await active.quorum.change(lambda controller: controller.create_acls(rules))
    end = active.metadata.offset
    await cluster.until(lambda: all(broker.metadata.offset >= end for broker in cluster.up))


async def create(broker: Broker, listener: str) -> int:
    topic = CreateTopicsRequest.Topic(name=TOPIC, num_partitions=1, replication_factor=-1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True)
    return int((await ask(broker, request, 7, listener)).topics[0].error_code)


async def judges_by_host(directory: Path) -> None:
    protocols = f"{LISTENER}:PLAINTEXT,CONTROLLER:PLAINTEXT,{SIX}:PLAINTEXT,{MAPPED}:PLAINTEXT"
    async with running_cluster(
        directory,
        more_listeners=[f"{SIX}://[::1]:0", f"{MAPPED}://[::ffff:127.0.0.1]:0"],
        listener_security_protocol_map=protocols,
        inter_broker_listener_name=LISTENER,
        authorizer_class_name=STANDARD,
        allow_everyone_if_no_acl_found="true",
    ) as cluster:
        active = await cluster.wait_active()
        await cluster.until(lambda: all(broker.alive == set(cluster.brokers) for broker in cluster.up))
        for listener, host, is_javas in SPELLINGS:
            for rules, expected in (
                (all_but(host), DENIED),
                (all_but("10.9.9.9"), NONE),
                (none_but(host), NONE if is_javas else DENIED),
                (none_but("10.9.9.9"), DENIED),
            ):
                await set_rules(cluster, rules)
                for broker in cluster.up:
                    code = await create(broker, listener)
                    way = "straight" if broker is active else "passed on"
                    assert code == expected, f"{listener}, {way}: {code} by a rule for {rules[-1]}"


@on_cluster
async def test_every_broker_judges_a_host_alike_whichever_broker_forwards(tmp_path: Path) -> None:
    await judges_by_host(tmp_path)


def as_python_spells_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(host_address, "from_bytes", lambda data: str(ip_address(data)))


def as_it_is_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(network, "client_host", lambda address: address[0])


def letter_by_letter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(authorizer, "is_address_of", lambda host, spelled: host == spelled)


@pytest.mark.parametrize("plant", [as_python_spells_it, as_it_is_accepted, letter_by_letter])
def test_a_second_spelling_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="by a rule for"):
        on_cluster(judges_by_host)(tmp_path)
