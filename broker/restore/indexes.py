"""The indexes of a segment whose `.indexes` object is damaged, computed again from its `.log` object. Blocks.

The checksum in the manifest is the proof: what is computed counts only if it is the object, to the byte. Of the five
indexes each may be the damaged one, so all mixtures of stored and computed ones are compared with it: a producer
snapshot, for example, may have had producers that expired since.
"""

from collections.abc import Sequence
from itertools import product
from typing import Final

from trioka.archive.errors import DamagedSegment
from trioka.archive.partition import ArchivedPartition
from trioka.archive.segment_reader import SegmentReader
from trioka.archive.store import ReadOnlyStore
from trioka.protocol.checksum import crc32c
from trioka.protocol.errors import ProtocolError
from trioka.protocol.remote_segment.indexes import (
    MAX_INDEXES_BYTES,
    AbortedTransaction,
    SegmentIndexes,
    decode_indexes,
    decode_leader_epochs,
    encode_leader_epochs,
    encode_transactions,
)
from trioka.protocol.remote_segment.manifest import SegmentManifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix
from trioka.storage.files.disk import OsDisk
from trioka.storage.producers.producer_snapshot import SnapshotFiles, decode, encode
from trioka.storage.producers.producer_state import ProducerState

from ..tier.store.segment_objects import Scan

FIELDS: Final = ("offset", "timestamp", "producer_snapshot", "leader_epoch", "transaction")


class UnreadableIndexes(Exception):
    """They are damaged, and cannot be computed again."""

    def __init__(self, manifest: SegmentManifest) -> None:
        super().__init__(manifest.segment.key(ObjectSuffix.INDEXES))
        self.manifest = manifest


class RepairedPartition(ArchivedPartition):
    """A partition that computes damaged indexes again. `repaired` has the objects, by key. UnreadableIndexes."""

    def __init__(
        self,
        store: ReadOnlyStore,
        topic: str,
        partition: int,
        manifests: Sequence[SegmentManifest],
        *,
        interval_bytes: int,
    ) -> None:
        self.repaired: dict[str, bytes] = {}
        self._interval_bytes = interval_bytes
        super().__init__(store, topic, partition, manifests)

    def indexes(self, manifest: SegmentManifest) -> SegmentIndexes:
        try:
            return super().indexes(manifest)
        except DamagedSegment:
            data = self._computed(manifest)
            if data is None:
                raise UnreadableIndexes(manifest) from None
        self.repaired[manifest.segment.key(ObjectSuffix.INDEXES)] = data
        found = self._indexes[manifest] = decode_indexes(data, manifest.indexes)
        return found

    def _computed(self, manifest: SegmentManifest) -> bytes | None:
        before = next((each for each in self.manifests if each.next_offset == manifest.start_offset), None)
        try:
            known = None if before is None else self.indexes(before)
            return computed_object(self._store, manifest, known, interval_bytes=self._interval_bytes)
        except (DamagedSegment, UnreadableIndexes, ProtocolError):
            return None


def computed_object(
    store: ReadOnlyStore, manifest: SegmentManifest, before: SegmentIndexes | None, *, interval_bytes: int
) -> bytes | None:
    """The object, from the segment and the indexes of the one before it; None if it was another one."""
    if manifest.content is None:
        return None  # there is no checksum to prove it
    computed = _computed(store, manifest, before, interval_bytes)
    variants = [computed]
    stored = store.read(manifest.segment.key(ObjectSuffix.INDEXES), limit=MAX_INDEXES_BYTES)
    if len(stored) == manifest.indexes.size:
        variants.append(decode_indexes(stored, manifest.indexes))
    for choice in product(variants, repeat=len(FIELDS)):
        parts = {name: getattr(source, name) for name, source in zip(FIELDS, choice, strict=True)}
        data = SegmentIndexes(**parts).encode()
        if crc32c(data) == manifest.content.indexes_crc32c and len(data) == manifest.indexes.size:
            return data
    return None


def _computed(
    store: ReadOnlyStore, manifest: SegmentManifest, before: SegmentIndexes | None, interval_bytes: int
) -> SegmentIndexes:
    scan = Scan(manifest.start_offset, interval_bytes)
    producers = ProducerState(SnapshotFiles(OsDisk(), ""))  # it reads and writes no files
    if before is not None:
        producers.load(decode("the segment before", before.producer_snapshot), manifest.start_offset)
    aborted = []
    for batch in SegmentReader(store, manifest).batches():
        scan.add(batch.position, batch.header)
        ended = producers.replay(batch.data, batch.header)
        if ended is not None and ended.aborted:
            aborted.append(AbortedTransaction(*ended[:4]))
    scan.end()
    chain = [] if before is None else list(decode_leader_epochs(before.leader_epoch))
    last = chain[-1].epoch if chain else -1
    chain += [entry for entry in manifest.leader_epochs if entry.epoch > last]
    return SegmentIndexes(
        offset=bytes(scan.offsets),
        timestamp=bytes(scan.times),
        producer_snapshot=encode(producers.snapshot()),
        leader_epoch=encode_leader_epochs(chain),
        transaction=encode_transactions(aborted) if aborted else None,
    )
