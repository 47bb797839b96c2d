"""A quorum, and who follows in it, from a broker's configuration. Only a node with others needs to know what is said to
them, and loads it then."""

from importlib import import_module
from typing import TYPE_CHECKING

from trioka.cluster.controller import Controller
from trioka.cluster.raft import RaftSettings

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
from .store import QuorumFiles, QuorumSettings

if TYPE_CHECKING:
    from ..broker import Broker
    from ..controller.duties import ControllerDuties
    from .remote import Following


async def join_quorum(broker: "Broker", files: QuorumFiles) -> None:
    """Its own listener first: the others must be able to reach it. Returns when the image is as new as the leader's."""
    listeners = [broker.listening.listen(endpoint) for endpoint in broker.node.controller_listeners]
    for listener in listeners:
        broker.network.add(listener)
    quorum = broker.quorum = _new_quorum(broker, files)
    quorum.on_failure = broker.lost_metadata
    quorum.endpoints = tuple(
        endpoint._replace(host=endpoint.host or local_host_name(), port=listener.address[1])
        for endpoint, listener in zip(broker.node.controller_listeners, listeners, strict=True)
    )
    if broker.node.is_controller:
        quorum.controller = Controller(quorum.metadata, broker.controller_settings(), broker.random)
        broker.nursery.start_soon(broker.active_controller.run)
        broker.nursery.start_soon(broker.active_controller.write_on)
    if quorum.may_have_company:
        await keep_company(broker)
    await broker.nursery.start(quorum.run)
    await quorum.wait_caught_up()
    if broker.node.is_controller and not quorum.has_company:
        await _duties(broker).register()


async def keep_company(broker: "Broker") -> None:
    """This node follows, or is followed. A quorum of one comes to it while it runs, when its log says who votes."""
    if broker.following is not None:
        return
    broker.following = _new_following(broker)
    await broker.nursery.start(broker.following.run)
    if broker.node.is_controller:
        broker.nursery.start_soon(_duties(broker).run)


def _duties(broker: "Broker") -> "ControllerDuties":
    duties: type[ControllerDuties] = import_module("..controller.duties", __package__).ControllerDuties
    return duties(broker)


def _new_quorum(broker: "Broker", files: QuorumFiles) -> Quorum:
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


def _new_following(broker: "Broker") -> "Following":
    config = broker.config
    following: type[Following] = import_module(".remote", __package__).Following
    return following(
        broker.quorum,
        broker.peers,
        request_timeout_s=config[CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS] / 1000,
        backoff_s=config[CONTROLLER_QUORUM_RETRY_BACKOFF_MS] / 1000,
        fetch_bytes=config[CONTROLLER_QUORUM_FETCH_MAX_BYTES],
    )
