"""Values are loaded once, however many wait; failures are not kept; the bytes are bounded."""

from types import ModuleType
from typing import Any

import pytest
import trio
import trio.testing
from mutants.plant import Rule, assert_noticed
from support.serving import on_trio

from trioka.broker.tier.reads import loading_cache


class Source:
    """Loads a text of as many characters as its key says, when `gate` opens."""

    def __init__(self, nursery: trio.Nursery, module: ModuleType, *, max_bytes: int = 10, max_ahead: int = 2) -> None:
        self.loads: list[int] = []
        self.gate = trio.Event()
        self.failure: Exception | None = None
        self.cache: Any = module.LoadingCache(
            nursery.start_soon, self.load, len, max_bytes=max_bytes, max_ahead=max_ahead
        )

    async def load(self, key: int) -> str:
        self.loads.append(key)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return "x" * key


async def many_wait_for_one_load(module: ModuleType) -> None:
    async with trio.open_nursery() as nursery:
        source = Source(nursery, module)
        found: list[str] = []

        async def get() -> None:
            found.append(await source.cache.get(3))

        for _ in range(5):
            nursery.start_soon(get)
        await trio.testing.wait_all_tasks_blocked()
        source.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert found == ["xxx"] * 5 and source.loads == [3]
        assert await source.cache.get(3) == "xxx" and source.loads == [3]


async def a_failure_is_not_kept(module: ModuleType) -> None:
    async with trio.open_nursery() as nursery:
        source = Source(nursery, module)
        source.gate.set()
        source.failure = ValueError("once")
        with pytest.raises(ValueError, match="once"):
            await source.cache.get(3)
        source.failure = None
        assert await source.cache.get(3) == "xxx"


async def who_gives_up_does_not_end_the_load(module: ModuleType) -> None:
    async with trio.open_nursery() as nursery:
        source = Source(nursery, module)
        with trio.move_on_after(0.001):
            await source.cache.get(3)
        source.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert 3 in source.cache and source.loads == [3]


async def the_least_recently_used_goes_first(module: ModuleType) -> None:
    async with trio.open_nursery() as nursery:
        source = Source(nursery, module)
        source.gate.set()
        for key in (3, 4, 3, 5):
            await source.cache.get(key)
        assert [key for key in (3, 4, 5) if key in source.cache] == [3, 5] and source.cache.bytes == 8
        assert await source.cache.get(11) == "x" * 11, "larger than the limit: handed out"
        assert 11 not in source.cache and source.cache.bytes == 8
        source.cache.drop(3)
        source.cache.drop(3)
        assert source.cache.bytes == 5


async def loads_ahead_are_limited(module: ModuleType) -> None:
    async with trio.open_nursery() as nursery:
        source = Source(nursery, module)
        for key in (1, 2, 3, 1):
            source.cache.load_ahead(key)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(source.loads) == [1, 2]
        source.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        source.cache.load_ahead(1)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(source.loads) == [1, 2]


RULES = [
    many_wait_for_one_load,
    a_failure_is_not_kept,
    who_gives_up_does_not_end_the_load,
    the_least_recently_used_goes_first,
    loads_ahead_are_limited,
]


@pytest.mark.parametrize("rule", RULES)
def test_the_cache_keeps_its_rules(rule: Any) -> None:
    on_trio(rule)(loading_cache)


MISTAKES = [
    ("self._loads.get(key) or self._begin(key)", "self._begin(key)", many_wait_for_one_load),
    ("load.error = error", "load.error = trio.BrokenResourceError()", a_failure_is_not_kept),
    ("del self._loads[key]", "pass", a_failure_is_not_kept),
    ("self._values.move_to_end(key)", "pass", the_least_recently_used_goes_first),
    ("self.bytes > self.max_bytes", "False", the_least_recently_used_goes_first),
    ("size > self.max_bytes", "False", the_least_recently_used_goes_first),
    ("len(self._loads) < self._max_ahead", "self._loads is not None", loads_ahead_are_limited),
]


def alone(rule: Any) -> Rule:
    """Failures as they are, and not in a group."""

    def run(module: ModuleType) -> None:
        try:
            on_trio(rule)(module)
        except* Exception as group:
            failure = group.exceptions[0]
        else:
            return
        raise AssertionError(str(failure))

    return run


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Any) -> None:
    assert_noticed(loading_cache, right, wrong, alone(rule))
