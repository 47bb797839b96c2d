"""How one generation of a classic group follows another.

While the group prepares, JoinGroups wait: for everyone who is known, as long as the slowest member asks for; or, if the
group was empty, for a short while in which more may come, and longer if they do. Then a generation begins. Its members
are told who they are, one of them, the leader, who the others are, and they come back with SyncGroup: all of them wait
until the leader's has brought the assignment and that is written.

Only then is anything written (and when nobody is left, and when a static member gets a new id). All else here is soft:
it is in memory, and a coordinator that loads the log begins with the last generation that was shared out.

A generation's number is positive on the wire, and follows the greatest with 0: a negative one would mean "none".
"""

from collections.abc import Callable, Mapping
from typing import Final

from trioka.protocol.codec import decoder
from trioka.protocol.decoding import MAX_ELEMENTS
from trioka.protocol.errors import NONE, KafkaError, ProtocolError, RebalanceInProgress, UnknownMemberId
from trioka.protocol.internal_records.classic_groups import GroupMetadataKey, GroupMetadataValue
from trioka.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from trioka.protocol.messages.join_group import JoinGroupResponse
from trioka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from trioka.protocol.schema import Response

from .classic_member import ClassicMember
from .classic_membership import Roster
from .classic_responses import join_refused, sync_refused
from .classic_states import NEXT, Phase
from .decision import Answer, Decision, Kept, Moment, Ticket
from .settings import Surroundings

CONSUMER: Final = "consumer"  # the protocol type of groups that share out partitions
MAX_GENERATION: Final = 2**31 - 1


class _InitialDelay:
    """An empty group waits a little for more members, and again if there were more, until its time is up."""

    __slots__ = ("delay_ms", "has_more", "remaining_ms")

    def __init__(self, delay_ms: int, remaining_ms: int) -> None:
        self.delay_ms = delay_ms
        self.remaining_ms = remaining_ms
        self.has_more = False

    def extend(self, delay_ms: int) -> None:
        delay_ms = min(delay_ms, self.remaining_ms)
        self.remaining_ms = max(self.remaining_ms - self.delay_ms, 0)
        self.delay_ms = delay_ms
        self.has_more = False


