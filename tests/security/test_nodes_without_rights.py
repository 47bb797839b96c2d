"""A node that may log in, and is no super user and has no rule: as in Apache Kafka, its requests are refused
(CLUSTER_ACTION), and it is not in the cluster. Its log says so in one sentence, and it does not ask without a pause."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import trio
from mutants.plant import planted
from support.broker_cluster import PATIENCE_S, Cluster, on_cluster, running_cluster
from support.random_messages import sample
from support.sasl import SaslClient
from support.secured_cluster import NODES, OTHER_USER, STRANGERS_PASSWORD, USER, plain_jaas, settings, works
from support.serving import HOST, ask

from trioka.broker.api import CONTROLLER, SUPPORTED_APIS
from trioka.broker.broker import Broker
from trioka.broker.controller import forwarding
from trioka.broker.quorum import remote
from trioka.cluster.acls import CLUSTER_NAME, AclOperation, AclPermission, AclResourceType, PatternType
from trioka.protocol.errors import ClusterAuthorizationFailed, TopicAuthorizationFailed, UnknownServerError
from trioka.protocol.messages import request_type
from trioka.protocol.messages.create_acls import CreateAclsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.protocol.messages.delete_acls import DeleteAclsRequest
from trioka.protocol.messages.fetch import FetchRequest

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
STRANGERS: Final = {"plain.sasl.jaas.config": plain_jaas(STRANGERS_PASSWORD, user=OTHER_USER)}
OF_NODES: Final = [1, *(key for key, api in SUPPORTED_APIS.items() if api.listeners == CONTROLLER)]
REFUSED: Final = "refuses the requests of this node"
MISTAKE_S: Final = 10.0  # a node that is refused needs two
FETCHES: Final = 2  # that are refused while a test looks for a second sentence


def secured() -> dict[str, Any]:
    return settings("SASL_PLAINTEXT") | {
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{USER};User:ANONYMOUS",  # the tests ask at the listener without a login
    }


async def let_in(cluster: Cluster) -> None:
    creation = CreateAclsRequest.Creation(
        resource_type=AclResourceType.CLUSTER,
        resource_name=CLUSTER_NAME,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{OTHER_USER}",
        host="*",
        operation=AclOperation.CLUSTER_ACTION,
        permission_type=AclPermission.ALLOW,
    )
    (result,) = (await ask(cluster[1], CreateAclsRequest(creations=[creation]), 2)).results
    assert result.error_code == 0


async def shut_out(cluster: Cluster) -> None:
    wanted = DeleteAclsRequest.Filter(
        resource_type_filter=AclResourceType.CLUSTER,
        resource_name_filter=CLUSTER_NAME,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=f"User:{OTHER_USER}",
        host_filter=None,
        operation=AclOperation.CLUSTER_ACTION,
        permission_type=AclPermission.ALLOW,
    )
    (result,) = (await ask(cluster[1], DeleteAclsRequest(filters=[wanted]), 2)).filter_results
    assert result.error_code == 0 and len(result.matching_acls) == 1


def fetches(cluster: Cluster, node: int) -> int:
    traffic = cluster[node].peers.traffic.get(remote.FETCH)
    return 0 if traffic is None else traffic.answers


def pause_s(cluster: Cluster, node: int) -> float:
    client = cluster[node].quorum_client
    return 0.0 if client is None else client.pause_s


@on_cluster
async def stays_outside(tmp_path: Path, caplog: pytest.LogCaptureFixture, patience_s: float = PATIENCE_S) -> None:
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured()) as cluster:
        await works(cluster)
        await cluster.stop(3)
        await cluster.until(lambda: all(broker.alive == {1, 2} for broker in cluster.up))
        caplog.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(cluster.start, 3, **STRANGERS))
            await cluster.until(lambda: REFUSED in caplog.text)
            await cluster.until(lambda: pause_s(cluster, 3) == remote.REFUSED_S, patience_s)
            before = fetches(cluster, 3)
            await cluster.until(lambda: fetches(cluster, 3) >= before + FETCHES)
            assert caplog.text.count(REFUSED) == 1
            assert "CLUSTER_AUTHORIZATION_FAILED" in caplog.text and "super.users" in caplog.text
            assert all(cluster[node].alive == {1, 2} for node in (1, 2))
            await let_in(cluster)
        await cluster.until(lambda: all(broker.alive == {1, 2, 3} for broker in cluster.up))


@on_cluster
async def forwards_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured()) as cluster:
        await works(cluster)
        await let_in(cluster)
        await cluster.stop(3)
        await cluster.start(3, **STRANGERS)
        await cluster.until(lambda: all(broker.alive == {1, 2, 3} for broker in cluster.up))
        if cluster.active is cluster[3]:
            await cluster.stop(3)
            await cluster.start(3, **STRANGERS)
            await cluster.until(lambda: all(broker.alive == {1, 2, 3} for broker in cluster.up))
        caplog.clear()
        await shut_out(cluster)
        await cluster.until(lambda: all(cluster[node].alive == {1, 2} for node in (1, 2)))
        await cluster.until(lambda: REFUSED in caplog.text)
        topic = CreateTopicsRequest.Topic(
            name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        (result,) = (await ask(cluster[3], CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)).topics
        assert result.error_code == UnknownServerError.code
        await let_in(cluster)
        await cluster.until(lambda: all(broker.alive == {1, 2, 3} for broker in cluster.up))


def test_a_node_without_rights_stays_outside_until_it_has_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stays_outside(tmp_path, caplog)


def test_a_broker_that_loses_its_rights_is_fenced_and_forwards_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    forwards_nothing(tmp_path, caplog)


def test_a_node_that_asks_again_at_once_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = planted(remote, "REFUSED_S if self._is_refused else self._backoff_s", "self._backoff_s")
    monkeypatch.setattr(remote, "QuorumClient", wrong.QuorumClient)
    with pytest.raises((trio.TooSlowError, BaseExceptionGroup)):
        stays_outside(tmp_path, caplog, MISTAKE_S)


def test_an_error_of_the_envelope_that_reaches_the_client_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_error_for_client", lambda _: ClusterAuthorizationFailed())
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        forwards_nothing(tmp_path, caplog)


@on_cluster
async def test_a_client_at_the_listener_of_the_controllers_is_refused_what_nodes_ask(tmp_path: Path) -> None:
    random = Random(7)
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured()) as cluster:
        await works(cluster)
        active = await cluster.wait_active()
        epoch, brokers = active.quorum.epoch, list(active.metadata.brokers)
        requested = 0
        for key in OF_NODES:
            request = request_type(key)
            version = SUPPORTED_APIS[key].last
            async with SaslClient(active, "CONTROLLER") as client:
                assert (await client.log_in("PLAIN", OTHER_USER, STRANGERS_PASSWORD)).error_code == 0
                response = await client.ask(sample(request, version, random), version)
            assert response is not None and f"error_code={ClusterAuthorizationFailed.code}" in str(response), request
            requested += 1
        assert requested == len(OF_NODES) >= 12
        async with SaslClient(active, NODES) as client:
            await client.log_in("PLAIN", OTHER_USER, STRANGERS_PASSWORD)
            response = await client.ask(follower_fetch(active), 12)
        (partition,) = response.responses[0].partitions
        assert partition.error_code == TopicAuthorizationFailed.code and not partition.records
        assert active.quorum.epoch == epoch and list(active.metadata.brokers) == brokers


def follower_fetch(broker: Broker) -> FetchRequest:
    """As another node does it: its next fetch would say that it has more than it ever got."""
    topic = FetchRequest.Topic(
        topic="t", partitions=[FetchRequest.Topic.Partition(partition=0, fetch_offset=1_000, partition_max_bytes=1_000)]
    )
    return FetchRequest(replica_id=2, max_wait_ms=100, min_bytes=1, max_bytes=1_000, topics=[topic])
