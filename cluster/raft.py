"""How the nodes that keep the metadata agree: Kafka's Raft (KIP-595, 853, 996), one node of it, without any I/O.

                 no leader is heard of                     a majority would vote                a majority votes
    UNATTACHED ──────────────────────────→ PROSPECTIVE ──────────────────────────→ CANDIDATE ──────────────────→ LEADER
        ↑  ↑                                  │   ↑                                   │                             │
        │  └── somebody has a larger epoch ───┴───┼───────────────────────────────────┘       no majority fetches   │
        │                                         │ no answer from the leader                                       ↓
        └──────────── FOLLOWER ───────────────────┘                                                            RESIGNED

It is told what happens (an answer, a request, the time) and returns what is to be done, in order (`raft_messages`). It
reads the log through a window and never writes it. Followers pull: a fetch says how far the asker's log goes, and that
is both question and acknowledgement.

What keeps it safe: a vote is saved before it is told, and an epoch never goes back (K1). A vote goes only to a log that
knows as much as one's own (K2), so that whoever gets a majority has everything that is committed. The high watermark
moves to what a majority has made durable, and only to records of the present epoch (K4). A prospective candidate asks
first, without a new epoch, and a follower that hears its leader says no (K6). Voters change one at a time (K7).
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
    Ask,
    Cease,
    Commit,
    EpochBegun,
    EpochEnded,
    FetchAsked,
    FetchTold,
    Lead,
    LoadSnapshot,
    LogEnd,
    Save,
    Standing,
    Truncate,
    VoteAsked,
    VoteTold,
)
from .voters import ReplicaKey, VoterHistory, VoterSet

T = TypeVar("T")

OBSERVER_SESSION_MS: Final = 300_000  # after so long an observer that does not fetch is forgotten, as in Kafka
MAX_PROGRESS: Final = 10_000  # replicas that a leader remembers
CHECK_QUORUM_FACTOR: Final = 1.5  # fetch timeouts without a majority, until a leader resigns
FIRST_BACKOFF_MS: Final = 200  # at most so long waits who has lost one election; who loses on, twice as long each time
MOST_DOUBLINGS: Final = 10
NEVER: Final = -(2**62)


@frozen
class RaftSettings:
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    backoff_ms: int = 1000  # at most so long waits who has lost an election

    @property
    def check_quorum_ms(self) -> int:
        return int(self.fetch_timeout_ms * CHECK_QUORUM_FACTOR)


# -- roles -----------------------------------------------------------------------------------------------------------


@mutable
class Unattached:
    """Knows of no leader. Waits for one, or until it is time to become one."""

    deadline_ms: int


@mutable
class Electing:
    """Asks for votes: of a candidate they count; of a prospective one they only show whether it is worth it."""

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
    """How far another replica is, as its fetches say."""

    offset: int
    fetched_ms: int
    caught_up_ms: int = NEVER
    directory: bytes = NULL_UUID  # in which its log is, if it says so


@mutable
class Leader:
    epoch_start: int  # the offset of the first record of this epoch
    since_ms: int
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    knows_me: set[ReplicaKey] = field(default_factory=set)  # voters that have been heard in this epoch
    announced_ms: int = 0


@mutable
class Resigned:
    """Led this epoch, and votes for nobody else in it."""

    deadline_ms: int


Role = Unattached | Electing | Follower | Leader | Resigned


class Raft:
    def __init__(
        self,
        me: ReplicaKey,
        log: RaftLog,
        voters: VoterHistory,
        standing: Standing,
        settings: RaftSettings,
        random: Random,
        now_ms: int,
    ) -> None:
        self.me = me
        self.standing = standing
        self.voters = voters
        self._log = log
        self._settings = settings
        self._random = random
        self._lost = 0  # elections in which this node stood, since it has known a leader
        self.role: Role = Unattached(deadline_ms=now_ms if self._is_alone else self._election_deadline(now_ms))
        leader = standing.leader_id
        if leader is not None and leader != me.id:
            self.role = Follower(leader_id=leader, deadline_ms=now_ms + settings.fetch_timeout_ms)

    # -- what others want to know --------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.standing.epoch

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
        """Also while it is not certain that it is one no longer: a leader that votes itself out, and fails before the
        others know, may have the only log that they would vote for."""
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
            return self._lead_on(role, now_ms)
        if now_ms < role.deadline_ms:
            return []
        if not self.is_voter:
            # An observer elects nobody; it looks for whoever leads now.
            self.role = Unattached(deadline_ms=now_ms + self._settings.fetch_timeout_ms)
            return []
        if isinstance(role, Electing) and not role.is_candidate and not self._is_alone:
            self._step_back(now_ms)
            return []
        return self._propose(now_ms)

    def _propose(self, now_ms: int) -> list[Action]:
        self.role = Electing(is_candidate=False, deadline_ms=self._election_deadline(now_ms), granted={self.me})
        return self._ask_or_win(now_ms)

    def _stand(self, now_ms: int) -> list[Action]:
        """A new epoch, in which this node has voted for itself."""
        saved = self._save(Standing(epoch=self.epoch + 1, voted=self.me))
        self.role = Electing(is_candidate=True, deadline_ms=self._election_deadline(now_ms), granted={self.me})
        return [*saved, *self._ask_or_win(now_ms)]

    def _ask_or_win(self, now_ms: int) -> list[Action]:
        role = self.role
        assert isinstance(role, Electing)
        if self._has_majority(role.granted):
            return self._win(now_ms) if role.is_candidate else self._stand(now_ms)
        asked = VoteAsked(candidate=self.me, epoch=self.epoch, end=self._log.end, is_pre_vote=not role.is_candidate)
        return [Ask(to=voter, question=asked) for voter in self._others()]

    def _win(self, now_ms: int) -> list[Action]:
        role = self.role
        assert isinstance(role, Electing) and role.is_candidate
        self._lost = 0
        self.role = Leader(epoch_start=self._log.end.offset, since_ms=now_ms, announced_ms=now_ms)
        saved = self._save(Standing(epoch=self.epoch, leader_id=self.me.id, voted=self.standing.voted))
        return [*saved, Lead(epoch=self.epoch, granted=tuple(sorted(role.granted))), *self._announce()]

    # -- votes ---------------------------------------------------------------------------------------------------------

    def vote_asked(self, asked: VoteAsked, now_ms: int) -> tuple[VoteTold, list[Action]]:
        actions = self._meet_epoch(asked.epoch, now_ms)
        is_granted = asked.epoch == self.epoch and self._would_vote(asked)
        if is_granted and not asked.is_pre_vote and self.standing.voted is None:
            actions += self._save(Standing(epoch=self.epoch, voted=asked.candidate))
            self.role = Unattached(deadline_ms=self._election_deadline(now_ms))
        told = VoteTold(
            voter=self.me,
            epoch=self.epoch,
            leader_id=self.leader_id,
            is_granted=is_granted,
            asked_epoch=asked.epoch,
            is_pre_vote=asked.is_pre_vote,
        )
        return told, actions

    def _would_vote(self, asked: VoteAsked) -> bool:
        if asked.end < self._log.end:
            return False
        role = self.role
        if asked.is_pre_vote:
            return not isinstance(role, Leader) and not (isinstance(role, Follower) and role.has_fetched)
        if self.standing.voted is not None:
            return self.standing.voted.matches(asked.candidate) and self.standing.leader_id is None
        return self.standing.leader_id is None and isinstance(role, Unattached | Electing)

    def vote_told(self, told: VoteTold, now_ms: int) -> list[Action]:
        actions = self._meet(told.epoch, told.leader_id, now_ms)
        role = self.role
        if not isinstance(role, Electing) or told.asked_epoch != self.epoch or told.epoch != self.epoch:
            return actions
        if told.is_pre_vote is role.is_candidate:
            return actions  # an answer to what this node has asked before
        (role.granted if told.is_granted else role.refused).add(told.voter)
        if self._has_majority(role.granted):
            actions += self._win(now_ms) if role.is_candidate else self._stand(now_ms)
        elif self._is_lost(role):
            if role.is_candidate:
                self._back_off(role, now_ms)
            else:
                self._step_back(now_ms)
        return actions

    def vote_unanswered(self, asked: VoteAsked, voter: ReplicaKey, now_ms: int) -> list[Action]:
        """A voter cannot be reached. When a leader dies, those who followed it may stand in the same moment, and refuse
        each other: with nobody left who could answer, they need not wait until their time is up."""
        role = self.role
        if isinstance(role, Electing) and role.is_candidate and not asked.is_pre_vote and asked.epoch == self.epoch:
            role.refused.add(voter)
            if self._is_lost(role):
                self._back_off(role, now_ms)
        return []

    def _back_off(self, role: Electing, now_ms: int) -> None:
        """Before it asks again; at first for a short time, since one other is enough to be told apart from."""
        longest_ms = min(self._settings.backoff_ms, FIRST_BACKOFF_MS << min(self._lost, MOST_DOUBLINGS))
        self._lost += 1
        self.role = replace(role, deadline_ms=min(role.deadline_ms, now_ms + self._random.randrange(longest_ms)))

    def _step_back(self, now_ms: int) -> None:
        """Too few would vote for this node. Perhaps its leader is well, and only this node was out of reach."""
        leader_id = self.standing.leader_id
        if leader_id is not None and leader_id != self.me.id:
            self.role = Follower(leader_id=leader_id, deadline_ms=now_ms + self._settings.fetch_timeout_ms)
        else:
            wait_ms = self._random.randrange(self._settings.backoff_ms)
            self.role = Unattached(deadline_ms=now_ms + self._settings.election_timeout_ms + wait_ms)

    def _has_majority(self, replicas: set[ReplicaKey]) -> bool:
        voters = self.voters.latest
        return sum(any(voter.matches(replica) for replica in replicas) for voter in voters) >= voters.majority

    def _is_lost(self, role: Electing) -> bool:
        voters = self.voters.latest
        refused = sum(any(voter.matches(replica) for replica in role.refused) for voter in voters)
        return len(voters) - refused < voters.majority

    # -- leaders come and go -------------------------------------------------------------------------------------------

    def epoch_begun(self, begun: EpochBegun, now_ms: int) -> list[Action]:
        return self._meet(begun.epoch, begun.leader.id, now_ms)

    def epoch_ended(self, ended: EpochEnded, now_ms: int) -> list[Action]:
        """Whoever was named first asks for votes at once, the next a little later."""
        actions = self._meet(ended.epoch, ended.leader_id, now_ms)
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

    def heard(self, epoch: int, leader_id: int | None, now_ms: int) -> list[Action]:
        """An answer, to whatever was asked, says who leads."""
        return self._meet(epoch, leader_id, now_ms)

    def _meet(self, epoch: int, leader_id: int | None, now_ms: int) -> list[Action]:
        """Somebody said who leads."""
        actions = self._meet_epoch(epoch, now_ms)
        if epoch != self.epoch or leader_id is None or leader_id == self.me.id or self.leader_id is not None:
            return actions
        # A voter that looks for another leader is not sent back to the one that it has given up: those who have not
        # noticed yet would keep it alive by hearsay.
        is_news = self.standing.leader_id is None or not self.is_voter
        if is_news and not isinstance(self.role, Leader | Resigned):
            voted = self.standing.voted
            actions += self._save(Standing(epoch=epoch, leader_id=leader_id, voted=voted))
            self._lost = 0
            self.role = Follower(leader_id=leader_id, deadline_ms=now_ms + self._settings.fetch_timeout_ms)
        return actions

    def _meet_epoch(self, epoch: int, now_ms: int) -> list[Action]:
        """A larger epoch than ours: whatever we were, we are not any more."""
        if epoch <= self.epoch:
            return []
        ceased: list[Action] = [Cease(epoch=self.epoch)] if isinstance(self.role, Leader) else []
        saved = self._save(Standing(epoch=epoch))
        self.role = Unattached(deadline_ms=self._election_deadline(now_ms))
        return [*saved, *ceased]

    def resign(self, now_ms: int) -> list[Action]:
        """A leader that stops, was voted out, or has lost touch with a majority."""
        role = self.role
        assert isinstance(role, Leader)
        known = {voter: _progress(role, voter) for voter in self._others()}
        order = sorted(known, key=lambda voter: 1 if (found := known[voter]) is None else -found.offset)
        ended = EpochEnded(leader_id=self.me.id, epoch=self.epoch, successors=tuple(order))
        self.role = Resigned(deadline_ms=self._election_deadline(now_ms))
        return [Cease(epoch=self.epoch), *(Ask(to=voter, question=ended) for voter in self._others())]

    # -- leading -------------------------------------------------------------------------------------------------------

    def _lead_on(self, role: Leader, now_ms: int) -> list[Action]:
        if now_ms >= self._quorum_deadline(role):
            return self.resign(now_ms)
        if now_ms >= role.announced_ms + self._settings.fetch_timeout_ms // 2:
            role.announced_ms = now_ms
            return self._announce()
        return []

    def _announce(self) -> list[Action]:
        role = self.role
        assert isinstance(role, Leader)
        begun = EpochBegun(leader=self.me, epoch=self.epoch)
        return [Ask(to=voter, question=begun) for voter in self._others() if voter not in role.knows_me]

    def _quorum_deadline(self, role: Leader) -> int:
        """When a majority will not have been heard of for too long. Oneself is always heard."""
        heard = []
        for voter in self.voters.latest:
            found = _progress(role, voter)
            heard.append(role.since_ms if found is None else found.fetched_ms)
            if voter.matches(self.me):
                heard[-1] = 2**62
        heard.sort(reverse=True)
        return heard[self.voters.latest.majority - 1] + self._settings.check_quorum_ms

    def fetch_asked(self, asked: FetchAsked, now_ms: int) -> tuple[FetchTold, list[Action]]:
        """What a replica is told that asks for records behind the end of its log."""
        actions = self._meet_epoch(asked.epoch, now_ms)
        role = self.role
        if not isinstance(role, Leader) or asked.epoch != self.epoch:
            return FetchTold(leader_id=self.leader_id, epoch=self.epoch, is_refused=True), actions
        told = self._compare(asked.end)
        if told is not None:
            return told, actions
        self._note(role, asked, now_ms)
        actions += self._maybe_commit(now_ms)
        return FetchTold(leader_id=self.me.id, epoch=self.epoch, high_watermark=self._log.high_watermark), actions

    def _compare(self, end: LogEnd) -> FetchTold | None:
        """None if the asker's log is the beginning of this one."""
        start = self._log.start
        if end.offset < start.offset or (end.offset == start.offset and end.epoch != start.epoch):
            return self._told(snapshot=start)
        if end == LogEnd(0, 0) or end == start:
            return None
        ours = self._log.end_of_epoch(end.epoch)
        if ours.epoch != end.epoch or ours.offset < end.offset:
            if ours.offset < start.offset:
                return self._told(snapshot=start)
            return self._told(diverging=ours)
        return None

    def _told(self, *, diverging: LogEnd | None = None, snapshot: LogEnd | None = None) -> FetchTold:
        return FetchTold(
            leader_id=self.me.id,
            epoch=self.epoch,
            high_watermark=self._log.high_watermark,
            diverging=diverging,
            snapshot=snapshot,
        )

    def _note(self, role: Leader, asked: FetchAsked, now_ms: int) -> None:
        key = next((voter for voter in self.voters.latest if voter.matches(asked.replica)), asked.replica)
        found = role.progress.get(key)
        if found is None:
            found = role.progress.pop(ReplicaKey(key.id), None) or Progress(offset=0, fetched_ms=now_ms)
            role.progress[key] = found
            self._forget_observers(role, now_ms)
        found.fetched_ms, found.directory = now_ms, asked.replica.directory
        found.offset = asked.end.offset
        if asked.end.offset >= self._log.end.offset:
            found.caught_up_ms = now_ms
        role.knows_me.add(key)

    def _forget_observers(self, role: Leader, now_ms: int) -> None:
        """Those that have not fetched for long; and whoever claims to be many is only so many."""
        observers = [key for key in role.progress if key not in self.voters.latest]
        for key in observers:
            if now_ms - role.progress[key].fetched_ms > OBSERVER_SESSION_MS or len(role.progress) > MAX_PROGRESS:
                del role.progress[key]
                role.knows_me.discard(key)

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

    def fetch(self) -> tuple[int | None, FetchAsked] | None:
        """Whom to ask, and what; None is anybody, for a node that does not know yet who votes. All that the log has
        must be durable: the question acknowledges it."""
        leader_id: int | None = None
        if isinstance(self.role, Follower):
            leader_id = self.role.leader_id
        elif isinstance(self.role, Unattached) and not self.is_voter:
            others = self._others()  # who does not lead knows who does
            leader_id = self.choose(others).id if others else None
        else:
            return None
        assert self._log.durable_offset >= self._log.end.offset
        return leader_id, FetchAsked(replica=self.me, epoch=self.epoch, end=self._log.end)

    def fetch_told(self, told: FetchTold, asked: FetchAsked, now_ms: int) -> list[Action]:
        """Before records that came with it are appended. They may be, if nothing else is to be done."""
        actions = self._meet(told.epoch, told.leader_id, now_ms)
        role = self.role
        if told.is_refused or told.epoch != self.epoch or asked.epoch != self.epoch or not isinstance(role, Follower):
            return actions
        role.deadline_ms = now_ms + self._settings.fetch_timeout_ms
        role.has_fetched = True
        if told.snapshot is not None:
            return [*actions, LoadSnapshot(snapshot=told.snapshot)]
        if told.diverging is not None:
            return actions + self._cut(told.diverging)
        return actions

    def _cut(self, leaders: LogEnd) -> list[Action]:
        """Where the logs part, at the latest: the leader's end of that epoch, or ours if it comes first. Asked again,
        the leader may name an earlier place."""
        ours = self._log.end_of_epoch(leaders.epoch)
        offset = min(leaders.offset, ours.offset) if ours.epoch == leaders.epoch else ours.offset
        assert offset >= self._log.high_watermark, "what is committed is never cut off (K5)"
        self.voters.truncate(offset)
        return [Truncate(offset=offset)]

    def followed(self, high_watermark: int) -> list[Action]:
        """After records were appended: how far the leader says that they are committed."""
        reached = min(high_watermark, self._log.end.offset)
        return [Commit(high_watermark=reached)] if reached > self._log.high_watermark else []

    # -- voters --------------------------------------------------------------------------------------------------------

    def may_add_voter(self, voter: ReplicaKey) -> Leader:
        role = self.may_change_voters()
        if any(other.id == voter.id for other in self.voters.latest):
            raise DuplicateVoter(f"node {voter.id} votes already")
        return role

    def add_voter(self, voter: ReplicaKey, now_ms: int) -> list[Action]:
        found = self.may_add_voter(voter).progress.get(voter)
        if found is None or now_ms - found.caught_up_ms > self._settings.fetch_timeout_ms:
            raise RequestTimedOut(f"node {voter.id} has not caught up")
        return [AppendVoters(voters=self.voters.latest.with_voter(voter))]

    def remove_voter(self, voter: ReplicaKey) -> list[Action]:
        self.may_change_voters()
        if voter not in self.voters.latest.voters:
            raise VoterNotFound(f"node {voter.id} with that directory does not vote")
        if len(self.voters.latest) == 1:
            raise InvalidRequest("the last voter cannot go")
        return [AppendVoters(voters=self.voters.latest.without_voter(voter))]

    def name_voters(self, named: VoterSet) -> list[Action]:
        """The voters of the configuration, each with its directory from now on (kraft.version 1). One that fetches from
        another directory than it has told of has lost its disk since then, and with it what it promised."""
        role = self.may_change_voters()
        if {voter.id for voter in named} != {voter.id for voter in self.voters.latest}:
            raise InvalidUpdateVersion("not all voters have said in which directory their log is")
        for voter in named:
            found = _progress(role, ReplicaKey(voter.id))
            if voter.directory == NULL_UUID or (found and found.directory not in (NULL_UUID, voter.directory)):
                raise InvalidUpdateVersion(f"node {voter.id} has another directory than it has told of")
        return [AppendVoters(voters=named)]

    def voters_appended(self, offset: int, voters: VoterSet) -> None:
        """A record that says who votes now stands in the log: by this node's decision or by its leader's."""
        self.voters.append(offset, voters)

    def may_change_voters(self) -> Leader:
        """One change at a time, and none before it is certain that this leader's word is heard (K7)."""
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

    def _save(self, standing: Standing) -> list[Action]:
        assert standing.epoch >= self.standing.epoch
        if standing == self.standing:
            return []
        self.standing = standing
        return [Save(standing=standing)]

    def _election_deadline(self, now_ms: int) -> int:
        timeout_ms = self._settings.election_timeout_ms
        return now_ms + timeout_ms + self._random.randrange(timeout_ms)


def _progress(role: Leader, voter: ReplicaKey) -> Progress | None:
    """How far a voter is. As long as the configuration named the voters, that was noted under its number alone; its
    directory was compared when it was first written down."""
    return role.progress.get(voter) or role.progress.get(ReplicaKey(voter.id))
