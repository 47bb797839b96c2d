"""A log is synced by a worker thread while its own thread changes it, in every order: each mutation that there is,
against a sync and the checkpoint that follows it. After a power loss at any time the recovery point lies within the
log, nothing is in quarantine, and what was synced and not cut is there.
"""

from collections.abc import Callable, Iterator
from itertools import chain, cycle
from random import Random
from types import ModuleType
from typing import Any

import pytest
from mutants.catalog_logs import LOCKED_SYNC, UNLOCKED_SYNC
from mutants.plant import planted
from support.log_fixtures import NOW_MS, append, batch, values
from support.thread_schedules import WatchedLock, at_a_point, meet

from trioka.storage import cleaner, log, log_end, segments
from trioka.storage.directory import LogDirectory
from trioka.storage.layout import TopicPartition
from trioka.storage.log import Log
from trioka.storage.log_config import LogConfig
from trioka.storage.log_end import LogEnd
from trioka.storage.log_move import FutureLog, start_of
from trioka.storage.segments import Segments
from trioka.testing.disks.crash_models import CrashModel
from trioka.testing.disks.memory_disk import MemoryDisk

NAME = TopicPartition("orders", 0)
CONFIG = LogConfig(
    segment_bytes=250, index_interval_bytes=0, file_delete_delay_ms=0, cleanup_policy=frozenset({"compact", "delete"})
)
RECORDS = ["a1", "b1", "a2", "c1", "b2", "d1", "e1"]  # some three to a segment
SYNCED = 4
MODELS = cycle(CrashModel)


