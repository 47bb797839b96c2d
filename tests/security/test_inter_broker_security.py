"""Three nodes that log in to each other, or present certificates. The quorum, replication, forwarding and heartbeats
use secured listeners; a node with a wrong password or without a certificate does not get in."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
import trio
from mutants.plant import planted
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.certificates import Identity, authority, signed
from support.replicated_topics import Producer, partition
from support.sasl import add_scram_user
from support.secured_cluster import NODES, PASSWORD, USER, plain_jaas, settings, stores, works
from support.serving import HOST

from trioka.broker import broker as broker_module
from trioka.broker.broker import Broker
from trioka.broker.peers import peer as peer_module
from trioka.broker.security.tls import peer_security
from trioka.protocol.primitives import uuid_text
from trioka.protocol.sasl.jaas import SCRAM_MODULE
from trioka.storage.directory import ForeignDirectory

MISTAKE_S: Final = 10.0  # a cluster that works needs two
PARKED: Final = {"replica.fetch.wait.max.ms": 6000, "replica.lag.time.max.ms": 20_000}
SCRAM: Final = "SCRAM-SHA-512"
SESSION_MS: Final = 4000  # so short that each node logs in again during a test; a busy machine needs seconds


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
@on_cluster
async def test_nodes_work_together_over_secured_listeners(tmp_path: Path, protocol: str) -> None:
    secured = settings(protocol)
    if protocol.endswith("SSL"):
        trusted = authority()
        secured |= stores(tmp_path, trusted, signed(trusted))
    if protocol == "SSL":
        secured["ssl.client.auth"] = "required"
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured) as cluster:
        await works(cluster)


@on_cluster
async def test_brokers_log_in_to_each_other_by_scram_once_the_metadata_has_their_user(tmp_path: Path) -> None:
    """The controllers use PLAIN: before they have elected a leader there are no SCRAM users."""
    secured = settings("SASL_PLAINTEXT", SCRAM)
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured) as cluster:
        active = await cluster.wait_active()
        await add_scram_user(active, USER, SCRAM, PASSWORD)
        await works(cluster)


@on_cluster
async def test_nodes_log_in_again_before_their_sessions_end(tmp_path: Path) -> None:
    secured = settings("SASL_PLAINTEXT", connections_max_reauth_ms=SESSION_MS)
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured) as cluster:
        producer = await works(cluster)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_for_ever, producer)
            await cluster.until(lambda: sum(renewals(broker, NODES) for broker in cluster.up) > 3)
            nursery.cancel_scope.cancel()
        assert not any(counts.expired_killed for broker in cluster.up for counts in broker.login_counts.values())


@on_cluster
async def test_certificates_of_another_authority_take_their_places_one_node_after_the_other(tmp_path: Path) -> None:
    """First each node trusts both authorities, then each gets a new certificate, then the old authority is no longer
    trusted. Connections that are opened after a change use the new stores."""
    await rolls_certificates(tmp_path)


async def rolls_certificates(tmp_path: Path) -> None:
    old, new = authority("CN=Before"), authority("CN=After")
    identities = {node: signed(old) for node in (1, 2, 3)}
    places = {}
    for node, identity in identities.items():
        (tmp_path / f"stores-{node}").mkdir()
        places[node] = stores(tmp_path / f"stores-{node}", old, identity)
    secured = settings("SSL", ssl_client_auth="required", trioka_tls_reload_interval_ms="100")
    listeners = [f"{NODES}://{HOST}:0"]
    async with running_cluster(tmp_path, more_listeners=listeners, settings_of=places, **secured) as cluster:
        producer = await works(cluster)
        for node in identities:
            await replace_store(cluster[node], tmp_path / f"stores-{node}/trusted.pem", old.chain_pem + new.chain_pem)
        for node in identities:
            identities[node] = signed(new)
            await replace_store(cluster[node], tmp_path / f"stores-{node}/node.pem", identities[node].pem)
            await connects_again(cluster, {each.der for each in identities.values()})
            await producer.send()
        for node in identities:
            await replace_store(cluster[node], tmp_path / f"stores-{node}/trusted.pem", new.chain_pem)
        await connects_again(cluster, {each.der for each in identities.values()})
        await producer.send()


async def replace_store(broker: Broker, path: Path, text: str) -> None:
    """As renewal tools do it: the file is never half written. Returns when the listeners use it."""
    tls = broker.listener_manager.tls
    assert tls is not None
    before = [listener.tls for listener in tls.listeners]
    other = path.with_suffix(".new")
    other.write_text(text)
    other.rename(path)
    while any(listener.tls in before for listener in tls.listeners):
        await trio.sleep(0.01)


async def connects_again(cluster: Cluster, certificates: set[bytes]) -> None:
    """Nodes reopen all connections to each other. Returns when they present none but these certificates: a node that
    leads everything opens no connection. One that was opened while a node loaded its stores may have presented an older
    certificate; it is dropped, too."""
    drop(cluster, lambda _: True)

    def have_presented() -> bool:
        drop(cluster, lambda certificate: certificate not in certificates)
        return bool(presented(cluster)) and presented(cluster) <= certificates

    await cluster.until(have_presented)


def drop(cluster: Cluster, which: Callable[[bytes | None], bool]) -> None:
    for broker in cluster.up:
        for channel in list(broker.network._channels.values()):
            tls = channel.connection.tls
            if tls is not None and which(tls.peer_certificate):
                broker.network._drop(channel)


def presented(cluster: Cluster) -> set[bytes | None]:
    secured = [each.tls for broker in cluster.up for each in broker.network.connections]
    return {tls.peer_certificate for tls in secured if tls is not None}


@on_cluster
async def test_a_session_that_ends_while_a_fetch_is_parked_is_renewed_with_the_next_request(tmp_path: Path) -> None:
    """Nothing is written, so the fetches of followers are answered when they have waited for longer than a session."""
    secured = settings("SASL_PLAINTEXT", connections_max_reauth_ms=SESSION_MS) | PARKED
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured) as cluster:
        producer = await works(cluster)
        await cluster.until(lambda: sum(renewals(broker, NODES) for broker in cluster.up) > 3)
        await producer.send()
        assert not any(counts.expired_killed for broker in cluster.up for counts in broker.login_counts.values())


@on_cluster
async def test_a_new_password_of_the_nodes_is_rolled_out(tmp_path: Path) -> None:
    """It is changed at run time. Open connections go on, and each node has the new one after its restart."""
    secured = settings("SASL_PLAINTEXT", SCRAM)
    changed = {"scram-sha-512.sasl.jaas.config": f'{SCRAM_MODULE} required username="{USER}" password="new";'}
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured) as cluster:
        active = await cluster.wait_active()
        await add_scram_user(active, USER, SCRAM, PASSWORD)
        producer = await works(cluster)
        await add_scram_user(await cluster.wait_active(), USER, SCRAM, "new")
        await producer.send()
        for node in (1, 2, 3):
            await cluster.stop(node)
            await cluster.start(node, **changed)
            await cluster.until(lambda: all(broker.alive == {1, 2, 3} for broker in cluster.up))
        await cluster.until(lambda: set(partition(cluster).isr) == {1, 2, 3})
        await producer.send(3)


@on_cluster
async def test_a_node_of_another_cluster_is_refused_though_it_knows_the_password(tmp_path: Path) -> None:
    secured = settings("SASL_PLAINTEXT")
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured) as cluster:
        await works(cluster)
        await cluster.stop(3)
        (tmp_path / "3").rename(tmp_path / "own")
        cluster.cluster_id = uuid_text(bytes(16)[:-1] + b"x")
        cluster.format(3)
        with pytest.raises(ExceptionGroup) as refused:
            await cluster.start(3)
        assert refused.value.subgroup(ForeignDirectory) is not None
        assert all(cluster[node].alive == {1, 2} for node in (1, 2))


def renewals(broker: Broker, listener: str) -> int:
    return broker.login_counts[listener].reauthentications if listener in broker.login_counts else 0


async def send_for_ever(producer: Producer) -> None:
    while True:
        await producer.send()


def refused(settings: dict[str, Any], directory: Path, trusted: Identity | None) -> dict[str, Any]:
    """The same node with a wrong password, or with a certificate of an unknown authority."""
    if trusted is None or "plain.sasl.jaas.config" in settings:
        return settings | {"plain.sasl.jaas.config": plain_jaas("wrong")}
    directory.mkdir()
    return settings | stores(directory, trusted, signed(authority("CN=Stranger")))


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
@on_cluster
async def test_a_node_that_cannot_prove_who_it_is_does_not_get_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    secured, trusted = settings(protocol), None
    if protocol.endswith("SSL"):
        trusted = authority()
        secured |= stores(tmp_path, trusted, signed(trusted))
    if protocol == "SSL":
        secured["ssl.client.auth"] = "required"
    async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured) as cluster:
        await works(cluster)
        await cluster.kill(3)
        await cluster.until(lambda: all(broker.alive == {1, 2} for broker in cluster.up))
        caplog.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(cluster.start, 3, **refused(secured, tmp_path / "3-wrong", trusted)))
            await cluster.until(lambda: is_refused(caplog, cluster, protocol))
            assert all(cluster[node].alive == {1, 2} for node in (1, 2))
            cluster[3].die()
            await cluster[3].stopped.wait()
            nursery.cancel_scope.cancel()
        await cluster.start(3)
        await cluster.until(lambda: all(broker.alive == {1, 2, 3} for broker in cluster.up))


def is_refused(caplog: pytest.LogCaptureFixture, cluster: Cluster, protocol: str) -> bool:
    if protocol.startswith("SASL"):
        return "cannot log in to" in caplog.text
    handshakes = [cluster[node].network.handshakes for node in (1, 2)]
    return any(each is not None and sum(each.failed.values()) >= 2 for each in handshakes)


MISTAKES = [
    (peer_module, "Peer", "                await self._secure(self._connection)\n", ""),
    (peer_module, "Peer", "            await self._log_in(connection)\n            return\n", "            return\n"),
]


@pytest.mark.parametrize(("module", "name", "right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(
    tmp_path: Path, module: ModuleType, name: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, getattr(planted(module, right, wrong), name))

    async def run() -> None:
        with trio.fail_after(MISTAKE_S):
            secured = settings("SASL_PLAINTEXT")
            async with running_cluster(tmp_path, more_listeners=[f"{NODES}://{HOST}:0"], **secured) as cluster:
                await works(cluster)

    with pytest.raises((trio.TooSlowError, BaseExceptionGroup)):
        trio.run(run)


def test_a_node_that_does_not_look_at_changed_files_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = "loaded.config is config and loaded.files == files", "loaded.config is config"
    monkeypatch.setattr(broker_module, "NodeSecurity", planted(peer_security, right, wrong).NodeSecurity)

    async def run() -> None:
        with trio.fail_after(MISTAKE_S):
            await rolls_certificates(tmp_path)

    with pytest.raises((trio.TooSlowError, BaseExceptionGroup)):
        trio.run(run)
