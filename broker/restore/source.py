"""Reads from the object store what a cluster is restored from. Blocks.

_trioka/<cluster id>/…          incarnations, copies of the metadata and of committed offsets (tier/cluster_copies.py)
<topic>-<topic id>/…            segments, whose manifests say which of them make up a log (archive/lineage.py)
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trioka.archive.catalog import ArchivedTopic, Catalog
from trioka.archive.errors import UnknownPartition
from trioka.archive.store import ReadOnlyStore
from trioka.cluster.image.configs import topic_resource
from trioka.cluster.image.metadata import Metadata
from trioka.cluster.image.replay_error import ReplayError
from trioka.cluster.image.topics import REMOTE_LOG_METADATA_TOPIC
from trioka.cluster.quorum.snapshot import SnapshotId, parse_snapshot_name, read_snapshot, snapshot_name
from trioka.coordinator.decision import Producer
from trioka.coordinator.offsets import CommittedOffset, GroupTopicPartition, Offsets
from trioka.coordinator.record_codec import GROUPS
from trioka.protocol import batch
from trioka.protocol.errors import KafkaError, ProtocolError
from trioka.protocol.internal_records.classic_groups import OffsetCommitKey, OffsetCommitValue
from trioka.protocol.lazy_dataclass import frozen
from trioka.protocol.primitives import uuid_text
from trioka.protocol.record import read_marker
from trioka.protocol.remote_segment.indexes import decode_open_transactions
from trioka.protocol.remote_segment.manifest import SegmentManifest
from trioka.protocol.remote_segment.object_key import ObjectSuffix

from ..config.layers import Config, log_config
from ..tier.cluster_copies import OFFSETS_TOPIC, metadata_prefix, offsets_prefix
from ..tier.store.ownership import incarnation_prefix
from .indexes import RepairedPartition, UnreadableIndexes
from .plan import ArchivedLog, OffsetsPlan, PartitionPlan, plan_offsets, plan_partition

MAX_SNAPSHOT_BYTES: Final = 1 << 30
MAX_COPY_BYTES: Final = 256 << 20  # of one object with committed offsets; a broker writes some 8 MiB
_INCARNATION: Final = re.compile(r"incarnation-([0-9]{10})\.json")
_COPY: Final = re.compile(r"([0-9]{10})-([0-9]{20})-([0-9]{20})\.log")


class CannotRestore(Exception):
    """The object store lacks what a restore needs. The text is a sentence for the operator."""


@frozen
class RestorePlan:
    cluster_id: str
    incarnation: int  # the next one
    snapshot: SnapshotId  # the copy of the metadata
    snapshot_ms: int
    image: Metadata
    partitions: tuple[PartitionPlan, ...]
    offsets: OffsetsPlan
    unknown_topics: tuple[str, ...]  # with segments, and without an entry in the metadata

    @property
    def repaired(self) -> dict[str, bytes]:
        """Objects with indexes that are damaged in the store, as they were."""
        return {
            key: data for each in self.partitions if each.log is not None for key, data in each.log.repaired.items()
        }


def find_cluster(store: ReadOnlyStore, cluster_id: str | None) -> str:
    """The only cluster below the URL, or the one that is named."""
    named = store.directories("_trioka/")
    found = [name for name in named if "metadata" in store.directories(incarnation_prefix(name))]
    if not found:
        raise CannotRestore(f"{store.name} has no copy of a cluster's metadata (_trioka/): nothing can be restored")
    if cluster_id is None and len(found) > 1:
        raise CannotRestore(f"{store.name} has {len(found)} clusters, {', '.join(found)}: name one by --cluster-id")
    if cluster_id is not None and cluster_id not in found:
        raise CannotRestore(f"{store.name} has nothing of cluster {cluster_id}, only of {', '.join(found)}")
    return cluster_id or found[0]


def read_plan(store: ReadOnlyStore, cluster_id: str) -> RestorePlan:
    snapshot, written_ms, image = _newest_image(store, cluster_id)
    if image.topics.by_name(REMOTE_LOG_METADATA_TOPIC) is None:
        raise CannotRestore(f"the metadata of cluster {cluster_id} has no topic {REMOTE_LOG_METADATA_TOPIC}")
    catalog, config = Catalog(store), Config()
    in_store = {topic.topic_id: topic for topic in catalog.topics()}
    plans = []
    for topic, partition in image.topics.partitions():
        archived = in_store.get(topic.topic_id)
        interval_bytes = log_config(config.topic(image.configs.get(topic_resource(topic.name)))).index_interval_bytes
        log = None if archived is None else _read_log(store, catalog, archived, partition.index, interval_bytes)
        plans.append(plan_partition(topic, partition, log))
    known = {topic.topic_id for topic in image.topics}
    return RestorePlan(
        cluster_id=cluster_id,
        incarnation=_latest_incarnation(store, cluster_id) + 1,
        snapshot=snapshot,
        snapshot_ms=written_ms,
        image=image,
        partitions=tuple(plans),
        offsets=plan_offsets(_read_offsets(store, cluster_id, image), plans),
        unknown_topics=tuple(
            sorted(
                f"{topic.name} ({uuid_text(topic.topic_id)})"
                for topic in in_store.values()
                if topic.topic_id not in known
            )
        ),
    )


def _latest_incarnation(store: ReadOnlyStore, cluster_id: str) -> int:
    prefix = incarnation_prefix(cluster_id)
    names = (_INCARNATION.fullmatch(found.key.removeprefix(prefix)) for found in store.objects(prefix))
    return max((int(name[1]) for name in names if name), default=0)


def _newest_image(store: ReadOnlyStore, cluster_id: str) -> tuple[SnapshotId, int, Metadata]:
    """A copy that is damaged or of another version is skipped: an older one is better than none."""
    prefix = metadata_prefix(cluster_id)
    found = (parse_snapshot_name(each.key.removeprefix(prefix)) for each in store.objects(prefix))
    problems = []
    for snapshot in sorted((each for each in found if each is not None), reverse=True):
        key = prefix + snapshot_name(snapshot)
        try:
            content = read_snapshot(store.read(key, limit=MAX_SNAPSHOT_BYTES))
            image = Metadata()
            image.load(content.records, snapshot.offset - 1, snapshot.epoch)
        except (KafkaError, ProtocolError, ReplayError) as error:
            problems.append(f"{key}: {error}")
            continue
        return snapshot, content.last_contained_log_timestamp_ms, image
    reason = f"; {problems[0]}" if problems else ""
    raise CannotRestore(f"{store.name} has no readable copy of the metadata of cluster {cluster_id}{reason}")


def _read_log(
    store: ReadOnlyStore, catalog: Catalog, topic: ArchivedTopic, index: int, interval_bytes: int
) -> ArchivedLog | None:
    try:
        manifests = _whole(store, catalog.manifests(topic, index))
    except UnknownPartition:
        return None
    while True:
        try:
            partition = RepairedPartition(store, topic.name, index, manifests, interval_bytes=interval_bytes)
            last = partition.last_slice()
            if last is None:
                return None
            data = partition.indexes(last.manifest).producer_snapshot
        except UnreadableIndexes as damaged:
            manifests = [each for each in manifests if each is not damaged.manifest]
            continue
        return ArchivedLog(
            slices=tuple(partition.slices),
            holes=tuple(partition.holes),
            chain=partition.lineage.chain,
            producer_snapshot=data,
            open_transactions=decode_open_transactions(data),
            repaired=partition.repaired,
        )


def _whole(store: ReadOnlyStore, manifests: list[SegmentManifest]) -> list[SegmentManifest]:
    """Without those whose data or indexes were deleted, by a hand or a lifecycle rule: their offsets are a hole."""
    if not manifests:
        return []
    keys = {each.key for each in store.objects(manifests[0].segment.topic_id_partition.directory)}
    needed = (ObjectSuffix.LOG, ObjectSuffix.INDEXES)
    return [each for each in manifests if all(each.segment.key(suffix) in keys for suffix in needed)]


# -- committed offsets -------------------------------------------------------------------------------------------------


def _read_offsets(
    store: ReadOnlyStore, cluster_id: str, image: Metadata
) -> Mapping[GroupTopicPartition, CommittedOffset]:
    topic = image.topics.by_name(OFFSETS_TOPIC)
    committed: dict[GroupTopicPartition, CommittedOffset] = {}
    for index in () if topic is None else topic.partitions:
        for copies in _copied_logs(store, offsets_prefix(cluster_id, index)):
            replayed = Offsets()
            groups: set[str] = set()
            for copy in copies:
                groups |= copy.replay(replayed)
            for group in groups:
                for name, partitions in replayed.of_group(group):
                    for number, offset in partitions.items():
                        committed[GroupTopicPartition(group, name, number)] = offset
    return committed


@frozen
class _Copy:
    """Batches of one object, of which those before `start_offset` were in another one."""

    key: str
    data: bytes
    start_offset: int

    def replay(self, offsets: Offsets) -> set[str]:
        """Returns the groups with a commit."""
        groups: set[str] = set()
        try:
            for header in batch.headers(self.data):
                if header.base_offset < self.start_offset:
                    continue
                batch.verify(self.data, header)
                producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
                for record in batch.records(self.data, header):
                    if header.is_control:
                        marker = read_marker(record.key, record.value)
                        if producer is not None and marker is not None:
                            offsets.replay_end(producer, marker.commit)
                        continue
                    kept = GROUPS.decode(record.key or b"", record.value)
                    if kept is not None and isinstance(kept.key, OffsetCommitKey):
                        assert kept.value is None or isinstance(kept.value, OffsetCommitValue)
                        offsets.replay(kept.key, kept.value, record.offset, producer)
                        groups.add(kept.key.group)
        except (KafkaError, ProtocolError) as error:
            raise CannotRestore(f"the copy of committed offsets {self.key} is damaged: {error}") from error
        return groups


def _copied_logs(store: ReadOnlyStore, prefix: str) -> Iterator[Iterator[_Copy]]:
    """One log for each incarnation, the newest last: it began with what the one before it had. Older ones are still
    there until the newest has copied everything once."""
    by_incarnation: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for each in store.objects(prefix):
        name = _COPY.fullmatch(each.key.removeprefix(prefix))
        if name is not None:
            by_incarnation[int(name[1])].append((int(name[2]), int(name[3]), each.key))
    for incarnation in sorted(by_incarnation):
        yield _copies(store, sorted(by_incarnation[incarnation]))


def _copies(store: ReadOnlyStore, named: Iterable[tuple[int, int, str]]) -> Iterator[_Copy]:
    """In the order of offsets; each offset is taken once."""
    upto = 0
    for _, end, key in named:
        if end > upto:
            yield _Copy(key=key, data=store.read(key, limit=MAX_COPY_BYTES), start_offset=upto)
            upto = end
