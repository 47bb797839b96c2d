"""What coordinators know of topics: which there are, how many partitions they have, on which racks these can be read.

The cluster room knows; the broker shows it to coordinators through this window, always as of now.
"""

from collections.abc import Iterable
from typing import Protocol

from trioka.protocol.lazy_dataclass import frozen


@frozen
class Topic:
    id: bytes
    name: str
    racks: tuple[frozenset[str], ...]  # for each partition, those of its replicas, as far as they are known

    @property
    def partitions(self) -> int:
        return len(self.racks)


class Topics(Protocol):
    @property
    def version(self) -> int:
        """Grows when anything here may have changed: the offset of the metadata that is shown."""
        ...

    def by_name(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: bytes) -> Topic | None: ...

    def names(self) -> Iterable[str]: ...
