"""Mistakes of a log and its directory that need a second thread, or a second topic of the same name.

`mutants/catalog.py` lists them with the others.
"""

from collections.abc import Callable
from types import ModuleType

import pytest
from mutants.plant import planted
from simulation.simulators import run

from trioka.storage import directory, log_end
from trioka.storage.cleaning import cleaner
from trioka.storage.directory import LogDirectory
from trioka.storage.log_end import LogEnd
from trioka.storage.segments import segments
from trioka.storage.segments.segments import Segments

Plant = Callable[[pytest.MonkeyPatch], None]


def _method(owner: type, name: str, module: ModuleType, right: str, wrong: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        mistaken = vars(planted(module, right, wrong))[owner.__name__]
        patch.setattr(owner, name, vars(mistaken)[name])

    return plant


def _cleaner(right: str, wrong: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        mistaken = planted(cleaner, right, wrong)
        vars(mistaken)["CleaningAborted"] = cleaner.CleaningAborted
        patch.setattr(cleaner, "clean", vars(mistaken)["clean"])

    return plant


def works_on_a_deleted_log(patch: pytest.MonkeyPatch) -> None:
    """A round goes on when its topic is deleted, and comes into the directory of the next."""
    _cleaner("log.closed or log.cuts != cuts", "log.cuts != cuts")(patch)
    patch.setattr(Segments, "_must_be_open", lambda self: None)


def assigns_no_topic_id(patch: pytest.MonkeyPatch) -> None:
    """A log that was half made when the power went never gets an id."""
    patch.setattr(LogDirectory, "assign_topic_ids", lambda self, topic_ids: None)


# A sync reads the end when it has the lock, or before.
LOCKED_SYNC = (
    "with self._lock:\n"
    "    if self._closed:\n"
    "        return\n"
    "    point, names, moved = end.sync_point(), self._names_made, self._moved\n"
    "    closed = self._not_synced()\n"
    "    paths = [self.active.log_path] if point.end_offset > end.recovery_point or closed else []\n"
    "    for segment in closed:\n"
    "        paths += [path for path in segment.paths() if disk.exists(path)]\n"
    "    files: list[File] = []\n"
    "    try:\n"
    "        for path in paths:\n"
    "            files.append(disk.open(path))\n"
    "    except BaseException:\n"
    "        _close_all(files)\n"
    "        raise"
)
UNLOCKED_SYNC = LOCKED_SYNC.replace(
    "with self._lock:\n"
    "    if self._closed:\n"
    "        return\n"
    "    point, names, moved = end.sync_point(), self._names_made, self._moved\n",
    "point = end.sync_point()\n"
    "with self._lock:\n"
    "    names, moved, point = self._names_made, self._moved, point._replace(cuts=end.cuts)\n",
)

MISTAKES: tuple[tuple[str, str, int, Plant], ...] = (
    (
        "storage",
        "a sync reads the end before it takes the lock",
        9,
        _method(
            Segments,
            "sync",
            segments,
            LOCKED_SYNC,
            UNLOCKED_SYNC,
        ),
    ),
    (
        "storage",
        "a sync does not see that the log was cut",
        1,
        _method(
            LogEnd,
            "became_durable",
            log_end,
            "        if point.cuts != self.cuts:\n            return False\n",
            "",
        ),
    ),
    (
        "compaction",
        "what a deleted topic had compacted is believed of the next",
        149,
        _method(
            LogDirectory,
            "_write",
            directory,
            "offsets = {name: offset for name, offset in found.items() if offset is not None}",
            "stale = self._written.get(file, {}) if file == CLEANER_OFFSETS else {}\n"
            "offsets = stale | {name: offset for name, offset in found.items() if offset is not None}",
        ),
    ),
    (
        "compaction",
        "a cut leaves what was compacted",
        265,
        _method(
            LogEnd,
            "lower_end",
            log_end,
            "self.first_dirty_offset = min(self.first_dirty_offset, offset)",
            "pass",
        ),
    ),
    (
        "compaction",
        "a compaction does not see that its log was cut",
        1,
        _cleaner("log.closed or log.cuts != cuts", "log.closed"),
    ),
    ("compaction", "a compaction goes on when its topic is deleted", 6, works_on_a_deleted_log),
    (
        "compaction",
        "a directory leaves before the checkpoints say so",
        68,
        _method(
            LogDirectory,
            "_set_aside",
            directory,
            "self.checkpoint()\npaths = []",
            "paths = []",
        ),
    ),
    ("compaction", "a log that was half made has no topic id", 245, assigns_no_topic_id),
)


def live(world: str, seed: int, plant: Plant) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        run(world, seed)


MUTANTS: tuple[tuple[str, int, Callable[[int], None]], ...] = tuple(
    (name, seed, lambda number, world=world, plant=plant: live(world, number, plant))  # type: ignore[misc]
    for world, name, seed, plant in MISTAKES
)
