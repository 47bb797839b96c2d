"""The daily orphan sweep of a broker: deletes what no record knows (cluster/remote_log/sweep.py has the rules).

The same listing shows which finished segments lack objects. The leader of their partition looks for those objects again
(segment_losses.py) before it believes that they are lost; what is still on a disk is then copied again.

Each broker sweeps the partitions whose records are in a partition of `__remote_log_metadata` that it leads, deleted
topics included. `trioka tier sweep` does the same from outside.
"""

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.remote_log.jobs import ManifestKey
from trioka.cluster.remote_log.metadata import RemoteSegment
from trioka.cluster.remote_log.sweep import ListedObject, Orphan, garbage, is_complete, orphans
from trioka.protocol.errors import KafkaError, ProtocolError
from trioka.protocol.remote_segment.manifest import MAX_MANIFEST_BYTES, Tombstone, decode_manifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix, TopicIdPartition, parse_key

from .reads.reader import Loss
from .store.object_store import ObjectInfo, ObjectNotFound, ObjectStoreError

if TYPE_CHECKING:
    from .tiered_storage import TieredStorage

log = logging.getLogger("trioka.tier")

SWEEP_S: Final = 24 * 60 * 60.0
FIRST_SWEEP_S: Final = 60 * 60.0  # after the start, at the latest
MAX_ORPHANS: Final = 100_000  # objects without a record that one sweep looks at; the next one finds the others


class OrphanSweep:
    def __init__(self, tier: "TieredStorage") -> None:
        self._tier = tier

    async def run(self) -> None:
        await trio.sleep(self._tier.broker.random.uniform(0, FIRST_SWEEP_S))
        while True:
            try:
                await self.sweep()
            except (ObjectStoreError, KafkaError) as error:
                log.warning("the object store could not be swept, the next attempt is tomorrow: %s", error)
            await trio.sleep(SWEEP_S)

    async def sweep(self) -> int:
        """Returns the number of deleted objects."""
        tier = self._tier
        await tier.ownership.check_recently()
        expected = self._finished_segments()
        listed, seen = await self._list()
        self._report_missing(expected, seen)
        if not listed:
            return 0
        # Only now: a copy's first record is older than its objects, so whatever is listed is known then.
        for index in {self._index_of(each) for each in listed}:
            await tier.topic.caught_up(index)
        known = {segment_id for partition in tier.topic.image for segment_id in partition.segments}
        count = 0
        foreign: Counter[str] = Counter()
        for orphan in orphans(listed, known, tier.now_ms()):
            if tier.topic.leads(self._index_of(orphan.objects[0])):
                count += await self._sweep_orphan(orphan, foreign)
        for cluster_id, segments in foreign.items():
            log.warning(
                "%d segments in %s are of cluster %s and are left alone: each cluster needs a prefix of its own",
                segments,
                tier.store.url,
                cluster_id,
            )
        if count:
            log.info("swept %d objects that belonged to no segment", count)
        tier.counts.swept_objects += count
        return count

    def _finished_segments(self) -> dict[bytes, tuple[TopicIdPartition, RemoteSegment]]:
        """Of the partitions that this broker leads."""
        return {
            segment.segment_id: (about, segment)
            for about, task in self._tier.tasks.items()
            if task.is_ready
            for segment in self._tier.topic.partition(about).finished
        }

    async def _list(self) -> tuple[list[ListedObject], Counter[bytes]]:
        """The objects that this broker answers for and that belong to no known segment; and of each known segment, how
        many objects there are."""
        tier = self._tier
        found: list[ListedObject] = []
        seen: Counter[bytes] = Counter()
        known = {segment_id for partition in tier.topic.image for segment_id in partition.segments}
        async for page in tier.store.list_pages(""):
            for info in page:
                each = listed_object(info)
                if each is None:
                    continue
                if each.segment.segment_id in known:
                    seen[each.segment.segment_id] += 1
                elif len(found) < MAX_ORPHANS and tier.topic.leads_records_of(each.segment.topic_id_partition):
                    found.append(each)
        return found, seen

    def _report_missing(
        self, expected: dict[bytes, tuple[TopicIdPartition, RemoteSegment]], seen: Counter[bytes]
    ) -> None:
        for segment_id, (about, segment) in expected.items():
            now = self._tier.topic.partition(about).segments.get(segment_id)
            if seen[segment_id] < len(ObjectSuffix) and now is not None and now.is_finished:
                self._tier.losses.report(about, segment, Loss.MISSING)

    def _index_of(self, each: ListedObject) -> int:
        return self._tier.topic.index_of(each.segment.topic_id_partition)

    async def _sweep_orphan(self, orphan: Orphan, foreign: Counter[str]) -> int:
        """`foreign` counts segments by the id of the cluster that wrote them, if it is another one."""
        tier = self._tier
        manifest, writer = await self._manifest_key(orphan)
        if writer not in (None, tier.cluster_id):
            foreign[str(writer)] += 1
            return 0
        if is_complete(orphan, manifest):
            log.error(
                "the segment %s is complete in %s, and %s has no record of it: its records are lost. It is kept",
                orphan.segment,
                tier.store.url,
                "__remote_log_metadata",
            )
            return 0
        suffixes = garbage(orphan, manifest, tier.now_ms())
        for suffix in suffixes:
            tier.require_ownership()
            await tier.store.delete([orphan.segment.key(suffix)])
        return len(suffixes)

    async def _manifest_key(self, orphan: Orphan) -> tuple[ManifestKey, str | None]:
        """What is at the manifest's key, and the id of the cluster that wrote it, if it is known. What is neither a
        manifest nor a tombstone counts as a manifest, so that it is kept with its data."""
        if ObjectSuffix.MANIFEST not in orphan.suffixes:
            return ManifestKey.NOTHING, None
        try:
            data = await self._tier.store.get(orphan.segment.key(ObjectSuffix.MANIFEST), MAX_MANIFEST_BYTES)
            found = decode_manifest(bytes(data))
        except ObjectNotFound:
            return ManifestKey.NOTHING, None
        except ProtocolError:
            return ManifestKey.MANIFEST, None
        kind = ManifestKey.TOMBSTONE if isinstance(found, Tombstone) else ManifestKey.MANIFEST
        return kind, None if found.uploader is None else found.uploader.cluster_id


def listed_object(info: ObjectInfo) -> ListedObject | None:
    """None for an object that is not part of a segment."""
    try:
        segment, suffix = parse_key(info.key)
    except ProtocolError:
        return None
    return ListedObject(segment=segment, suffix=suffix, size=info.size, last_modified_ms=info.last_modified_ms)
