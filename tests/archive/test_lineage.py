"""Overlapping segments of several leaders: whose records count, what a straddling segment is good for, and holes."""

from collections.abc import Mapping, Sequence
from random import Random
from types import ModuleType

import pytest
from mutants.plant import Rule, assert_noticed, within
from support.archive_manifests import made_up_manifest

from trioka.archive import lineage as lineage_module
from trioka.archive.lineage import Chain
from trioka.protocol.remote_segment.indexes import LeaderEpoch
from trioka.protocol.remote_segment.manifest import SegmentManifest


class Bucket:
    """Segments, and the chain that each carries in its indexes."""

    def __init__(self) -> None:
        self.manifests: list[SegmentManifest] = []
        self.chains: dict[bytes, Chain] = {}

    def add(self, start: int, end: int, *, chain: Mapping[int, int], uploader: int) -> SegmentManifest:
        """A segment of the offsets from `start` up to `end`, exclusive; the chain is epoch → start offset."""
        whole = tuple(LeaderEpoch(*entry) for entry in chain.items() if entry[1] < end)
        before = [entry for entry in whole if entry.start_offset <= start]
        own = [LeaderEpoch(before[-1].epoch, start)] + [entry for entry in whole if entry.start_offset > start]
        manifest = made_up_manifest(start, end, own, uploader=uploader, number=len(self.manifests))
        self.manifests.append(manifest)
        self.chains[manifest.segment.segment_id] = whole
        return manifest

    def chain_of(self, manifest: SegmentManifest) -> Chain:
        return self.chains[manifest.segment.segment_id]

    def slices(self, module: ModuleType) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
        """(Number of the segment, start, end) of each slice, and the holes."""
        lineage = module.find_lineage(self.manifests, self.chain_of)
        slices, holes = module.plan(self.manifests, lineage)
        found = [(self.manifests.index(each.manifest), each.start_offset, each.end_offset) for each in slices]
        return found, [(hole.start_offset, hole.end_offset) for hole in holes]


@pytest.fixture
def lineages() -> ModuleType:
    return lineage_module


def test_segments_of_one_leader_follow_one_another(lineages: ModuleType) -> None:
    bucket = Bucket()
    bucket.add(0, 10, chain={0: 0}, uploader=0)
    bucket.add(10, 25, chain={0: 0}, uploader=0)
    assert bucket.slices(lineages) == ([(0, 0, 10), (1, 10, 25)], [])


def test_nothing_uploaded_is_an_empty_lineage(lineages: ModuleType) -> None:
    assert Bucket().slices(lineages) == ([], [])


def test_the_uploader_that_led_last_decides(lineages: ModuleType) -> None:
    bucket = Bucket()
    bucket.add(0, 101, chain={5: 0}, uploader=5)  # lost from 60 on, in an unclean election
    bucket.add(101, 300, chain={5: 0}, uploader=5)  # all of it is lost, though it goes furthest
    bucket.add(60, 91, chain={5: 0, 6: 60}, uploader=6)
    bucket.add(91, 151, chain={5: 0, 6: 60}, uploader=6)
    assert bucket.slices(lineages) == ([(0, 0, 60), (2, 60, 91), (3, 91, 151)], [])


def test_an_older_leaders_segments_continue_the_lineage_if_they_agree(lineages: ModuleType) -> None:
    bucket = Bucket()
    bucket.add(0, 50, chain={5: 0}, uploader=7)  # uploaded again by a later leader, from its disk
    bucket.add(50, 80, chain={5: 0, 6: 70}, uploader=6)
    bucket.add(50, 90, chain={4: 0}, uploader=4)  # of another lineage
    assert bucket.slices(lineages) == ([(0, 0, 50), (1, 50, 80)], [])


def test_a_segment_that_contradicts_the_lineage_does_not_continue_it(lineages: ModuleType) -> None:
    bucket = Bucket()
    bucket.add(0, 100, chain={1: 0, 6: 60}, uploader=6)
    bucket.add(100, 150, chain={1: 0, 5: 40}, uploader=5)
    assert bucket.slices(lineages) == ([(0, 0, 100)], [])


