"""Early upload: parts of the active segment are uploaded while it is written, so that little is left to send when it is
closed. A decision, from facts.

The parts belong to an upload that was begun and is not completed: no object exists, no reader sees them, and no record
names them. When the segment is closed, its copy (remote_log/jobs.py) writes STARTED, sends the rest, completes the
upload, and goes on as always. So the commit point stays the creation of the manifest.

Rules:

- Only whole batches below the high watermark and the last stable offset are sent: they are never truncated while this
  leader leads.
- An upload belongs to one leadership and ends with it. A later leader may truncate what was sent (after an unclean
  election), and write other records at the same offsets.
- Closed segments that are not in the object store come first.
- An upload ends if its segment is deleted, or if it is older than MAX_UPLOAD_MS: a lifecycle rule for incomplete
  uploads would delete its parts. It is not begun again for the same segment, which is then copied whole.
"""

from typing import Final, TypeAlias

from trioka.protocol.lazy_dataclass import frozen

from .metadata import RemotePartition
from .plan import LogFacts, Policy, not_copied

MAX_UPLOAD_MS: Final = 12 * 60 * 60 * 1000  # `trioka tier lifecycle` proposes one day for incomplete uploads


@frozen
class ActiveSegment:
    base_offset: int
    size_bytes: int


@frozen
class EarlyUpload:
    """An upload of the active segment, or of one that was closed meanwhile and is not copied yet."""

    segment_id: bytes
    base_offset: int
    begun_ms: int
    sent_bytes: int  # whole parts
    checked_offset: int  # the batches before it were read and checked


@frozen
class BeginUpload:
    base_offset: int


@frozen
class SendParts:
    """Sends what can be sent as whole parts of the batches before the offset."""

    end_offset: int


@frozen
class AbandonUpload:
    reason: str


EarlyStep: TypeAlias = BeginUpload | SendParts | AbandonUpload


def decide_early(
    active: ActiveSegment,
    facts: LogFacts,
    remote: RemotePartition,
    policy: Policy,
    upload: EarlyUpload | None,
    *,
    part_bytes: int,
    now_ms: int,
    ended_at: int = -1,
) -> EarlyStep | None:
    """What a leader does next with the active segment. `ended_at`: the base offset of the last segment whose upload was
    abandoned."""
    limit = min(facts.high_watermark, facts.last_stable_offset)
    if upload is None:
        wants = policy.copies and policy.copies_early and active.base_offset != ended_at
        if not wants or active.size_bytes < part_bytes or limit <= active.base_offset:
            return None
        return None if not_copied(facts, remote).closed_segments else BeginUpload(base_offset=active.base_offset)
    if not policy.copies or not policy.copies_early:
        return AbandonUpload(reason="segments are not copied early any more")
    if upload.base_offset != active.base_offset:
        is_closed = any(segment.base_offset == upload.base_offset for segment in facts.segments)
        return None if is_closed else AbandonUpload(reason="the segment was deleted")
    if now_ms - upload.begun_ms > MAX_UPLOAD_MS:
        return AbandonUpload(reason="the upload was begun long ago")
    if active.size_bytes - upload.sent_bytes >= part_bytes and limit > upload.checked_offset:
        return SendParts(end_offset=limit)
    return None
