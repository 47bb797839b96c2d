"""Opens the quorum of this node from the broker's configuration. The modules for other nodes are imported only with
other nodes.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from trioka.cluster.controller.controller import Controller
from trioka.cluster.quorum.raft import RaftSettings

from ..config.node_keys import (
    CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS,
    CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS,
    CONTROLLER_QUORUM_FETCH_MAX_BYTES,
    CONTROLLER_QUORUM_FETCH_SNAPSHOT_MAX_BYTES,
    CONTROLLER_QUORUM_FETCH_TIMEOUT_MS,
    CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS,
    CONTROLLER_QUORUM_RETRY_BACKOFF_MS,
)
from ..network.listener import local_host_name
from .driver import Quorum
from .store import QuorumSettings, QuorumStore

if TYPE_CHECKING:
    from ..broker import Broker
    from ..controller.duties import ControllerTasks
    from .remote import QuorumClient


async def join_quorum(broker: "Broker", files: QuorumStore) -> None:
    """Opens the own listener first, so that other nodes can connect. Returns when the image has caught up with the
    leader."""
    listeners = [broker.listener_manager.listen(endpoint) for endpoint in broker.node.controller_listeners]
    for listener in listeners:
        broker.network.add(listener)
    broker.listener_manager.watch_stores()
    quorum = broker.quorum = _new_quorum(broker, files)
    quorum.on_failure = broker.on_metadata_lost
    quorum.endpoints = tuple(
        endpoint._replace(host=endpoint.host or local_host_name(), port=listener.address[1])
        for endpoint, listener in zip(broker.node.controller_listeners, listeners, strict=True)
    )
    if broker.node.is_controller:
        quorum.controller = Controller(quorum.metadata, broker.controller_settings(), broker.random)
        broker.nursery.start_soon(broker.active_controller.run)
        broker.nursery.start_soon(broker.active_controller.write_on)
    if quorum.may_have_peers:
        await start_multi_node(broker)
    await broker.nursery.start(quorum.run)
    await quorum.wait_caught_up()
    if broker.node.is_controller and not quorum.has_peers:
        await _duties(broker).register()


async def start_multi_node(broker: "Broker") -> None:
    """Starts following or being followed. A single-node quorum calls it at run time, when its log contains the
    voters."""
    if broker.quorum_client is not None:
        return
    broker.quorum_client = _new_quorum_client(broker)
    await broker.nursery.start(broker.quorum_client.run)
    if broker.node.is_controller:
        broker.nursery.start_soon(_duties(broker).run)


def _duties(broker: "Broker") -> "ControllerTasks":
    duties: type[ControllerTasks] = import_module("..controller.duties", __package__).ControllerTasks
    return duties(broker)


def _new_quorum(broker: "Broker", files: QuorumStore) -> Quorum:
    config = broker.config
    meta = broker.identity.metadata_directory.meta
    assert meta is not None and meta.directory_id is not None
    quorum = Quorum(
        files,
        broker.clock,
        broker.node,
        meta.directory_id,
        broker.cluster_id,
        QuorumSettings.of(config),
        RaftSettings(
            election_timeout_ms=max(config[CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS], 1),
            fetch_timeout_ms=max(config[CONTROLLER_QUORUM_FETCH_TIMEOUT_MS], 1),
            backoff_ms=max(config[CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS], 1),
        ),
        broker.random,
    )
    quorum.snapshot_bytes = config[CONTROLLER_QUORUM_FETCH_SNAPSHOT_MAX_BYTES]
    return quorum


def _new_quorum_client(broker: "Broker") -> "QuorumClient":
    config = broker.config
    following: type[QuorumClient] = import_module(".remote", __package__).QuorumClient
    return following(
        broker.quorum,
        broker.peers,
        request_timeout_s=config[CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS] / 1000,
        backoff_s=config[CONTROLLER_QUORUM_RETRY_BACKOFF_MS] / 1000,
        fetch_bytes=config[CONTROLLER_QUORUM_FETCH_MAX_BYTES],
    )
