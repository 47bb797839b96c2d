"""Committed offsets of groups, by topic and partition.

A commit in a transaction is pending, by producer id, until the transaction's marker (G3) makes it effective or drops
it. The commit that was written last wins, not the one whose marker came last: a committed transaction does not
overwrite a commit that was written after its own. So every commit has its offset in the log. Compaction requires this,
because it keeps the record that was written last.

An offset expires after its group has been unable to use it for a long time (KIP-211): `GroupOfOffsets` returns the
start of that time.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from trioka.protocol.internal_records.classic_groups import OffsetCommitKey, OffsetCommitValue

from .decision import Producer, StoredRecord

NO_EXPIRY: Final = -1
NO_EPOCH: Final = -1


class CommittedOffset(NamedTuple):
    """One commit. `written_at` is its offset in the log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int  # NO_EXPIRY: the retention applies
    topic_id: bytes
    written_at: int


class GroupTopicPartition(NamedTuple):
    """The key of a commit: group, topic, partition."""

    group: str
    topic: str
    partition: int


class GroupOfOffsets(Protocol):
    """The state of a group that the expiry of its offsets depends on."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def offsets_expire_since(self, commit_ms: int) -> int | None:
        """The start of the retention of an offset that was committed at `commit_ms`; None: it does not expire now."""
        ...


class _Pending:
    """The commits of one producer's open transaction."""

    __slots__ = ("commits", "groups")

    def __init__(self) -> None:
        self.commits: dict[GroupTopicPartition, CommittedOffset] = {}
        self.groups: set[str] = set()


class Offsets:
    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: dict[int, _Pending] = {}  # by producer id
        self._open: defaultdict[str, set[int]] = defaultdict(set)  # producers with pending commits, by group

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, offset: int, producer: Producer | None
    ) -> None:
        if value is None:
            self._forget(GroupTopicPartition(key.group, key.topic, key.partition))
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            offset,
        )
        if producer is None:
            self._put(key.group, key.topic, key.partition, committed)
        else:
            pending = self._pending.setdefault(producer.id, _Pending())
            pending.commits[GroupTopicPartition(key.group, key.topic, key.partition)] = committed
            pending.groups.add(key.group)
            self._open[key.group].add(producer.id)

    def replay_end(self, producer: Producer, is_committed: bool) -> None:
        ended = self._pending.pop(producer.id, None)
        if ended is None:
            return
        for group in ended.groups:
            self._open[group].discard(producer.id)
            if not self._open[group]:
                del self._open[group]
        if not is_committed:
            return
        for place, committed in ended.commits.items():
            before = self.get(*place)
            if before is None or before.written_at < committed.written_at:
                self._put(*place, committed)

    def _put(self, group: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        self._by_group.setdefault(group, {}).setdefault(topic, {})[partition] = committed

    def _forget(self, place: GroupTopicPartition) -> None:
        of_group = self._by_group.get(place.group, {})
        of_topic = of_group.get(place.topic, {})
        of_topic.pop(place.partition, None)
        if not of_topic:
            of_group.pop(place.topic, None)
        if not of_group:
            self._by_group.pop(place.group, None)
        for producer_id in self._open.get(place.group, ()):
            self._pending[producer_id].commits.pop(place, None)

    # -- queries -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(len(of_topic) for of_group in self._by_group.values() for of_topic in of_group.values())

    def get(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        of_group = self._by_group.get(group)
        of_topic = None if of_group is None else of_group.get(topic)
        return None if of_topic is None else of_topic.get(partition)

    def of_group(self, group: str) -> Iterator[tuple[str, dict[int, CommittedOffset]]]:
        """Committed offsets by topic; pending ones are not included."""
        yield from self._by_group.get(group, {}).items()

    def is_pending(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a pending commit of this partition."""
        place = GroupTopicPartition(group, topic, partition)
        return any(place in self._pending[producer_id].commits for producer_id in self._open.get(group, ()))

    def has_open_transactions(self, group: str) -> bool:
        return bool(self._open.get(group))

    # -- tombstones ----------------------------------------------------------------------------------------------------

    def tombstones_of(self, group: str) -> Iterator[StoredRecord]:
        """Tombstones for a deleted group: of its committed and its pending offsets."""
        for topic, partitions in self.of_group(group):
            for partition in partitions:
                yield tombstone(group, topic, partition)
        for producer_id in self._open.get(group, ()):
            for place in self._pending[producer_id].commits:
                if place.group == group and self.get(*place) is None:
                    yield tombstone(*place)

    def groups_in_topics(self, topics: Collection[str]) -> list[str]:
        """Groups with committed or pending offsets in one of these topics."""
        committed = {group for group, of_group in self._by_group.items() if not of_group.keys().isdisjoint(topics)}
        pending = {place.group for each in self._pending.values() for place in each.commits if place.topic in topics}
        return sorted(committed | pending)

    def tombstones_of_topics(self, group: str, gone: Mapping[str, bytes | None]) -> Iterator[StoredRecord]:
        """Tombstones for deleted topics, given by name with the id of the present topic of that name, if any, whose
        offsets stay."""
        of_group = self._by_group.get(group, {})
        for topic in gone.keys() & of_group.keys():
            for partition, committed in of_group[topic].items():
                place = GroupTopicPartition(group, topic, partition)
                if all(one.topic_id != gone[topic] for one in (committed, *self._pending_at(place))):
                    yield tombstone(*place)
        for producer_id in self._open.get(group, ()):
            for place in self._pending[producer_id].commits:
                if place.group != group or place.topic not in gone or self.get(*place) is not None:
                    continue
                if all(one.topic_id != gone[place.topic] for one in self._pending_at(place)):
                    yield tombstone(*place)

    def _pending_at(self, place: GroupTopicPartition) -> Iterator[CommittedOffset]:
        for producer_id in self._open.get(place.group, ()):
            if (pending := self._pending[producer_id].commits.get(place)) is not None:
                yield pending

    def expired(
        self, group_id: str, group: GroupOfOffsets, retention_ms: int, now_ms: int, limit: int
    ) -> tuple[list[StoredRecord], bool]:
        """Tombstones of expired offsets, at most `limit`, and whether no offsets remain then, so that the group can be
        removed."""
        gone: list[StoredRecord] = []
        remains = self.has_open_transactions(group_id)
        for topic, partitions in self.of_group(group_id):
            is_subscribed = group.is_subscribed_to(topic)
            for partition, committed in partitions.items():
                if (
                    is_subscribed
                    or not _is_expired(committed, group, retention_ms, now_ms)
                    or self.is_pending(group_id, topic, partition)
                ):
                    remains = True
                elif len(gone) == limit:
                    return gone, False
                else:
                    gone.append(tombstone(group_id, topic, partition))
        return gone, not remains


def _is_expired(committed: CommittedOffset, group: GroupOfOffsets, retention_ms: int, now_ms: int) -> bool:
    since = group.offsets_expire_since(committed.commit_ms)
    if since is None:
        return False
    if committed.expire_ms != NO_EXPIRY:  # clients before KIP-211 could set it with each commit
        return now_ms >= committed.expire_ms
    return now_ms - since >= retention_ms


def tombstone(group: str, topic: str, partition: int) -> StoredRecord:
    return StoredRecord(OffsetCommitKey(group=group, topic=topic, partition=partition), None)