class Rebalance:
    def __init__(self, group_id: str, surroundings: Surroundings) -> None:
        self.roster = Roster()
        self.phase = Phase.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.state_since_ms: int | None = None
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self._group_id = group_id
        self._surroundings = surroundings
        self._initial: _InitialDelay | None = None
        self._assigning: int | None = None  # the generation whose assignment is being written
        # What is being decided, until `decided` hands it out.
        self.records: list[Kept] = []
        self.afterwards: Callable[[KafkaError | None, Moment], Decision] | None = None
        self._answers: list[Answer] = []

    def decided(self) -> Decision:
        decision = Decision(records=tuple(self.records), answers=tuple(self._answers), afterwards=self.afterwards)
        self.records, self._answers, self.afterwards = [], [], None
        return decision

    # -- answers and deadlines -----------------------------------------------------------------------------------------

    def say(self, ticket: Ticket, response: Response) -> None:
        self._answers.append(Answer(ticket, response))

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        ticket = self.roster.wait_for_join(member, None)
        if ticket is not None:
            self.say(ticket, response)

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is not None:
            self.say(ticket, response)
        return ticket is not None

    def joined(self, member: ClassicMember, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """This is the generation that you are in, and, for the leader, who else is."""
        assert self.protocol_name is not None and self.roster.leader is not None
        name = self.protocol_name
        return JoinGroupResponse(
            error_code=NONE,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=name,
            leader=self.roster.leader,
            skip_assignment=skip_assignment,
            member_id=member.id,
            members=[
                JoinGroupResponse.Member(
                    member_id=other.id, group_instance_id=other.instance_id, metadata=other.metadata(name)
                )
                for other in (self.roster if member.id == self.roster.leader else ())
            ],
        )

    def watch(self, member_id: str, timeout_ms: int, now: Moment) -> None:
        self._surroundings.deadlines.set((self._group_id, "session", member_id), now.steady_ms + timeout_ms)

    def watch_session(self, member: ClassicMember, now: Moment) -> None:
        self.watch(member.id, member.session_timeout_ms, now)

    def unwatch(self, member_id: str) -> None:
        self._surroundings.deadlines.cancel((self._group_id, "session", member_id))

    def _set(self, kind: str, timeout_ms: int, now: Moment) -> None:
        self._surroundings.deadlines.set((self._group_id, kind), now.steady_ms + timeout_ms)

    def _cancel(self, kind: str) -> None:
        self._surroundings.deadlines.cancel((self._group_id, kind))

    # -- joining -------------------------------------------------------------------------------------------------------

    def move_to(self, phase: Phase, now: Moment) -> None:
        assert phase in NEXT[self.phase], f"{self.phase} is not followed by {phase}"
        self.phase = phase
        self.state_since_ms = now.wall_ms

    def begin_or_complete(self, now: Moment) -> None:
        """Something has changed: there must be another generation."""
        if Phase.PREPARING in NEXT[self.phase]:
            self.prepare(now)
        else:
            self.complete_if_all_joined(now)

    def prepare(self, now: Moment) -> None:
        if self.phase is Phase.COMPLETING:
            self._take_back(RebalanceInProgress, now)
        self.roster.unsynced.clear()
        self._cancel("sync")
        was_empty = self.phase is Phase.EMPTY
        self.move_to(Phase.PREPARING, now)
        if was_empty:
            delay_ms = self._surroundings.classic().initial_rebalance_delay_ms
            self._initial = _InitialDelay(delay_ms, max(self.roster.rebalance_timeout_ms - delay_ms, 0))
            self._set("join", delay_ms, now)
        elif self.roster.have_all_joined:
            self.complete_join(now)
        else:
            self._set("join", self.roster.rebalance_timeout_ms, now)

    def note_newcomer(self) -> None:
        if self._initial is not None:
            self._initial.has_more = True

    def complete_if_all_joined(self, now: Moment) -> None:
        """The first generation after an empty group is not hurried."""
        if self.phase is Phase.PREPARING and self._initial is None and self.roster.have_all_joined:
            self.complete_join(now)

    def complete_join(self, now: Moment) -> None:
        self._cancel("join")
        for member in [m for m in self.roster if m.join_ticket is None and m.instance_id is None]:
            self.remove(member)
        if not self.roster.elect() and len(self.roster):
            # Static members alone, none of whom has come back: their sessions decide.
            self._set("join", self.roster.rebalance_timeout_ms, now)
            return
        self._initial = None
        self.generation = self.generation + 1 if self.generation < MAX_GENERATION else 0
        self.protocol_name = self.roster.select_protocol() if len(self.roster) else None
        self.subscribed_topics = self.topics_of_members()
        self.roster.unsynced.clear()
        if not len(self.roster):
            self.move_to(Phase.EMPTY, now)
            self.records.append(self.record({}))
            return
        self.move_to(Phase.COMPLETING, now)
        for member in self.roster:
            self.answer_join(member, self.joined(member))
            self.watch_session(member, now)
            member.is_new = False
            self.roster.unsynced.add(member.id)
        self._set("sync", self.roster.rebalance_timeout_ms, now)

    def abandon(self, now: Moment) -> None:
        """Nobody is left, and what began was never written."""
        self._cancel("join")
        self._initial = None
        self.move_to(Phase.EMPTY, now)

    def end(self) -> None:
        """Nothing follows."""
        self._cancel("join")
        self._cancel("sync")
        self.roster = Roster()
        self._assigning = None
        self.phase = Phase.DEAD

    # -- sharing out ---------------------------------------------------------------------------------------------------

    def sync(self, ticket: Ticket, member: ClassicMember, request: SyncGroupRequest, now: Moment) -> None:
        if self.phase is Phase.PREPARING:
            self.say(ticket, sync_refused(RebalanceInProgress))
            return
        self.roster.unsynced.discard(member.id)
        if not self.roster.unsynced:
            self._cancel("sync")
        if self.phase is Phase.STABLE:
            self.say(ticket, self._share_of(member))
            return
        self.answer_sync(member, sync_refused(RebalanceInProgress))  # it has asked before, and asks anew
        member.sync_ticket = ticket
        if member.id == self.roster.leader and self._assigning is None:
            given = {share.member_id: share.assignment for share in request.assignments}
            self._assign({other.id: given.get(other.id, b"") for other in self.roster})

    def _assign(self, shares: Mapping[str, bytes]) -> None:
        generation = self._assigning = self.generation
        self.records.append(self.record(shares))

        def written(error: KafkaError | None, now: Moment) -> Decision:
            if self._assigning == generation:
                self._assigning = None
                if error is None:
                    self._hand_out(shares, now)
                else:
                    self._take_back(error, now)
                    self.begin_or_complete(now)
            return self.decided()

        self.afterwards = written

    def _hand_out(self, shares: Mapping[str, bytes], now: Moment) -> None:
        self.move_to(Phase.STABLE, now)
        for member in self.roster:
            member.assignment = shares.get(member.id, b"")
            if self.answer_sync(member, self._share_of(member)):
                self.watch_session(member, now)

    def _take_back(self, error: KafkaError | type[KafkaError], now: Moment) -> None:
        """There will be no assignment in this generation."""
        self._assigning = None
        for member in self.roster:
            member.assignment = b""
            if self.answer_sync(member, sync_refused(error)):
                self.watch_session(member, now)

    def _share_of(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    # -- members that go -----------------------------------------------------------------------------------------------

    def remove(self, member: ClassicMember, error: KafkaError | type[KafkaError] = UnknownMemberId) -> None:
        """What follows for the group is the caller's to say."""
        self.answer_join(member, join_refused(error))
        self.answer_sync(member, sync_refused(error))
        self.unwatch(member.id)
        self.roster.remove(member.id)

    def expire_session(self, member_id: str, now: Moment) -> None:
        member = self.roster.get(member_id)
        if member is None:
            if member_id not in self.roster.pending:
                return
            self.roster.remove(member_id)
        elif member.is_excused:
            return
        else:
            self.remove(member)
            if self.phase in (Phase.STABLE, Phase.COMPLETING):
                self.prepare(now)
                return
        if self.phase is Phase.PREPARING and self.roster.have_all_joined:
            self.complete_join(now)

    def expire_join(self, now: Moment) -> None:
        if self.phase is not Phase.PREPARING:
            return
        initial = self._initial
        if initial is not None and initial.has_more and initial.remaining_ms:
            initial.extend(self._surroundings.classic().initial_rebalance_delay_ms)
            self._set("join", initial.delay_ms, now)
        else:
            self.complete_join(now)

    def expire_sync(self, now: Moment) -> None:
        if self.roster.unsynced:
            for member_id in list(self.roster.unsynced):
                self.remove(self.roster[member_id])
            self.prepare(now)

    # -- what is kept --------------------------------------------------------------------------------------------------

    def record(self, shares: Mapping[str, bytes]) -> Kept:
        name = self.protocol_name
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=name,
            leader=self.roster.leader,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=[] if name is None else [member.kept(name, shares[member.id]) for member in self.roster],
        )
        return Kept(GroupMetadataKey(group=self._group_id), value)

    def topics_of_members(self) -> frozenset[str] | None:
        """All topics that members read, if they are consumers and say so in a way that can be read."""
        if self.protocol_type != CONSUMER:
            return None
        if not len(self.roster):
            return frozenset()
        if self.protocol_name is None:
            return None
        read = decoder(ConsumerProtocolSubscription, 0)  # every later version begins like the first
        topics: set[str] = set()
        try:
            for member in self.roster:
                topics.update(read(memoryview(member.metadata(self.protocol_name)), 2, MAX_ELEMENTS)[0].topics)
        except ProtocolError:
            return None
        return frozenset(topics)
