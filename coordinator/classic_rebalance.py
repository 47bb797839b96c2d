"""How one generation of a classic group follows another.

While the group prepares, JoinGroups wait for all known members, for the largest rebalance timeout at most; if the group
was empty, for group.initial.rebalance.delay.ms, extended while members join. Then a generation begins. Members get
their ids, the leader gets the member list, and all send SyncGroup: these wait until the leader's SyncGroup has brought
the assignment and its record is committed.

Records are written only then, when the group becomes empty, and when a static member gets a new id. All other state is
soft: it is in memory, and a coordinator that loads the log begins with the last generation that has an assignment.

Generation numbers are positive on the wire, and 0 follows the greatest: a negative number would mean "none".
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
from .classic_membership import ClassicMembership
from .classic_responses import join_error, sync_error
from .classic_states import NEXT, Phase
from .decision import Decision, Now, Reply, RequestId, StoredRecord
from .settings import CoordinatorContext

CONSUMER: Final = "consumer"  # the protocol type of consumers
MAX_GENERATION: Final = 2**31 - 1


class _InitialDelay:
    """The initial delay of an empty group, which is extended while members join, up to a limit."""

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
    def __init__(self, group_id: str, context: CoordinatorContext) -> None:
        self.roster = ClassicMembership()
        self.phase = Phase.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.state_since_ms: int | None = None
        self.subscribed_topics: frozenset[str] | None = None  # None: unknown
        self._group_id = group_id
        self._context = context
        self._initial: _InitialDelay | None = None
        self._assigning: int | None = None  # the generation whose assignment is being written
        # The parts of the current decision, until `decided` returns it.
        self.records: list[StoredRecord] = []
        self.on_committed: Callable[[KafkaError | None, Now], Decision] | None = None
        self._replies: list[Reply] = []

    def decided(self) -> Decision:
        decision = Decision(records=tuple(self.records), replies=tuple(self._replies), on_committed=self.on_committed)
        self.records, self._replies, self.on_committed = [], [], None
        return decision

    # -- answers and deadlines -----------------------------------------------------------------------------------------

    def reply(self, request_id: RequestId, response: Response) -> None:
        self._replies.append(Reply(request_id, response))

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        request_id = self.roster.wait_for_join(member, None)
        if request_id is not None:
            self.reply(request_id, response)

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        request_id, member.sync_request_id = member.sync_request_id, None
        if request_id is not None:
            self.reply(request_id, response)
        return request_id is not None

    def joined(self, member: ClassicMember, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """Sends the JoinGroup responses: the generation, and for the leader the members."""
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

    def watch(self, member_id: str, timeout_ms: int, now: Now) -> None:
        self._context.deadlines.set((self._group_id, "session", member_id), now.steady_ms + timeout_ms)

    def watch_session(self, member: ClassicMember, now: Now) -> None:
        self.watch(member.id, member.session_timeout_ms, now)

    def unwatch(self, member_id: str) -> None:
        self._context.deadlines.cancel((self._group_id, "session", member_id))

    def _set(self, kind: str, timeout_ms: int, now: Now) -> None:
        self._context.deadlines.set((self._group_id, kind), now.steady_ms + timeout_ms)

    def _cancel(self, kind: str) -> None:
        self._context.deadlines.cancel((self._group_id, kind))

    # -- joining -------------------------------------------------------------------------------------------------------

    def move_to(self, phase: Phase, now: Now) -> None:
        assert phase in NEXT[self.phase], f"{self.phase} is not followed by {phase}"
        self.phase = phase
        self.state_since_ms = now.wall_ms

    def begin_or_complete(self, now: Now) -> None:
        """Starts another generation, or completes the join phase if all members have joined."""
        if Phase.PREPARING in NEXT[self.phase]:
            self.prepare(now)
        else:
            self.complete_if_all_joined(now)

    def prepare(self, now: Now) -> None:
        if self.phase is Phase.COMPLETING:
            self._abandon_assignment(RebalanceInProgress, now)
        self.roster.unsynced.clear()
        self._cancel("sync")
        was_empty = self.phase is Phase.EMPTY
        self.move_to(Phase.PREPARING, now)
        if was_empty:
            delay_ms = self._context.classic().initial_rebalance_delay_ms
            self._initial = _InitialDelay(delay_ms, max(self.roster.rebalance_timeout_ms - delay_ms, 0))
            self._set("join", delay_ms, now)
        elif self.roster.have_all_joined:
            self.complete_join(now)
        else:
            self._set("join", self.roster.rebalance_timeout_ms, now)

    def note_new_member(self) -> None:
        if self._initial is not None:
            self._initial.has_more = True

    def complete_if_all_joined(self, now: Now) -> None:
        """Completes the join phase, unless the initial delay of an empty group still runs."""
        if self.phase is Phase.PREPARING and self._initial is None and self.roster.have_all_joined:
            self.complete_join(now)

    def complete_join(self, now: Now) -> None:
        self._cancel("join")
        for member in [m for m in self.roster if m.join_request_id is None and m.instance_id is None]:
            self.remove(member)
        if not self.roster.elect() and len(self.roster):
            # Only static members, none of which has rejoined: their sessions decide.
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

    def abandon(self, now: Now) -> None:
        """The group has become empty before the new generation was written."""
        self._cancel("join")
        self._initial = None
        self.move_to(Phase.EMPTY, now)

    def end(self) -> None:
        """Ends the group: no generation follows."""
        self._cancel("join")
        self._cancel("sync")
        self.roster = ClassicMembership()
        self._assigning = None
        self.phase = Phase.DEAD

    # -- assignment ----------------------------------------------------------------------------------------------------

    def sync(self, request_id: RequestId, member: ClassicMember, request: SyncGroupRequest, now: Now) -> None:
        if self.phase is Phase.PREPARING:
            self.reply(request_id, sync_error(RebalanceInProgress))
            return
        self.roster.unsynced.discard(member.id)
        if not self.roster.unsynced:
            self._cancel("sync")
        if self.phase is Phase.STABLE:
            self.reply(request_id, self._share_of(member))
            return
        self.answer_sync(member, sync_error(RebalanceInProgress))  # the earlier request; its client retries
        member.sync_request_id = request_id
        if member.id == self.roster.leader and self._assigning is None:
            given = {share.member_id: share.assignment for share in request.assignments}
            self._assign({other.id: given.get(other.id, b"") for other in self.roster})

    def _assign(self, shares: Mapping[str, bytes]) -> None:
        generation = self._assigning = self.generation
        self.records.append(self.record(shares))

        def written(error: KafkaError | None, now: Now) -> Decision:
            if self._assigning == generation:
                self._assigning = None
                if error is None:
                    self._send_assignments(shares, now)
                else:
                    self._abandon_assignment(error, now)
                    self.begin_or_complete(now)
            return self.decided()

        self.on_committed = written

    def _send_assignments(self, shares: Mapping[str, bytes], now: Now) -> None:
        self.move_to(Phase.STABLE, now)
        for member in self.roster:
            member.assignment = shares.get(member.id, b"")
            if self.answer_sync(member, self._share_of(member)):
                self.watch_session(member, now)

    def _abandon_assignment(self, error: KafkaError | type[KafkaError], now: Now) -> None:
        """Ends this generation without an assignment."""
        self._assigning = None
        for member in self.roster:
            member.assignment = b""
            if self.answer_sync(member, sync_error(error)):
                self.watch_session(member, now)

    def _share_of(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    # -- removal of members --------------------------------------------------------------------------------------------

    def remove(self, member: ClassicMember, error: KafkaError | type[KafkaError] = UnknownMemberId) -> None:
        """Removes the member. The caller decides what follows for the group."""
        self.answer_join(member, join_error(error))
        self.answer_sync(member, sync_error(error))
        self.unwatch(member.id)
        self.roster.remove(member.id)

    def expire_session(self, member_id: str, now: Now) -> None:
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

    def expire_join(self, now: Now) -> None:
        if self.phase is not Phase.PREPARING:
            return
        initial = self._initial
        if initial is not None and initial.has_more and initial.remaining_ms:
            initial.extend(self._context.classic().initial_rebalance_delay_ms)
            self._set("join", initial.delay_ms, now)
        else:
            self.complete_join(now)

    def expire_sync(self, now: Now) -> None:
        if self.roster.unsynced:
            for member_id in list(self.roster.unsynced):
                self.remove(self.roster[member_id])
            self.prepare(now)

    # -- records -------------------------------------------------------------------------------------------------------

    def record(self, shares: Mapping[str, bytes]) -> StoredRecord:
        name = self.protocol_name
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=name,
            leader=self.roster.leader,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=[] if name is None else [member.kept(name, shares[member.id]) for member in self.roster],
        )
        return StoredRecord(GroupMetadataKey(group=self._group_id), value)

    def topics_of_members(self) -> frozenset[str] | None:
        """All topics that members subscribe to; None unless all are consumers with readable metadata."""
        if self.protocol_type != CONSUMER:
            return None
        if not len(self.roster):
            return frozenset()
        if self.protocol_name is None:
            return None
        read = decoder(ConsumerProtocolSubscription, 0)  # every later version starts like the first
        topics: set[str] = set()
        try:
            for member in self.roster:
                topics.update(read(memoryview(member.metadata(self.protocol_name)), 2, MAX_ELEMENTS)[0].topics)
        except ProtocolError:
            return None
        return frozenset(topics)
