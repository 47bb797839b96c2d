"""The events of start, stop and changes of leaders, which are written at the default level; and the command's lines."""

from collections.abc import Mapping
from typing import Final

from .event import Event

LIFECYCLE_EVENTS: Final[Mapping[tuple[str, str], Event]] = {
    ("trioka.lifecycle", "the broker is ready: node %d, epoch %d"): Event("broker.ready", ("node", "broker_epoch")),
    ("trioka.lifecycle", "the broker stops: node %d"): Event("broker.stopping", ("node",)),
    ("trioka.lifecycle", "the broker has stopped: node %d"): Event("broker.stopped", ("node",)),
    ("trioka.lifecycle", "ready in %.2f s: clients %s, metrics %s, data in %s"): Event(
        "node.ready", ("seconds", "clients", "metrics", "directories")
    ),
    ("trioka.lifecycle", "the gateway is ready in %.2f s: cluster %s, gRPC %s, HTTP %s, metrics %s"): Event(
        "gateway.ready", ("seconds", "cluster", "grpc", "http", "metrics")
    ),
    ("trioka.lifecycle", "node %d is the quorum leader in epoch %d"): Event("quorum.leader", ("node", "epoch")),
    ("trioka.lifecycle", "node %d is no longer the quorum leader (epoch %d)"): Event(
        "quorum.resigned", ("node", "epoch")
    ),
    ("trioka.lifecycle", "new leaders: node %d leads %d more partitions and %d fewer: %s"): Event(
        "partitions.new_leaders", ("node", "gained", "lost", "partitions")
    ),
    ("trioka.cli", "note: %s"): Event("config.note", ("note",)),
    ("trioka.cli", "cannot start: %s"): Event("start.failed", ("reason",)),
    ("trioka.cli", "this process ends: %s"): Event("node.failed", ("reason",)),
    ("trioka.cli", "internal error: this process ends"): Event("bug.process"),
}
