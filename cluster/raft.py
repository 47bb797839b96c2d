"""The Raft state machine of one node of the metadata quorum (KIP-595, 853, 996), without any I/O.

                 election timeout                          a majority would vote                a majority votes
    UNATTACHED ──────────────────────────→ PROSPECTIVE ──────────────────────────→ CANDIDATE ──────────────────→ LEADER
        ↑  ↑                                  │   ↑                                   │                             │
        │  └── a node has a larger epoch ─────┴───┼───────────────────────────────────┘       no majority fetches   │
        │                                         │ fetch timeout                                                   ↓
        └──────────── FOLLOWER ───────────────────┘                                                            RESIGNED

Its inputs are responses, requests and the time; it returns the actions to take, in order (`raft_messages`). It reads
the log through an interface (`raft_log`) and never writes it. Followers pull: the offset in a fetch is both the request
for records and the acknowledgement of those before it.

Safety: a vote is persisted before it is sent, and an epoch never decreases (K1). A node votes only for a candidate
whose log is at least as complete as its own (K2), so a leader elected by a majority has all committed records. The high
watermark advances to the offset that a majority has synced, and only to records of the current epoch (K4). A
prospective candidate first sends a pre-vote, without a new epoch, and a follower with a live leader refuses it (K6).
Voters change one at a time (K7).
"""

from collections.abc import Sequence
from dataclasses import field, replace
from random import Random
from typing import Final, TypeVar

from trioka.protocol.errors import (
    DuplicateVoter,
    InvalidRequest,
    InvalidUpdateVersion,
    NotLeaderOrFollower,
    RequestTimedOut,
    VoterNotFound,
)
from trioka.protocol.lazy_dataclass import frozen, mutable
from trioka.protocol.primitives import NULL_UUID

from .raft_log import RaftLog
from .raft_messages import (
    Action,
    AppendVoters,
    BecomeLeader,
    BeginEpoch,
    Commit,
    EndEpoch,
    EpochAndOffset,
    LoadSnapshot,
    Persist,
    PersistentState,
    RaftFetchRequest,
    RaftFetchResponse,
    RaftVoteRequest,
    RaftVoteResponse,
    SendRequest,
    StepDown,
    Truncate,
)
from .voters import ReplicaKey, VoterHistory, VoterSet

T = TypeVar("T")

OBSERVER_SESSION_MS: Final = 300_000  # after so long an observer that does not fetch is forgotten, as in Kafka
MAX_PROGRESS: Final = 10_000  # replicas that a leader remembers
CHECK_QUORUM_FACTOR: Final = 1.5  # fetch timeouts without a majority, until a leader resigns
FIRST_BACKOFF_MS: Final = 200  # the backoff limit after one lost election; it doubles with each further one
MAX_DOUBLINGS: Final = 10
NEVER: Final = -(2**62)


@frozen
class RaftSettings:
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    backoff_ms: int = 1000  # the limit of the backoff after a lost election

    @property
    def check_quorum_ms(self) -> int:
        return int(self.fetch_timeout_ms * CHECK_QUORUM_FACTOR)


# -- roles -----------------------------------------------------------------------------------------------------------


@mutable
class Unattached:
    """Knows no leader. Waits for one, until its election timeout."""

    deadline_ms: int


@mutable
class Nominee:
    """Requests votes: those for a candidate count; those for a prospective candidate show whether it could win."""

    is_candidate: bool
    deadline_ms: int
    granted: set[ReplicaKey]
    refused: set[ReplicaKey] = field(default_factory=set)


@mutable
class Follower:
    leader_id: int
    deadline_ms: int
    has_fetched: bool = False  # the leader has answered, in this epoch


@mutable
class Progress:
    """The progress of another replica, from its fetches."""

    offset: int
    fetched_ms: int
    caught_up_ms: int = NEVER
    directory: bytes = NULL_UUID  # the directory of its log, if it sends one


@mutable
class Leader:
    epoch_start: int  # the offset of the first record of this epoch
    since_ms: int
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    acknowledged_by: set[ReplicaKey] = field(default_factory=set)  # voters that have answered in this epoch
    announced_ms: int = 0


@mutable
class Resigned:
    """Led this epoch, and votes for no other candidate in it."""

    deadline_ms: int


Role = Unattached | Nominee | Follower | Leader | Resigned


