"""Mistakes of tiered storage, in the decisions and jobs and in the parts around them (tests/simulation/tier_world.py).

`mutants/catalog.py` lists them with the others. A mistaken function replaces the original in its own module, with the
original's classes: the world compares those.
"""

from collections.abc import Callable
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import pytest
from mutants.plant import planted
from simulation.simulators import run
from simulation.tier_parts import Habits

from trioka.cluster.remote_log import early as remote_log_early
from trioka.cluster.remote_log import (
    jobs as remote_log_jobs,
)
from trioka.cluster.remote_log import (
    metadata as remote_log_metadata,
)
from trioka.cluster.remote_log import (
    plan as remote_log_plan,
)
from trioka.cluster.remote_log import (
    sweep as remote_log_sweep,
)

Live = Callable[[int], object]
Mistake = tuple[str, int, Live] | tuple[str, int, Live, int]  # the last: within how many seeds `make zoo` finds it
RARE = 5000


def _function(name: str, seed: int, module: ModuleType, what: str, right: str, wrong: str) -> Mistake:
    """`what` is a function of the module, or `Class.method`."""
    owner_name, _, attribute = what.rpartition(".")

    @cache
    def make() -> Any:
        copied: Any = planted(module, right, wrong)
        original: Any = getattr(module, owner_name) if owner_name else module
        mistaken = vars(getattr(copied, owner_name) if owner_name else copied)[attribute]
        its_property = isinstance(mistaken, property)
        function = mistaken.fget if its_property else mistaken
        here = vars(original)[attribute]
        closure = (here.fget if its_property else here).__closure__
        rebound = FunctionType(function.__code__, vars(module), attribute, function.__defaults__, closure)
        rebound.__kwdefaults__ = function.__kwdefaults__
        return original, property(rebound) if its_property else rebound

    def live(number: int) -> None:
        original, mistaken = make()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(original, attribute, mistaken)
            run("tier", number)

    return name, seed, live


def _plan(name: str, seed: int, what: str, right: str, wrong: str) -> Mistake:
    return _function(f"tier: {name}", seed, remote_log_plan, what, right, wrong)


def _job(name: str, seed: int, what: str, right: str, wrong: str) -> Mistake:
    return _function(f"tier: {name}", seed, remote_log_jobs, what, right, wrong)


def _image(name: str, seed: int, what: str, right: str, wrong: str) -> Mistake:
    return _function(f"tier: {name}", seed, remote_log_metadata, what, right, wrong)


def _habit(name: str, seed: int, **habits: bool) -> Mistake:
    return f"tier: {name}", seed, lambda number: run("tier", number, habits=Habits(**habits))


WROTE_D = (
    "if not (yield author.record_of(about, segment, SegmentState.DELETE_SEGMENT_STARTED)):\n"
    "    return Outcome.FENCED\n"
    "found = yield ReadManifestKey(segment=segment)"
)
TOMBSTONE_FIRST = "if not (yield CreateTombstone(segment=segment)):"

