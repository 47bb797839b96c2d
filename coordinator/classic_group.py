"""A classic group: its members agree among themselves who does what; the coordinator says who they are.

This is the group as the rest of the coordinator sees it. Behind it `classic_rebalance.py` knows how generations follow
one another, `classic_joining.py` who may join and how, `coordinator/classic_membership.py` who is there.

What is kept of a group is one record, the last generation that was shared out: `kept`, which only `replay` changes. The
living group is ahead of it whenever a rebalance is under way. So a group that is loaded is made from `kept` when the
log has been read (`begin`), and the replay of what a living group has written itself only notes that it is written.

Deadlines of a group:

    (group, "session", member)    a member, or one that is expected, has not been heard of
    (group, "join")               those who have joined have waited long enough for the others
    (group, "sync")               so has the leader's assignment for those who have not asked for it
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

from .classic_joining import Joining
from .classic_member import ClassicMember
from .classic_rebalance import CONSUMER, Rebalance
from .classic_responses import heartbeat_said, join_refused, leaver, leavers, left, sync_refused
from .classic_states import HEARTBEAT_SAYS, Phase
from .client import Client
from .decision import NOTHING, Answer, Decision, Kept, Moment, Ticket
from .settings import Surroundings


class ClassicGroup:
    def __init__(self, group_id: str, surroundings: Surroundings, now: Moment | None = None) -> None:
        """An empty group. `now` is given when something happens that makes it, and not while the log is read."""
        self.id = group_id
        self.kept: GroupMetadataValue | None = None  # None: nothing, as yet; or it only ever commits offsets
        self._surroundings = surroundings
        self._rebalance = Rebalance(group_id, surroundings)
        self._joining = Joining(group_id, self._rebalance, surroundings)
        self._has_begun = now is not None
        if now is not None:
            self._rebalance.state_since_ms = now.wall_ms

    @classmethod
    def of_members(
        cls, group_id: str, surroundings: Surroundings, generation: int, members: Iterable[ClassicMember], now: Moment
    ) -> "ClassicGroup":
        """A stable group of consumers whose work is shared out already: another kind of group becomes this one. Its
        `record` is to be written."""
        group = cls(group_id, surroundings, now)
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
        if not self._has_begun:  # or else it lives, and has written this itself
            self._rebalance.phase = Phase.STABLE if value.members else Phase.EMPTY

    def begin(self, now: Moment) -> Decision:
        """The log is read. Every member has the time of a session to say that it is still there."""
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
        if len(rebalance.roster) > self._surroundings.classic().max_size:  # it was lowered meanwhile
            rebalance.prepare(now)
        return rebalance.decided()

    def record(self) -> Kept:
        """The group as it is now, each member with the work that it has."""
        return self._rebalance.record({member.id: member.assignment for member in self._rebalance.roster})

    def tombstones(self) -> tuple[Kept, ...]:
        return (Kept(GroupMetadataKey(group=self.id), None),)

    def forget(self, error: type[KafkaError] = RebalanceInProgress) -> tuple[Answer, ...]:
        """The group is no more, or becomes one of another kind: nothing of it is due any longer, and whoever waits is
        told the error."""
        rebalance = self._rebalance
        for member in list(rebalance.roster):
            rebalance.answer_join(member, join_refused(error, member.id))
            rebalance.answer_sync(member, sync_refused(error))
            rebalance.unwatch(member.id)
        for member_id in rebalance.roster.pending:
            rebalance.unwatch(member_id)
        rebalance.end()
        return rebalance.decided().answers

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(
        self, ticket: Ticket, request: JoinGroupRequest, client: Client, now: Moment, *, is_new: bool = False
    ) -> Decision:
        """`is_new`: there was no such group before this request; its first record, with nobody in it, is written,
        however the request ends. (`check_join` comes before; who names a member of no group is unknown.)"""
        self._joining.join(ticket, request, client, now, is_new=is_new)
        return self._rebalance.decided()

    def rebalance(self, now: Moment) -> Decision:
        """Everyone is to join again."""
        self._rebalance.begin_or_complete(now)
        return self._rebalance.decided()

    def sync(self, ticket: Ticket, request: SyncGroupRequest, now: Moment) -> Decision:
        rebalance = self._rebalance
        try:
            member = self._member(request.member_id, request.group_instance_id, request.generation_id)
            for said, chosen in (
                (request.protocol_type, rebalance.protocol_type),
                (request.protocol_name, rebalance.protocol_name),
            ):
                if said is not None and chosen is not None and said != chosen:
                    raise InconsistentGroupProtocol()
        except KafkaError as error:
            rebalance.say(ticket, sync_refused(error))
        else:
            rebalance.sync(ticket, member, request, now)
        return rebalance.decided()

    def heartbeat(self, ticket: Ticket, request: HeartbeatRequest, now: Moment) -> Decision:
        rebalance = self._rebalance
        try:
            member = self._member(request.member_id, request.group_instance_id, request.generation_id)
        except KafkaError as error:
            rebalance.say(ticket, heartbeat_said(error))
        else:
            rebalance.watch_session(member, now)
            rebalance.say(ticket, heartbeat_said(HEARTBEAT_SAYS[rebalance.phase]))
        return rebalance.decided()

    def touch(self, member_id: str, now: Moment) -> None:
        """A member that commits offsets is alive, too."""
        member = self._rebalance.roster.get(member_id)
        if member is not None and self._rebalance.phase in (Phase.STABLE, Phase.PREPARING):
            self._rebalance.watch_session(member, now)

    def leave(self, ticket: Ticket, request: LeaveGroupRequest, client: Client, now: Moment) -> Decision:
        rebalance = self._rebalance
        answers = [self._leave(member) for member in leavers(request, client)]
        if any(answer.error_code == NONE for answer in answers) and rebalance.phase is not Phase.EMPTY:
            rebalance.begin_or_complete(now)
        rebalance.say(ticket, left(answers, client))
        return rebalance.decided()

    def _leave(self, leaving: LeaveGroupRequest.Member) -> LeaveGroupResponse.Member:
        """A static member may be sent away by its instance alone; then whoever that is now goes."""
        rebalance = self._rebalance
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if member_id in rebalance.roster.pending:
            rebalance.unwatch(member_id)
            rebalance.roster.remove(member_id)
            return leaver(leaving, None)
        try:
            if member_id == "":
                member = None if instance_id is None else rebalance.roster.of_instance(instance_id)
                if member is None:
                    raise UnknownMemberId()
            else:
                member = rebalance.roster.validate(member_id, instance_id)
        except KafkaError as error:
            return leaver(leaving, error)
        rebalance.remove(member)
        return leaver(leaving, None)

    def _member(self, member_id: str, instance_id: str | None, generation: int) -> ClassicMember:
        member = self._rebalance.roster.validate(member_id, instance_id)
        if generation != self._rebalance.generation:
            raise IllegalGeneration()
        return member

    def expire(self, key: tuple[str, ...], now: Moment) -> Decision:
        if self._surroundings.deadlines.get(key) is not None:
            return NOTHING  # what was due a moment before has set it anew
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
        """On the wall clock; None: an old record did not say."""
        return self._rebalance.state_since_ms

    @property
    def members(self) -> tuple[ClassicMember, ...]:
        return tuple(self._rebalance.roster)

    @property
    def is_empty(self) -> bool:
        return self._rebalance.phase is Phase.EMPTY

    @property
    def is_simple(self) -> bool:
        """Nobody ever joined it: it only keeps offsets."""
        return self.protocol_type is None and self.is_empty and not self._rebalance.roster.pending

    def describe(self) -> DescribeGroupsResponse.Group:
        """What members say about themselves is shown while it holds: when a protocol is chosen, and all agree."""
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

    # -- what its offsets may ------------------------------------------------------------------------------------------

    def validate_offset_commit(
        self, member_id: str, generation: int, instance_id: str | None, *, is_transactional: bool
    ) -> None:
        """From outside, without a generation, only while the group is empty: who holds work must be one of it. Commits
        of transactions may come without, since their old versions could not say who they are."""
        if generation < 0 and self.is_empty:
            return
        if generation >= 0 or member_id != "" or instance_id is not None:
            self._member(member_id, instance_id, generation)
        elif not is_transactional and not self.is_empty:
            raise UnknownMemberId()
        if not is_transactional and self._rebalance.phase is Phase.COMPLETING:
            raise RebalanceInProgress()

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anyone may."""
        self._must_live()

    def validate_offset_delete(self) -> None:
        """Of consumers topic by topic (`is_subscribed_to`); of others nobody knows which offsets are in use."""
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
        """If it is not known, a group of consumers is taken to be."""
        topics = self._rebalance.subscribed_topics
        return self.protocol_type == CONSUMER if topics is None else topic in topics

    def offsets_expire_since(self, commit_ms: int) -> int | None:
        """When the retention of an offset that was committed then begins, on the wall clock (KIP-211): with the commit,
        or when the group became empty. None: not now. Topics that are being read are `is_subscribed_to`'s to say."""
        if self.protocol_type is None:
            return commit_ms
        if self.is_empty:
            return commit_ms if self.state_since_ms is None else self.state_since_ms
        topics_are_known = self._rebalance.subscribed_topics is not None
        is_settled = self.protocol_type == CONSUMER and topics_are_known and self._rebalance.phase is Phase.STABLE
        return commit_ms if is_settled else None
