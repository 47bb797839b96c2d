"""Who may join a classic group, and what their joining does to it.

A dynamic member asks twice: the first time it is given an id, and is expected, the second time it joins with it
(KIP-394), so that a client that is cut off from its answer leaves no unknown member behind. A static member is
known by its instance (KIP-345): when it starts anew it takes its own place, under a new id, and the old id is
fenced. In a stable group that disturbs nobody, as long as the same protocol would be chosen again.
"""

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from trioka.protocol.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownServerError,
)
from trioka.protocol.internal_records.classic_groups import GroupMetadataKey, GroupMetadataValue
from trioka.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

from .classic_member import ClassicMember, protocols_of, rebalance_timeout_of
from .classic_rebalance import Rebalance
from .classic_responses import join_refused, member_refused, sync_refused
from .classic_states import Phase
from .client import Client
from .decision import Decision, Kept, Moment, Ticket
from .settings import Surroundings

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000  # a new member cannot send heartbeats yet; this long may its join wait
MAX_PENDING: Final = 10_000  # members that were given an id and have not joined, in one group
REQUIRES_MEMBER_ID: Final = 4  # the version of JoinGroup from which on a member must have an id
MAY_SKIP_ASSIGNMENT: Final = 9  # and from which on a leader may be told to leave the assignment as it is (KIP-814)


def check_join(request: JoinGroupRequest, surroundings: Surroundings) -> None:
    """What can be said of a JoinGroup before its group is looked for."""
    settings = surroundings.classic()
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        raise InvalidSessionTimeout()


