"""Which segments make up a partition's log, when leaders wrote over one another. Pure.

Leaders do not know of each other's uploads at once, and after an unclean election a leader writes other records to
offsets that an earlier one had uploaded already. So segments overlap, and some have records that no log has any more:

    leader of epoch 5    [0 … 59 … 100]                   uploaded first; offsets 60 to 100 were lost in the election
    leader of epoch 6          [60 … 90][91 … 150]        and written again

**The lineage is the chain of leader epochs that the segment carries whose uploader led last; other segments only
continue it.** A segment continues it if its own chain agrees with it at every offset that both know, and goes further.

A segment is good for the offsets from its start up to the first one at which its epoch is not the lineage's. So a
segment that straddles an unclean election serves its beginning. What the chain does not know, because it lies before
its first entry, was below the log's start when the segment was uploaded.

`plan` covers the lineage with as few segments as it can. Where none has an offset, there is a hole.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.remote_segment.indexes import LeaderEpoch
from trioka.protocol.remote_segment.manifest import SegmentManifest

Chain: TypeAlias = tuple[LeaderEpoch, ...]
ChainOf: TypeAlias = Callable[[SegmentManifest], Chain]

UNKNOWN_EPOCH: Final = -1


@frozen
class Lineage:
    """The leader epoch of each offset from `start_offset` up to `end_offset`, exclusive."""

    chain: Chain
    end_offset: int

    @property
    def start_offset(self) -> int:
        return self.chain[0].start_offset if self.chain else self.end_offset

    def epoch_at(self, offset: int) -> int:
        """UNKNOWN_EPOCH outside of the lineage."""
        if offset >= self.end_offset:
            return UNKNOWN_EPOCH
        return epoch_at(self.chain, offset)


@frozen
class Slice:
    """The offsets that one segment contributes: from `start_offset` up to `end_offset`, exclusive."""

    manifest: SegmentManifest
    start_offset: int
    end_offset: int


@frozen
class Hole:
    """Offsets of the lineage that no segment has; `end_offset` is exclusive."""

    start_offset: int
    end_offset: int


def epoch_at(chain: Chain, offset: int) -> int:
    place = bisect_right(chain, offset, key=lambda entry: entry.start_offset)
    return chain[place - 1].epoch if place else UNKNOWN_EPOCH


def find_lineage(manifests: Iterable[SegmentManifest], chain_of: ChainOf) -> Lineage:
    """The lineage of a partition. `chain_of` is called only for segments that may decide or continue it."""
    lineage = Lineage(chain=(), end_offset=0)
    for manifest in sorted(manifests, key=lambda each: (-each.uploader_epoch, -each.end_offset)):
        if manifest.next_offset <= lineage.end_offset:
            continue
        chain = chain_of(manifest)
        if not lineage.chain or agrees(lineage, chain):
            lineage = Lineage(chain=_continued(lineage, chain), end_offset=manifest.next_offset)
    return lineage


def agrees(lineage: Lineage, chain: Chain) -> bool:
    """Whether a chain, which goes further than the lineage, has the lineage's epoch at every offset that both know."""
    if not chain:
        return False
    start = max(lineage.start_offset, chain[0].start_offset)
    if start >= lineage.end_offset:  # nothing in common but the border: epochs never go back
        return epoch_at(chain, start) >= lineage.chain[-1].epoch
    points = {start} | {
        entry.start_offset for entry in (*lineage.chain, *chain) if start < entry.start_offset < lineage.end_offset
    }
    return all(epoch_at(lineage.chain, point) == epoch_at(chain, point) for point in points)


def _continued(lineage: Lineage, chain: Chain) -> Chain:
    """The lineage's own chain, and behind its end that of a segment that agrees with it."""
    last = lineage.chain[-1].epoch if lineage.chain else UNKNOWN_EPOCH
    behind = (entry for entry in chain if entry.start_offset >= lineage.end_offset and entry.epoch > last)
    return (*lineage.chain, *behind)


def usable_range(manifest: SegmentManifest, lineage: Lineage) -> tuple[int, int]:
    """From where up to where, exclusively, the segment has the lineage's records; empty if it begins with others."""
    own = manifest.leader_epochs
    start = offset = max(manifest.start_offset, lineage.start_offset)
    end = max(min(manifest.next_offset, lineage.end_offset), start)
    borders = {entry.start_offset for entry in (*own, *lineage.chain) if start < entry.start_offset < end}
    for border in sorted(borders | {end}):
        epoch = lineage.epoch_at(offset)
        if epoch == UNKNOWN_EPOCH or epoch_at(own, offset) != epoch:
            break
        offset = border
    return start, offset


def _preference(candidate: tuple[int, int, SegmentManifest]) -> tuple[int, bool, int, bytes]:
    """The one that reaches furthest; of those one that is used to its end; of those the latest upload."""
    _, end, manifest = candidate
    return end, end == manifest.next_offset, manifest.uploader_epoch, manifest.segment.segment_id


def plan(manifests: Iterable[SegmentManifest], lineage: Lineage) -> tuple[list[Slice], list[Hole]]:
    """The slices that cover the lineage, in order and without overlaps, and the holes between them."""
    usable = []
    for manifest in manifests:
        start, end = usable_range(manifest, lineage)
        if start < end:
            usable.append((start, end, manifest))
    usable.sort(key=lambda each: each[0])
    slices: list[Slice] = []
    holes: list[Hole] = []
    at, number = lineage.start_offset, 0
    best: tuple[int, int, SegmentManifest] | None = None
    while at < lineage.end_offset:
        while number < len(usable) and usable[number][0] <= at:
            best = usable[number] if best is None else max(best, usable[number], key=_preference)
            number += 1
        if best is not None and best[1] > at:
            slices.append(Slice(manifest=best[2], start_offset=at, end_offset=best[1]))
            at = best[1]
            continue
        after = usable[number][0] if number < len(usable) else lineage.end_offset
        if slices:  # before the first segment, the log had been trimmed
            holes.append(Hole(start_offset=at, end_offset=after))
        at = after
    return slices, holes
