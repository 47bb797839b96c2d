"""A classic group: the leader among its members assigns the work; the coordinator tracks the members.

The rest of the coordinator uses the group through this module. `classic/rebalance.py` defines how generations follow
one another, `classic/joining.py` which members may join, and `classic/membership.py` tracks the members.

The durable state of a group is one record, the last generation with an assignment: `kept`, which only `replay` changes.
During a rebalance the soft state is ahead of it. So a group that is loaded is created from `kept` after the log has
been read (`begin`), and replaying a record that an active group has written itself only notes that it is written.

Deadlines of a group:

    (group, "session", member)    no heartbeat or JoinGroup from a member, or from a pending member
    (group, "join")               the wait for the remaining JoinGroups is over
    (group, "sync")               the wait for the remaining SyncGroups is over
"""

from collections.abc import Iterable

from trioka.protocol.errors import (
    NONE,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from trioka.protocol.internal_records.classic_groups import GroupMetadataKey, GroupMetadataValue
from trioka.protocol.messages.describe_groups import DescribeGroupsResponse
from trioka.protocol.messages.heartbeat import HeartbeatRequest
from trioka.protocol.messages.join_group import JoinGroupRequest
from trioka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from trioka.protocol.messages.list_groups import ListGroupsResponse
from trioka.protocol.messages.sync_group import SyncGroupRequest

from ..client import Client
from ..decision import NOTHING, Decision, Now, Reply, RequestId, StoredRecord
from ..settings import CoordinatorContext
from .joining import Joining
from .member import ClassicMember
from .rebalance import CONSUMER, Rebalance
from .responses import heartbeat_response, join_error, leave_result, leaving_members, left, sync_error
from .states import HEARTBEAT_ERRORS, Phase


class ClassicGroup:
    def __init__(self, group_id: str, context: CoordinatorContext, now: Now | None = None) -> None:
        """An empty group. `now` is given if a request creates it, and not while the log is read."""
        self.id = group_id
        self.kept: GroupMetadataValue | None = None  # None: no record yet, or a simple group
        self._context = context
        self._rebalance = Rebalance(group_id, context)
        self._joining = Joining(group_id, self._rebalance, context)
        self._has_begun = now is not None
        if now is not None:
            self._rebalance.state_since_ms = now.wall_ms

    @classmethod
    def of_members(
        cls, group_id: str, context: CoordinatorContext, generation: int, members: Iterable[ClassicMember], now: Now
    ) -> "ClassicGroup":
        """A stable group of consumers with an assignment, converted from a group of another kind. Its `record` must be
        written."""
        group = cls(group_id, context, now)
        rebalance = group._rebalance
        rebalance.protocol_type = CONSUMER
        rebalance.generation = generation
        rebalance.phase = Phase.STABLE
        for member in members:
            rebalance.roster.add(member)
            rebalance.watch_session(member, now)
        rebalance.protocol_name = rebalance.roster.select_protocol()
        rebalance.subscribed_topics = rebalance.topics_of_members()
        return group

    # -- the log -------------------------------------------------------------------------------------------------------

    def replay(self, value: GroupMetadataValue) -> None:
        self.kept = value
        if not self._has_begun:  # otherwise the group is active and has written the record itself
            self._rebalance.phase = Phase.STABLE if value.members else Phase.EMPTY

    def begin(self, now: Now) -> Decision:
        """Called when the log has been read. Every member gets a full session timeout."""
        assert not self._has_begun
        self._has_begun = True
        rebalance, kept = self._rebalance, self.kept
        if kept is None:
            rebalance.state_since_ms = now.wall_ms
            return NOTHING
        rebalance.generation = kept.generation
        rebalance.protocol_type = kept.protocol_type or None
        rebalance.protocol_name = kept.protocol
        rebalance.state_since_ms = None if kept.current_state_timestamp == -1 else kept.current_state_timestamp
        rebalance.roster.leader = kept.leader
        for member in kept.members:
            loaded = ClassicMember.loaded(member, kept.protocol_type, kept.protocol)
            rebalance.roster.add(loaded)
            rebalance.watch_session(loaded, now)
        rebalance.subscribed_topics = rebalance.topics_of_members()
        if len(rebalance.roster) > self._context.classic().max_size:  # the limit was lowered
            rebalance.prepare(now)
        return rebalance.decided()

    def record(self) -> StoredRecord:
        """The record of the group in its present state, with the assignments of the members."""
        return self._rebalance.record({member.id: member.assignment for member in self._rebalance.roster})

    def tombstones(self) -> tuple[StoredRecord, ...]:
        return (StoredRecord(GroupMetadataKey(group=self.id), None),)

    def forget(self, error: type[KafkaError] = RebalanceInProgress) -> tuple[Reply, ...]:
        """The group is deleted, or converted to another kind: its deadlines are cancelled, and pending requests get the
        error."""
        rebalance = self._rebalance
        for member in list(rebalance.roster):
            rebalance.answer_join(member, join_error(error, member.id))
            rebalance.answer_sync(member, sync_error(error))
            rebalance.unwatch(member.id)
        for member_id in rebalance.roster.pending:
            rebalance.unwatch(member_id)
        rebalance.end()
        return rebalance.decided().replies

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(
        self, request_id: RequestId, request: JoinGroupRequest, client: Client, now: Now, *, is_new: bool = False
    ) -> Decision:
        """`is_new`: this request creates the group, whose first record, without members, is written whatever the result
        of the request. (`check_join` has already rejected a member id for an unknown group.)"""
        self._joining.join(request_id, request, client, now, is_new=is_new)
        return self._rebalance.decided()

    def rebalance(self, now: Now) -> Decision:
        """Starts a rebalance: all members must rejoin."""
        self._rebalance.begin_or_complete(now)
        return self._rebalance.decided()

    def sync(self, request_id: RequestId, request: SyncGroupRequest, now: Now) -> Decision:
        rebalance = self._rebalance
        try:
            member = self._member(request.member_id, request.group_instance_id, request.generation_id)
            for text, chosen in (
                (request.protocol_type, rebalance.protocol_type),
                (request.protocol_name, rebalance.protocol_name),
            ):
                if text is not None and chosen is not None and text != chosen:
                    raise InconsistentGroupProtocol()
        except KafkaError as error:
            rebalance.reply(request_id, sync_error(error))
        else:
            rebalance.sync(request_id, member, request, now)
        return rebalance.decided()

    def heartbeat(self, request_id: RequestId, request: HeartbeatRequest, now: Now) -> Decision:
        rebalance = self._rebalance
        try:
            member = self._member(request.member_id, request.group_instance_id, request.generation_id)
        except KafkaError as error:
            rebalance.reply(request_id, heartbeat_response(error))
        else:
            rebalance.watch_session(member, now)
            rebalance.reply(request_id, heartbeat_response(HEARTBEAT_ERRORS[rebalance.phase]))
        return rebalance.decided()

    def touch(self, member_id: str, now: Now) -> None:
        """An offset commit of a member counts as a heartbeat."""
        member = self._rebalance.roster.get(member_id)
        if member is not None and self._rebalance.phase in (Phase.STABLE, Phase.PREPARING):
            self._rebalance.watch_session(member, now)

    def leave(self, request_id: RequestId, request: LeaveGroupRequest, client: Client, now: Now) -> Decision:
        rebalance = self._rebalance
        replies = [self._leave(member) for member in leaving_members(request, client)]
        if any(answer.error_code == NONE for answer in replies) and rebalance.phase is not Phase.EMPTY:
            rebalance.begin_or_complete(now)
        rebalance.reply(request_id, left(replies, client))
        return rebalance.decided()

    def _leave(self, leaving: LeaveGroupRequest.Member) -> LeaveGroupResponse.Member:
        """A static member may be removed by its instance id alone, whatever its member id is."""
        rebalance = self._rebalance
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if member_id in rebalance.roster.pending:
            rebalance.unwatch(member_id)
            rebalance.roster.remove(member_id)
            return leave_result(leaving, None)
        try:
            if member_id == "":
                member = None if instance_id is None else rebalance.roster.of_instance(instance_id)
                if member is None:
                    raise UnknownMemberId()
            else:
                member = rebalance.roster.validate(member_id, instance_id)
        except KafkaError as error:
            return leave_result(leaving, error)
        rebalance.remove(member)
        return leave_result(leaving, None)

    def _member(self, member_id: str, instance_id: str | None, generation: int) -> ClassicMember:
        member = self._rebalance.roster.validate(member_id, instance_id)
        if generation != self._rebalance.generation:
            raise IllegalGeneration()
        return member

    def expire(self, key: tuple[str, ...], now: Now) -> Decision:
        if self._context.deadlines.get(key) is not None:
            return NOTHING  # an earlier decision has set a new deadline
        kind = key[1]
        if kind == "session":
            self._rebalance.expire_session(key[2], now)
        elif kind == "join":
            self._rebalance.expire_join(now)
        else:
            assert kind == "sync"
            self._rebalance.expire_sync(now)
        return self._rebalance.decided()

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return self._rebalance.phase.value

    @property
    def generation(self) -> int:
        return self._rebalance.generation

    @property
    def protocol_type(self) -> str | None:
        return self._rebalance.protocol_type

    @property
    def protocol_name(self) -> str | None:
        return self._rebalance.protocol_name

    @property
    def leader(self) -> str | None:
        return self._rebalance.roster.leader

    @property
    def state_since_ms(self) -> int | None:
        """The time of the last change of state, in wall-clock time; None if an old record does not have it."""
        return self._rebalance.state_since_ms

    @property
    def members(self) -> tuple[ClassicMember, ...]:
        return tuple(self._rebalance.roster)

    @property
    def is_empty(self) -> bool:
        return self._rebalance.phase is Phase.EMPTY

    @property
    def is_simple(self) -> bool:
        """A simple group: no member ever joined, and it only keeps offsets."""
        return self.protocol_type is None and self.is_empty and not self._rebalance.roster.pending

    def describe(self) -> DescribeGroupsResponse.Group:
        """Metadata and assignments of members are included only while the group is stable."""
        name = self.protocol_name if self._rebalance.phase is Phase.STABLE else None
        return DescribeGroupsResponse.Group(
            error_code=NONE,
            group_id=self.id,
            group_state=self.state,
            protocol_type=self.protocol_type or "",
            protocol_data=name or "",
            members=[
                DescribeGroupsResponse.Group.Member(
                    member_id=member.id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if name is None else member.metadata(name),
                    member_assignment=member.assignment,
                )
                for member in self._rebalance.roster
            ],
        )

    def list(self) -> ListGroupsResponse.Group:
        return ListGroupsResponse.Group(
            group_id=self.id, protocol_type=self.protocol_type or "", group_state=self.state, group_type="classic"
        )

    # -- offsets -------------------------------------------------------------------------------------------------------

    def validate_offset_commit(
        self, member_id: str, generation: int, instance_id: str | None, *, is_transactional: bool
    ) -> None:
        """Without a generation, a commit comes from outside the group, and is valid only while the group is empty.
        Transactional commits may omit it, since old versions of the request have no fields for the member."""
        if generation < 0 and self.is_empty:
            return
        if generation >= 0 or member_id != "" or instance_id is not None:
            self._member(member_id, instance_id, generation)
        elif not is_transactional and not self.is_empty:
            raise UnknownMemberId()
        if not is_transactional and self._rebalance.phase is Phase.COMPLETING:
            raise RebalanceInProgress()

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Any client may fetch offsets."""
        self._must_live()

    def validate_offset_delete(self) -> None:
        """In a group of consumers each topic is checked (`is_subscribed_to`); in other groups the subscription is
        unknown."""
        self._must_live()
        if not self.is_empty and self.protocol_type != CONSUMER:
            raise NonEmptyGroup()

    def validate_delete(self) -> None:
        self._must_live()
        if not self.is_empty:
            raise NonEmptyGroup()

    def _must_live(self) -> None:
        if self._rebalance.phase is Phase.DEAD:
            raise GroupIdNotFound(f"Group {self.id} is in dead state.")

    def is_subscribed_to(self, topic: str) -> bool:
        """If the subscription is unknown, a consumer group is assumed to subscribe to the topic."""
        topics = self._rebalance.subscribed_topics
        return self.protocol_type == CONSUMER if topics is None else topic in topics

    def offsets_expire_since(self, commit_ms: int) -> int | None:
        """The start of an offset's retention, in wall-clock time (KIP-211): its commit, or the time when the group
        became empty. None: it does not expire now. `is_subscribed_to` protects topics with subscribers."""
        if self.protocol_type is None:
            return commit_ms
        if self.is_empty:
            return commit_ms if self.state_since_ms is None else self.state_since_ms
        topics_are_known = self._rebalance.subscribed_topics is not None
        is_settled = self.protocol_type == CONSUMER and topics_are_known and self._rebalance.phase is Phase.STABLE
        return commit_ms if is_settled else None
