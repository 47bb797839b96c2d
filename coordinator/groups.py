"""The coordinator of the groups whose names hash to one partition of `__consumer_offsets`.

This module finds a group and dispatches by its kind; `classic_group.py`, `consumer_group.py` and `migration.py` decide,
and `offsets.py` has the committed offsets.

A group exists when its records have been replayed. Until then, a group that a request creates is only in
`_uncommitted_groups`, so that a request whose records cannot be written leaves no group behind. A commit without a
member id for a group that does not exist creates a simple group: it has no members, and no records but its offsets.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from trioka.protocol.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    KafkaError,
    StaleMemberEpoch,
    UnknownMemberId,
)
from trioka.protocol.internal_records import consumer_groups
from trioka.protocol.internal_records.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from trioka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from trioka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from trioka.protocol.messages.delete_groups import DeleteGroupsResponse
from trioka.protocol.messages.describe_groups import DescribeGroupsResponse
from trioka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from trioka.protocol.messages.join_group import JoinGroupRequest
from trioka.protocol.messages.leave_group import LeaveGroupRequest
from trioka.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from trioka.protocol.messages.offset_commit import OffsetCommitRequest
from trioka.protocol.messages.offset_delete import OffsetDeleteRequest
from trioka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from trioka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from trioka.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

from . import classic_bridge, migration, offset_requests
from .classic_group import ClassicGroup
from .classic_joining import check_join
from .classic_responses import join_error, leave_unknown_group
from .client import Client
from .consumer_group import CheckPartition, ConsumerGroup, check_heartbeat
from .decision import NOTHING, Decision, Now, Producer, Reply, RequestId, StoredRecord, reply
from .offsets import Offsets
from .settings import CoordinatorContext

Group: TypeAlias = ClassicGroup | ConsumerGroup

CLEAN_UP: Final = ("clean-up",)  # a deadline of the coordinator; those of groups have at least two parts
RECORDS_AT_ONCE: Final = 1000  # of records that may be written separately: other requests are served in between
JOINING: Final = 0  # the epoch of a joining member of a consumer group
FIRST_COMMIT_THAT_MISSES_A_GROUP: Final = 9  # the first version of OffsetCommit with GROUP_ID_NOT_FOUND
FIRST_DESCRIBE_THAT_MISSES_A_GROUP: Final = 6
DEAD: Final = "Dead"

CONSUMER_KEYS: Final = tuple(
    declared
    for name, declared in vars(consumer_groups).items()
    if name.startswith("ConsumerGroup") and name.endswith("Key")
)


class GroupCoordinator:
    def __init__(self, context: CoordinatorContext) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._context = context
        self._deadlines = context.deadlines
        self._uncommitted_groups: dict[str, ClassicGroup] = {}
        self._pending_replies: dict[str, tuple[Reply, ...]] = {}  # to pending requests of a removed group
        self._now: Now | None = None  # of the current decision; None while the log is read

    # -- the log -------------------------------------------------------------------------------------------------------

    def replay(self, kept: StoredRecord, offset: int, producer: Producer | None) -> None:
        key, value = kept
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self._replay_offset(key, value, offset, producer)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_classic(key.group, value)
        elif isinstance(key, LegacyOffsetCommitKey):
            assert value is None or isinstance(value, LegacyOffsetCommitValue)
            self._replay_offset(*_upgrade_legacy(key, value), offset, producer)
        elif isinstance(key, CONSUMER_KEYS):
            self._replay_consumer(key.group_id, kept)

    def _replay_offset(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, offset: int, producer: Producer | None
    ) -> None:
        if value is not None and key.group not in self.groups:
            self.groups[key.group] = ClassicGroup(key.group, self._context, self._now)
        self.offsets.replay(key, value, offset, producer)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                if waiting := group.forget():
                    self._pending_replies[group_id] = waiting
                del self.groups[group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self._uncommitted_groups.pop(group_id, None) or ClassicGroup(group_id, self._context, self._now)
            self.groups[group_id] = group
        group.replay(value)

    def _replay_consumer(self, group_id: str, kept: StoredRecord) -> None:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if kept.value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id, self._context)
        group.replay(kept)
        if group.is_dead:
            group.forget()
            del self.groups[group_id]

    def replay_end(self, producer: Producer, is_committed: bool) -> None:
        self.offsets.replay_end(producer, is_committed)

    # -- time ----------------------------------------------------------------------------------------------------------

    def begin(self, now: Now) -> list[Decision]:
        self._now = now
        self._deadlines.set(CLEAN_UP, now.steady_ms + self._context.offsets().check_interval_ms)
        return [group.begin(now) for group in list(self.groups.values())]

    def next_deadline(self) -> int | None:
        return self._deadlines.next()

    def expire(self, now: Now) -> Iterator[Decision]:
        self._now = now
        for key in self._deadlines.due(now.steady_ms):
            if key == CLEAN_UP:
                self._deadlines.set(CLEAN_UP, now.steady_ms + self._context.offsets().check_interval_ms)
                yield self.clean_up(now)
            elif (group := self.groups.get(key[0])) is not None:
                yield self._maybe_downgrade(group, group.expire(key, now), now)

    def clean_up(self, now: Now) -> Decision:
        """Removes expired offsets, and groups without members and offsets."""
        waiting = deque(self.groups)

        def part(now: Now) -> list[StoredRecord]:
            records: list[StoredRecord] = []
            retention_ms = self._context.offsets().retention_ms
            while waiting and (free := RECORDS_AT_ONCE - len(records)) > 0:
                group = self.groups.get(waiting[0])
                if group is None:
                    waiting.popleft()
                    continue
                gone, nothing_remains = self.offsets.expired(group.id, group, retention_ms, now.wall_ms, free)
                records += gone
                if nothing_remains and group.is_empty:
                    records += group.tombstones()
                if len(gone) < free:
                    waiting.popleft()  # otherwise there may be more, which the next part finds
            return records

        return self._in_parts(part, now)

    def topics_deleted(self, names: Iterable[str], now: Now) -> Decision:
        """Removes offsets of deleted topics. A topic that was created again keeps its own."""
        self._now = now
        deleted = frozenset(names)
        waiting = deque(self.offsets.groups_in_topics(deleted))

        def part(now: Now) -> list[StoredRecord]:
            records: list[StoredRecord] = []
            found = {name: self._context.topics.by_name(name) for name in deleted}
            gone = {name: None if topic is None else topic.id for name, topic in found.items()}
            while waiting and (free := RECORDS_AT_ONCE - len(records)) > 0:
                more = list(islice(self.offsets.tombstones_of_topics(waiting[0], gone), free))
                records += more
                if len(more) < free:
                    waiting.popleft()
            return records

        return self._in_parts(part, now)

    def _in_parts(self, part: Callable[[Now], list[StoredRecord]], now: Now) -> Decision:
        """Writes independent records in several batches: `part` returns the records of the next one until there are
        none. It is called when the previous batch is committed, because other requests are answered in between and must
        not be undone by an earlier result."""
        self._now = now
        records = part(now)

        def continue_clean_up(error: KafkaError | None, now: Now) -> Decision:
            return NOTHING if error is not None else self._in_parts(part, now)

        return Decision(records=tuple(records), on_committed=continue_clean_up) if records else NOTHING

    # -- members of classic groups -------------------------------------------------------------------------------------

    def join_group(self, request_id: RequestId, request: JoinGroupRequest, client: Client, now: Now) -> Decision:
        self._now = now
        try:
            _check_group_id(request.group_id)
            check_join(request, self._context)
        except KafkaError as error:
            return reply(request_id, join_error(error, request.member_id))
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return group.join(request_id, request, client, now)
        if group is not None and not group.is_empty:
            return self._maybe_downgrade(group, classic_bridge.join(group, request_id, request, client, now), now)
        if request.member_id:
            return reply(request_id, join_error(UnknownMemberId(), request.member_id))
        made = ClassicGroup(request.group_id, self._context, now)
        decision = made.join(request_id, request, client, now, is_new=True)
        if group is not None and decision.records:
            decision = _with_first(group.tombstones(), decision)
        return self._creating(made, decision)

    def _creating(self, group: ClassicGroup, decision: Decision) -> Decision:
        """Completes the decision that creates this group: the group is dropped if its records are not committed."""
        if not decision.records:
            return Decision(replies=decision.replies + group.forget())
        self._uncommitted_groups[group.id] = group

        def on_committed(error: KafkaError | None, now: Now) -> Decision:
            self._now = now
            then = NOTHING if decision.on_committed is None else decision.on_committed(error, now)
            if error is not None and self._uncommitted_groups.pop(group.id, None) is not None:
                return Decision(replies=then.replies + group.forget())
            return then

        return Decision(
            records=decision.records, replies=decision.replies, producer=decision.producer, on_committed=on_committed
        )

    def sync_group(self, request_id: RequestId, request: SyncGroupRequest, client: Client, now: Now) -> Decision:
        self._now = now
        _check_group_id(request.group_id)
        group = self.groups.get(request.group_id)
        if group is None:
            return reply(request_id, SyncGroupResponse(error_code=UnknownMemberId.code, assignment=b""))
        if isinstance(group, ConsumerGroup):
            return classic_bridge.sync(group, request_id, request, now)
        return group.sync(request_id, request, now)

    def heartbeat(self, request_id: RequestId, request: HeartbeatRequest, client: Client, now: Now) -> Decision:
        self._now = now
        _check_group_id(request.group_id)
        group = self.groups.get(request.group_id)
        if group is None:
            return reply(request_id, HeartbeatResponse(error_code=UnknownMemberId.code))
        if isinstance(group, ConsumerGroup):
            return classic_bridge.heartbeat(group, request_id, request, now)
        return group.heartbeat(request_id, request, now)

    def leave_group(self, request_id: RequestId, request: LeaveGroupRequest, client: Client, now: Now) -> Decision:
        self._now = now
        _check_group_id(request.group_id)
        group = self.groups.get(request.group_id)
        if group is None:
            return reply(request_id, leave_unknown_group(request, client))
        if isinstance(group, ConsumerGroup):
            return self._maybe_downgrade(group, classic_bridge.leave(group, request_id, request, client), now)
        return group.leave(request_id, request, client, now)

    # -- members of consumer groups ------------------------------------------------------------------------------------

    def consumer_group_heartbeat(
        self, request_id: RequestId, request: ConsumerGroupHeartbeatRequest, client: Client, now: Now
    ) -> Decision:
        self._now = now
        check_heartbeat(request, client, self._context)
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._maybe_downgrade(group, group.heartbeat(request_id, request, client, now), now)
        if group is None and request.member_epoch > JOINING:
            raise GroupIdNotFound(f"Consumer group {request.group_id} not found.")
        if request.member_epoch != JOINING:
            raise GroupIdNotFound(_not_found_message(request.group_id, group, "consumer"))
        if group is not None and not group.is_empty:
            upgrade = migration.upgraded(group, self._context)
            return self._upgraded(upgrade, upgrade.group.heartbeat(request_id, request, client, now))
        made = ConsumerGroup(request.group_id, self._context)
        decision = made.heartbeat(request_id, request, client, now)
        return decision if group is None else _with_first(group.tombstones(), decision)

    # -- groups that change their kind ---------------------------------------------------------------------------------

    def _upgraded(self, upgrade: migration.Upgrade, joined: Decision) -> Decision:
        """A classic group becomes a consumer group with one more member. Requests that wait in the classic group get an
        error that makes their members rejoin."""
        group_id = upgrade.group.id

        def on_committed(error: KafkaError | None, now: Now) -> Decision:
            self._now = now
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.begin(now)
            else:
                upgrade.group.forget_patterns()
            return Decision(replies=self._pending_replies.pop(group_id, ()))

        assert joined.on_committed is None
        return Decision(records=upgrade.records + joined.records, replies=joined.replies, on_committed=on_committed)

    def _maybe_downgrade(self, group: Group, decision: Decision, now: Now) -> Decision:
        """The decision; if it leaves a consumer group with members of the classic protocol only, the group becomes a
        classic group."""
        downgrade = migration.downgraded(group, decision, now) if isinstance(group, ConsumerGroup) else None
        if downgrade is None:
            return decision
        self._uncommitted_groups[group.id] = downgrade.group

        def on_committed(error: KafkaError | None, now: Now) -> Decision:
            self._now = now
            if self._uncommitted_groups.pop(group.id, None) is None:
                return downgrade.group.rebalance(now) if downgrade.must_rebalance else NOTHING
            downgrade.group.forget()
            group.begin(now)
            return NOTHING if decision.on_committed is None else decision.on_committed(error, now)

        return Decision(records=downgrade.records, replies=decision.replies, on_committed=on_committed)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit_offsets(self, request_id: RequestId, request: OffsetCommitRequest, client: Client, now: Now) -> Decision:
        self._now = now
        wanted, results = offset_requests.existing(request, self._context.topics, client.version)
        if not wanted:
            return reply(request_id, results.commit_response())
        settings = self._context.offsets()
        try:
            self._may_commit(request, wanted, client, now)
        except KafkaError as error:
            offset_requests.refuse_all(wanted, results, error)
            return reply(request_id, results.commit_response())
        records = offset_requests.commits(
            request.group_id,
            wanted,
            results,
            retention_ms=request.retention_time_ms,
            max_metadata_bytes=settings.max_metadata_bytes,
            now_ms=now.wall_ms,
        )
        return Decision(records=records, replies=(Reply(request_id, results.commit_response()),))

    def _may_commit(
        self, request: OffsetCommitRequest, wanted: list[offset_requests.PartitionCommit], client: Client, now: Now
    ) -> None:
        group = self.groups.get(request.group_id)
        epoch = request.generation_id_or_member_epoch
        if group is None:
            if epoch >= 0:
                if client.version >= FIRST_COMMIT_THAT_MISSES_A_GROUP:
                    raise GroupIdNotFound(_not_found_message(request.group_id, group, ""))
                raise IllegalGeneration()
            return
        check: CheckPartition | None = None
        if isinstance(group, ClassicGroup):
            group.validate_offset_commit(request.member_id, epoch, request.group_instance_id, is_transactional=False)
            group.touch(request.member_id, now)
        else:
            check = group.validate_offset_commit(
                request.member_id, epoch, request.group_instance_id, is_transactional=False, version=client.version
            )
        _check_partitions(check, wanted)

    def commit_offsets_in_transaction(
        self, request_id: RequestId, request: TxnOffsetCommitRequest, client: Client, now: Now
    ) -> Decision:
        """The commit is hidden until the transaction ends. The log checks whether the producer may write."""
        self._now = now
        _check_group_id(request.group_id)
        wanted, results = offset_requests.existing(request, self._context.topics, client.version)
        if not wanted:
            return reply(request_id, results.txn_response())
        try:
            self._may_commit_in_transaction(request, wanted, client)
        except KafkaError as error:
            offset_requests.refuse_all(wanted, results, error)
            return reply(request_id, results.txn_response())
        records = offset_requests.commits(
            request.group_id,
            wanted,
            results,
            retention_ms=offset_requests.NO_RETENTION_TIME,
            max_metadata_bytes=self._context.offsets().max_metadata_bytes,
            now_ms=now.wall_ms,
        )
        return Decision(
            records=records,
            replies=(Reply(request_id, results.txn_response()),),
            producer=Producer(request.producer_id, request.producer_epoch),
        )

    def _may_commit_in_transaction(
        self, request: TxnOffsetCommitRequest, wanted: list[offset_requests.PartitionCommit], client: Client
    ) -> None:
        group = self.groups.get(request.group_id)
        member = (request.member_id, request.generation_id, request.group_instance_id)
        if group is None:
            if request.generation_id >= 0:
                raise IllegalGeneration()
        elif isinstance(group, ClassicGroup):
            group.validate_offset_commit(*member, is_transactional=True)
        else:
            try:
                check = group.validate_offset_commit(*member, is_transactional=True, version=client.version)
                _check_partitions(check, wanted)
            except StaleMemberEpoch as error:
                raise IllegalGeneration(str(error)) from None

    def fetch_offsets(
        self, requested: OffsetFetchRequest.Group, *, require_stable: bool, version: int
    ) -> OffsetFetchResponse.Group:
        group = self.groups.get(requested.group_id)
        try:
            if group is not None:
                group.validate_offset_fetch(requested.member_id, requested.member_epoch)
        except KafkaError as error:
            return offset_requests.fetch_error(requested, error, version)
        return offset_requests.fetch(
            requested,
            self.offsets,
            self._context.topics,
            exists=group is not None,
            require_stable=require_stable,
            version=version,
        )

    def delete_offsets(self, request_id: RequestId, request: OffsetDeleteRequest, now: Now) -> Decision:
        self._now = now
        _check_group_id(request.group_id)
        group = self.groups.get(request.group_id)
        if group is None:
            raise GroupIdNotFound(_not_found_message(request.group_id, group, ""))
        group.validate_offset_delete()
        records, response = offset_requests.delete(request, group, self.offsets, self._context.topics)
        return Decision(records=records, replies=(Reply(request_id, response),))

    # -- whole groups --------------------------------------------------------------------------------------------------

    def list_groups(self, request: ListGroupsRequest) -> list[ListGroupsResponse.Group]:
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        return [
            listed
            for listed in (group.list() for group in self.groups.values())
            if (not states or listed.group_state.lower() in states)
            and (not types or listed.group_type.lower() in types)
        ]

    def describe_group(self, group_id: str, version: int) -> DescribeGroupsResponse.Group:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.describe()
        is_missed = version >= FIRST_DESCRIBE_THAT_MISSES_A_GROUP
        return DescribeGroupsResponse.Group(
            error_code=GroupIdNotFound.code if is_missed else 0,
            error_message=_not_found_message(group_id, group, "classic") if is_missed else None,
            group_id=group_id,
            group_state=DEAD,
            protocol_type="",
            protocol_data="",
            members=[],
        )

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescribeResponse.Group:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.describe()
        raise GroupIdNotFound(_not_found_message(group_id, group, "consumer"))

    def delete_group(self, request_id: RequestId, group_id: str, now: Now) -> Decision:
        self._now = now
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(_not_found_message(group_id, group, ""))
        group.validate_delete()
        deleted = DeleteGroupsResponse(
            throttle_time_ms=0, results=[DeleteGroupsResponse.Result(group_id=group_id, error_code=0)]
        )
        records = (*self.offsets.tombstones_of(group_id), *group.tombstones())  # in one batch
        return Decision(records=records, replies=(Reply(request_id, deleted),))


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId()


def _not_found_message(group_id: str, group: Group | None, wanted: str) -> str:
    return f"Group {group_id} not found." if group is None else f"Group {group_id} is not a {wanted} group."


def _check_partitions(check: CheckPartition | None, wanted: list[offset_requests.PartitionCommit]) -> None:
    if check is not None:
        for topic, _, requested in wanted:
            check(topic.name, topic.id, requested.partition_index)


def _with_first(first: tuple[StoredRecord, ...], decision: Decision) -> Decision:
    """The decision with these records before its own."""
    return Decision(
        records=first + decision.records,
        replies=decision.replies,
        producer=decision.producer,
        on_committed=decision.on_committed,
    )


def _upgrade_legacy(
    key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None
) -> tuple[OffsetCommitKey, OffsetCommitValue | None]:
    """Converts a commit in the legacy format to the present format."""
    today = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    if value is None:
        return today, None
    return today, OffsetCommitValue(
        offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
    )