class Joining:
    def __init__(self, group_id: str, rebalance: Rebalance, surroundings: Surroundings) -> None:
        self._group_id = group_id
        self._rebalance = rebalance
        self._surroundings = surroundings

    def join(self, ticket: Ticket, request: JoinGroupRequest, client: Client, now: Moment, *, is_new: bool) -> None:
        rebalance = self._rebalance
        if not self._has_room_for(request.member_id):
            self._turn_away(ticket, request.member_id, now)
        elif request.member_id == "":
            self._join_unknown(ticket, request, client, now)
        else:
            self._join_known(ticket, request, client, now)
        if is_new:
            assert not rebalance.records
            rebalance.records.append(self._record_of_nobody())
            rebalance.afterwards = lambda error, now: self._is_founded(ticket, error, now)

    # -- the group -----------------------------------------------------------------------------------------------------

    def _has_room_for(self, member_id: str) -> bool:
        roster, max_size = self._rebalance.roster, self._surroundings.classic().max_size
        if member_id == "" and len(roster.pending) >= MAX_PENDING:
            return False
        member = roster.get(member_id)
        match self._rebalance.phase:
            case Phase.EMPTY:
                return True
            case Phase.PREPARING:
                # Counted are those who have come back: if the limit was lowered, the last to come have to go.
                return (member is not None and member.join_ticket is not None) or roster.joined < max_size
            case _:
                return member is not None or len(roster) < max_size

    def _turn_away(self, ticket: Ticket, member_id: str, now: Moment) -> None:
        rebalance = self._rebalance
        member = rebalance.roster.get(member_id)
        if member is not None:
            rebalance.remove(member)
        elif member_id in rebalance.roster.pending:
            rebalance.unwatch(member_id)
            rebalance.roster.remove(member_id)
        rebalance.say(ticket, join_refused(GroupMaxSizeReached))
        rebalance.complete_if_all_joined(now)

    def _supports(self, request: JoinGroupRequest) -> bool:
        rebalance = self._rebalance
        names = [protocol.name for protocol in request.protocols]
        if rebalance.phase is Phase.EMPTY:
            return request.protocol_type != "" and names != []
        return rebalance.protocol_type == request.protocol_type and rebalance.roster.is_common(names)

    def _record_of_nobody(self) -> Kept:
        since_ms = self._rebalance.state_since_ms
        value = GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=-1 if since_ms is None else since_ms,
            members=[],
        )
        return Kept(GroupMetadataKey(group=self._group_id), value)

    def _is_founded(self, ticket: Ticket, error: KafkaError | None, now: Moment) -> Decision:
        """The group's first record is written; or not, and then its first member has to try again."""
        rebalance = self._rebalance
        if error is not None:
            for member in [m for m in rebalance.roster if m.join_ticket == ticket]:
                rebalance.remove(member, error)
            if rebalance.phase is Phase.PREPARING and not len(rebalance.roster):
                rebalance.abandon(now)
        return rebalance.decided()

    # -- those whom nobody knows ---------------------------------------------------------------------------------------

    def _join_unknown(self, ticket: Ticket, request: JoinGroupRequest, client: Client, now: Moment) -> None:
        rebalance, instance_id = self._rebalance, request.group_instance_id
        if not self._supports(request):
            rebalance.say(ticket, join_refused(InconsistentGroupProtocol))
            return
        uuid = UUID(int=self._surroundings.random.getrandbits(128), version=4)
        member_id = f"{client.id if instance_id is None else instance_id}-{uuid}"
        if instance_id is not None:
            replaced = rebalance.roster.of_instance(instance_id)
            if replaced is not None:
                self._replace(ticket, request, client, replaced, member_id, now)
                return
        elif client.version >= REQUIRES_MEMBER_ID:
            rebalance.roster.pending.add(member_id)
            rebalance.watch(member_id, request.session_timeout_ms, now)
            rebalance.say(ticket, join_refused(MemberIdRequired, member_id))
            return
        self._add(ticket, request, client, member_id, now)

    def _add(self, ticket: Ticket, request: JoinGroupRequest, client: Client, member_id: str, now: Moment) -> None:
        rebalance = self._rebalance
        member = ClassicMember.joining(member_id, request, client)
        member.is_new = True
        member.version = client.version
        member.join_ticket = ticket
        if not len(rebalance.roster):
            rebalance.protocol_type = request.protocol_type
        rebalance.note_newcomer()
        rebalance.roster.add(member)
        rebalance.watch(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, now)
        rebalance.begin_or_complete(now)

    # -- those who are known -------------------------------------------------------------------------------------------

    def _join_known(self, ticket: Ticket, request: JoinGroupRequest, client: Client, now: Moment) -> None:
        rebalance, member_id = self._rebalance, request.member_id
        if not self._supports(request):
            rebalance.say(ticket, join_refused(InconsistentGroupProtocol, member_id))
        elif member_id in rebalance.roster.pending:
            if request.group_instance_id is None:
                self._add(ticket, request, client, member_id, now)
            else:  # an id was given to a dynamic member: Kafka has no word for one that is static the second time
                rebalance.say(ticket, join_refused(UnknownServerError))
        else:
            try:
                member = rebalance.roster.validate(member_id, request.group_instance_id)
            except KafkaError as error:
                rebalance.say(ticket, member_refused(error, member_id, client.version))
                return
            self._rejoin(ticket, request, client, member, now)

    def _rejoin(
        self, ticket: Ticket, request: JoinGroupRequest, client: Client, member: ClassicMember, now: Moment
    ) -> None:
        rebalance = self._rebalance
        if REJOINING[rebalance.phase](rebalance, member, request):
            self._update(ticket, request, client, member)
            rebalance.begin_or_complete(now)
        else:  # it may not have received its answer
            answer = rebalance.joined(member)
            if rebalance.phase is Phase.STABLE:
                assert not answer.members  # or else it would share out anew
            rebalance.say(ticket, answer)

    def _update(self, ticket: Ticket, request: JoinGroupRequest, client: Client, member: ClassicMember) -> None:
        rebalance = self._rebalance
        rebalance.roster.update(
            member, protocols_of(request), rebalance_timeout_of(request, client), request.session_timeout_ms
        )
        member.version = client.version
        given_up = rebalance.roster.wait_for_join(member, ticket)
        if given_up is not None:  # it asks anew: nobody listens for the first answer, but every request gets one
            rebalance.say(given_up, join_refused(RebalanceInProgress, member.id))

    # -- static members that start anew --------------------------------------------------------------------------------

    def _replace(
        self,
        ticket: Ticket,
        request: JoinGroupRequest,
        client: Client,
        old: ClassicMember,
        member_id: str,
        now: Moment,
    ) -> None:
        rebalance = self._rebalance
        leader_before = rebalance.roster.leader
        rebalance.answer_join(old, member_refused(FencedInstanceId, old.id, old.version))
        rebalance.answer_sync(old, sync_refused(FencedInstanceId))
        rebalance.unwatch(old.id)
        member = rebalance.roster.rename(old, member_id)
        rebalance.watch_session(member, now)
        self._update(ticket, request, client, member)
        if rebalance.phase is not Phase.STABLE:
            rebalance.begin_or_complete(now)
        elif rebalance.roster.select_protocol() != rebalance.protocol_name:
            rebalance.prepare(now)
        else:
            rebalance.records.append(rebalance.record({m.id: m.assignment for m in rebalance.roster}))
            rebalance.afterwards = lambda error, now: self._is_replaced(ticket, old, member, leader_before, error, now)

    def _is_replaced(
        self,
        ticket: Ticket,
        old: ClassicMember,
        member: ClassicMember,
        leader_before: str | None,
        error: KafkaError | None,
        now: Moment,
    ) -> Decision:
        rebalance = self._rebalance
        if rebalance.roster.get(member.id) is not member or member.join_ticket != ticket:
            return rebalance.decided()  # something else happened to it meanwhile, and it was told
        if error is None and rebalance.phase is not Phase.STABLE:
            return rebalance.decided()  # it waits for the next generation, as everyone does by now
        if error is not None:
            response = join_refused(error)
            rebalance.answer_join(member, response)
            rebalance.unwatch(member.id)
            rebalance.roster.update(member, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
            member = rebalance.roster.rename(member, old.id)
            rebalance.complete_if_all_joined(now)
        elif member.version >= MAY_SKIP_ASSIGNMENT:
            is_leader = member.id == rebalance.roster.leader
            rebalance.answer_join(member, rebalance.joined(member, skip_assignment=is_leader))
        else:
            rebalance.answer_join(member, self._joined_as_follower(member, leader_before))
        rebalance.watch_session(member, now)
        return rebalance.decided()

    def _joined_as_follower(self, member: ClassicMember, leader: str | None) -> JoinGroupResponse:
        """It leads, if it led before; but were it told so, it would share out anew, and nobody would listen."""
        rebalance = self._rebalance
        return JoinGroupResponse(
            error_code=0,
            generation_id=rebalance.generation,
            protocol_type=rebalance.protocol_type,
            protocol_name=rebalance.protocol_name,
            leader=leader or "",
            member_id=member.id,
            members=[],
        )


def _always(rebalance: Rebalance, member: ClassicMember, request: JoinGroupRequest) -> bool:
    return True


def _has_changed(rebalance: Rebalance, member: ClassicMember, request: JoinGroupRequest) -> bool:
    return member.protocols != protocols_of(request)


def _leads_or_has_changed(rebalance: Rebalance, member: ClassicMember, request: JoinGroupRequest) -> bool:
    """A leader comes back when something changed that only it knows, such as the partitions of a topic."""
    return member.id == rebalance.roster.leader or _has_changed(rebalance, member, request)


# Whether a member that joins again, in this phase, begins another generation. If not, it is told the one that it is in.
REJOINING: Final[Mapping[Phase, Callable[[Rebalance, ClassicMember, JoinGroupRequest], bool]]] = {
    Phase.PREPARING: _always,
    Phase.COMPLETING: _has_changed,
    Phase.STABLE: _leads_or_has_changed,
}
