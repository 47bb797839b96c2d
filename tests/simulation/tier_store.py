"""A simulated object store: requests that fail, that succeed though the client sees a failure, that hang and take
effect later or never, and objects that a lifecycle rule deletes behind the cluster's back."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from trioka.cluster.remote_log.jobs import ManifestKey, ObjectKind, StoreFailed
from trioka.cluster.remote_log.metadata import RemoteSegment

Key = tuple[bytes, ObjectKind]
Content = tuple[object, ...]

TOMBSTONE: Content = ("tombstone",)
MAX_LATE = 20  # requests that hang at a time
LATEST_MS = 6 * 24 * 60 * 60 * 1000  # a request that hangs takes effect before a tombstone goes, or never


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    segment: RemoteSegment
    content: Content
    modified_ms: int


class SimStore:
    def __init__(self, random: Random, failures: float) -> None:
        self.objects: dict[Key, StoredObject] = {}
        self.expired: set[bytes] = set()  # segments that have lost objects
        self.is_fair = False
        self.now_ms = 0
        self.failed = 0
        self._random = random
        self._failures = failures
        self._late: list[tuple[int, Callable[[], object]]] = []  # with the time of the request

    def put(self, segment: RemoteSegment, kind: ObjectKind, content: Content) -> None:
        def do() -> bool:
            self.objects[segment.segment_id, kind] = StoredObject(
                segment=segment, content=content, modified_ms=self.now_ms
            )
            return True

        self._request(do)

    def create(self, segment: RemoteSegment, content: Content) -> bool:
        """At the manifest's key. True if it has the same content already, as a client that repeats itself sees it."""

        def do() -> bool:
            key = (segment.segment_id, ObjectKind.MANIFEST)
            there = self.objects.get(key)
            if there is not None:
                return there.content == content
            self.objects[key] = StoredObject(segment=segment, content=content, modified_ms=self.now_ms)
            return True

        return self._request(do)

    def read_manifest_key(self, segment: RemoteSegment) -> ManifestKey:
        there = self.objects.get((segment.segment_id, ObjectKind.MANIFEST))
        if not self.is_fair and self._random.random() < self._failures:
            raise StoreFailed("503")
        if there is None:
            return ManifestKey.NOTHING
        return ManifestKey.TOMBSTONE if there.content == TOMBSTONE else ManifestKey.MANIFEST

    def delete(self, segment: RemoteSegment, kind: ObjectKind) -> None:
        self._request(lambda: self.objects.pop((segment.segment_id, kind), None) is None or True)

    def expire(self, segment_id: bytes, kinds: list[ObjectKind]) -> None:
        """A lifecycle rule, or a hand."""
        self.expired.add(segment_id)
        for kind in kinds:
            self.objects.pop((segment_id, kind), None)

    def settle(self) -> None:
        """Fair weather: what hung takes effect now."""
        self.is_fair = True
        late, self._late = self._late, []
        for asked_ms, do in late:
            if self.now_ms - asked_ms < LATEST_MS:
                do()

    def step(self) -> None:
        """A request that hung takes effect, or never does."""
        if self._late:
            asked_ms, do = self._late.pop(self._random.randrange(len(self._late)))
            if self._random.random() < 0.7 and self.now_ms - asked_ms < LATEST_MS:
                do()

    def _request(self, do: Callable[[], bool]) -> bool:
        if self.is_fair or self._random.random() >= self._failures:
            return do()
        self.failed += 1
        kind = self._random.randrange(3)
        if kind == 1:
            do()
        elif kind == 2 and len(self._late) < MAX_LATE:
            self._late.append((self.now_ms, do))
        raise StoreFailed(("503", "timeout after success", "timeout")[kind])