def test_a_segment_behind_the_lineage_continues_it_only_with_later_epochs(lineages: ModuleType) -> None:
    bucket = Bucket()
    bucket.add(0, 100, chain={6: 0}, uploader=8)
    bucket.add(100, 150, chain={5: 100}, uploader=7)
    assert bucket.slices(lineages) == ([(0, 0, 100)], [])
    bucket.add(100, 140, chain={7: 100}, uploader=7)
    assert bucket.slices(lineages) == ([(0, 0, 100), (2, 100, 140)], [])


def test_a_straddling_segment_serves_its_beginning_only(lineages: ModuleType) -> None:
    bucket = Bucket()
    bucket.add(20, 100, chain={1: 0, 2: 50}, uploader=2)
    bucket.add(60, 120, chain={1: 0, 3: 60}, uploader=3)
    assert bucket.slices(lineages) == ([(0, 20, 50), (1, 60, 120)], [(50, 60)])


def test_offsets_below_the_chain_are_below_the_logs_start(lineages: ModuleType) -> None:
    bucket = Bucket()
    bucket.add(0, 30, chain={1: 0}, uploader=1)
    bucket.add(30, 60, chain={1: 0}, uploader=1)
    bucket.add(60, 90, chain={1: 40}, uploader=2)
    assert bucket.slices(lineages) == ([(1, 40, 60), (2, 60, 90)], [])


def test_a_hole_is_found_and_the_offsets_before_the_first_segment_are_none(lineages: ModuleType) -> None:
    bucket = Bucket()
    bucket.add(10, 20, chain={0: 0}, uploader=0)
    bucket.add(30, 40, chain={0: 0}, uploader=0)
    assert bucket.slices(lineages) == ([(0, 10, 20), (1, 30, 40)], [(20, 30)])


def test_the_segment_that_reaches_furthest_is_read_and_no_offset_twice(lineages: ModuleType) -> None:
    bucket = Bucket()
    bucket.add(0, 20, chain={0: 0}, uploader=0)
    bucket.add(10, 60, chain={0: 0}, uploader=1)
    bucket.add(10, 30, chain={0: 0}, uploader=2)
    bucket.add(40, 60, chain={0: 0}, uploader=2)
    assert bucket.slices(lineages) == ([(0, 0, 20), (1, 20, 60)], [])


def test_only_segments_that_may_decide_are_opened() -> None:
    bucket = Bucket()
    for start in range(0, 1000, 10):
        bucket.add(start, start + 10, chain={0: 0}, uploader=0)
    opened: list[int] = []

    def chain_of(manifest: SegmentManifest) -> Chain:
        opened.append(manifest.start_offset)
        return bucket.chain_of(manifest)

    lineage_module.find_lineage(bucket.manifests, chain_of)
    assert opened == [990]