class MovableLog:
    """A log in a directory, of which the first records are durable, by the checkpoints too; and another directory."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        for path in ("/a", "/b"):
            self.disk.make_directory(path)
        self.disk.settle()
        self.directory, self.other = (self._open(path) for path in ("/a", "/b"))
        self.log = self.directory.create(NAME, CONFIG, now_ms=NOW_MS)
        for number, value in enumerate(RECORDS):
            if number == SYNCED:
                self.log.sync()
                self.directory.checkpoint()
            self.add(value)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.least = SYNCED  # so many records must be there after a power loss
        self.disk.before = at_a_point
        lock: Any = WatchedLock()
        self.log.lock = self.log.segments._lock = lock
        self.directory._writing = self.other._writing = WatchedLock()  # type: ignore[assignment]

    def _open(self, path: str) -> LogDirectory:
        return LogDirectory.open(self.disk, path, lambda name: CONFIG, now_ms=NOW_MS, threads=1)

    def add(self, value: str, epoch: int = 0) -> None:
        self.log.append_as_leader(batch(value, key=value[0]), leader_epoch=epoch, now_ms=NOW_MS)

    def power_loss(self) -> list[str] | None:
        """What is found after one, of another model each time. None: the log is gone."""
        found = None
        disk = self.disk.crash(next(MODELS), Random(0))
        for path in ("/a", "/b"):
            directory = LogDirectory.open(disk, path, lambda name: CONFIG, now_ms=NOW_MS, threads=1)
            opened = directory.logs.get(NAME)
            if opened is not None:
                assert not opened.quarantine, opened.quarantine.damages
                assert opened.report is None or not opened.report.missing_offsets, opened.report
                found = values(opened)
                append(opened, "x", epoch=9)
        return found


def sync(place: MovableLog) -> None:
    """In a worker thread, as housekeeping does it."""
    place.log.sync()
    place.directory.checkpoint()


# What the log's own thread does ---------------------------------------------------------------------------------------


def append_one(place: MovableLog) -> None:
    place.add("f1")


def append_copies(place: MovableLog) -> None:
    """As a follower does."""
    end = place.log.log_end_offset
    place.log.append_as_follower(batch("f1", base_offset=end, leader_epoch=0), now_ms=NOW_MS)


def roll(place: MovableLog) -> None:
    place.log.roll(now_ms=NOW_MS)
    place.add("f1")


def cut(place: MovableLog, offset: int) -> None:
    place.least = min(place.least, offset)
    place.log.truncate_to(offset, now_ms=NOW_MS)
    place.add("x1", epoch=1)


def cut_the_last(place: MovableLog) -> None:
    cut(place, len(RECORDS) - 1)


def cut_below_the_recovery_point(place: MovableLog) -> None:
    cut(place, 2)


def restart_before(place: MovableLog) -> None:
    place.least = 0
    place.log.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    place.add("x1", epoch=1)


def restart_behind(place: MovableLog) -> None:
    place.least = 0
    place.log.truncate_fully_and_start_at(100, now_ms=NOW_MS)
    place.add("x1", epoch=1)


def delete_records(place: MovableLog) -> None:
    place.least = 0
    place.log.delete_records_before(5)


def delete_segments(place: MovableLog) -> None:
    place.least = 0
    place.log.delete_segments(place.log.segments[:2], now_ms=NOW_MS)
    place.log.sweep(NOW_MS)


def delete_all_segments(place: MovableLog) -> None:
    place.least = 0
    place.log.delete_segments(list(place.log.segments), now_ms=NOW_MS)
    place.add("f1")


def compact(place: MovableLog) -> None:
    place.least = 0  # fewer records, and no key is lost: test_cleaner_crashes.py
    to_clean = cleaner.log_to_clean(place.log, place.log.first_dirty_offset, now_ms=NOW_MS)
    work = cleaner.clean(place.log, to_clean, now_ms=NOW_MS)
    while True:
        try:
            next(work)
        except StopIteration as done:
            place.directory.compacted(place.log, done.value.first_dirty_offset)
            return


def delete(place: MovableLog) -> None:
    place.least = 0
    place.directory.delete({NAME: "d" * 32}, now_ms=NOW_MS)


def move(place: MovableLog) -> None:
    """To the other directory, where a copy takes the place of the log."""
    future = FutureLog.begin(
        place.directory, place.other, place.log, "c" * 32, start_offset=start_of(place.log), now_ms=NOW_MS
    )
    while (piece := future.next_copy_step()) is not None:
        future.take(piece, now_ms=NOW_MS)
    future.settle()
    future.promote(now_ms=NOW_MS)
    future.settle()
    future.retire("d" * 32, now_ms=NOW_MS)


MUTATIONS = [
    append_one,
    append_copies,
    roll,
    cut_the_last,
    cut_below_the_recovery_point,
    restart_before,
    restart_behind,
    delete_records,
    delete_segments,
    delete_all_segments,
    compact,
    delete,
    move,
]
LONG = (compact, move)
SLOW = (restart_before, restart_behind, delete_all_segments)  # their other half is in every run
MOST = (1000, 9)  # points of a thread that are tried; of those that have some hundred, a few


def look(place: MovableLog) -> None:
    """One of the two is in the middle of its work."""
    assert place.log.recovery_point <= place.log.log_end_offset
    found = place.power_loss()
    if found is not None:
        assert len(found) >= place.least, f"{found}, and {place.least} were durable"


def settled(worlds: Iterator[MovableLog]) -> int:
    met = 0
    for place in worlds:
        look(place)
        met += 1
    return met


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_sync_that_meets_a_mutation_promises_nothing_that_is_not_there(
    mutation: Callable[[MovableLog], None],
) -> None:
    settled(meet(MovableLog, sync, mutation, look, most=MOST[mutation in LONG]))


@pytest.mark.parametrize(
    "mutation",
    [pytest.param(each, marks=pytest.mark.nightly) if each in SLOW else each for each in MUTATIONS],
    ids=lambda mutation: mutation.__name__,
)
def test_a_mutation_that_meets_a_sync_is_whole_after_a_power_loss(mutation: Callable[[MovableLog], None]) -> None:
    settled(meet(MovableLog, mutation, sync, look, most=MOST[mutation in LONG]))


# Planted mistakes -----------------------------------------------------------------------------------------------------

MISTAKES = [
    (
        "the end is read before the lock is taken",
        segments,
        Segments,
        "sync",
        LOCKED_SYNC,
        UNLOCKED_SYNC,
        cut_below_the_recovery_point,
    ),
    (
        "the end is lowered when the files are cut",
        log,
        Log,
        "_announce_cut",
        "        self.lower_end(end)\n",
        "        with self.lock:\n            self.recovery_point = min(self.recovery_point, end)\n",
        cut_below_the_recovery_point,
    ),
    ("a cut is not counted", log_end, LogEnd, "lower_end", "            self.cuts += 1\n", "", cut_the_last),
    (
        "a cut leaves the recovery point",
        log_end,
        LogEnd,
        "lower_end",
        "            self.recovery_point = min(self.recovery_point, offset)\n",
        "",
        restart_before,
    ),
    (
        "a sync whose log was cut moves the recovery point",
        log_end,
        LogEnd,
        "became_durable",
        "        if point.cuts != self.cuts:\n            return False\n",
        "",
        cut_the_last,
    ),
]


@pytest.mark.parametrize(
    ("module", "owner", "method", "right", "wrong", "mutation"),
    [each[1:] for each in MISTAKES],
    ids=[each[0] for each in MISTAKES],
)
def test_a_planted_mistake_is_found(
    module: ModuleType,
    owner: type,
    method: str,
    right: str,
    wrong: str,
    mutation: Callable[[MovableLog], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistaken = vars(planted(module, right, wrong))[owner.__name__]
    monkeypatch.setattr(owner, method, vars(mistaken)[method])
    with pytest.raises(AssertionError):
        settled(chain(meet(MovableLog, sync, mutation, look), meet(MovableLog, mutation, sync, look)))
