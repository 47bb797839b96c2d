"""Names of the events of tiered storage in the log (formatters.py)."""

from collections.abc import Mapping
from typing import Final

from .event import Event

LOGGER: Final = "trioka.tier"

_BY_SENTENCE: Final = {
    "topic %s, which tiered storage needs, could not be created: %s": Event(
        "tier.topic_not_created", ("topic", "reason")
    ),
    "the object store does not answer, and is tried again; nothing is copied meanwhile: %s": Event(
        "tier.store_unanswered_at_start", ("reason",)
    ),
    "the object store does not answer: %s": Event("tier.store_unanswered", ("reason",)),
    "the object store answers: %s": Event("tier.store_answers", ("store",)),
    "tiered storage stops writing: %s": Event("tier.superseded", ("reason",)),
    "the incarnation of the cluster could not be checked: %s": Event("tier.incarnation_unchecked", ("reason",)),
    "%s-%d is not replayed: %s": Event("tier.metadata_not_replayed", ("topic", "partition", "reason")),
    "%s: the record at %d is skipped: %s": Event("tier.record_skipped", ("topic", "offset", "reason")),
    "%s: waiting for the remote log metadata: %s": Event("tier.metadata_awaited", ("partition", "reason")),
    "%s: offsets %d to %d are in the object store": Event(
        "tier.segment_copied", ("partition", "start_offset", "end_offset")
    ),
    "%s: the log starts at %d now: what was before %s": Event("tier.log_start_moved", ("partition", "offset", "cause")),
    "%s: %s; the next attempt is in %.1f s": Event("tier.attempt_failed", ("partition", "reason", "pause_s")),
    "%s: deleting offset %d to %d: %s": Event(
        "tier.segment_deleted", ("partition", "start_offset", "end_offset", "cause")
    ),
    "%s: local segments are not deleted: %s": Event("tier.local_segments_kept", ("partition", "reason")),
    "%s: offsets %d to %d have lost objects in %s": Event(
        "tier.segment_missing", ("partition", "start_offset", "end_offset", "store")
    ),
    "%s: the topic was deleted, its %d segments go from the object store": Event(
        "tier.topic_deleted", ("partition", "segments")
    ),
    "%s: segments of the deleted topic remain, the next attempt is in %.1f s: %s": Event(
        "tier.deletion_failed", ("partition", "pause_s", "reason")
    ),
    "swept %d objects that belonged to no segment": Event("tier.swept", ("objects",)),
    "the object store could not be swept, the next attempt is tomorrow: %s": Event("tier.sweep_failed", ("reason",)),
    "the segment %s is complete in %s, and %s has no record of it: its records are lost. It is kept": Event(
        "tier.segment_unrecorded", ("segment", "store", "topic")
    ),
    "the copies for a restore in %s are not up to date: %s": Event("tier.copies_failed", ("store", "reason")),
    "%d segments in %s are of cluster %s and are left alone: each cluster needs a prefix of its own": Event(
        "tier.foreign_segments", ("segments", "store", "cluster")
    ),
    "%s: the early upload of the segment at %d ends: %s": Event(
        "tier.early_upload_ended", ("partition", "offset", "reason")
    ),
    "an upload to %s was not removed, and is left to a lifecycle rule: %s": Event(
        "tier.upload_not_removed", ("key", "reason")
    ),
    "%s: the producers before %d come from the object store": Event("tier.producers_fetched", ("partition", "offset")),
    "the snapshot %s is ignored, and the topic is read: %s": Event("tier.snapshot_ignored", ("file", "reason")),
    "the snapshot %s is not written: %s": Event("tier.snapshot_not_written", ("file", "reason")),
    "%s-%d has lost records, and is read again": Event("tier.metadata_lost", ("topic", "partition")),
    "%s was deleted: what is only in %s cannot be read any more": Event("tier.metadata_deleted", ("topic", "store")),
    "%s: nothing can be decided: %s": Event("tier.not_decided", ("partition", "reason")),
    "%s lost its memory and cannot continue behind the object store: %s; it has no leader until then, "
    "and the next attempt is in %.1f s": Event("tier.memory_not_restored", ("partition", "reason", "pause_s")),
    "%s: %s has no object %s: the segment's records are lost": Event(
        "tier.object_missing", ("partition", "store", "key")
    ),
    "%s lost its memory, and nothing of it is in the object store": Event("tier.memory_lost", ("partition",)),
    "%s goes on to offset %d, behind the object store": Event("tier.memory_ahead", ("partition", "offset")),
    "%s lost its memory, and continues at offset %d: records from there on were not in the object store, "
    "and are lost": Event("tier.memory_restored", ("partition", "offset")),
    "%s: the markers of transactions of producers %s are lost: aborted": Event(
        "tier.transactions_aborted", ("partition", "producers")
    ),
    "internal error: the restore of %s has ended": Event("bug.tier_restore", ("partition",)),
    "a read from the object store failed: %s": Event("tier.read_failed", ("reason",)),
    "internal error: the task of %s has ended": Event("bug.tier_task", ("partition",)),
    "internal error: the segments of %s are not deleted": Event("bug.tier_deletion", ("partition",)),
}

TIER_EVENTS: Final[Mapping[tuple[str, str], Event]] = {
    (LOGGER, sentence): event for sentence, event in _BY_SENTENCE.items()
}
