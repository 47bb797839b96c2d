"""The rate of bytes to and from the object store."""

from collections.abc import Awaitable, Callable

import trio
import trio.testing

from trioka.broker.tier.byte_rate_limit import ByteRateLimit


def on_a_mock_clock(test: Callable[[], Awaitable[None]]) -> None:
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0))


def test_bytes_wait_for_those_before_them() -> None:
    async def run() -> None:
        limit, began, ends = ByteRateLimit(lambda: 100), trio.current_time(), []

        async def acquire() -> None:
            await limit.acquire(250)
            ends.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(acquire)
        assert [round(each, 6) for each in ends] == [0, 2.5, 5]
        await trio.sleep(10)
        before = trio.current_time()
        await limit.acquire(1)
        assert trio.current_time() == before, "what was not used is not saved, and nothing is owed"

    on_a_mock_clock(run)


def test_a_higher_limit_takes_effect_for_those_who_wait() -> None:
    async def run() -> None:
        rate = 1
        limit = ByteRateLimit(lambda: rate)
        await limit.acquire(1_000_000)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(limit.acquire, 10)
            await trio.sleep(0.5)
            rate = 1_000_000_000
        assert trio.current_time() - began <= 1.5

    on_a_mock_clock(run)
