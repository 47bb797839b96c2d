"""Rebuilds from a log what is stored beside it: indexes, aborted transactions, producers, epochs.

Used when a log is loaded after a crash, when one of these files turns out to be damaged, and after a truncation.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from trioka.protocol.batch import BatchHeader
from trioka.protocol.errors import KafkaError

from ..files.checkpoint import EpochEntry
from ..files.layout import CorruptFile
from ..producers.producer_snapshot import SnapshotFiles
from ..producers.producer_state import ProducerState
from ..segments.batch_scan import MAX_OFFSET, NO_EPOCH, NO_OFFSET, BadBatch, ScannedBatch, find_next_batch
from ..segments.index import CorruptIndex
from ..segments.quarantine import Damage
from ..segments.segment import Segment
from ..segments.segments import Segments
from ..segments.txn_index import AbortedTransaction

PRODUCER_EXPIRATION_MS: Final = 24 * 60 * 60 * 1000  # producer.id.expiration.ms

RECENT_BATCHES_BYTES: Final = 128 * 1024
"""The bytes of the log before a snapshot of Kafka's that are read at a start, for the batches that the snapshot does
not contain: eight of 16 KiB. A log of 100-byte batches takes 5 ms."""

MAX_RECENT_BATCHES_BYTES: Final = 8 * 1024 * 1024
"""More is not read, where the batches are so large, or an index so sparse, that it would be."""


def damage_at(
    segment: Segment, bad: BadBatch, last_offset: int, first_offset: int, expected_end: int, limit: int = MAX_OFFSET
) -> Damage:
    """How far the damage at a bad batch reaches: to the next sound batch of the segment, which has nothing from `limit`
    on, or to its expected end. From now on the segment steps over it."""
    held = segment.range(0, segment.size)
    following = find_next_batch(
        held.file,
        position=bad.position,
        end=segment.size,
        base_offset=segment.base_offset,
        last_offset=max(last_offset, first_offset - 1),
        limit=limit,
    )
    end_position = segment.size if following is None else following
    segment.note_hole(bad.position, end_position)
    return Damage(
        first_offset=first_offset,
        end_offset=max(expected_end if following is None else segment.header(following).base_offset, first_offset),
        base_offset=segment.base_offset,
        position=bad.position,
        end_position=end_position,
        reason=bad.reason,
    )


def rebuild_indexes(
    segment: Segment,
    index_interval_bytes: int,
    expected_end: int,
    *,
    limit: int = MAX_OFFSET,
    recovery_point: int = NO_OFFSET,
) -> list[Damage]:
    """Rebuilds offset and time index from the log, up to `limit`; steps over damage in the log, and returns it. If the
    last bytes are damaged, the damage is assumed to reach to `expected_end`."""
    damages: list[Damage] = []
    segment.begin_rebuild()
    position, last_offset, end = 0, NO_OFFSET, segment.base_offset
    while position < segment.size:
        try:
            for found in segment.scan(position, last_offset=last_offset, limit=limit):
                check_last_batch(segment, found, end, recovery_point)
                segment.note(found, index_interval_bytes)
                last_offset = found.header.last_offset
                position, end = found.position + found.header.size, last_offset + 1
        except BadBatch as bad:
            damages.append(damage_at(segment, bad, last_offset, end, expected_end, limit))
            position, end = damages[-1].end_position, damages[-1].end_offset
            last_offset = max(end - 1, last_offset)
    segment.next_offset = end
    segment.close_indexes()
    return damages


def check_last_batch(segment: Segment, found: ScannedBatch, end_offset: int, recovery_point: int) -> None:
    """If there is a gap before the last batch, and without the gap it would end at the recovery point, where some batch
    once ended, then this was that batch, and a bit of its offset is wrong."""
    header = found.header
    is_last = found.position + header.size == segment.size
    if is_last and header.base_offset != end_offset == recovery_point - header.last_offset_delta - 1:
        raise BadBatch(found.position, f"begins with offset {header.base_offset}, the log ends at {end_offset}")


def replay_batch(producers: ProducerState, found: ScannedBatch) -> AbortedTransaction | None:
    """Applies a batch of the log to the producers; returns the transaction that it aborted, if any."""
    try:
        ended = producers.replay(found.buffer, found.header)
    except KafkaError:
        return None  # a control batch with the right CRC and an unknown type
    return AbortedTransaction(*ended[:4]) if ended is not None and ended.aborted else None


def replay_into(producers: ProducerState, segment: Segment, upto: int) -> None:
    """Applies the batches of a segment that the producers do not know yet, up to an offset. Steps over known
    damage."""
    place = segment.locate(producers.end_offset)
    if place is not None:
        for found in _sound_batches(segment, place.position):
            if found.header.base_offset >= upto:
                break
            if found.header.base_offset >= producers.end_offset:
                replay_batch(producers, found)
                producers.end_offset = found.header.last_offset + 1


def restore_recent_batches(producers: ProducerState, segments: Sequence[Segment]) -> None:
    """A snapshot of Kafka's contains one batch of each producer. The earlier ones, which a client may also repeat, are
    searched in the last bytes of the log before it."""
    if not producers.lacks_batches:
        return
    upto = producers.end_offset
    seen = ProducerState(producers.snapshots)
    try:
        for segment, position in reversed(_last_places(segments, upto)):
            for found in segment.scan(position):
                if found.header.base_offset >= upto:
                    break
                replay_batch(seen, found)
    except (BadBatch, CorruptIndex):
        pass  # the batches seen are in the log; a read will find the damage
    producers.recall(seen)


def _last_places(segments: Sequence[Segment], upto: int) -> list[tuple[Segment, int]]:
    """The positions from which to read the last RECENT_BATCHES_BYTES before an offset: the last segment and a position
    in it, then the segment before it with its position, and so on."""
    places: list[tuple[Segment, int]] = []
    left = RECENT_BATCHES_BYTES
    for segment in reversed(segments):
        if segment.base_offset >= upto or not segment.size:
            continue
        following = segment.locate(upto)
        end = segment.size if following is None else following.position
        around = segment.index.around_position(max(end - left, 0), segment.size)
        position = 0 if around is None else around[1]
        if end - position > MAX_RECENT_BATCHES_BYTES:
            break
        places.append((segment, position))
        left -= end - position
        if left <= 0:
            break
    return places


def _sound_batches(segment: Segment, position: int) -> Iterator[ScannedBatch]:
    """The batches from there on, without the known damage."""
    for hole in sorted(segment.holes):
        if hole >= position:
            yield from segment.scan(position, hole)
            position = segment.holes[hole]
    yield from segment.scan(position)


def is_still_missing(segment: Segment, damage: Damage) -> bool:
    """Whether bytes that were noted as missing still are: no batch of the segment has these offsets."""
    try:
        place = segment.locate(damage.first_offset)
    except (CorruptIndex, BadBatch):
        return True
    return place is None or place.base_offset >= damage.end_offset


def rebuild_txn_index(segments: Sequence[Segment], segment: Segment, log_start: int) -> None:
    """Rebuilds the transaction index of one segment. The open transactions are known only after replaying the log from
    its start, which is slow; but this file has neither a checksum nor a copy. Steps over damage in the log."""
    producers = ProducerState(SnapshotFiles(segment.files.disk, segment.directory), end_offset=log_start)
    segment.txn_index.reset()
    for each in segments:
        if each.base_offset > segment.base_offset:
            break
        position = 0
        while position < each.size:
            try:
                for found in each.scan(position):
                    aborted = replay_batch(producers, found)
                    if aborted is not None and each is segment:
                        segment.txn_index.append(aborted)
                    position = found.position + found.header.size
            except BadBatch as bad:
                position = damage_at(each, bad, NO_OFFSET, 0, 0).end_position


def txn_index_agrees(segments: Segments, segment: Segment) -> bool:
    """Whether each entry of a segment's transaction index agrees with the log: a marker of that producer at its end, a
    transaction of that producer (or, after compaction, nothing) at its beginning. The file has no checksum."""
    try:
        segment.txn_index.sanity_check()
    except CorruptFile:
        return False
    for entry in segment.txn_index:
        marker = _header_of(segments, entry.last_offset)
        if (
            marker is None
            or not marker.is_control
            or (marker.base_offset, marker.producer_id)
            != (
                entry.last_offset,
                entry.producer_id,
            )
        ):
            return False
        for offset in {entry.first_offset, entry.last_stable_offset} - {entry.last_offset + 1}:
            first = _header_of(segments, offset)
            if first is not None and first.base_offset <= offset:
                if first.base_offset != offset or not first.is_transactional:
                    return False
                if offset == entry.first_offset and first.producer_id != entry.producer_id:
                    return False
    return True


def epochs_agree(segments: Segments, entries: Sequence[EpochEntry], log_end: int) -> bool:
    """Whether the batches on both sides of each border, and the last batch, agree with the epoch cache. Its file has
    no checksum."""
    last = _header_of(segments, log_end - 1)
    known = [entry.epoch for entry in entries if entry.start_offset < log_end]
    if last is not None and last.leader_epoch != (known[-1] if known else NO_EPOCH):
        return False
    for number, entry in enumerate(entries):
        following = entries[number + 1].start_offset if number + 1 < len(entries) else None
        after = _header_of(segments, entry.start_offset)
        if after is None or (following is not None and after.base_offset >= following):
            continue  # it has no records, or they were compacted away
        # The first one may begin within a batch: where the log does.
        if after.leader_epoch != entry.epoch or (number and after.base_offset < entry.start_offset):
            return False
        before = _header_of(segments, entry.start_offset - 1) if entry.start_offset > segments[0].base_offset else None
        if before is not None and before.base_offset < entry.start_offset and before.leader_epoch >= entry.epoch:
            return False
    return True


def _header_of(segments: Segments, offset: int) -> BatchHeader | None:
    """The header of the batch that holds `offset`, or is the next; None if there is none, or it cannot be read."""
    for segment in segments[segments.number_for(offset) :]:
        try:
            place = segment.locate(offset)
            if place is not None:
                return segment.header(place.position)
        except (CorruptIndex, BadBatch):
            return None
    return None


def epochs_of(segments: Iterable[Segment]) -> list[EpochEntry]:
    """The epochs from the batches: the cache must be equal to them. For tests and scrubbing."""
    entries: list[EpochEntry] = []
    for segment in segments:
        for place in segment.places():
            epoch = segment.header(place.position).leader_epoch
            if epoch >= 0 and (not entries or epoch > entries[-1].epoch):
                entries.append(EpochEntry(epoch, place.base_offset))
    return entries
