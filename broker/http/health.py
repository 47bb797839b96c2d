"""Whether a broker lives, has started, is ready: what it says to those who look after processes.

    live      the event loop answers (if it did not, nobody could say so), and there is a disk to work with
    started   the logs are loaded and the cluster has let the broker in
    ready     clients are served: not fenced, not stopping, no log directory offline

Each is a list of reasons why not, in sentences; an empty one is good news.
"""

from typing import TYPE_CHECKING

from ..membership.log_directories import why_it_must_end

if TYPE_CHECKING:
    from ..broker import Broker


def why_not_alive(broker: "Broker") -> list[str]:
    """A node that cannot go on ends; until it has, it must not pass for one that lives."""
    reason = why_it_must_end(broker.directories, broker.node)
    return [] if reason is None else [f"The node ends: {reason}."]


def why_not_started(broker: "Broker") -> list[str]:
    if not broker.directories:
        return ["The logs are being loaded."]
    return [] if broker.is_joined else ["The broker has not joined its cluster yet."]


def why_not_ready(broker: "Broker") -> list[str]:
    reasons = why_not_started(broker)
    if broker.is_stopping:
        reasons.append("The broker is stopping.")
    elif not reasons:
        if not broker.listening.is_open or not broker.network.is_listening:  # those of controllers open earlier
            reasons.append("No listener for clients is open.")
        itself = broker.metadata.brokers.get(broker.node_id)
        if itself is None or itself.fenced:
            reasons.append("The broker is fenced.")
    for directory in broker.directories:
        if directory.failure is not None:
            reasons.append(f"The log directory {directory.path} is offline: {directory.failure}.")
    return reasons
