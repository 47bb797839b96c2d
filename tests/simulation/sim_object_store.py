"""The object store of simulated brokers (tiered_brokers_world.py): one for all of them, with its own faults.

A request takes time, and takes effect at a moment of its own, whatever became of the process that sent it: it may be
refused, may succeed without a response, and may hang and take effect long afterwards. Listings may leave out the newest
objects. `on_delete` is called before an object goes, `on_create` after an object was created under a condition.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from random import Random
from typing import Any, TypeVar

import trio
from simulation.virtual_time import SimClock

from trioka.broker.tier.store.object_store import (
    MAX_OBJECT_BYTES,
    Data,
    Listing,
    ObjectInfo,
    ObjectNotFound,
    ObjectStoreError,
    ObjectStoreTimeout,
)

T = TypeVar("T")

LATENCY_S = (0.001, 0.03)
HANGS_S = (0.2, 1.5)  # until the client gives up
EFFECT_S = (0.05, 6.0)  # until a request that hangs takes effect
NEWEST_S = 0.5  # how late a listing may be
NEVER = 0.3  # of the requests that hang


class SimBucket:
    """What is stored, and how bad the store is."""

    def __init__(self, clock: SimClock, random: Random, failures: float) -> None:
        self.clock = clock
        self.random = random
        self.failures = failures
        self.objects: dict[str, tuple[bytes, float]] = {}  # with the time of their creation
        self.requests = self.faults = 0
        self.unfinished_uploads = 0
        self.on_delete: Callable[[str], None] = lambda key: None
        self.ages_s = 0.0  # by which all objects seem older than they are

    def delete(self, key: str) -> None:
        if key in self.objects:
            self.on_delete(key)
            del self.objects[key]

    async def request(self, effect: Callable[[], T], *, changes: bool = True) -> T:
        """The result of an effect that takes place in the store at some moment."""
        self.requests += 1
        delay = self.random.uniform(*LATENCY_S)
        kind = self.random.choice(("refused", "unanswered", "hangs")) if self.random.random() < self.failures else ""
        if kind:
            self.faults += 1
        if kind == "refused":
            await trio.sleep(delay)
            raise ObjectStoreError("503 Slow Down")
        if kind:
            if changes and (kind == "unanswered" or self.random.random() >= NEVER):
                later = delay if kind == "unanswered" else self.random.uniform(*EFFECT_S)
                self.clock.after(later, lambda: _quietly(effect))
            await trio.sleep(self.random.uniform(*HANGS_S))
            raise ObjectStoreTimeout("no answer")
        is_done = trio.Event()
        found: list[Any] = []

        def act() -> None:
            try:
                found.append(effect())
            except ObjectStoreError as error:
                found.append(error)
            is_done.set()

        self.clock.after(delay, act)
        await is_done.wait()
        if isinstance(found[0], ObjectStoreError):
            raise found[0]
        result: T = found[0]
        return result


def _quietly(effect: Callable[[], object]) -> None:
    """The client does not see the result."""
    try:
        effect()
    except ObjectStoreError:
        return


class SimObjectStore:
    """The client of one broker (broker/tier/store/object_store.py)."""

    url = "s3://simulated"

    def __init__(self, bucket: SimBucket) -> None:
        self._bucket = bucket

    def _set(self, key: str, data: bytes) -> None:
        self._bucket.objects[key] = (data, self._bucket.clock.current_time())

    async def create(self, key: str, data: Data) -> bool:
        content = bytes(data)

        def effect() -> bool:
            if key in self._bucket.objects:
                return self._bucket.objects[key][0] == content
            self._set(key, content)
            return True

        return await self._bucket.request(effect)

    async def put(self, key: str, data: Data) -> None:
        content = bytes(data)
        await self._bucket.request(lambda: self._set(key, content))

    def _read(self, key: str) -> bytes:
        if key not in self._bucket.objects:
            raise ObjectNotFound(f"there is no {key}")
        return self._bucket.objects[key][0]

    async def get(self, key: str, max_bytes: int = MAX_OBJECT_BYTES) -> memoryview:
        data = await self._bucket.request(lambda: self._read(key), changes=False)
        if len(data) > max_bytes:
            raise ObjectStoreError(f"{key} has {len(data)} bytes")
        return memoryview(data)

    async def get_range(self, key: str, start: int, length: int) -> memoryview:
        data = await self._bucket.request(lambda: self._read(key), changes=False)
        return memoryview(data)[start : start + length]

    async def size(self, key: str) -> int:
        return len(await self._bucket.request(lambda: self._read(key), changes=False))

    async def list(self, prefix: str) -> Listing:
        def effect() -> Listing:
            now = self._bucket.clock.current_time()
            is_late = self._bucket.failures and self._bucket.random.random() < self._bucket.failures
            return [
                ObjectInfo(key, len(data), int((created - self._bucket.ages_s) * 1000))
                for key, (data, created) in sorted(self._bucket.objects.items())
                if key.startswith(prefix) and not (is_late and created > now - NEWEST_S)
            ]

        return await self._bucket.request(effect, changes=False)

    async def list_pages(self, prefix: str) -> AsyncIterator[Listing]:
        yield await self.list(prefix)

    async def delete(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            await self._bucket.request(lambda key=key: self._bucket.delete(key))  # type: ignore[misc]

    async def open_writer(self, key: str, parts_at_once: int = 4) -> "SimWriter":
        await self._bucket.request(lambda: None)
        return SimWriter(self._bucket, key)


class SimWriter:
    """Parts that no reader sees until the upload is completed."""

    def __init__(self, bucket: SimBucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._parts: list[bytes] | None = []
        bucket.unfinished_uploads += 1

    async def write(self, data: Data) -> None:
        parts, content = self._take(), bytes(data)
        await self._bucket.request(lambda: parts.append(content))
        self._parts = parts

    async def close(self) -> None:
        data = b"".join(self._take())
        now = self._bucket.clock.current_time

        def effect() -> None:
            self._bucket.objects[self._key] = (data, now())

        await self._bucket.request(effect)
        self._bucket.unfinished_uploads -= 1

    def _take(self) -> list[bytes]:
        """A writer that failed is not used again."""
        parts, self._parts = self._parts, None
        if parts is None:
            raise ObjectStoreError(f"the upload of {self._key} failed before, or was abandoned")
        return parts

    def abandon(self) -> None:
        self._parts = None
