"""The durable state of a consumer group, changed only by replaying its log.

Records may come in any order that a compacted log can have: an assignment before its member, a tombstone of an unknown
member.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from trioka.protocol.errors import UnknownMemberId
from trioka.protocol.internal_records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from trioka.protocol.schema import Entry

from ..assignors import Assignment
from ..decision import StoredRecord
from ..settings import ConsumerSettings, CoordinatorContext
from .member import ConsumerMember
from .subscriptions import Resolved, Subscriptions


class ConsumerState:
    def __init__(self, group_id: str, context: CoordinatorContext) -> None:
        """An empty group. One that a heartbeat with epoch 0 creates need not be kept: replaying the heartbeat's records
        creates the group again (and `heartbeat` changes nothing in it)."""
        self.id = group_id
        self.context = context
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 1
        self.target_ms = 0  # when it was computed; 0: unknown
        self.targets: dict[str, Assignment] = {}
        self.members: dict[str, ConsumerMember] = {}
        self.instances: dict[str, str] = {}  # member ids by instance id
        self.subscriptions = Subscriptions()
        self.has_partition_metadata = False
        self.is_dead = False  # its tombstone was replayed: the owner must drop it
        self.patterns_seen = (-1, 0)  # soft: metadata offset and time of the last resolution that changed nothing
        self._owners: dict[bytes, dict[int, str]] = {}

    @property
    def settings(self) -> ConsumerSettings:
        return self.context.consumer(self.id)

    # -- the log -------------------------------------------------------------------------------------------------------

    def replay(self, kept: StoredRecord) -> None:
        """Replays a record of protocol.internal_records.consumer_groups, or a tombstone, with a key of this group. A
        record with a value creates an unknown group; the caller ignores tombstones of unknown groups."""
        REPLAYS[type(kept.key)](self, kept.key, kept.value)

    def _replay_member(self, key: ConsumerGroupMemberMetadataKey, value: Entry | None) -> None:
        before = self.members.get(key.member_id)
        if value is not None:
            assert isinstance(value, ConsumerGroupMemberMetadataValue)
            self._put(before, (before or ConsumerMember(id=key.member_id)).with_metadata(value))
        elif before is not None:
            self._put(before, before.without_partitions())
            self.subscriptions.exchange(before, None)
            del self.members[before.id]
            if before.instance_id is not None and self.instances.get(before.instance_id) == before.id:
                del self.instances[before.instance_id]

    def _replay_placed(self, key: ConsumerGroupCurrentMemberAssignmentKey, value: Entry | None) -> None:
        before = self.members.get(key.member_id)
        if value is not None:
            assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
            self._put(before, (before or ConsumerMember(id=key.member_id)).placed(value))
        elif before is not None:
            self._put(before, before.without_partitions())

    def _replay_target(self, key: ConsumerGroupTargetAssignmentMemberKey, value: Entry | None) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
            return
        assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
        self.targets[key.member_id] = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}

    def _replay_target_epoch(self, key: ConsumerGroupTargetAssignmentMetadataKey, value: Entry | None) -> None:
        if value is None:
            self.target_epoch, self.target_ms = -1, 0
            return
        assert isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
        self.target_epoch, self.target_ms = value.assignment_epoch, value.assignment_timestamp

    def _replay_epoch(self, key: ConsumerGroupMetadataKey, value: Entry | None) -> None:
        self.is_dead = value is None
        if value is not None:
            assert isinstance(value, ConsumerGroupMetadataValue)
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _replay_partition_metadata(self, key: ConsumerGroupPartitionMetadataKey, value: Entry | None) -> None:
        self.has_partition_metadata = value is not None

    def _replay_expression(self, key: ConsumerGroupRegularExpressionKey, value: Entry | None) -> None:
        resolved = None
        if value is not None:
            assert isinstance(value, ConsumerGroupRegularExpressionValue)
            resolved = Resolved(topics=frozenset(value.topics), version=value.version, at_ms=value.timestamp)
        self.subscriptions.resolve(key.regular_expression, resolved)

    def _put(self, before: ConsumerMember | None, after: ConsumerMember) -> None:
        self.subscriptions.exchange(before, after)
        for owned in () if before is None else (before.assigned, before.revoking):
            for topic, partitions in owned.items():
                owners = self._owners[topic]
                for partition in partitions:
                    if owners.get(partition) == after.id:
                        del owners[partition]
        for owned in (after.assigned, after.revoking):
            for topic, partitions in owned.items():
                self._owners.setdefault(topic, {}).update(dict.fromkeys(partitions, after.id))
        self.members[after.id] = after
        if after.instance_id is not None:
            self.instances[after.instance_id] = after.id

    # -- queries -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        is_stable = all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return "Stable" if is_stable else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> ConsumerMember:
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.id}.")
        return found

    def is_taken(self, topic: bytes, partition: int) -> bool:
        """Whether a member owns the partition or still has to revoke it."""
        return partition in self._owners.get(topic, {})

    def target_of(self, member: ConsumerMember) -> Assignment:
        """The target of a member. A static member that replaces another one inherits its target."""
        member_id: str | None = member.id
        if member.instance_id is not None:
            member_id = self.instances.get(member.instance_id)
        return {} if member_id is None else self.targets.get(member_id, {})

    def assignor(self, leaving: Iterable[ConsumerMember] = (), coming: Iterable[ConsumerMember] = ()) -> str:
        """The assignor that most members prefer; on a tie or without preferences, the first of the broker's list."""
        counts = dict.fromkeys(self.settings.assignors, 0)
        for members, change in ((self.members.values(), 1), (leaving, -1), (coming, 1)):
            for member in members:
                if member.assignor in counts:
                    counts[member.assignor] += change
        return max(counts, key=counts.__getitem__)


REPLAYS: Final[Mapping[type[Entry], Callable[..., None]]] = {
    ConsumerGroupMetadataKey: ConsumerState._replay_epoch,
    ConsumerGroupPartitionMetadataKey: ConsumerState._replay_partition_metadata,
    ConsumerGroupMemberMetadataKey: ConsumerState._replay_member,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerState._replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerState._replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerState._replay_placed,
    ConsumerGroupRegularExpressionKey: ConsumerState._replay_expression,
}