MUTANTS: tuple[Mistake, ...] = (
    _plan(
        "copies above the high watermark",
        3,
        "_copies",
        "limit = min(facts.high_watermark, facts.last_stable_offset)",
        "limit = facts.lineage.log_end_offset",
    ),
    _plan(
        "copies above the last stable offset",
        3,
        "_copies",
        "limit = min(facts.high_watermark, facts.last_stable_offset)",
        "limit = facts.high_watermark",
    ),
    _plan(
        "objects go before the log start has moved",
        3,
        "decide_as_leader",
        "if log_start > facts.log_start_offset:",
        "if False:",
    ),
    (
        *_plan(
            "objects go before followers have the log start",
            2015,
            "_deletions",
            "log_start = facts.replicated_log_start_offset",
            "log_start = facts.log_start_offset",
        ),
        RARE,
    ),
    _plan(
        "a segment that straddles an unclean election goes whole",
        163,
        "_deletions",
        "if end <= first:",
        "if end < segment.next_offset:",
    ),
    _plan(
        "spare segments stay",
        2,
        "_deletions",
        "elif not is_deleting and _is_spare(remote, facts.lineage, segment, first, end):",
        "elif False:",
    ),
    _plan(
        "the log start stays on a hole",
        67,
        "_new_log_start",
        "if not is_readable and remote.had_segments:",
        "if False:",
    ),
    _plan(
        "copies of earlier leaders are not cancelled",
        1,
        "decide_as_leader",
        "elif segment.state is SegmentState.COPY_SEGMENT_STARTED:",
        "elif False:",
    ),
    _plan(
        "deletions of earlier leaders are not resumed",
        1,
        "decide_as_leader",
        "if segment.state is SegmentState.DELETE_SEGMENT_STARTED:",
        "if False:",
    ),
    _plan(
        "segments that lost objects stay",
        60,
        "_deletions",
        "if segment.segment_id in missing:",
        "if False:",
    ),
    _plan(
        "local segments go up to the first segment of the store",
        167,
        "tiered_end",
        "remote.covered_until(facts.lineage, max(facts.log_start_offset, facts.local_start_offset))",
        "remote.highest_offset(facts.lineage) + 1",
    ),
    _job(
        "a copy is cancelled without a tombstone",
        1,
        "cancel_copy",
        TOMBSTONE_FIRST,
        "if False:",
    ),
    _job(
        "a complete copy is cancelled",
        1,
        "cancel_copy",
        "if found is ManifestKey.MANIFEST:",
        "if False:",
    ),
    _job(
        "objects go although the record did not count",
        23,
        "delete_segment",
        WROTE_D,
        "yield author.record_of(about, segment, SegmentState.DELETE_SEGMENT_STARTED)\n"
        "found = yield ReadManifestKey(segment=segment)",
    ),
    (
        *_job(
            "a tombstone goes with its segment",
            2820,
            "delete_segment",
            "WITHOUT_MANIFEST if found is ManifestKey.TOMBSTONE else ALL_OBJECTS",
            "ALL_OBJECTS",
        ),
        RARE,
    ),
    _job(
        "a copy finishes over a tombstone",
        57,
        "copy_segment",
        "if found is not ManifestKey.MANIFEST:",
        "if found is ManifestKey.NOTHING:",
    ),
    _job(
        "finished before the manifest",
        0,
        "copy_segment",
        "if not (yield CreateManifest(segment=segment)):",
        "if False:",
    ),
    (
        *_image("records of former leaders count", 3925, "RemotePartition.accepts", "epoch >= self.max_epoch", "True"),
        RARE,
    ),
    _image(
        "started segments are readable",
        0,
        "RemoteSegment.is_finished",
        "self.state is SegmentState.COPY_SEGMENT_FINISHED",
        "self.state in (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.COPY_SEGMENT_STARTED)",
    ),
    _image(
        "the history of the log does not matter",
        23,
        "Lineage.usable_end",
        "at = segment.start_offset",
        "return segment.next_offset",
    ),
    _function(
        "tier: an early upload has what is not stable",
        0,
        remote_log_early,
        "decide_early",
        "limit = min(facts.high_watermark, facts.last_stable_offset)",
        "limit = facts.lineage.log_end_offset",
    ),
    _habit("an early upload outlives its leadership", 539, keeps_uploads_over_leaderships=True),
    (*_habit("a new leader writes no record of its epoch", 1973, writes_no_epoch_record=True), RARE),
    _habit("the sweep does not know copies in progress", 35, sweeps_started=True),
    _habit("the sweep does not replay behind its listing", 989, sweeps_without_replay=True),
    _habit("a leader decides before it has replayed", 134, decides_before_replay=True),
    _habit("local segments go that are not in the store", 0, deletes_locally_what_is_not_covered=True),
    _function(
        "tier: manifests without data stay",
        359,
        remote_log_sweep,
        "garbage",
        "if is_complete(orphan, manifest):",
        "if manifest is ManifestKey.MANIFEST or ObjectSuffix.LOG in orphan.suffixes:",
    ),
)
