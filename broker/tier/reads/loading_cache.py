"""A cache of values that are loaded once, however many wait for them, and that are limited by their bytes.

A load runs in a task of its own: who waits for it may give up, and the value is there for the next request. A failed
load is not kept. The least recently used values go first; a value that is larger than the limit is handed out and not
kept.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Generic, TypeVar

import trio

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

StartSoon = Callable[..., Any]  # of a nursery


class _Load(Generic[V]):
    __slots__ = ("done", "error", "value")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.value: V | None = None
        self.error: Exception | None = None


class LoadingCache(Generic[K, V]):
    def __init__(
        self,
        start_soon: StartSoon,
        load: Callable[[K], Awaitable[V]],
        size_of: Callable[[V], int],
        *,
        max_bytes: int,
        max_ahead: int,
    ) -> None:
        """`max_ahead` is the number of loads up to which `load_ahead` begins another one."""
        self._start_soon: Final = start_soon
        self._load: Final = load
        self._size_of: Final = size_of
        self.max_bytes = max_bytes
        self._max_ahead: Final = max_ahead
        self._loads: dict[K, _Load[V]] = {}
        self._values: OrderedDict[K, V] = OrderedDict()
        self.bytes = 0
        self.hits = self.misses = 0

    def __contains__(self, key: K) -> bool:
        return key in self._values

    async def get(self, key: K) -> V:
        """Raises what the load raises."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
            self.hits += 1
            return value
        self.misses += 1
        load = self._loads.get(key) or self._begin(key)
        await load.done.wait()
        if load.error is not None:
            raise load.error
        assert load.value is not None
        return load.value

    def load_ahead(self, key: K) -> None:
        """Begin to load what will be needed, unless there are enough loads already."""
        if key not in self._values and key not in self._loads and len(self._loads) < self._max_ahead:
            self._begin(key)

    def drop(self, key: K) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self.bytes -= self._size_of(value)

    def drop_if(self, is_unwanted: Callable[[K], bool]) -> None:
        for key in [key for key in self._values if is_unwanted(key)]:
            self.drop(key)

    def _begin(self, key: K) -> _Load[V]:
        load = _Load[V]()
        self._start_soon(self._run, key, load)  # raises, if the nursery has ended
        self._loads[key] = load
        return load

    async def _run(self, key: K, load: _Load[V]) -> None:
        try:
            load.value = await self._load(key)
        except Exception as error:
            load.error = error
        else:
            self._keep(key, load.value)
        finally:
            del self._loads[key]
            if load.value is None and load.error is None:
                load.error = trio.BrokenResourceError("the load was cancelled")
            load.done.set()

    def _keep(self, key: K, value: V) -> None:
        size = self._size_of(value)
        if size > self.max_bytes:
            return
        self.drop(key)
        self._values[key] = value
        self.bytes += size
        while self.bytes > self.max_bytes:
            _, oldest = self._values.popitem(last=False)
            self.bytes -= self._size_of(oldest)
