"""Cache of encoded topics for Metadata responses.

Clients request metadata when they start, every few minutes, and all at once after a leader change. Encoding a partition
takes 4 µs on the event loop: 45 ms per request for ten thousand partitions. Nearly all responses are equal, so the
cache keeps the encoding of each topic.

An entry is valid while the topic is the same object with the same `Topic.revision`, and the view of the brokers through
the listener (`TopicDescription`) is unchanged. Each lookup checks this, so that changes need not invalidate the cache.
Not cached are topics with authorized operations, which depend on the client, and topics with errors, which are counted
in each response and do not last.
"""

from typing import Final, NamedTuple, cast

from trioka.cluster.image.topics import Topic
from trioka.protocol.codec import encode_part
from trioka.protocol.messages.metadata import MetadataResponse

from .topic_description import TopicDescription

# A partition with three replicas takes about 50 bytes, so a view holds eighty thousand of them. The clients of a
# cluster use a few versions and one or two listeners. Further views evict the oldest, so that their topics are encoded
# again.
MAX_VIEW_BYTES: Final = 4 * 1024 * 1024
MAX_VIEWS: Final = 8
ENTRY_OVERHEAD_BYTES: Final = 300  # per topic, besides the encoded bytes

TopicResult = MetadataResponse.Topic


class _CacheEntry(NamedTuple):
    topic: Topic
    revision: int
    result: TopicResult  # encoded
    size_bytes: int


class CacheView:
    """Encoded topics for one (listener, version), valid while the view of the brokers is unchanged."""

    __slots__ = ("_entries", "_version", "description", "size_bytes")

    def __init__(self, version: int, description: TopicDescription) -> None:
        self.description = description
        self._version = version
        self._entries: dict[bytes, _CacheEntry] = {}  # by id
        self.size_bytes = 0

    def get(self, topic: Topic) -> TopicResult | None:
        """The encoded topic for a response; None if it is not cached or outdated."""
        entry = self._entries.get(topic.topic_id)
        if entry is None or entry.topic is not topic or entry.revision != topic.revision:
            return None
        return entry.result

    def put(self, topic: Topic, result: TopicResult) -> TopicResult:
        """Cache a topic unless it has errors. Returns its encoding, or `result` itself, for use in a response."""
        if result.error_code or any(partition.error_code for partition in result.partitions):
            return result
        encoded = encode_part(MetadataResponse, self._version, result)
        # Messages declare lists of structs; the encoder also accepts encoded parts in them.
        cached = cast(TopicResult, encoded)
        size_bytes = len(encoded.data) + ENTRY_OVERHEAD_BYTES
        if size_bytes > MAX_VIEW_BYTES:
            return cached
        if self.size_bytes + size_bytes > MAX_VIEW_BYTES:  # full, perhaps of deleted topics: start over
            self._entries.clear()
            self.size_bytes = 0
        previous = self._entries.get(topic.topic_id)
        self.size_bytes += size_bytes - (0 if previous is None else previous.size_bytes)
        self._entries[topic.topic_id] = _CacheEntry(topic, topic.revision, cached, size_bytes)
        return cached


class MetadataResponseCache:
    def __init__(self) -> None:
        self._views: dict[tuple[str, int], CacheView] = {}

    def __len__(self) -> int:
        return len(self._views)

    def view_for(self, listener: str, version: int, description: TopicDescription) -> CacheView:
        """The view for (listener, version). A new, empty one if the description of the brokers has changed."""
        view = self._views.get((listener, version))
        if view is None or view.description != description:
            self._views.pop((listener, version), None)
            while len(self._views) >= MAX_VIEWS:
                del self._views[next(iter(self._views))]
            view = self._views[listener, version] = CacheView(version, description)
        return view
