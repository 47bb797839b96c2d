"""Brokers for other people's tests: fresh ones in milliseconds, with faults on demand and a clock that can be advanced.

    from trioka.testing import Broker

    with Broker() as kafka:
        kafka.create_topic("orders", partitions=3)
        ...                                             # any Kafka client, at kafka.bootstrap_servers
        kafka.wait_group("billing", lag=0)

`Cluster` is several of them, whose nodes can be killed and cut from one another. `plugin.py` makes pytest fixtures of
both. All load a broker when the first one starts, and not before: what is named
here is imported when somebody asks for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .broker import Broker as Broker
    from .chaos import Chaos as Chaos
    from .chaos import Storm as Storm
    from .client import Record as Record
    from .cluster import Cluster as Cluster
    from .faults import Armed as Armed
    from .runner import HasEnded as HasEnded
    from .runner import Unresponsive as Unresponsive

__all__ = ["Armed", "Broker", "Chaos", "Cluster", "HasEnded", "Record", "Storm", "Unresponsive"]

_HOMES: Final = {
    "Armed": "faults",
    "Broker": "broker",
    "Chaos": "chaos",
    "Cluster": "cluster",
    "HasEnded": "runner",
    "Record": "client",
    "Storm": "chaos",
    "Unresponsive": "runner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"trioka.testing has no '{name}'; it has {', '.join(__all__)}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
