"""What tiered storage has done since the start; read by metrics."""


class TopicCounts:
    """Of one topic, on this broker."""

    __slots__ = (
        "copied_bytes",
        "copied_segments",
        "copy_errors",
        "copy_requests",
        "delete_errors",
        "delete_requests",
        "fetch_errors",
        "fetch_requests",
        "fetched_bytes",
    )

    def __init__(self) -> None:
        self.copied_bytes = self.copied_segments = 0
        self.copy_requests = self.copy_errors = 0
        self.delete_requests = self.delete_errors = 0
        self.fetched_bytes = self.fetch_requests = self.fetch_errors = 0

    def add(self, other: "TopicCounts") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TierCounts:
    def __init__(self) -> None:
        self.requests = self.errors = 0  # to the object store, except reads
        self.missing_segments = 0
        self.memory_restores = 0
        self.swept_objects = 0
        self.topics: dict[str, TopicCounts] = {}
        self._departed = TopicCounts()  # of deleted topics

    def of(self, topic: str) -> TopicCounts:
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicCounts()
        return found

    def forget(self, topic: str) -> None:
        """The topic was deleted; what it has counted stays in the sum."""
        found = self.topics.pop(topic, None)
        if found is not None:
            self._departed.add(found)

    def total(self) -> TopicCounts:
        total = TopicCounts()
        total.add(self._departed)
        for each in self.topics.values():
            total.add(each)
        return total