class Raft:
    def __init__(
        self,
        me: ReplicaKey,
        log: RaftLog,
        voters: VoterHistory,
        persisted: PersistentState,
        settings: RaftSettings,
        random: Random,
        now_ms: int,
    ) -> None:
        self.me = me
        self.persisted = persisted
        self.voters = voters
        self._log = log
        self._settings = settings
        self._random = random
        self._lost = 0  # elections that this node has lost since it last knew a leader
        self.role: Role = Unattached(deadline_ms=now_ms if self._is_alone else self._election_deadline(now_ms))
        leader = persisted.leader_id
        if leader is not None and leader != me.id:
            self.role = Follower(leader_id=leader, deadline_ms=now_ms + settings.fetch_timeout_ms)

    # -- requests of other nodes ---------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.persisted.epoch

    @property
    def leader_id(self) -> int | None:
        if isinstance(self.role, Leader):
            return self.me.id
        return self.role.leader_id if isinstance(self.role, Follower) else None

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def is_voter(self) -> bool:
        """True until it is certain that this node is none any more: a leader that removes itself from the voters, and
        fails before the others know, may have the only log that they would vote for."""
        return self.me in self.voters.latest or self.me in self.voters.before(self._log.high_watermark)

    @property
    def _is_alone(self) -> bool:
        return self.me in self.voters.latest and len(self.voters.latest) == 1

    def next_deadline(self) -> int:
        role = self.role
        if not isinstance(role, Leader):
            return role.deadline_ms
        announce_ms = role.announced_ms + self._settings.fetch_timeout_ms // 2
        return min(self._quorum_deadline(role), announce_ms)

    # -- time ----------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Action]:
        role = self.role
        if isinstance(role, Leader):
            return self._continue_leading(role, now_ms)
        if now_ms < role.deadline_ms:
            return []
        if not self.is_voter:
            # An observer does not vote; it looks for the current leader.
            self.role = Unattached(deadline_ms=now_ms + self._settings.fetch_timeout_ms)
            return []
        if isinstance(role, Nominee) and not role.is_candidate and not self._is_alone:
            self._abandon_candidacy(now_ms)
            return []
        return self._propose(now_ms)

    def _propose(self, now_ms: int) -> list[Action]:
        self.role = Nominee(is_candidate=False, deadline_ms=self._election_deadline(now_ms), granted={self.me})
        return self._request_votes(now_ms)

    def _become_candidate(self, now_ms: int) -> list[Action]:
        """A new epoch, in which this node has voted for itself."""
        saved = self._save(PersistentState(epoch=self.epoch + 1, voted=self.me))
        self.role = Nominee(is_candidate=True, deadline_ms=self._election_deadline(now_ms), granted={self.me})
        return [*saved, *self._request_votes(now_ms)]

    def _request_votes(self, now_ms: int) -> list[Action]:
        role = self.role
        assert isinstance(role, Nominee)
        if self._has_majority(role.granted):
            return self._win(now_ms) if role.is_candidate else self._become_candidate(now_ms)
        request = RaftVoteRequest(
            candidate=self.me, epoch=self.epoch, end=self._log.end, is_pre_vote=not role.is_candidate
        )
        return [SendRequest(to=voter, question=request) for voter in self._others()]

    def _win(self, now_ms: int) -> list[Action]:
        role = self.role
        assert isinstance(role, Nominee) and role.is_candidate
        self._lost = 0
        self.role = Leader(epoch_start=self._log.end.offset, since_ms=now_ms, announced_ms=now_ms)
        saved = self._save(PersistentState(epoch=self.epoch, leader_id=self.me.id, voted=self.persisted.voted))
        return [*saved, BecomeLeader(epoch=self.epoch, granted=tuple(sorted(role.granted))), *self._announce()]

    # -- votes ---------------------------------------------------------------------------------------------------------

    def on_vote_request(self, request: RaftVoteRequest, now_ms: int) -> tuple[RaftVoteResponse, list[Action]]:
        actions = self._enter_epoch(request.epoch, now_ms)
        is_granted = request.epoch == self.epoch and self._would_vote(request)
        if is_granted and not request.is_pre_vote and self.persisted.voted is None:
            actions += self._save(PersistentState(epoch=self.epoch, voted=request.candidate))
            self.role = Unattached(deadline_ms=self._election_deadline(now_ms))
        response = RaftVoteResponse(
            voter=self.me,
            epoch=self.epoch,
            leader_id=self.leader_id,
            is_granted=is_granted,
            request_epoch=request.epoch,
            is_pre_vote=request.is_pre_vote,
        )
        return response, actions

    def _would_vote(self, request: RaftVoteRequest) -> bool:
        if request.end < self._log.end:
            return False
        role = self.role
        if request.is_pre_vote:
            return not isinstance(role, Leader) and not (isinstance(role, Follower) and role.has_fetched)
        if self.persisted.voted is not None:
            return self.persisted.voted.matches(request.candidate) and self.persisted.leader_id is None
        return self.persisted.leader_id is None and isinstance(role, Unattached | Nominee)

    def on_vote_response(self, response: RaftVoteResponse, now_ms: int) -> list[Action]:
        actions = self._on_leader_named(response.epoch, response.leader_id, now_ms)
        role = self.role
        if not isinstance(role, Nominee) or response.request_epoch != self.epoch or response.epoch != self.epoch:
            return actions
        if response.is_pre_vote is role.is_candidate:
            return actions  # a response to an earlier request of this node
        (role.granted if response.is_granted else role.refused).add(response.voter)
        if self._has_majority(role.granted):
            actions += self._win(now_ms) if role.is_candidate else self._become_candidate(now_ms)
        elif self._is_lost(role):
            if role.is_candidate:
                self._back_off(role, now_ms)
            else:
                self._abandon_candidacy(now_ms)
        return actions

    def on_vote_timeout(self, request: RaftVoteRequest, voter: ReplicaKey, now_ms: int) -> list[Action]:
        """A voter cannot be reached. When a leader fails, several followers may become candidates at once and refuse
        each other; without another voter that could respond, they need not wait for their election timeout."""
        role = self.role
        if isinstance(role, Nominee) and role.is_candidate and not request.is_pre_vote and request.epoch == self.epoch:
            role.refused.add(voter)
            if self._is_lost(role):
                self._back_off(role, now_ms)
        return []

    def _back_off(self, role: Nominee, now_ms: int) -> None:
        """The wait before the next election; at first short, since two candidates suffice for a split vote."""
        longest_ms = min(self._settings.backoff_ms, FIRST_BACKOFF_MS << min(self._lost, MAX_DOUBLINGS))
        self._lost += 1
        self.role = replace(role, deadline_ms=min(role.deadline_ms, now_ms + self._random.randrange(longest_ms)))

    def _abandon_candidacy(self, now_ms: int) -> None:
        """Too few would vote for this node. Perhaps its leader is well, and only this node was out of reach."""
        leader_id = self.persisted.leader_id
        if leader_id is not None and leader_id != self.me.id:
            self.role = Follower(leader_id=leader_id, deadline_ms=now_ms + self._settings.fetch_timeout_ms)
        else:
            wait_ms = self._random.randrange(self._settings.backoff_ms)
            self.role = Unattached(deadline_ms=now_ms + self._settings.election_timeout_ms + wait_ms)

    def _has_majority(self, replicas: set[ReplicaKey]) -> bool:
        voters = self.voters.latest
        return sum(any(voter.matches(replica) for replica in replicas) for voter in voters) >= voters.majority

    def _is_lost(self, role: Nominee) -> bool:
        voters = self.voters.latest
        refused = sum(any(voter.matches(replica) for replica in role.refused) for voter in voters)
        return len(voters) - refused < voters.majority

    # -- changes of the leader -----------------------------------------------------------------------------------------

    def on_begin_epoch(self, begun: BeginEpoch, now_ms: int) -> list[Action]:
        return self._on_leader_named(begun.epoch, begun.leader.id, now_ms)

    def on_end_epoch(self, ended: EndEpoch, now_ms: int) -> list[Action]:
        """The first preferred successor starts an election at once, the next a little later."""
        actions = self._on_leader_named(ended.epoch, ended.leader_id, now_ms)
        role = self.role
        if not isinstance(role, Follower) or ended.epoch != self.epoch or not self.is_voter:
            return actions
        rank = next((n for n, key in enumerate(ended.successors) if key.matches(self.me)), None)
        if rank == 0:
            wait_ms = 0
        else:
            wait_ms = self._settings.election_timeout_ms + self._random.randrange(self._settings.backoff_ms)
        role.has_fetched = False
        role.deadline_ms = min(role.deadline_ms, now_ms + wait_ms)
        return actions

    def on_leader_known(self, epoch: int, leader_id: int | None, now_ms: int) -> list[Action]:
        """A response names the leader and its epoch."""
        return self._on_leader_named(epoch, leader_id, now_ms)

    def _on_leader_named(self, epoch: int, leader_id: int | None, now_ms: int) -> list[Action]:
        """Another node named the leader of an epoch."""
        actions = self._enter_epoch(epoch, now_ms)
        if epoch != self.epoch or leader_id is None or leader_id == self.me.id or self.leader_id is not None:
            return actions
        # Do not send a voter that looks for another leader back to the one that it has given up: voters that have not
        # timed out yet would keep a failed leader alive.
        is_new_leader = self.persisted.leader_id is None or not self.is_voter
        if is_new_leader and not isinstance(self.role, Leader | Resigned):
            voted = self.persisted.voted
            actions += self._save(PersistentState(epoch=epoch, leader_id=leader_id, voted=voted))
            self._lost = 0
            self.role = Follower(leader_id=leader_id, deadline_ms=now_ms + self._settings.fetch_timeout_ms)
        return actions

    def _enter_epoch(self, epoch: int, now_ms: int) -> list[Action]:
        """Enters a larger epoch, and leaves the former role."""
        if epoch <= self.epoch:
            return []
        ceased: list[Action] = [StepDown(epoch=self.epoch)] if isinstance(self.role, Leader) else []
        saved = self._save(PersistentState(epoch=epoch))
        self.role = Unattached(deadline_ms=self._election_deadline(now_ms))
        return [*saved, *ceased]

    def resign(self, now_ms: int) -> list[Action]:
        """A leader that stops, was voted out, or has lost touch with a majority."""
        role = self.role
        assert isinstance(role, Leader)
        known = {voter: _progress(role, voter) for voter in self._others()}
        order = sorted(known, key=lambda voter: 1 if (found := known[voter]) is None else -found.offset)
        ended = EndEpoch(leader_id=self.me.id, epoch=self.epoch, successors=tuple(order))
        self.role = Resigned(deadline_ms=self._election_deadline(now_ms))
        return [StepDown(epoch=self.epoch), *(SendRequest(to=voter, question=ended) for voter in self._others())]

    # -- leading -------------------------------------------------------------------------------------------------------

    def _continue_leading(self, role: Leader, now_ms: int) -> list[Action]:
        if now_ms >= self._quorum_deadline(role):
            return self.resign(now_ms)
        if now_ms >= role.announced_ms + self._settings.fetch_timeout_ms // 2:
            role.announced_ms = now_ms
            return self._announce()
        return []

    def _announce(self) -> list[Action]:
        role = self.role
        assert isinstance(role, Leader)
        begun = BeginEpoch(leader=self.me, epoch=self.epoch)
        return [SendRequest(to=voter, question=begun) for voter in self._others() if voter not in role.acknowledged_by]

    def _quorum_deadline(self, role: Leader) -> int:
        """When a majority will not have fetched for too long. The node always counts itself as up to date."""
        heard = []
        for voter in self.voters.latest:
            found = _progress(role, voter)
            heard.append(role.since_ms if found is None else found.fetched_ms)
            if voter.matches(self.me):
                heard[-1] = 2**62
        heard.sort(reverse=True)
        return heard[self.voters.latest.majority - 1] + self._settings.check_quorum_ms

    def on_fetch_request(self, request: RaftFetchRequest, now_ms: int) -> tuple[RaftFetchResponse, list[Action]]:
        """The response to a replica that fetches from the end of its log."""
        actions = self._enter_epoch(request.epoch, now_ms)
        role = self.role
        if not isinstance(role, Leader) or request.epoch != self.epoch:
            return RaftFetchResponse(leader_id=self.leader_id, epoch=self.epoch, is_refused=True), actions
        response = self._compare(request.end)
        if response is not None:
            return response, actions
        self._note(role, request, now_ms)
        actions += self._maybe_commit(now_ms)
        return RaftFetchResponse(
            leader_id=self.me.id, epoch=self.epoch, high_watermark=self._log.high_watermark
        ), actions

    def _compare(self, end: EpochAndOffset) -> RaftFetchResponse | None:
        """None if the sender's log is a prefix of this one."""
        start = self._log.start
        if end.offset < start.offset or (end.offset == start.offset and end.epoch != start.epoch):
            return self._fetch_response(snapshot=start)
        if end == EpochAndOffset(0, 0) or end == start:
            return None
        ours = self._log.end_of_epoch(end.epoch)
        if ours.epoch != end.epoch or ours.offset < end.offset:
            if ours.offset < start.offset:
                return self._fetch_response(snapshot=start)
            return self._fetch_response(diverging=ours)
        return None

    def _fetch_response(
        self, *, diverging: EpochAndOffset | None = None, snapshot: EpochAndOffset | None = None
    ) -> RaftFetchResponse:
        return RaftFetchResponse(
            leader_id=self.me.id,
            epoch=self.epoch,
            high_watermark=self._log.high_watermark,
            diverging=diverging,
            snapshot=snapshot,
        )

    def _note(self, role: Leader, request: RaftFetchRequest, now_ms: int) -> None:
        key = next((voter for voter in self.voters.latest if voter.matches(request.replica)), request.replica)
        found = role.progress.get(key)
        if found is None:
            found = role.progress.pop(ReplicaKey(key.id), None) or Progress(offset=0, fetched_ms=now_ms)
            role.progress[key] = found
            self._forget_observers(role, now_ms)
        found.fetched_ms, found.directory = now_ms, request.replica.directory
        found.offset = request.end.offset
        if request.end.offset >= self._log.end.offset:
            found.caught_up_ms = now_ms
        role.acknowledged_by.add(key)

    def _forget_observers(self, role: Leader, now_ms: int) -> None:
        """Forget observers that have not fetched for long, and bound their number."""
        observers = [key for key in role.progress if key not in self.voters.latest]
        for key in observers:
            if now_ms - role.progress[key].fetched_ms > OBSERVER_SESSION_MS or len(role.progress) > MAX_PROGRESS:
                del role.progress[key]
                role.acknowledged_by.discard(key)

    def flushed(self, now_ms: int) -> list[Action]:
        """This node's log is durable further than before."""
        return self._maybe_commit(now_ms)

    def _maybe_commit(self, now_ms: int) -> list[Action]:
        role = self.role
        if not isinstance(role, Leader):
            return []
        ends = []
        for voter in self.voters.latest:
            found = _progress(role, voter)
            ends.append(0 if found is None else found.offset)
            if voter.matches(self.me):
                ends[-1] = self._log.durable_offset
        ends.sort(reverse=True)
        reached = ends[self.voters.latest.majority - 1]
        if reached <= role.epoch_start or reached <= self._log.high_watermark:
            return []
        actions: list[Action] = [Commit(high_watermark=reached)]
        is_voted_out = self.me not in self.voters.latest and self.voters.latest_offset < reached
        return actions + self.resign(now_ms) if is_voted_out else actions

    # -- following -----------------------------------------------------------------------------------------------------

    def fetch(self) -> tuple[int | None, RaftFetchRequest] | None:
        """The fetch and its destination; None is any node, while the voters are not known yet. The whole log must be
        durable: the fetch acknowledges it."""
        leader_id: int | None = None
        if isinstance(self.role, Follower):
            leader_id = self.role.leader_id
        elif isinstance(self.role, Unattached) and not self.is_voter:
            others = self._others()  # the other voters may know the leader
            leader_id = self.choose(others).id if others else None
        else:
            return None
        assert self._log.durable_offset >= self._log.end.offset
        return leader_id, RaftFetchRequest(replica=self.me, epoch=self.epoch, end=self._log.end)

    def on_fetch_response(self, response: RaftFetchResponse, request: RaftFetchRequest, now_ms: int) -> list[Action]:
        """Called before the records of the response are appended. They may be, if no other action is returned."""
        actions = self._on_leader_named(response.epoch, response.leader_id, now_ms)
        role = self.role
        is_current = response.epoch == request.epoch == self.epoch
        if response.is_refused or not is_current or not isinstance(role, Follower):
            return actions
        role.deadline_ms = now_ms + self._settings.fetch_timeout_ms
        role.has_fetched = True
        if response.snapshot is not None:
            return [*actions, LoadSnapshot(snapshot=response.snapshot)]
        if response.diverging is not None:
            return actions + self._truncate_diverged(response.diverging)
        return actions

    def _truncate_diverged(self, leaders: EpochAndOffset) -> list[Action]:
        """Where the logs diverge, at the latest: the leader's end of that epoch, or this node's if it is smaller. The
        next answer of the leader may name an earlier place."""
        ours = self._log.end_of_epoch(leaders.epoch)
        offset = min(leaders.offset, ours.offset) if ours.epoch == leaders.epoch else ours.offset
        assert offset >= self._log.high_watermark, "what is committed is never cut off (K5)"
        self.voters.truncate(offset)
        return [Truncate(offset=offset)]

    def followed(self, high_watermark: int) -> list[Action]:
        """Called after records were appended, with the committed offset that the leader reports."""
        reached = min(high_watermark, self._log.end.offset)
        return [Commit(high_watermark=reached)] if reached > self._log.high_watermark else []

    # -- voters --------------------------------------------------------------------------------------------------------

    def may_add_voter(self, voter: ReplicaKey) -> Leader:
        role = self.may_change_voters()
        if any(other.id == voter.id for other in self.voters.latest):
            raise DuplicateVoter(f"node {voter.id} is a voter already")
        return role

    def add_voter(self, voter: ReplicaKey, now_ms: int) -> list[Action]:
        found = self.may_add_voter(voter).progress.get(voter)
        if found is None or now_ms - found.caught_up_ms > self._settings.fetch_timeout_ms:
            raise RequestTimedOut(f"node {voter.id} has not caught up")
        return [AppendVoters(voters=self.voters.latest.with_voter(voter))]

    def remove_voter(self, voter: ReplicaKey) -> list[Action]:
        self.may_change_voters()
        if voter not in self.voters.latest.voters:
            raise VoterNotFound(f"node {voter.id} with that directory is not a voter")
        if len(self.voters.latest) == 1:
            raise InvalidRequest("the last voter cannot be removed")
        return [AppendVoters(voters=self.voters.latest.without_voter(voter))]

    def name_voters(self, named: VoterSet) -> list[Action]:
        """The voters of the configuration, each with its directory from now on (kraft.version 1). One that fetches from
        another directory id than the one it reported has lost its disk since then, and with it its votes."""
        role = self.may_change_voters()
        if {voter.id for voter in named} != {voter.id for voter in self.voters.latest}:
            raise InvalidUpdateVersion("not all voters have reported their directory ids")
        for voter in named:
            found = _progress(role, ReplicaKey(voter.id))
            if voter.directory == NULL_UUID or (found and found.directory not in (NULL_UUID, voter.directory)):
                raise InvalidUpdateVersion(f"node {voter.id} has another directory id than the one it reported")
        return [AppendVoters(voters=named)]

    def voters_appended(self, offset: int, voters: VoterSet) -> None:
        """A VotersRecord was appended, by this node as the leader or by its leader."""
        self.voters.append(offset, voters)

    def may_change_voters(self) -> Leader:
        """One change at a time, and none before the leader has committed a record of its epoch (K7)."""
        role = self.role
        if not isinstance(role, Leader):
            raise NotLeaderOrFollower()
        high_watermark = self._log.high_watermark
        if high_watermark <= role.epoch_start or self.voters.latest_offset >= high_watermark:
            raise RequestTimedOut("another change is not committed yet")
        return role

    # -- small things --------------------------------------------------------------------------------------------------

    def choose(self, among: Sequence[T]) -> T:
        return self._random.choice(among)

    def _others(self) -> list[ReplicaKey]:
        return [voter for voter in self.voters.latest if not voter.matches(self.me)]

    def _save(self, persisted: PersistentState) -> list[Action]:
        assert persisted.epoch >= self.persisted.epoch
        if persisted == self.persisted:
            return []
        self.persisted = persisted
        return [Persist(persisted=persisted)]

    def _election_deadline(self, now_ms: int) -> int:
        timeout_ms = self._settings.election_timeout_ms
        return now_ms + timeout_ms + self._random.randrange(timeout_ms)


def _progress(role: Leader, voter: ReplicaKey) -> Progress | None:
    """The progress of a voter. While the configuration named the voters, it was kept under the node id alone; its
    directory was verified when it was first recorded."""
    return role.progress.get(voter) or role.progress.get(ReplicaKey(voter.id))
