"""Batches out of ranges of a segment: whole, checked, where they should be."""

from types import ModuleType

import pytest
import trio
from mutants.plant import Rule, assert_noticed
from support.log_fixtures import batch
from support.serving import on_trio

from trioka.broker.tier import batch_range
from trioka.broker.tier.reader import _extract_from
from trioka.protocol.batch import headers
from trioka.protocol.errors import CorruptMessage


@pytest.fixture
def tier() -> ModuleType:
    return batch_range


BATCHES = [
    bytes(batch("a" * (n + 1), "b", base_offset=100 + 2 * n, leader_epoch=3, timestamp=1000 + n)) for n in range(6)
]
SEGMENT = memoryview(b"".join(BATCHES))
SIZES = [len(each) for each in BATCHES]


def wanted(tier: ModuleType, offset: int = 100, **changes: object) -> object:
    anchor = tier.Anchor(100, None, True)
    made = tier.BatchRangeRequest(
        offset=offset, end_offset=1000, max_bytes=10_000, at_least_one=True, anchor=anchor, is_last_data=True
    )
    return made._replace(**changes)


def test_whole_batches_from_the_one_that_has_the_offset(tier: ModuleType) -> None:
    assert tier.extract(SEGMENT, wanted(tier)) == (SEGMENT, 112, 0)
    found = tier.extract(SEGMENT, wanted(tier, 103))
    assert bytes(found.records) == b"".join(BATCHES[1:]) and found.next_offset == 112


def test_not_more_than_allowed_but_the_first_batch_whole(tier: ModuleType) -> None:
    two = SIZES[0] + SIZES[1]
    assert tier.extract(SEGMENT, wanted(tier, max_bytes=two)).next_offset == 104
    assert tier.extract(SEGMENT, wanted(tier, max_bytes=two - 1)).next_offset == 102
    assert tier.extract(SEGMENT, wanted(tier, max_bytes=1)).next_offset == 102
    assert tier.extract(SEGMENT, wanted(tier, max_bytes=1, at_least_one=False)) == (b"", 100, 0)


def test_nothing_from_the_end_offset_on(tier: ModuleType) -> None:
    assert tier.extract(SEGMENT, wanted(tier, end_offset=104)).next_offset == 104
    assert tier.extract(SEGMENT, wanted(tier, end_offset=103)).next_offset == 102
    assert tier.extract(SEGMENT, wanted(tier, 102, end_offset=102)) == (b"", 102, 0)


def test_a_batch_that_is_cut_off_needs_more_bytes_only_if_it_is_the_first(tier: ModuleType) -> None:
    for cut in range(len(SEGMENT)):
        found = tier.extract(SEGMENT[:cut], wanted(tier, 104, is_last_data=False))
        whole = [header for header in headers(SEGMENT[:cut], partial_tail=True) if header.base_offset >= 104]
        if whole:
            assert found.next_offset == whole[-1].next_offset and not found.missing_bytes
        else:
            assert found.missing_bytes > 0 and not len(found.records)


def test_a_segment_that_ends_inside_a_batch_is_damaged(tier: ModuleType) -> None:
    for cut in (1, 60, SIZES[0] - 1, len(SEGMENT) - 1):
        with pytest.raises(CorruptMessage, match="ends inside a batch"):
            tier.extract(SEGMENT[:cut], wanted(tier))


def test_every_flipped_bit_is_noticed(tier: ModuleType) -> None:
    whole = bytes(tier.extract(SEGMENT, wanted(tier)).records)
    for position in range(len(SEGMENT)):
        data = bytearray(SEGMENT)
        data[position] ^= 4
        try:
            found = tier.extract(memoryview(data), wanted(tier))
        except CorruptMessage:
            continue
        # The leader epoch of a batch is under no checksum, in Kafka either.
        start = max(sum(SIZES[:n]) for n in range(6) if sum(SIZES[:n]) <= position)
        assert 12 <= position - start < 16 and len(found.records) == len(whole), position


def test_an_index_entry_must_agree_with_its_batch(tier: ModuleType) -> None:
    rest = SEGMENT[SIZES[0] :]
    right = tier.Anchor(100, 103, True)
    assert tier.extract(rest, wanted(tier, 103, anchor=right)).next_offset == 112
    with pytest.raises(CorruptMessage, match="a batch has the offsets 102 to 103"):
        tier.extract(rest, wanted(tier, 103, anchor=tier.Anchor(100, 105, True)))


def test_gaps_are_allowed_where_the_manifest_does_not_exclude_them(tier: ModuleType) -> None:
    gap = memoryview(BATCHES[0] + BATCHES[3])
    loose = tier.Anchor(100, None, False)
    assert tier.extract(gap, wanted(tier, 102, anchor=loose)).next_offset == 108
    with pytest.raises(CorruptMessage):
        tier.extract(gap, wanted(tier, 102))
    with pytest.raises(CorruptMessage):
        tier.extract(memoryview(BATCHES[3] + BATCHES[0]), wanted(tier, anchor=loose))


def test_a_segment_that_has_nothing_more_says_where_to_go_on(tier: ModuleType) -> None:
    found = tier.extract(SEGMENT, wanted(tier, 112, end_offset=120, anchor=tier.Anchor(100, None, False)))
    assert found == (b"", 120, 0)
    found = tier.extract(SEGMENT, wanted(tier, 112, end_offset=120, is_last_data=False))
    assert found.missing_bytes > 0


def test_ranges_are_joined_only_if_they_must_be(tier: ModuleType) -> None:
    first, second = memoryview(bytes(range(10))), memoryview(bytes(range(10, 20)))
    assert tier.joined([first, second], 3, 7).obj is first.obj
    assert bytes(tier.joined([first, second], 8, 5)) == bytes(range(8, 13))
    assert bytes(tier.joined([first, second], 8, 100)) == bytes(range(8, 20))


def test_a_record_is_found_by_its_time(tier: ModuleType) -> None:
    found = tier.first_from(SEGMENT, 1003, 100, 1000)
    assert (found.offset, found.timestamp, found.leader_epoch) == (105, 1003, 3)
    assert tier.first_from(SEGMENT, 1003, 106, 1000).offset == 106
    assert tier.first_from(SEGMENT, 1003, 100, 105) is None
    assert tier.first_from(SEGMENT, 5000, 100, 1000) is None


@on_trio
async def test_batches_are_never_checked_on_the_event_loop() -> None:
    assert trio.lowlevel.in_trio_run()
    with pytest.raises(AssertionError, match="on the event loop"):
        _extract_from([SEGMENT], 0, 100, wanted(batch_range))  # type: ignore[arg-type]


MISTAKES: list[tuple[str, str, Rule]] = [
    ("not check_crc(data, header)", "not header", test_every_flipped_bit_is_noticed),
    ("expected.check(header)", "pass", test_every_flipped_bit_is_noticed),
    ("is_too_large or header.last_offset >= wanted.end_offset", "is_too_large", test_nothing_from_the_end_offset_on),
    ("(found or not wanted.at_least_one)", "not wanted.at_least_one",
     test_not_more_than_allowed_but_the_first_batch_whole),
    ("Extract(NOTHING, next_offset, HEADER_SIZE)", "Extract(NOTHING, next_offset)",
     test_a_segment_that_has_nothing_more_says_where_to_go_on),
    ("is_right and header.last_offset == self.last_offset", "is_right",
     test_an_index_entry_must_agree_with_its_batch),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(batch_range, right, wrong, rule)
