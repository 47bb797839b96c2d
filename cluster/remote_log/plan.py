"""What a broker does next for one partition whose segments go to the object store: a decision, from facts.

A leader copies closed segments, cancels abandoned copies, deletes what retention no longer keeps, and moves
the log start before anything below it goes.

Rules:

- A segment is copied when all of it is below the high watermark and the last stable offset, so that no record in the
  object store is ever truncated or belongs to an open transaction.
- The local copy of a segment may go only if finished segments *of the log's own history* have all of it from the log
  start on. If one of them is lost later, and its bytes are still local, the segment is simply not covered any more, and
  is copied again.
- A finished segment may go if it lies below the log start, or if its usable part is in other finished segments (it is
  spare). While one deletion runs no other segment counts as spare: two might each be spare because of the other.
- A segment below the log start goes only when every in-sync replica has that log start: otherwise the next leader would
  start below it, and a leader that was deposed could delete what the new one still promises.
- The leader's log start never points at an offset that is neither local nor in the object store. There is one
  exception: if no record has ever named a segment, the records themselves are lost, and the log start stays.

Which local segments may go is decided in storage/cleaning/local_retention.py, for leaders and followers; `tiered_end`
is its limit.

A leader may decide only when it has replayed its own epoch's record (remote_log/metadata.py).
"""

from collections.abc import Collection, Iterator
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from trioka.protocol.lazy_dataclass import frozen
from trioka.storage.files.checkpoint import EpochEntry

from .metadata import Lineage, RemotePartition, RemoteSegment, SegmentState

NEVER: Final = -1  # of a limit: keep for ever


@frozen
class LocalSegment:
    """A closed segment on this broker's disk."""

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp_ms: int


@frozen
class LogFacts:
    lineage: Lineage
    log_start_offset: int
    replicated_log_start_offset: int  # every replica that may lead next starts here or later
    local_start_offset: int
    high_watermark: int
    last_stable_offset: int
    segments: tuple[LocalSegment, ...]  # closed, ascending
    active_size_bytes: int

    @property
    def local_size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments) + self.active_size_bytes


@frozen
class Policy:
    """What the topic's configuration says. A limit of NEVER keeps everything."""

    copies: bool  # remote.storage.enable, and not remote.log.copy.disable
    deletes_all: bool  # remote.log.delete.on.disable, and remote.storage.enable is off
    retention_ms: int
    retention_bytes: int
    copies_early: bool = False  # parts of the active segment (remote_log/early.py)


class Cause(Enum):
    """Why a segment goes or the log start moves."""

    LOG_START = "lies before the log start"
    TIME = "is older than retention.ms"
    SIZE = "is beyond retention.bytes"
    SPARE = "is in other segments too"
    DISABLED = "the topic does not use the object store any more"
    MISSING = "has lost objects in the object store"
    RESUMED = "its deletion had begun"
    UNREADABLE = "is neither local nor in the object store"


@frozen
class CopySegment:
    local: LocalSegment
    leader_epochs: tuple[EpochEntry, ...]


@frozen
class CancelCopy:
    segment: RemoteSegment


@frozen
class DeleteSegment:
    segment: RemoteSegment
    cause: Cause


@frozen
class MoveLogStart:
    """Comes before the deletions that it explains."""

    offset: int
    cause: Cause


Step: TypeAlias = CopySegment | CancelCopy | DeleteSegment | MoveLogStart


def decide_as_leader(
    facts: LogFacts,
    remote: RemotePartition,
    policy: Policy,
    *,
    now_ms: int,
    busy: Collection[bytes] = (),
    is_deleting: bool = False,
    missing: Collection[bytes] = (),
) -> Iterator[Step]:
    """The steps in their order. `busy` are the segments that a job of this leadership works on, `is_deleting` says
    whether one of the jobs is a deletion; `missing` are the segments whose objects were found to be lost."""
    started = [s for s in remote.segments.values() if s.segment_id not in busy]
    for segment in started:
        if segment.state is SegmentState.DELETE_SEGMENT_STARTED:
            yield DeleteSegment(segment=segment, cause=Cause.RESUMED)
        elif segment.state is SegmentState.COPY_SEGMENT_STARTED:
            yield CancelCopy(segment=segment)
    log_start, cause = _new_log_start(facts, remote, policy, now_ms)
    if log_start > facts.log_start_offset:
        yield MoveLogStart(offset=log_start, cause=cause)
    yield from _deletions(facts, remote, policy, busy, is_deleting, missing)
    if policy.copies:
        yield from _copies(facts, remote, log_start)


def tiered_end(facts: LogFacts, remote: RemotePartition) -> int:
    """Up to here (exclusive) everything on this disk is in the object store without a hole, so segments that end before
    may be deleted locally, by leaders and followers. Records before the disk's first are not looked at: they are not
    there to be lost."""
    return remote.covered_until(facts.lineage, max(facts.log_start_offset, facts.local_start_offset))


def next_expiry_ms(remote: RemotePartition, policy: Policy) -> int | None:
    """When retention by time has to look again: when the first segment becomes too old."""
    if policy.retention_ms < 0 or not remote.finished:
        return None
    return remote.finished[0].max_timestamp_ms + policy.retention_ms + 1


class NotCopied(NamedTuple):
    """What of a log is not in the object store. `closed_` counts closed segments; `bytes` also the active one."""

    closed_segments: int
    closed_bytes: int
    bytes: int
    closed_records: int
    first_offset: int | None  # where the oldest such closed segment begins
    oldest_ms: int | None  # the newest timestamp of the oldest such segment; None if all closed ones are there


