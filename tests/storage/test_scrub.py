"""A scrub finds what is damaged, all of it and nothing else, and tells the log."""

from collections.abc import Callable
from random import Random
from types import ModuleType

import pytest
from mutants.plant import assert_noticed
from support.log_fixtures import NOW_MS, append, batch, open_log

from trioka.protocol.errors import CorruptMessage
from trioka.storage import scrub
from trioka.storage.log import Log
from trioka.testing.disks.memory_disk import MemoryDisk

COUNT = 30


@pytest.fixture
def storage() -> ModuleType:
    return scrub


def filled() -> Log:
    """One record to a batch, in three or four segments."""
    log = open_log()
    for number in range(COUNT):
        append(log, f"{number}:{'x' * 20}", epoch=number // 12)
    log.sync()
    return log


def flip(log: Log, path: str, position: int, bit: int) -> None:
    disk = log.files.disk
    assert isinstance(disk, MemoryDisk)
    disk.flip_bit(path, position, bit)
    log.files.close()


def scrubbed(storage: ModuleType, log: Log) -> list[tuple[int, int]]:
    """The offsets that a scrub of all segments finds damaged, and did not know."""
    found = []
    for segment in list(log.segments):
        work = storage.SegmentScrub(log, segment)
        work.run()
        found += work.note(log)
    return [(damage.first_offset, damage.end_offset) for damage in found]


def test_of_a_whole_log_nothing_is_found(storage: ModuleType) -> None:
    log = filled()
    assert scrubbed(storage, log) == []
    assert not log.quarantine


def test_every_flipped_bit_is_found_where_it_is(storage: ModuleType) -> None:
    """But for the leader epoch of a batch, if it is still in order: it is in no checksum."""
    random = Random(1)
    for segment in filled().segments:
        places = list(segment.places())
        for place in places:
            for where in (6, *random.sample([at for at in range(place.size) if not 12 <= at < 16], 4)):
                log = filled()
                flip(log, segment.log_path, place.position + where, random.randrange(8))
                assert scrubbed(storage, log) == [(place.base_offset, place.base_offset + 1)], where
                with pytest.raises(CorruptMessage):
                    log.read(place.base_offset, 100)


def test_damage_of_several_batches_is_separate_and_found_once(storage: ModuleType) -> None:
    log = filled()
    first = log.segments[0]
    places = list(first.places())
    for number in (0, 2, 3, 6):
        flip(log, first.log_path, places[number].position + 70, 1)
    assert scrubbed(storage, log) == [(0, 1), (2, 4), (6, 7)]
    assert scrubbed(storage, log) == [], "it is known now"
    flip(log, first.log_path, places[4].position + 70, 1)
    flip(log, first.log_path, places[8].position + 70, 1)
    assert scrubbed(storage, log) == [(4, 5), (8, 9)], "what stands next to known damage, and behind it"


def test_nothing_is_noted_of_a_log_that_was_cut_or_closed_meanwhile(storage: ModuleType) -> None:
    def cut(log: Log) -> None:
        log.truncate_to(COUNT - 1, now_ms=NOW_MS)
        log.append_as_follower(batch("other", base_offset=COUNT - 1, leader_epoch=5), now_ms=NOW_MS)

    for change in (cut, Log.close_handles):
        log = filled()
        active = log.segments.active
        flip(log, active.log_path, active.size - 1, 1)
        work = storage.SegmentScrub(log, active)
        work.run()
        assert work.found
        change(log)
        assert work.note(log) == []
        assert not log.quarantine


class ColdFile:
    """Of which nothing is in memory."""

    def __init__(self, file: object) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def is_resident(self, offset: int, size: int) -> bool:
        return False


def test_what_has_left_memory_is_not_believed_any_more(storage: ModuleType) -> None:
    log = filled()
    segment = log.segments[0]
    assert segment.checked.covers(0, segment.size)
    work = storage.SegmentScrub(log, segment)
    work._held._handle.file = ColdFile(work._held.file)
    work.run()
    assert work.note(log) == []
    assert not segment.checked.covers(0, 1)


MISTAKES: list[tuple[str, str, Callable[[ModuleType], None]]] = [
    (
        "scan(self._held.file, end=end, base_offset=self._segment.base_offset, "
        "position=self._position, last_offset=self._last_offset, epoch=self._epoch, "
        "limit=self._limit)",
        "scan(self._held.file, end=end, base_offset=self._segment.base_offset, "
        "position=self._position, last_offset=self._last_offset, epoch=self._epoch)",
        test_every_flipped_bit_is_found_where_it_is,
    ),
    (" or log.cuts != self._cuts", "", test_nothing_is_noted_of_a_log_that_was_cut_or_closed_meanwhile),
    ("            segment.checked.cut(0)\n", "            pass\n", test_what_has_left_memory_is_not_believed_any_more),
    (
        "offset - 1",
        "self._last_offset",
        test_damage_of_several_batches_is_separate_and_found_once,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Callable[[ModuleType], None]) -> None:
    assert_noticed(scrub, right, wrong, rule)