class Leaders:
    """A log under clean and unclean elections, of which leaders upload parts; each record is known by its epoch."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log: list[int] = []  # the epoch of each record
        self.epoch = self.start = 0
        self.bucket = Bucket()
        self.logs: dict[int, tuple[int, list[int]]] = {}  # of the uploader, by number of the segment

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.random.choice((self.append, self.append, self.upload, self.upload, self.elect, self.trim))
            step()

    def append(self) -> None:
        self.log += [self.epoch] * self.random.randrange(1, 9)

    def elect(self) -> None:
        self.epoch += 1
        if self.random.random() < 0.4:  # unclean: the new leader lacks the end
            self.log = self.log[: max(self.start, len(self.log) - self.random.randrange(12))]

    def trim(self) -> None:
        if self.random.random() < 0.1:
            self.start = min(self.start + self.random.randrange(5), len(self.log))

    def upload(self) -> None:
        if len(self.log) - self.start < 2:
            return
        start = self.random.randrange(self.start, len(self.log))
        end = self.random.randrange(start, len(self.log)) + 1
        self.logs[len(self.bucket.manifests)] = self.start, list(self.log)
        self.bucket.add(start, end, chain=self.chain(), uploader=self.epoch)

    def chain(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for offset in range(self.start, len(self.log)):
            found.setdefault(self.log[offset], offset)
        return found


def leaders_are_followed(lineages: ModuleType, seeds: Sequence[int]) -> None:
    for seed in seeds:
        world = Leaders(seed)
        world.run(40)
        manifests = world.bucket.manifests
        if not manifests:
            continue
        last = max(
            range(len(manifests)), key=lambda number: (manifests[number].uploader_epoch, manifests[number].end_offset)
        )
        start, log = world.logs[last]
        slices, holes = world.bucket.slices(lineages)
        at = slices[0][1]
        for number, first, end in slices:
            for hole in holes:
                at = hole[1] if hole[0] == at else at
            assert first == at < end, f"seed {seed}: {slices} with {holes}"
            assert manifests[number].start_offset <= first and end <= manifests[number].next_offset, seed
            own = world.logs[number][1]
            for offset in range(first, min(end, manifests[last].next_offset)):
                assert offset >= start and own[offset] == log[offset], (
                    f"seed {seed}: offset {offset} of segment {number}"
                )
            at = end
        served = {offset for _, first, end in slices for offset in range(first, end)}
        for number, manifest in enumerate(manifests):
            own = world.logs[number][1]
            for offset in range(
                max(manifest.start_offset, start), min(manifest.next_offset, manifests[last].next_offset)
            ):
                if own[manifest.start_offset : offset + 1] == log[manifest.start_offset : offset + 1]:
                    assert offset in served, f"seed {seed}: offset {offset} of segment {number} is not served"


def test_what_is_served_is_the_log_of_the_uploader_that_led_last(lineages: ModuleType) -> None:
    leaders_are_followed(lineages, range(300))


MISTAKES: list[tuple[str, str, Rule]] = [
    (
        "(-each.uploader_epoch, -each.end_offset)",
        "(-each.end_offset, -each.uploader_epoch)",
        test_the_uploader_that_led_last_decides,
    ),
    (
        "not lineage.chain or agrees(lineage, chain)",
        "True",
        test_a_segment_that_contradicts_the_lineage_does_not_continue_it,
    ),
    (
        "not lineage.chain or agrees(lineage, chain)",
        "not lineage.chain",
        test_an_older_leaders_segments_continue_the_lineage_if_they_agree,
    ),
    (
        "epoch_at(chain, start) >= lineage.chain[-1].epoch",
        "True",
        test_a_segment_behind_the_lineage_continues_it_only_with_later_epochs,
    ),
    (
        "epoch == UNKNOWN_EPOCH or epoch_at(own, offset) != epoch",
        "epoch == UNKNOWN_EPOCH",
        test_a_straddling_segment_serves_its_beginning_only,
    ),
    (
        within("usable_range", "start = offset = max(manifest.start_offset, lineage.start_offset)"),
        "start = offset = manifest.start_offset",
        test_offsets_below_the_chain_are_below_the_logs_start,
    ),
    (
        "best = usable[number] if best is None else max(best, usable[number], key=_preference)",
        "best = usable[number]",
        test_the_segment_that_reaches_furthest_is_read_and_no_offset_twice,
    ),
    (
        "slices.append(Slice(manifest=best[2], start_offset=at, end_offset=best[1]))",
        "slices.append(Slice(manifest=best[2], start_offset=best[0], end_offset=best[1]))",
        test_the_segment_that_reaches_furthest_is_read_and_no_offset_twice,
    ),
    (
        "holes.append(Hole(start_offset=at, end_offset=after))",
        "pass",
        test_a_hole_is_found_and_the_offsets_before_the_first_segment_are_none,
    ),
    (
        "epoch == UNKNOWN_EPOCH or epoch_at(own, offset) != epoch",
        "epoch == UNKNOWN_EPOCH",
        test_what_is_served_is_the_log_of_the_uploader_that_led_last,
    ),
]


@pytest.mark.parametrize(("right", "wrong", "rule"), MISTAKES)
def test_a_planted_mistake_is_noticed(right: str, wrong: str, rule: Rule) -> None:
    assert_noticed(lineage_module, right, wrong, rule)
