"""What becomes of a cluster whose brokers are gone: a decision, from what the object store has. Pure.

    partition of a tiered topic     its log begins behind the last segment; the segments stay where they are
    partition without a segment     empty, and starts at offset 0
    __remote_log_metadata           its records are written again, from the manifests
    __consumer_offsets              the committed offsets, at most at the end of the restored log

All partitions come back on the restored nodes, each with as many replicas as before, if there are so many nodes. All
of them are in sync, since they are built alike, and none leads: the first node that is unfenced does. The leader epoch
of each partition is LEADER_EPOCH_GAP above all that the object store knows, so that no leader of the old cluster of
which there is no trace had it.

A transaction is open at the end of a partition if its marker was not copied any more. Whether it was committed is not
known, and no coordinator knows it any more: it is aborted, and listed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, NamedTuple, TypeAlias

from trioka.archive.lineage import Chain, Hole, Slice
from trioka.cluster.image.configs import ConfigResourceType
from trioka.cluster.image.metadata import Metadata
from trioka.cluster.image.partition import NO_LEADER, Partition, RecoveryState
from trioka.cluster.image.topics import REMOTE_LOG_METADATA_TOPIC, Topic
from trioka.cluster.quorum.metadata_log import MetadataRecord
from trioka.coordinator.offsets import CommittedOffset, GroupTopicPartition
from trioka.protocol.internal_records.metadata import ConfigRecord, ProducerIdsRecord, TopicRecord
from trioka.protocol.lazy_dataclass import frozen

Place: TypeAlias = tuple[bytes, int]  # topic id and partition

LEADER_EPOCH_GAP: Final = 100
METADATA_OFFSET_GAP: Final = 1_000_000
"""The restored metadata log begins so far behind the copy: what the old cluster still wrote lies in between."""

PRODUCER_ID_GAP: Final = 1_000_000
"""So many ids the old cluster may have handed out after the copy. They must not be handed out again."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
NO_EPOCH: Final = -1


@frozen
class ArchivedLog:
    """What the object store has of one partition: its lineage, covered by slices."""

    slices: tuple[Slice, ...]
    holes: tuple[Hole, ...]
    chain: Chain  # the leader epochs of the whole log
    producer_snapshot: bytes | None  # at the end; None: no segment ends there
    open_transactions: Mapping[int, int]  # producer id → first offset, at the end
    repaired: Mapping[str, bytes] = field(default_factory=dict)  # .indexes objects that are damaged in the store


@frozen
class PartitionPlan:
    """One partition of the restored cluster; both ends are exclusive."""

    topic: str
    topic_id: bytes
    index: int
    start_offset: int
    end_offset: int
    newest_ms: int  # of a record; -1 if there is none
    leader_epoch: int
    holes: tuple[Hole, ...]
    open_transactions: Mapping[int, int]
    log: ArchivedLog | None  # None: it comes back empty

    @property
    def segments(self) -> int:
        return 0 if self.log is None else len(self.log.slices)


class CutOffset(NamedTuple):
    """A committed offset that lay behind the end of the restored log."""

    place: GroupTopicPartition
    was: int
    becomes: int


@frozen
class OffsetsPlan:
    kept: Mapping[GroupTopicPartition, CommittedOffset]  # cut ones included
    cut: tuple[CutOffset, ...]
    dropped: tuple[GroupTopicPartition, ...]  # of topics that do not exist any more


def plan_partition(topic: Topic, partition: Partition, archived: ArchivedLog | None) -> PartitionPlan:
    slices = () if archived is None else archived.slices
    known = [partition.leader_epoch]
    known += [slice_.manifest.uploader_epoch for slice_ in slices]
    if archived is not None:
        known += [entry.epoch for entry in archived.chain]
    return PartitionPlan(
        topic=topic.name,
        topic_id=topic.topic_id,
        index=partition.index,
        start_offset=slices[0].start_offset if slices else 0,
        end_offset=slices[-1].end_offset if slices else 0,
        newest_ms=max((slice_.manifest.max_timestamp_ms for slice_ in slices), default=-1),
        leader_epoch=max(known) + LEADER_EPOCH_GAP,
        holes=() if archived is None else archived.holes,
        open_transactions={} if archived is None else archived.open_transactions,
        log=archived if slices else None,
    )


def plan_offsets(
    committed: Mapping[GroupTopicPartition, CommittedOffset], plans: Iterable[PartitionPlan]
) -> OffsetsPlan:
    """An offset that is behind the end of its log would be read as a position in records that come later."""
    by_place = {(plan.topic, plan.index): plan for plan in plans}
    kept: dict[GroupTopicPartition, CommittedOffset] = {}
    cut: list[CutOffset] = []
    dropped: list[GroupTopicPartition] = []
    for place, found in sorted(committed.items()):
        plan = by_place.get((place.topic, place.partition))
        is_other = plan is not None and found.topic_id not in (bytes(16), plan.topic_id)
        if plan is None or is_other:
            dropped.append(place)
        elif found.offset > plan.end_offset:
            kept[place] = found._replace(offset=plan.end_offset, leader_epoch=NO_EPOCH)
            cut.append(CutOffset(place, found.offset, plan.end_offset))
        else:
            kept[place] = found
    return OffsetsPlan(kept=kept, cut=tuple(cut), dropped=tuple(dropped))


def place(image: Metadata, nodes: Sequence[int]) -> Mapping[Place, tuple[int, ...]]:
    """The replicas of each partition, spread over the restored nodes."""
    placed = {}
    for number, (topic, partition) in enumerate(image.topics.partitions()):
        first = number % len(nodes)
        around = (*nodes[first:], *nodes[:first])
        placed[topic.topic_id, partition.index] = around[: len(partition.replicas)]
    return placed


def restored_records(
    image: Metadata,
    plans: Sequence[PartitionPlan],
    *,
    placed: Mapping[Place, tuple[int, ...]],
    directories: Mapping[int, bytes],
) -> Iterator[MetadataRecord]:
    """The metadata of the restored cluster: topics with their ids, configurations, quotas, ACLs, users and features as
    they were. Brokers and controllers register again. Configurations of single brokers are left out: they name the
    listeners and directories of machines that are gone."""
    yield from image.features.records()
    by_place = {(plan.topic_id, plan.index): plan for plan in plans}
    for topic in image.topics:
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions.values():
            replicas = placed[topic.topic_id, partition.index]
            plan = by_place[topic.topic_id, partition.index]
            yield _restored(partition, plan, replicas, directories).record(topic.topic_id)
    yield from (record for record in image.configs.records() if not is_of_one_broker(record))
    yield from image.quotas.records()
    yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id + PRODUCER_ID_GAP)
    yield from image.access.acls.records()
    yield from image.access.scram_records()
    yield from image.access.token_records()


def is_of_one_broker(record: MetadataRecord) -> bool:
    return (
        isinstance(record, ConfigRecord)
        and record.resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        and record.resource_name != ""
    )


def _restored(
    partition: Partition, plan: PartitionPlan, replicas: tuple[int, ...], directories: Mapping[int, bytes]
) -> Partition:
    return replace(
        partition,
        replicas=replicas,
        directories=tuple(directories[node] for node in replicas),
        isr=replicas,
        leader=NO_LEADER,
        leader_epoch=plan.leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        removing_replicas=(),
        adding_replicas=(),
        leader_recovery_state=RecoveryState.RECOVERED,
        eligible_leader_replicas=(),
        last_known_elr=(),
    )


def is_rewritten(topic: str) -> bool:
    """Whether the log of this topic is written from other sources than its own segments."""
    return topic in (OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC)