def not_copied(facts: LogFacts, remote: RemotePartition) -> NotCopied:
    start = facts.log_start_offset
    lacking = list(_not_covered(facts, remote, start))
    size = sum(segment.size_bytes for segment in lacking)
    return NotCopied(
        closed_segments=len(lacking),
        closed_bytes=size,
        bytes=size + facts.active_size_bytes,
        closed_records=sum(segment.next_offset - max(segment.base_offset, start) for segment in lacking),
        first_offset=lacking[0].base_offset if lacking else None,
        oldest_ms=lacking[0].max_timestamp_ms if lacking else None,
    )


def _is_older(timestamp_ms: int, limit_ms: int, now_ms: int) -> bool:
    return limit_ms >= 0 and now_ms - timestamp_ms > limit_ms


def _not_covered(facts: LogFacts, remote: RemotePartition, log_start: int) -> Iterator[LocalSegment]:
    """The local segments that are not in the object store from the log start on. Looks at each remote segment once, as
    this runs on the event loop and a log may have thousands of both."""
    end = -1  # up to here (exclusive) all is covered from where the last search began
    for segment in facts.segments:
        if segment.next_offset <= log_start:
            continue
        first = max(segment.base_offset, log_start)
        if first >= end:
            end = remote.covered_until(facts.lineage, first)
        if end < segment.next_offset:
            yield segment


def _copies(facts: LogFacts, remote: RemotePartition, log_start: int) -> Iterator[CopySegment]:
    """The oldest segment that is not covered. The next one is decided when this one is finished."""
    limit = min(facts.high_watermark, facts.last_stable_offset)
    segment = next(_not_covered(facts, remote, log_start), None)
    if segment is not None and segment.next_offset <= limit:
        yield CopySegment(local=segment, leader_epochs=epochs_of_range(facts.lineage, segment))


def epochs_of_range(lineage: Lineage, segment: LocalSegment) -> tuple[EpochEntry, ...]:
    """The leader epochs of a local segment; the first one begins with the segment."""
    found: list[EpochEntry] = []
    for epoch, start in lineage.epochs:
        if start >= segment.next_offset:
            break
        if start <= segment.base_offset:
            found = [EpochEntry(epoch, segment.base_offset)]
        else:
            found.append(EpochEntry(epoch, start))
    if found and found[0].start_offset > segment.base_offset:  # the list was cut at a log start inside of the segment
        found[0] = EpochEntry(found[0].epoch, segment.base_offset)
    return tuple(found)


def _new_log_start(facts: LogFacts, remote: RemotePartition, policy: Policy, now_ms: int) -> tuple[int, Cause]:
    """Where the log starts after retention."""
    start, lineage = facts.log_start_offset, facts.lineage
    if policy.deletes_all and start < facts.local_start_offset:
        return facts.local_start_offset, Cause.DISABLED
    cause = Cause.LOG_START
    is_readable = start >= facts.local_start_offset or remote.covered_until(lineage, start) > start
    if not is_readable and remote.had_segments:
        following = remote.segment_after(lineage, start)
        start = facts.local_start_offset
        if following is not None:
            start = min(start, following.start_offset)
        cause = Cause.UNREADABLE
    left = _total_bytes(facts, remote) if policy.retention_bytes >= 0 else 0
    for segment in remote.finished:
        end = lineage.usable_end(segment)
        if end <= start:
            continue
        if segment.start_offset > start or end > facts.high_watermark:
            break
        if _is_older(segment.max_timestamp_ms, policy.retention_ms, now_ms):
            cause = Cause.TIME
        elif 0 <= policy.retention_bytes <= left - segment.size_bytes:
            cause = Cause.SIZE
        else:
            break
        left -= segment.size_bytes
        start = end
    return start, cause


def _total_bytes(facts: LogFacts, remote: RemotePartition) -> int:
    """The size of the log: what the object store has from the log start on, and what only the disk has."""
    lineage, start = facts.lineage, facts.log_start_offset
    tiered = sum(segment.size_bytes for segment in remote.finished if lineage.usable_end(segment) > start)
    tiered_end = remote.highest_offset(lineage) + 1
    local = sum(segment.size_bytes for segment in facts.segments if segment.base_offset >= tiered_end)
    return tiered + local + facts.active_size_bytes


def _deletions(
    facts: LogFacts,
    remote: RemotePartition,
    policy: Policy,
    busy: Collection[bytes],
    is_deleting: bool,
    missing: Collection[bytes],
) -> Iterator[DeleteSegment]:
    log_start = facts.replicated_log_start_offset
    for segment in remote.finished:
        if segment.segment_id in busy:
            continue
        if segment.segment_id in missing:
            yield DeleteSegment(segment=segment, cause=Cause.MISSING)
            is_deleting = True
        else:
            first, end = max(segment.start_offset, log_start), facts.lineage.usable_end(segment)
            if policy.deletes_all and min(end, facts.local_start_offset) <= first:
                yield DeleteSegment(segment=segment, cause=Cause.DISABLED)
            elif end <= first:
                yield DeleteSegment(segment=segment, cause=Cause.LOG_START)
            elif not is_deleting and _is_spare(remote, facts.lineage, segment, first, end):
                yield DeleteSegment(segment=segment, cause=Cause.SPARE)
                is_deleting = True


def _is_spare(remote: RemotePartition, lineage: Lineage, segment: RemoteSegment, first: int, end: int) -> bool:
    return remote.covered_until(lineage, first, without=segment.segment_id) >= end
