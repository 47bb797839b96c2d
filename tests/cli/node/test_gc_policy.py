"""What a long collection has left over is not looked through again."""

import gc
from collections.abc import Iterator

import pytest

from trioka.cli.node.gc_policy import Watch


@pytest.fixture(autouse=True)
def whole_again() -> Iterator[None]:
    """Whatever a test takes out of collections comes back."""
    callbacks = list(gc.callbacks)
    yield
    gc.callbacks[:] = callbacks
    gc.unfreeze()


def collected(watch: Watch, generation: int) -> int:
    """How many objects were taken out by a collection."""
    gc.collect()  # since Python 3.12 a whole collection takes out immortal objects by itself
    gc.callbacks.append(watch)
    before = gc.get_freeze_count()
    gc.collect(generation)
    return gc.get_freeze_count() - before


def test_what_is_left_by_a_long_collection_is_taken_out() -> None:
    kept = [[number] for number in range(10_000)]
    assert collected(Watch(long_s=0.0), 2) >= len(kept)
    assert collected(Watch(long_s=0.0), 2) < len(kept), "once"


def test_what_is_left_by_a_short_or_a_partial_one_stays_in() -> None:
    assert collected(Watch(long_s=60.0), 2) == 0
    assert collected(Watch(long_s=-1.0), 1) == 0


def test_what_is_taken_out_goes_when_its_last_user_does() -> None:
    kept = [[number] for number in range(10_000)]
    assert collected(Watch(long_s=0.0), 2)
    before = gc.get_freeze_count()
    kept.clear()
    assert before - gc.get_freeze_count() >= 10_000
