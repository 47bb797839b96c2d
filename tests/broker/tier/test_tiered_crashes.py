"""A leader that dies at any request to the object store: nothing is lost, nothing is deleted early, nothing is left."""

from os import utime
from pathlib import Path
from typing import Any

import pytest
import trio
from support.broker_cluster import Cluster, on_cluster, running_cluster
from support.replicated_topics import leader, replica, wait_leader
from support.tiered_topics import (
    SEGMENT_BYTES,
    closed_end,
    complete,
    create_tiered,
    fill,
    finished,
    objects,
    remote,
    tier_of,
    tiered,
    until_copied,
)

from trioka.broker.broker import Broker

STEPS_OF_A_COPY = 3  # data, indexes, manifest
STEPS_OF_A_DELETION = 3  # of manifest, indexes, data


class DyingStore:
    """An object store whose broker dies before, or after, the k-th request that concerns a segment."""

    def __init__(self, broker: Broker, number: int, *, after: bool) -> None:
        self.store = tier_of(broker).store
        self.url = self.store.url
        self.has_died = trio.Event()
        self._broker = broker
        self._left = number
        self._after = after
        self._left_of_deletion = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def create(self, key: str, data: Any) -> bool:
        return bool(await self._counted(key, self.store.create, key, data))

    async def put(self, key: str, data: Any) -> None:
        await self._counted(key, self.store.put, key, data)

    async def delete(self, keys: list[str]) -> None:
        if self._left_of_deletion:
            self._left, self._left_of_deletion = self._left_of_deletion, 0
        await self._counted(keys[0], self.store.delete, keys)

    def die_at_deletion(self, number: int) -> None:
        """From the first deletion of an object on, requests count."""
        self._left_of_deletion = number

    async def _counted(self, key: str, call: Any, *arguments: Any) -> Any:
        if key.startswith("_trioka/"):
            return await call(*arguments)
        self._left -= 1
        if self._left == 0 and not self._after:
            await self._die()
        result = await call(*arguments)
        if self._left == 0:
            await self._die()
        return result

    async def _die(self) -> None:
        self.has_died.set()
        self._broker.die()
        await trio.sleep_forever()


class PausingStore(DyingStore):
    """A broker that stands still before the k-th request, as a stopped process does, and goes on later."""

    def __init__(self, broker: Broker, number: int) -> None:
        super().__init__(broker, number, after=False)
        self.goes_on = trio.Event()

    async def _die(self) -> None:
        self.has_died.set()
        await self.goes_on.wait()


async def at_rest(cluster: Cluster) -> int:
    """Waits until all that can be copied is, and nothing is copied or deleted. Returns the leader."""
    await cluster.until(lambda: leader(cluster) in cluster.brokers)
    await until_copied(cluster)
    node = await wait_leader(cluster)

    def rests() -> bool:
        partition = remote(cluster, node)
        return partition is not None and all(each.is_finished for each in partition.segments.values())

    await cluster.until(rests)
    return node


async def check(cluster: Cluster, store: Path) -> None:
    node = await at_rest(cluster)
    its_log = replica(cluster, node).log
    covered = its_log.log_start_offset
    for segment in finished(cluster, node):
        assert segment.start_offset <= covered
        covered = max(covered, segment.next_offset)
    assert covered == closed_end(cluster, node)
    for key in objects(store):
        utime(store / key, (1, 1))
    for broker in cluster.brokers.values():
        await tier_of(broker).sweep.sweep()
    assert len(complete(store)) == len(finished(cluster, node)) == len(objects(store)) / 3


@pytest.mark.parametrize(
    ("number", "after"),
    [
        pytest.param(number, after, marks=[] if (number, after) == (2, True) else [pytest.mark.nightly])
        for number in range(1, STEPS_OF_A_COPY + 1)
        for after in (False, True)
    ],
)
@on_cluster
async def test_a_leader_that_dies_at_a_request_of_a_copy_loses_and_leaves_nothing(
    tmp_path: Path, number: int, after: bool
) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 6)
        await until_copied(cluster)
        node = await wait_leader(cluster)
        dying = DyingStore(cluster[node], number, after=after)
        tier_of(cluster[node]).store = dying  # type: ignore[assignment]
        with trio.move_on_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fill, cluster, 6)
                await dying.has_died.wait()
                nursery.cancel_scope.cancel()
        assert dying.has_died.is_set()
        del cluster.brokers[node]
        await cluster.until(lambda: leader(cluster) not in (None, node))
        await fill(cluster, 6)
        await check(cluster, store)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[] if number == 2 else [pytest.mark.nightly])
        for number in range(1, STEPS_OF_A_DELETION + 1)
    ],
)
@on_cluster
async def test_a_leader_that_dies_at_a_request_of_a_deletion_leaves_nothing(tmp_path: Path, number: int) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster, retention_bytes=6 * SEGMENT_BYTES)
        await fill(cluster, 20)
        await until_copied(cluster)
        node = await wait_leader(cluster)
        dying = DyingStore(cluster[node], 10**6, after=True)
        tier_of(cluster[node]).store = dying  # type: ignore[assignment]
        dying.die_at_deletion(number)
        with trio.move_on_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fill, cluster, 100)
                await dying.has_died.wait()
                nursery.cancel_scope.cancel()
        assert dying.has_died.is_set()
        del cluster.brokers[node]
        await cluster.until(lambda: leader(cluster) not in (None, node))
        await fill(cluster, 6)
        await check(cluster, store)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=[] if number == STEPS_OF_A_COPY else [pytest.mark.nightly])
        for number in range(1, STEPS_OF_A_COPY + 1)
    ],
)
@on_cluster
async def test_a_leader_that_stands_still_in_a_copy_and_goes_on_when_it_is_deposed_completes_nothing(
    tmp_path: Path, number: int
) -> None:
    store = tmp_path / "store"
    async with running_cluster(tmp_path, **tiered(store)) as cluster:
        await create_tiered(cluster)
        await fill(cluster, 6)
        await until_copied(cluster)
        node = await wait_leader(cluster)
        deposed = cluster[node]
        held = PausingStore(deposed, number)
        tier_of(deposed).store = held  # type: ignore[assignment]
        await fill(cluster, 6)
        with trio.fail_after(20):
            await held.has_died.wait()
        cluster.isolate(node)
        del cluster.brokers[node]
        await cluster.until(lambda: leader(cluster) not in (None, node))
        await fill(cluster, 6)
        await at_rest(cluster)
        held.goes_on.set()
        cluster.brokers[node] = deposed
        cluster.heal()
        await cluster.until(lambda: leader(cluster) not in (None, node) and not deposed.partitions.get("t", 0).leads)
        await check(cluster, store)
