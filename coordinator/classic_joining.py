"""JoinGroup in a classic group: which members may join, and the effect on the group.

A dynamic member sends two requests: the first gets a member id and the member becomes pending, the second joins with
that id (KIP-394), so a client that loses its response leaves no unknown member behind. A static member is identified by
its instance id (KIP-345): when it restarts it replaces its former member under a new member id, and the old id is
fenced. In a stable group that causes no rebalance if the same protocol would be chosen again.
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
from .classic_responses import join_error, member_error, sync_error
from .classic_states import Phase
from .client import Client
from .decision import Decision, Now, RequestId, StoredRecord
from .settings import CoordinatorContext

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000  # of JoinGroups: a new member sends no heartbeats
MAX_PENDING: Final = 10_000  # members with an id that have not joined yet, in one group
REQUIRES_MEMBER_ID: Final = 4  # from this version of JoinGroup on a member must have an id
MAY_SKIP_ASSIGNMENT: Final = 9  # from this version on a leader may skip the assignment (KIP-814)


def check_join(request: JoinGroupRequest, context: CoordinatorContext) -> None:
    """The checks of a JoinGroup that do not depend on its group."""
    settings = context.classic()
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        raise InvalidSessionTimeout()


class Joining:
    def __init__(self, group_id: str, rebalance: Rebalance, context: CoordinatorContext) -> None:
        self._group_id = group_id
        self._rebalance = rebalance
        self._context = context

    def join(self, request_id: RequestId, request: JoinGroupRequest, client: Client, now: Now, *, is_new: bool) -> None:
        rebalance = self._rebalance
        if not self._is_below_max_size(request.member_id):
            self._refuse_full_group(request_id, request.member_id, now)
        elif request.member_id == "":
            self._join_unknown(request_id, request, client, now)
        else:
            self._join_known(request_id, request, client, now)
        if is_new:
            assert not rebalance.records
            rebalance.records.append(self._empty_group_record())
            rebalance.on_committed = lambda error, now: self._on_group_created(request_id, error, now)

    # -- the group -----------------------------------------------------------------------------------------------------

    def _is_below_max_size(self, member_id: str) -> bool:
        roster, max_size = self._rebalance.roster, self._context.classic().max_size
        if member_id == "" and len(roster.pending) >= MAX_PENDING:
            return False
        member = roster.get(member_id)
        match self._rebalance.phase:
            case Phase.EMPTY:
                return True
            case Phase.PREPARING:
                # Only rejoined members count: if the limit was lowered, the last to rejoin are removed.
                return (member is not None and member.join_request_id is not None) or roster.joined < max_size
            case _:
                return member is not None or len(roster) < max_size

    def _refuse_full_group(self, request_id: RequestId, member_id: str, now: Now) -> None:
        rebalance = self._rebalance
        member = rebalance.roster.get(member_id)
        if member is not None:
            rebalance.remove(member)
        elif member_id in rebalance.roster.pending:
            rebalance.unwatch(member_id)
            rebalance.roster.remove(member_id)
        rebalance.reply(request_id, join_error(GroupMaxSizeReached))
        rebalance.complete_if_all_joined(now)

    def _supports(self, request: JoinGroupRequest) -> bool:
        rebalance = self._rebalance
        names = [protocol.name for protocol in request.protocols]
        if rebalance.phase is Phase.EMPTY:
            return request.protocol_type != "" and names != []
        return rebalance.protocol_type == request.protocol_type and rebalance.roster.is_common(names)

    def _empty_group_record(self) -> StoredRecord:
        since_ms = self._rebalance.state_since_ms
        value = GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=-1 if since_ms is None else since_ms,
            members=[],
        )
        return StoredRecord(GroupMetadataKey(group=self._group_id), value)

    def _on_group_created(self, request_id: RequestId, error: KafkaError | None, now: Now) -> Decision:
        """Called when the group's first record is committed, or has failed: then its first member must retry."""
        rebalance = self._rebalance
        if error is not None:
            for member in [m for m in rebalance.roster if m.join_request_id == request_id]:
                rebalance.remove(member, error)
            if rebalance.phase is Phase.PREPARING and not len(rebalance.roster):
                rebalance.abandon(now)
        return rebalance.decided()

    # -- unknown members -----------------------------------------------------------------------------------------------

    def _join_unknown(self, request_id: RequestId, request: JoinGroupRequest, client: Client, now: Now) -> None:
        rebalance, instance_id = self._rebalance, request.group_instance_id
        if not self._supports(request):
            rebalance.reply(request_id, join_error(InconsistentGroupProtocol))
            return
        uuid = UUID(int=self._context.random.getrandbits(128), version=4)
        member_id = f"{client.id if instance_id is None else instance_id}-{uuid}"
        if instance_id is not None:
            replaced = rebalance.roster.of_instance(instance_id)
            if replaced is not None:
                self._replace(request_id, request, client, replaced, member_id, now)
                return
        elif client.version >= REQUIRES_MEMBER_ID:
            rebalance.roster.pending.add(member_id)
            rebalance.watch(member_id, request.session_timeout_ms, now)
            rebalance.reply(request_id, join_error(MemberIdRequired, member_id))
            return
        self._add(request_id, request, client, member_id, now)

    def _add(self, request_id: RequestId, request: JoinGroupRequest, client: Client, member_id: str, now: Now) -> None:
        rebalance = self._rebalance
        member = ClassicMember.joining(member_id, request, client)
        member.is_new = True
        member.version = client.version
        member.join_request_id = request_id
        if not len(rebalance.roster):
            rebalance.protocol_type = request.protocol_type
        rebalance.note_new_member()
        rebalance.roster.add(member)
        rebalance.watch(member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, now)
        rebalance.begin_or_complete(now)

    # -- known members -------------------------------------------------------------------------------------------------

    def _join_known(self, request_id: RequestId, request: JoinGroupRequest, client: Client, now: Now) -> None:
        rebalance, member_id = self._rebalance, request.member_id
        if not self._supports(request):
            rebalance.reply(request_id, join_error(InconsistentGroupProtocol, member_id))
        elif member_id in rebalance.roster.pending:
            if request.group_instance_id is None:
                self._add(request_id, request, client, member_id, now)
            else:  # the id was given to a dynamic member: Kafka has no error for a static one that uses it
                rebalance.reply(request_id, join_error(UnknownServerError))
        else:
            try:
                member = rebalance.roster.validate(member_id, request.group_instance_id)
            except KafkaError as error:
                rebalance.reply(request_id, member_error(error, member_id, client.version))
                return
            self._rejoin(request_id, request, client, member, now)

    def _rejoin(
        self, request_id: RequestId, request: JoinGroupRequest, client: Client, member: ClassicMember, now: Now
    ) -> None:
        rebalance = self._rebalance
        if REJOINING[rebalance.phase](rebalance, member, request):
            self._update(request_id, request, client, member)
            rebalance.begin_or_complete(now)
        else:  # it may not have received its response
            answer = rebalance.joined(member)
            if rebalance.phase is Phase.STABLE:
                assert not answer.members  # otherwise it would compute another assignment
            rebalance.reply(request_id, answer)

    def _update(self, request_id: RequestId, request: JoinGroupRequest, client: Client, member: ClassicMember) -> None:
        rebalance = self._rebalance
        rebalance.roster.update(
            member, protocols_of(request), rebalance_timeout_of(request, client), request.session_timeout_ms
        )
        member.version = client.version
        given_up = rebalance.roster.wait_for_join(member, request_id)
        if given_up is not None:  # a repeated request: the client has given up on the first one
            rebalance.reply(given_up, join_error(RebalanceInProgress, member.id))

    # -- static members that restart -----------------------------------------------------------------------------------

    def _replace(
        self,
        request_id: RequestId,
        request: JoinGroupRequest,
        client: Client,
        old: ClassicMember,
        member_id: str,
        now: Now,
    ) -> None:
        rebalance = self._rebalance
        leader_before = rebalance.roster.leader
        rebalance.answer_join(old, member_error(FencedInstanceId, old.id, old.version))
        rebalance.answer_sync(old, sync_error(FencedInstanceId))
        rebalance.unwatch(old.id)
        member = rebalance.roster.rename(old, member_id)
        rebalance.watch_session(member, now)
        self._update(request_id, request, client, member)
        if rebalance.phase is not Phase.STABLE:
            rebalance.begin_or_complete(now)
        elif rebalance.roster.select_protocol() != rebalance.protocol_name:
            rebalance.prepare(now)
        else:
            rebalance.records.append(rebalance.record({m.id: m.assignment for m in rebalance.roster}))
            rebalance.on_committed = lambda error, now: self._is_replaced(
                request_id, old, member, leader_before, error, now
            )

    def _is_replaced(
        self,
        request_id: RequestId,
        old: ClassicMember,
        member: ClassicMember,
        leader_before: str | None,
        error: KafkaError | None,
        now: Now,
    ) -> Decision:
        rebalance = self._rebalance
        if rebalance.roster.get(member.id) is not member or member.join_request_id != request_id:
            return rebalance.decided()  # the group was changed and the request answered meanwhile
        if error is None and rebalance.phase is not Phase.STABLE:
            return rebalance.decided()  # the request waits for the next generation, like those of all members
        if error is not None:
            response = join_error(error)
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
        """A rejoined leader stays leader, but its response does not say so: its assignment would be discarded."""
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


def _is_leader_or_changed(rebalance: Rebalance, member: ClassicMember, request: JoinGroupRequest) -> bool:
    """A leader rejoins after a change that only the leader knows, such as the partitions of a topic."""
    return member.id == rebalance.roster.leader or _has_changed(rebalance, member, request)


# Whether a member that rejoins in this phase starts another generation. If not, it gets the current one.
REJOINING: Final[Mapping[Phase, Callable[[Rebalance, ClassicMember, JoinGroupRequest], bool]]] = {
    Phase.PREPARING: _always,
    Phase.COMPLETING: _has_changed,
    Phase.STABLE: _is_leader_or_changed,
}
