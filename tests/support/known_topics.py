"""Topics as coordinators see them, for tests without a cluster. Ids are numbers, in the order in which topics came."""

from collections.abc import Iterable, Sequence
from itertools import count

from trioka.coordinator.topics import Topic


class KnownTopics:
    def __init__(self, **partitions: int) -> None:
        """`KnownTopics(orders=3)`: a topic with three partitions."""
        self.version = 0
        self._by_id: dict[bytes, Topic] = {}
        self._by_name: dict[str, Topic] = {}
        self._numbers = count(1)
        for name, number in partitions.items():
            self.add(name, number)

    def add(
        self, name: str, partitions: int = 1, racks: Sequence[Iterable[str]] = (), topic_id: bytes | None = None
    ) -> bytes:
        """Adds a topic, or changes the partitions or racks of an existing one. Returns its id."""
        before = self._by_name.get(name)
        if topic_id is None:
            topic_id = next(self._numbers).to_bytes(16, "big") if before is None else before.id
        places = tuple(frozenset(racks[number]) if racks else frozenset() for number in range(partitions))
        self._by_name[name] = self._by_id[topic_id] = Topic(id=topic_id, name=name, racks=places)
        self.version += 1
        return topic_id

    def remove(self, name: str) -> None:
        del self._by_id[self._by_name.pop(name).id]
        self.version += 1

    def by_name(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def names(self) -> Iterable[str]:
        return tuple(self._by_name)
