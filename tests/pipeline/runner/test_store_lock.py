"""The lock of a checkpoint on an object store: one holder, whatever dies or is late."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from mutants.plant import assert_noticed
from obstore.store import MemoryStore
from support.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY, moto_s3

from trioka.pipeline.errors import InvalidPipeline, PipelineFailed
from trioka.pipeline.runner import store_lock
from trioka.pipeline.runner.store_lock import LEASE_S, MARGIN_S, RENEW_S, has_store_lock, open_store

ADDRESS = "s3a://bucket/checkpoint"


class Clock:
    """Time that passes only when somebody waits; `each` is called then."""

    def __init__(self) -> None:
        self.now = 100.0
        self.each: list[Any] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for call in self.each:
            call()


def lock(module: ModuleType, store: Any, owner: str, clock: Clock) -> Any:
    made = module.StoreLock(store, ADDRESS, owner, clock=clock, wait=clock.wait)
    made._thread.start = lambda: None  # the test renews it
    return made


def a_second_driver_is_refused_while_the_first_lives(module: ModuleType, stores: Sequence[Any] = ()) -> None:
    clock = Clock()
    store, other = stores or [MemoryStore()] * 2
    first = lock(module, store, "first", clock)
    first.take()
    clock.each.append(first.renew)
    with pytest.raises(InvalidPipeline, match=f"Another driver runs this pipeline: it holds the checkpoint {ADDRESS}"):
        lock(module, other, "second", clock).take()
    first.confirm()


def a_dead_driver_is_followed_after_its_lease_and_delivers_nothing_more(module: ModuleType) -> None:
    store, clock = MemoryStore(), Clock()
    first, second = lock(module, store, "first", clock), lock(module, store, "second", clock)
    first.take()
    begun = clock.now
    second.take()
    assert clock.now - begun > LEASE_S
    second.confirm()
    with pytest.raises(PipelineFailed, match="is lost"):
        first.confirm()
    first.renew()
    clock.now = begun
    with pytest.raises(PipelineFailed, match="is lost"):
        first.confirm()


def a_holder_that_cannot_renew_stops_before_the_lease_ends(module: ModuleType) -> None:
    clock = Clock()
    first = lock(module, MemoryStore(), "first", clock)
    first.take()
    clock.now += LEASE_S - MARGIN_S + 1
    with pytest.raises(PipelineFailed, match="Nothing more is written"):
        first.confirm()


def a_released_lock_is_free_at_once(module: ModuleType) -> None:
    store, clock = MemoryStore(), Clock()
    first, second = lock(module, store, "first", clock), lock(module, store, "second", clock)
    first.take()
    first.release()
    begun = clock.now
    second.take()
    assert clock.now == begun
    second.confirm()


def two_that_find_a_dead_holder_do_not_both_follow_it(module: ModuleType) -> None:
    store, clock = MemoryStore(), Clock()
    lock(module, store, "dead", clock).take()
    second, third = lock(module, store, "second", clock), lock(module, store, "third", clock)
    late = Clock()
    late.now = clock.now
    found = third._read()
    second.take()
    assert not third._try_write(found[1])
    second.confirm()


RULES = (
    a_second_driver_is_refused_while_the_first_lives,
    a_dead_driver_is_followed_after_its_lease_and_delivers_nothing_more,
    a_holder_that_cannot_renew_stops_before_the_lease_ends,
    a_released_lock_is_free_at_once,
    two_that_find_a_dead_holder_do_not_both_follow_it,
)
MISTAKES = (
    (a_second_driver_is_refused_while_the_first_lives, 'self._wrote("create")', 'self._wrote("overwrite")'),
    (a_dead_driver_is_followed_after_its_lease_and_delivers_nothing_more, "self._is_lost = True", "pass"),
    (
        a_holder_that_cannot_renew_stops_before_the_lease_ends,
        "self._clock() - self._written > LEASE_S - MARGIN_S",
        "False",
    ),
    (
        two_that_find_a_dead_holder_do_not_both_follow_it,
        "self._wrote(version)",
        'self._wrote("overwrite")',
    ),
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_one_driver_has_the_checkpoint(rule: Any) -> None:
    rule(store_lock)


@pytest.mark.parametrize(("rule", "right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(rule: Any, right: str, wrong: str) -> None:
    assert_noticed(store_lock, right, wrong, rule)


def test_a_server_of_s3_lets_one_driver_in() -> None:
    with moto_s3() as endpoint:
        hadoop = {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET_KEY,
        }
        address = f"s3a://{BUCKET}/checkpoints/shop"
        stores = [open_store(address, hadoop.get) for _ in range(2)]
        a_second_driver_is_refused_while_the_first_lives(store_lock, stores)


def test_an_address_that_no_client_knows_is_one_sentence() -> None:
    assert not has_store_lock("hdfs://name/checkpoint") and not has_store_lock("/checkpoint")
    with pytest.raises(InvalidPipeline, match="is no address of a store"):
        open_store("s3a://", lambda _: None)


def test_a_lease_is_longer_than_what_is_subtracted_from_it() -> None:
    assert 2 * RENEW_S <= LEASE_S - MARGIN_S
