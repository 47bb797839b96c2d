"""Liveness, startup and readiness of a broker, for probes of a supervisor.

    live      the event loop answers (if it did not, there would be no response), and there is a disk to work with
    started   the logs are loaded and the cluster has let the broker in
    ready     clients are served: not fenced, not stopping, no log directory offline

Each is a list of reasons why not, as sentences; empty if the state is reached.
"""

from typing import TYPE_CHECKING

from ..membership.log_directories import fatal_reason

if TYPE_CHECKING:
    from ..broker import Broker


def why_not_alive(broker: "Broker") -> list[str]:
    """A failed node ends; until then it must not be reported as live."""
    reason = fatal_reason(broker.directories, broker.node)
    return [] if reason is None else [f"The node is stopping: {reason}."]


def why_not_started(broker: "Broker") -> list[str]:
    if not broker.directories:
        return ["The logs are being loaded."]
    return [] if broker.is_joined else ["The broker has not joined its cluster yet."]


def why_not_ready(broker: "Broker") -> list[str]:
    reasons = why_not_started(broker)
    if broker.is_stopping:
        reasons.append("The broker is stopping.")
    elif not reasons:
        if not broker.listener_manager.is_open or not broker.network.is_listening:  # controller listeners open earlier
            reasons.append("No listener for clients is open.")
        itself = broker.metadata.brokers.get(broker.node_id)
        if itself is None or itself.fenced:
            reasons.append("The broker is fenced.")
    for directory in broker.directories:
        if directory.failure is not None:
            reasons.append(f"The log directory {directory.path} is offline: {directory.failure}.")
    return reasons
