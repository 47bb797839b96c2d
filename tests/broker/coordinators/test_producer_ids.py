"""Ids of producers: from blocks, each once, however many ask."""

from types import ModuleType

import pytest
import trio
from mutants.plant import Rule, assert_noticed, within

from trioka.broker.coordinators import producer_ids
from trioka.cluster.producer_ids import ProducerIdBlock

BLOCK = 5


class Blocks:
    """A controller that takes its time."""

    def __init__(self) -> None:
        self.given = 0

    async def allocate(self) -> ProducerIdBlock:
        first = 100 * self.given
        self.given += 1
        await trio.lowlevel.checkpoint()
        return ProducerIdBlock(first=first, size=BLOCK)


@pytest.fixture
def broker() -> ModuleType:
    return producer_ids


def test_all_waiters_share_one_block_and_no_id_is_used_twice(broker: ModuleType) -> None:
    blocks, taken = Blocks(), []

    async def test() -> None:
        ids = broker.ProducerIds(blocks.allocate)

        async def take() -> None:
            taken.append(await ids.take())

        async with trio.open_nursery() as nursery:
            for _ in range(2 * BLOCK):
                nursery.start_soon(take)
        assert ids.take_nowait() is None

    trio.run(test)
    assert sorted(taken) == [*range(BLOCK), *range(100, 100 + BLOCK)]
    assert blocks.given == 2


def test_a_block_that_cannot_be_had_is_asked_for_again(broker: ModuleType) -> None:
    blocks = Blocks()

    async def fail() -> ProducerIdBlock:
        raise OSError("no quorum")

    async def test() -> None:
        ids = broker.ProducerIds(fail)
        with pytest.raises(OSError, match="no quorum"):
            await ids.take()
        ids._allocate = blocks.allocate
        assert await ids.take() == 0

    trio.run(test)


MISTAKES = [
    ("block.first + block.size", "block.first + block.size + 1"),
    (within("ProducerIds.take", "self._next == self._end"), "True"),
    ("return self._next - 1", "return self._next"),
]


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str) -> None:
    rule: Rule = test_all_waiters_share_one_block_and_no_id_is_used_twice
    assert_noticed(producer_ids, right, wrong, rule)
