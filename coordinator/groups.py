"""The coordinator of the groups whose names hash to one partition of `__consumer_offsets`.

Here a group is found and its kind is looked at; what happens in it is decided in `classic_group.py`,
`consumer_group.py` and `migration.py`, and where it is in its topics is kept in `offsets.py`.

A group is there when its records have been replayed. One that a request would make is remembered only until then
(`_to_be`), so that a request whose records could not be written leaves no group behind. A commit for a group that
does not exist, from nobody in particular, makes a simple group: one without members, of which there is no record but
its offsets.
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
from .classic_responses import join_refused, leave_unknown_group
from .client import Client
from .consumer_group import CheckPartition, ConsumerGroup, check_heartbeat
from .decision import NOTHING, Answer, Decision, Kept, Moment, Producer, Ticket, answer
from .offsets import Offsets
from .settings import Surroundings

Group: TypeAlias = ClassicGroup | ConsumerGroup

CLEAN_UP: Final = ("clean-up",)  # a deadline of no group: theirs have two words at least
RECORDS_AT_ONCE: Final = 1000  # of those that need not be written together: others are served in between
JOINING: Final = 0  # the epoch of a member of a consumer group that joins
FIRST_COMMIT_THAT_MISSES_A_GROUP: Final = 9  # the version of OffsetCommit that knows GROUP_ID_NOT_FOUND
FIRST_DESCRIBE_THAT_MISSES_A_GROUP: Final = 6
DEAD: Final = "Dead"

CONSUMER_KEYS: Final = tuple(
    declared
    for name, declared in vars(consumer_groups).items()
    if name.startswith("ConsumerGroup") and name.endswith("Key")
)


class GroupCoordinator:
    def __init__(self, surroundings: Surroundings) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._surroundings = surroundings
        self._deadlines = surroundings.deadlines
        self._to_be: dict[str, ClassicGroup] = {}
        self._farewells: dict[str, tuple[Answer, ...]] = {}  # to those who waited in a group that is no more
        self._now: Moment | None = None  # of what is being decided; none while the log is read

    # -- the log -------------------------------------------------------------------------------------------------------

    def replay(self, kept: Kept, offset: int, producer: Producer | None) -> None:
        key, value = kept
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self._replay_offset(key, value, offset, producer)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_classic(key.group, value)
        elif isinstance(key, LegacyOffsetCommitKey):
            assert value is None or isinstance(value, LegacyOffsetCommitValue)
            self._replay_offset(*_of_today(key, value), offset, producer)
        elif isinstance(key, CONSUMER_KEYS):
            self._replay_consumer(key.group_id, kept)

    def _replay_offset(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, offset: int, producer: Producer | None
    ) -> None:
        if value is not None and key.group not in self.groups:
            self.groups[key.group] = ClassicGroup(key.group, self._surroundings, self._now)
        self.offsets.replay(key, value, offset, producer)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                if waiting := group.forget():
                    self._farewells[group_id] = waiting
                del self.groups[group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self._to_be.pop(group_id, None) or ClassicGroup(group_id, self._surroundings, self._now)
            self.groups[group_id] = group
        group.replay(value)

    def _replay_consumer(self, group_id: str, kept: Kept) -> None:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if kept.value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id, self._surroundings)
        group.replay(kept)
        if group.is_dead:
            group.forget()
            del self.groups[group_id]

    def replay_end(self, producer: Producer, is_committed: bool) -> None:
        self.offsets.replay_end(producer, is_committed)

    # -- time ----------------------------------------------------------------------------------------------------------

    def begin(self, now: Moment) -> list[Decision]:
        self._now = now
        self._deadlines.set(CLEAN_UP, now.steady_ms + self._surroundings.offsets().check_interval_ms)
        return [group.begin(now) for group in list(self.groups.values())]

    def next_deadline(self) -> int | None:
        return self._deadlines.next()

    def expire(self, now: Moment) -> Iterator[Decision]:
        self._now = now
        for key in self._deadlines.due(now.steady_ms):
            if key == CLEAN_UP:
                self._deadlines.set(CLEAN_UP, now.steady_ms + self._surroundings.offsets().check_interval_ms)
                yield self.clean_up(now)
            elif (group := self.groups.get(key[0])) is not None:
                yield self._settled(group, group.expire(key, now), now)

    def clean_up(self, now: Moment) -> Decision:
        """Forgets offsets whose time is over, and groups that have neither members nor offsets."""
        waiting = deque(self.groups)

        def part(now: Moment) -> list[Kept]:
            records: list[Kept] = []
            retention_ms = self._surroundings.offsets().retention_ms
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
                    waiting.popleft()  # else there may be more, which the next part looks for
            return records

        return self._in_parts(part, now)

    def topics_deleted(self, names: Iterable[str], now: Moment) -> Decision:
        """Offsets in topics that are gone mean nothing. A topic that was created again meanwhile keeps its own."""
        self._now = now
        deleted = frozenset(names)
        waiting = deque(self.offsets.groups_in_topics(deleted))

        def part(now: Moment) -> list[Kept]:
            records: list[Kept] = []
            found = {name: self._surroundings.topics.by_name(name) for name in deleted}
            gone = {name: None if topic is None else topic.id for name, topic in found.items()}
            while waiting and (free := RECORDS_AT_ONCE - len(records)) > 0:
                more = list(islice(self.offsets.tombstones_of_topics(waiting[0], gone), free))
                records += more
                if len(more) < free:
                    waiting.popleft()
            return records

        return self._in_parts(part, now)

    def _in_parts(self, part: Callable[[Moment], list[Kept]], now: Moment) -> Decision:
        """Records of which each means something by itself, some at a time: `part` says which, as long as there are
        any. It is asked anew when the last ones are committed, since in between others have been answered: what they
        were told must not be undone by what was decided before."""
        self._now = now
        records = part(now)

        def go_on(error: KafkaError | None, now: Moment) -> Decision:
            return NOTHING if error is not None else self._in_parts(part, now)

        return Decision(records=tuple(records), afterwards=go_on) if records else NOTHING

    # -- members of classic groups -------------------------------------------------------------------------------------

    def join_group(self, ticket: Ticket, request: JoinGroupRequest, client: Client, now: Moment) -> Decision:
        self._now = now
        try:
            _must_be_named(request.group_id)
            check_join(request, self._surroundings)
        except KafkaError as error:
            return answer(ticket, join_refused(error, request.member_id))
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return group.join(ticket, request, client, now)
        if group is not None and not group.is_empty:
            return self._settled(group, classic_bridge.join(group, ticket, request, client, now), now)
        if request.member_id:
            return answer(ticket, join_refused(UnknownMemberId(), request.member_id))
        made = ClassicGroup(request.group_id, self._surroundings, now)
        decision = made.join(ticket, request, client, now, is_new=True)
        if group is not None and decision.records:
            decision = _after(group.tombstones(), decision)
        return self._made(made, decision)

    def _made(self, group: ClassicGroup, decision: Decision) -> Decision:
        """A group that the records of this decision make."""
        if not decision.records:
            return Decision(answers=decision.answers + group.forget())
        self._to_be[group.id] = group

        def afterwards(error: KafkaError | None, now: Moment) -> Decision:
            self._now = now
            then = NOTHING if decision.afterwards is None else decision.afterwards(error, now)
            if error is not None and self._to_be.pop(group.id, None) is not None:
                return Decision(answers=then.answers + group.forget())
            return then

        return Decision(
            records=decision.records, answers=decision.answers, producer=decision.producer, afterwards=afterwards
        )

    def sync_group(self, ticket: Ticket, request: SyncGroupRequest, client: Client, now: Moment) -> Decision:
        self._now = now
        _must_be_named(request.group_id)
        group = self.groups.get(request.group_id)
        if group is None:
            return answer(ticket, SyncGroupResponse(error_code=UnknownMemberId.code, assignment=b""))
        if isinstance(group, ConsumerGroup):
            return classic_bridge.sync(group, ticket, request, now)
        return group.sync(ticket, request, now)

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, client: Client, now: Moment) -> Decision:
        self._now = now
        _must_be_named(request.group_id)
        group = self.groups.get(request.group_id)
        if group is None:
            return answer(ticket, HeartbeatResponse(error_code=UnknownMemberId.code))
        if isinstance(group, ConsumerGroup):
            return classic_bridge.heartbeat(group, ticket, request, now)
        return group.heartbeat(ticket, request, now)

    def leave_group(self, ticket: Ticket, request: LeaveGroupRequest, client: Client, now: Moment) -> Decision:
        self._now = now
        _must_be_named(request.group_id)
        group = self.groups.get(request.group_id)
        if group is None:
            return answer(ticket, leave_unknown_group(request, client))
        if isinstance(group, ConsumerGroup):
            return self._settled(group, classic_bridge.leave(group, ticket, request, client), now)
        return group.leave(ticket, request, client, now)

    # -- members of consumer groups ------------------------------------------------------------------------------------

    def consumer_group_heartbeat(
        self, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, client: Client, now: Moment
    ) -> Decision:
        self._now = now
        check_heartbeat(request, client, self._surroundings)
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._settled(group, group.heartbeat(ticket, request, client, now), now)
        if group is None and request.member_epoch > JOINING:
            raise GroupIdNotFound(f"Consumer group {request.group_id} not found.")
        if request.member_epoch != JOINING:
            raise GroupIdNotFound(_why_not_found(request.group_id, group, "consumer"))
        if group is not None and not group.is_empty:
            upgrade = migration.upgraded(group, self._surroundings)
            return self._upgraded(upgrade, upgrade.group.heartbeat(ticket, request, client, now))
        made = ConsumerGroup(request.group_id, self._surroundings)
        decision = made.heartbeat(ticket, request, client, now)
        return decision if group is None else _after(group.tombstones(), decision)

    # -- groups that change their kind ---------------------------------------------------------------------------------

    def _upgraded(self, upgrade: migration.Upgrade, joined: Decision) -> Decision:
        """A classic group becomes a consumer group, which one more joins. Who waited in the classic one joins again."""
        group_id = upgrade.group.id

        def afterwards(error: KafkaError | None, now: Moment) -> Decision:
            self._now = now
            group = self.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.begin(now)
            else:
                upgrade.group.forget_patterns()
            return Decision(answers=self._farewells.pop(group_id, ()))

        assert joined.afterwards is None
        return Decision(records=upgrade.records + joined.records, answers=joined.answers, afterwards=afterwards)

    def _settled(self, group: Group, decision: Decision, now: Moment) -> Decision:
        """The same; but a consumer group that would be left with members of the classic protocol alone becomes one of
        theirs."""
        downgrade = migration.downgraded(group, decision, now) if isinstance(group, ConsumerGroup) else None
        if downgrade is None:
            return decision
        self._to_be[group.id] = downgrade.group

        def afterwards(error: KafkaError | None, now: Moment) -> Decision:
            self._now = now
            if self._to_be.pop(group.id, None) is None:
                return downgrade.group.rebalance(now) if downgrade.must_rebalance else NOTHING
            downgrade.group.forget()
            group.begin(now)
            return NOTHING if decision.afterwards is None else decision.afterwards(error, now)

        return Decision(records=downgrade.records, answers=decision.answers, afterwards=afterwards)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit_offsets(self, ticket: Ticket, request: OffsetCommitRequest, client: Client, now: Moment) -> Decision:
        self._now = now
        wanted, told = offset_requests.existing(request, self._surroundings.topics, client.version)
        if not wanted:
            return answer(ticket, told.commit_response())
        settings = self._surroundings.offsets()
        try:
            self._may_commit(request, wanted, client, now)
        except KafkaError as error:
            offset_requests.refuse_all(wanted, told, error)
            return answer(ticket, told.commit_response())
        records = offset_requests.commits(
            request.group_id,
            wanted,
            told,
            retention_ms=request.retention_time_ms,
            max_metadata_bytes=settings.max_metadata_bytes,
            now_ms=now.wall_ms,
        )
        return Decision(records=records, answers=(Answer(ticket, told.commit_response()),))

    def _may_commit(
        self, request: OffsetCommitRequest, wanted: list[offset_requests.Wanted], client: Client, now: Moment
    ) -> None:
        group = self.groups.get(request.group_id)
        epoch = request.generation_id_or_member_epoch
        if group is None:
            if epoch >= 0:
                if client.version >= FIRST_COMMIT_THAT_MISSES_A_GROUP:
                    raise GroupIdNotFound(_why_not_found(request.group_id, group, ""))
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
        self, ticket: Ticket, request: TxnOffsetCommitRequest, client: Client, now: Moment
    ) -> Decision:
        """Hidden until the transaction ends. Whether the producer may write is for the log to say."""
        self._now = now
        _must_be_named(request.group_id)
        wanted, told = offset_requests.existing(request, self._surroundings.topics, client.version)
        if not wanted:
            return answer(ticket, told.txn_response())
        try:
            self._may_commit_in_transaction(request, wanted, client)
        except KafkaError as error:
            offset_requests.refuse_all(wanted, told, error)
            return answer(ticket, told.txn_response())
        records = offset_requests.commits(
            request.group_id,
            wanted,
            told,
            retention_ms=offset_requests.NO_RETENTION_TIME,
            max_metadata_bytes=self._surroundings.offsets().max_metadata_bytes,
            now_ms=now.wall_ms,
        )
        return Decision(
            records=records,
            answers=(Answer(ticket, told.txn_response()),),
            producer=Producer(request.producer_id, request.producer_epoch),
        )

    def _may_commit_in_transaction(
        self, request: TxnOffsetCommitRequest, wanted: list[offset_requests.Wanted], client: Client
    ) -> None:
        group = self.groups.get(request.group_id)
        who = (request.member_id, request.generation_id, request.group_instance_id)
        if group is None:
            if request.generation_id >= 0:
                raise IllegalGeneration()
        elif isinstance(group, ClassicGroup):
            group.validate_offset_commit(*who, is_transactional=True)
        else:
            try:
                check = group.validate_offset_commit(*who, is_transactional=True, version=client.version)
                _check_partitions(check, wanted)
            except StaleMemberEpoch as error:
                raise IllegalGeneration(str(error)) from None

    def fetch_offsets(
        self, asked: OffsetFetchRequest.Group, *, require_stable: bool, version: int
    ) -> OffsetFetchResponse.Group:
        group = self.groups.get(asked.group_id)
        try:
            if group is not None:
                group.validate_offset_fetch(asked.member_id, asked.member_epoch)
        except KafkaError as error:
            return offset_requests.fetch_refused(asked, error, version)
        return offset_requests.fetch(
            asked,
            self.offsets,
            self._surroundings.topics,
            exists=group is not None,
            require_stable=require_stable,
            version=version,
        )

    def delete_offsets(self, ticket: Ticket, request: OffsetDeleteRequest, now: Moment) -> Decision:
        self._now = now
        _must_be_named(request.group_id)
        group = self.groups.get(request.group_id)
        if group is None:
            raise GroupIdNotFound(_why_not_found(request.group_id, group, ""))
        group.validate_offset_delete()
        records, response = offset_requests.delete(request, group, self.offsets, self._surroundings.topics)
        return Decision(records=records, answers=(Answer(ticket, response),))

    # -- groups as a whole ---------------------------------------------------------------------------------------------

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
            error_message=_why_not_found(group_id, group, "classic") if is_missed else None,
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
        raise GroupIdNotFound(_why_not_found(group_id, group, "consumer"))

    def delete_group(self, ticket: Ticket, group_id: str, now: Moment) -> Decision:
        self._now = now
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(_why_not_found(group_id, group, ""))
        group.validate_delete()
        deleted = DeleteGroupsResponse(
            throttle_time_ms=0, results=[DeleteGroupsResponse.Result(group_id=group_id, error_code=0)]
        )
        records = (*self.offsets.tombstones_of(group_id), *group.tombstones())  # together: nobody comes in between
        return Decision(records=records, answers=(Answer(ticket, deleted),))


def _must_be_named(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId()


def _why_not_found(group_id: str, group: Group | None, wanted: str) -> str:
    return f"Group {group_id} not found." if group is None else f"Group {group_id} is not a {wanted} group."


def _check_partitions(check: CheckPartition | None, wanted: list[offset_requests.Wanted]) -> None:
    if check is not None:
        for topic, _, asked in wanted:
            check(topic.name, topic.id, asked.partition_index)


def _after(first: tuple[Kept, ...], decision: Decision) -> Decision:
    """The same, with records before its own."""
    return Decision(
        records=first + decision.records,
        answers=decision.answers,
        producer=decision.producer,
        afterwards=decision.afterwards,
    )


def _of_today(
    key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None
) -> tuple[OffsetCommitKey, OffsetCommitValue | None]:
    """Commits of long ago, under a key that says the same."""
    today = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    if value is None:
        return today, None
    return today, OffsetCommitValue(
        offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
    )
