"""Brokers for tests of Kafka clients: started in milliseconds, with fault injection and a clock that can be advanced.

    from trioka.testing import Broker

    with Broker() as kafka:
        kafka.create_topic("orders", partitions=3)
        ...                                             # any Kafka client, at kafka.bootstrap_servers
        kafka.wait_group("billing", lag=0)

`Cluster` is several brokers, whose nodes can be killed and disconnected from each other. `plugin.py` makes pytest
fixtures of both. The broker's packages are loaded when the first broker starts: the names below are imported on first
use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .broker import Broker as Broker
    from .chaos import Chaos as Chaos
    from .chaos import Storm as Storm
    from .client import Record as Record
    from .clock_control import Clock as Clock
    from .cluster import Cluster as Cluster
    from .faults.faults import Armed as Armed
    from .nodes.runner import HasEnded as HasEnded
    from .nodes.runner import Unresponsive as Unresponsive
    from .plugin import Topic as Topic

__all__ = ["Armed", "Broker", "Chaos", "Clock", "Cluster", "HasEnded", "Record", "Storm", "Topic", "Unresponsive"]

_HOMES: Final = {
    "Armed": "faults.faults",
    "Broker": "broker",
    "Chaos": "chaos",
    "Clock": "clock_control",
    "Cluster": "cluster",
    "HasEnded": "nodes.runner",
    "Record": "client",
    "Storm": "chaos",
    "Topic": "plugin",
    "Unresponsive": "nodes.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"trioka.testing has no '{name}'; it has {', '.join(__all__)}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
