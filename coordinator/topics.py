"""The topics as coordinators see them: ids, numbers of partitions, and the racks of replicas.

The cluster package has this state; the broker provides the current state to coordinators through this interface.
"""

from collections.abc import Iterable
from typing import Protocol

from trioka.protocol.lazy_dataclass import frozen


@frozen
class Topic:
    id: bytes
    name: str
    racks: tuple[frozenset[str], ...]  # for each partition, the known racks of its replicas

    @property
    def partitions(self) -> int:
        return len(self.racks)


class Topics(Protocol):
    @property
    def version(self) -> int:
        """The metadata offset; it grows whenever a topic may have changed."""
        ...

    def by_name(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: bytes) -> Topic | None: ...

    def names(self) -> Iterable[str]: ...
