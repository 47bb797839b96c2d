"""What Metadata has told of topics, encoded, for the next one who asks.

Every client asks when it starts, every few minutes, and whenever a leader has moved; all at once, then. To put together
what is told of a partition takes 4 µs, and nobody else is served meanwhile: of ten thousand, that was 45 ms for each
who asked. Nearly always the answer is the one that somebody else had, so each topic is kept as the bytes of its answer.

They hold as long as nothing of what they say has changed: the topic is the same object, and its partitions have not
changed (`Topic.revision`); and brokers are seen as they were, through this listener (`TopicDescription`). That is
asked each time, and nobody has to remember to tell this cache of a change. What depends on who asks, as what he may do
with a topic, is not kept. Nor is a topic with an error in it: errors are counted as they are told, and it will change
soon.
"""

from typing import Final, NamedTuple, cast

from trioka.cluster.topics import Topic
from trioka.protocol.codec import encode_part
from trioka.protocol.messages.metadata import MetadataResponse

from .topic_description import TopicDescription

# About 50 bytes for a partition with three replicas: eighty thousand of them. The clients of a cluster ask in a handful
# of versions, by one or two listeners; a view too many costs them what it cost before there were any.
MAX_VIEW_BYTES: Final = 4 * 1024 * 1024
MAX_VIEWS: Final = 8
ENTRY_BYTES: Final = 300  # of what is kept beside the bytes

Told = MetadataResponse.Topic


class _Kept(NamedTuple):
    topic: Topic
    revision: int
    told: Told  # encoded
    size_bytes: int


class View:
    """Topics as they are seen through one listener, in one version of the answer, while brokers stay as they are."""

    __slots__ = ("_kept", "_version", "description", "size_bytes")

    def __init__(self, version: int, description: TopicDescription) -> None:
        self.description = description
        self._version = version
        self._kept: dict[bytes, _Kept] = {}  # by id
        self.size_bytes = 0

    def get(self, topic: Topic) -> Told | None:
        """What stands for the topic in an answer; None if it must be told anew."""
        kept = self._kept.get(topic.topic_id)
        if kept is None or kept.topic is not topic or kept.revision != topic.revision:
            return None
        return kept.told

    def keep(self, topic: Topic, told: Told) -> Told:
        """What may stand in the answer for what was told."""
        if told.error_code or any(partition.error_code for partition in told.partitions):
            return told
        encoded = encode_part(MetadataResponse, self._version, told)
        instead = cast(Told, encoded)  # a list that may hold either is declared as one of structs: so clients find it
        size_bytes = len(encoded.data) + ENTRY_BYTES
        if size_bytes > MAX_VIEW_BYTES:
            return instead
        if self.size_bytes + size_bytes > MAX_VIEW_BYTES:  # it is full, if only of topics that are gone
            self._kept.clear()
            self.size_bytes = 0
        before = self._kept.get(topic.topic_id)
        self.size_bytes += size_bytes - (0 if before is None else before.size_bytes)
        self._kept[topic.topic_id] = _Kept(topic, topic.revision, instead, size_bytes)
        return instead


class ToldTopics:
    def __init__(self) -> None:
        self._views: dict[tuple[str, int], View] = {}

    def __len__(self) -> int:
        return len(self._views)

    def seen(self, listener: str, version: int, description: TopicDescription) -> View:
        """What was told of topics to others who asked so, while brokers were seen so."""
        view = self._views.get((listener, version))
        if view is None or view.description != description:
            self._views.pop((listener, version), None)
            while len(self._views) >= MAX_VIEWS:
                del self._views[next(iter(self._views))]
            view = self._views[listener, version] = View(version, description)
        return view
