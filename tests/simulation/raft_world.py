"""A metadata quorum in one process, on a clock, a network and disks that a seed controls.

The nodes are the production `Raft`. Around each is the environment of a broker: a log that forgets unsynced
entries when the node crashes, a file for its persisted state, requests that are late, lost, repeated or cut off. After
every event the guarantees of the quorum are checked; the first broken one raises `Violation`.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from types import ModuleType
from typing import Any

from trioka.cluster import raft as the_real_one
from trioka.cluster.raft_messages import (
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
from trioka.cluster.voters import ReplicaKey, VoterHistory, VoterSet
from trioka.protocol.errors import KafkaError

FETCH_EVERY_MS = 50
PROPOSE_EVERY_MS = 120
FALL_MS = (60, 400)  # before another node has its writes, or just after
MAX_EVENTS = 200_000


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True, slots=True)
class Entry:
    epoch: int
    value: object  # a number that a client proposed, or the voters, or the leader


class SimLog:
    """The disk of a node: entries, of which the last few may not be durable yet."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.durable_offset = 0
        self.high_watermark = 0
        self.start = EpochAndOffset(0, 0)

    @property
    def end(self) -> EpochAndOffset:
        return EpochAndOffset(self.entries[-1].epoch if self.entries else 0, len(self.entries))

    def end_of_epoch(self, epoch: int) -> EpochAndOffset:
        for offset in range(len(self.entries), self.start.offset, -1):
            if self.entries[offset - 1].epoch <= epoch:
                return EpochAndOffset(self.entries[offset - 1].epoch, offset)
        return EpochAndOffset(min(self.start.epoch, epoch), self.start.offset)

    def crash(self) -> None:
        del self.entries[self.durable_offset :]
        self.high_watermark = self.start.offset

    def start_at(self, offset: int) -> None:
        """The entries before it are in a durable snapshot. (They stay in `entries`, as the snapshot's content.)"""
        self.start = EpochAndOffset(self.entries[offset - 1].epoch, offset)
        self.durable_offset = max(self.durable_offset, offset)

    def voters(self, initial_voters: VoterSet) -> VoterSet:
        return next(
            (entry.value for entry in reversed(self.entries) if isinstance(entry.value, VoterSet)), initial_voters
        )


@dataclass(slots=True)
class SimNode:
    key: ReplicaKey
    log: SimLog = field(default_factory=SimLog)
    saved: PersistentState = field(default_factory=lambda: PersistentState(epoch=0))
    raft: Any = None  # None while it is down
    life: int = 0  # answers to an earlier life are ignored
    is_fetching: bool = False
    paused_until: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultProfile:
    """How bad it is."""

    loss: float = 0.02
    repeat: float = 0.02
    max_delay_ms: int = 150
    crash_every_ms: int = 4000
    cut_every_ms: int = 3000
    change_voters_every_ms: int = 0  # 0: never
    flush_ms: int = 30  # how long a leader's own disk takes, at most
    power: float = 0.0005  # the probability of a power loss between two actions
    down_ms: int = 3000  # how long a node is away, at most
    election_ms: int = 1000  # how long nodes wait for a leader; and for its answers, twice as long
    fetch_entries: int = 50  # in one answer, at most
    snapshot_every_ms: int = 0
    falls: float = 0.0  # how many leaders crash soon after they have won
    wipe_every_ms: int = 0  # a node comes back with another disk, on which nothing is

    @classmethod
    def of(cls, seed: int, **fixed: float) -> "FaultProfile":
        """Each seed has its own kind of trouble, but for what is `fixed`."""
        random = Random(f"weather {seed}")
        made = cls(
            loss=random.choice([0, 0.02, 0.2]),
            repeat=random.choice([0, 0.05, 0.3]),
            max_delay_ms=random.choice([30, 150, 1500]),
            crash_every_ms=random.choice([400, 1500, 4000]),
            cut_every_ms=random.choice([500, 1500, 4000]),
            change_voters_every_ms=random.choice([0, 0, 300, 2500]),
            flush_ms=random.choice([5, 30, 1000]),
            power=random.choice([0, 0.0005, 0.02]),
            fetch_entries=random.choice([50, 50, 1]),
            snapshot_every_ms=random.choice([0, 300]),
            wipe_every_ms=random.choice([0, 0, 1500]),
        )
        if random.random() < 0.4:  # one leader after the other, each with little progress
            made = replace(made, election_ms=200, down_ms=1200, fetch_entries=1, falls=0.9)
        return replace(made, **fixed)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How the nodes around the rules behave. Each True is a mistake."""

    saves_late: bool = False  # its votes are not durable when it sends them
    snapshots_all: bool = False  # not only committed entries


class RaftWorld:
    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 3,
        profile: FaultProfile | None = None,
        raft: ModuleType = the_real_one,
        habits: Habits | None = None,
        static: bool = False,
    ) -> None:
        """`static`: at first the voters are known by their numbers alone (kraft.version 0); they are named sometime."""
        self.random = Random(seed)
        self.profile = profile = profile or FaultProfile.of(seed)
        self._raft_module = raft
        self._habits = habits or Habits()
        self.now = 0
        self._numbers = count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._values = count(1)
        self._directories = count(1)
        self.nodes = {n: SimNode(ReplicaKey(n, self._new_directory())) for n in range(1, nodes + 1)}
        voting = max(nodes - 1, 1) if profile.change_voters_every_ms else nodes
        self.initial_voters = VoterSet.of(node.key for node in list(self.nodes.values())[:voting])
        if static:
            self.initial_voters = VoterSet.of(ReplicaKey(voter.id) for voter in self.initial_voters)
        self.cuts: set[tuple[int, int]] = set()
        self.lost: set[ReplicaKey] = set()  # replicas whose disks are lost
        self.is_fair = False
        # What must hold.
        self.truth: list[Entry] = []  # every entry that any node has reported as committed
        self.committed_in: list[int] = []  # the leader epoch in which each was committed
        self.leaders: dict[int, ReplicaKey] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.events = 0

    def _new_directory(self) -> bytes:
        return next(self._directories).to_bytes(16, "big")

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, chaos_ms: int, heal_ms: int) -> None:
        for node in self.nodes.values():
            self._start(node)
        self._every(self.profile.crash_every_ms, self._crash_a_node)
        self._every(self.profile.cut_every_ms, self._isolate_a_node)
        self._every(self.profile.change_voters_every_ms, self._change_voters)
        self._every(self.profile.snapshot_every_ms, self._take_snapshot)
        self._every(self.profile.wipe_every_ms, self._wipe_a_node)
        self._every(PROPOSE_EVERY_MS, self._propose)
        self._run_until(chaos_ms)
        self.is_fair = True
        self.cuts.clear()
        for node in self.nodes.values():
            if node.raft is None:
                self._start(node)
        committed = len(self.truth)
        self._run_until(chaos_ms + heal_ms)
        if len(self.truth) <= committed:
            raise Violation("nothing was committed without faults")

    def _run_until(self, end: int) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self.events += 1
            if self.events > MAX_EVENTS:
                raise Violation("it never comes to rest")
        self.now = end

    def _at(self, when: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def _every(self, interval_ms: int, event: Callable[[], None]) -> None:
        if not interval_ms:
            return

        def again() -> None:
            if not self.is_fair or event == self._propose:
                event()
            self._at(self.now + self.random.randrange(1, 2 * interval_ms), again)

        self._at(self.random.randrange(1, 2 * interval_ms), again)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _start(self, node: SimNode) -> None:
        node.life += 1
        node.is_fetching = False
        voters = VoterHistory(self.initial_voters)
        for offset, entry in enumerate(node.log.entries):
            if isinstance(entry.value, VoterSet):
                voters.append(offset, entry.value)
        wait_ms = self.profile.election_ms
        settings = self._raft_module.RaftSettings(
            election_timeout_ms=wait_ms, fetch_timeout_ms=2 * wait_ms, backoff_ms=wait_ms
        )
        node.raft = self._raft_module.Raft(node.key, node.log, voters, node.saved, settings, self.random, self.now)
        self._wake(node, node.life)
        self._fetch_on(node, node.life)

    def _crash(self, node: SimNode) -> None:
        node.log.crash()
        node.raft = None
        life = node.life

        def back() -> None:
            if node.raft is None and node.life == life:
                self._start(node)

        self._at(self.now + self.random.randrange(self.profile.down_ms), back)

    def _wake(self, node: SimNode, life: int) -> None:
        if node.raft is None or node.life != life:
            return
        if self.now >= node.paused_until:
            self._do(node, node.raft.tick(self.now))
        if node.raft is not None:
            self._at(max(node.raft.next_deadline(), self.now + 10), lambda: self._wake(node, life))

    def _fetch_on(self, node: SimNode, life: int) -> None:
        if node.raft is None or node.life != life:
            return
        if not node.is_fetching and self.now >= node.paused_until:
            node.log.durable_offset = len(node.log.entries)  # a fetch acknowledges, so it comes after the fsync
            wanted = node.raft.fetch()
            if wanted is not None:
                self._send_fetch(node, *wanted)
        self._at(self.now + FETCH_EVERY_MS, lambda: self._fetch_on(node, life))

    def _do(self, node: SimNode, actions: list[Action]) -> None:
        """In order; and it may be that the power fails between one and the next."""
        for action in actions:
            if node.raft is None:
                return
            if not self.is_fair and self.random.random() < self.profile.power:
                self._crash(node)
                return
            self._do_one(node, action)

    def _do_one(self, node: SimNode, action: Action) -> None:
        match action:
            case Persist(persisted=persisted):
                if persisted.epoch < node.saved.epoch:
                    raise Violation(f"K1: {node.key.id} goes back from epoch {node.saved.epoch} to {persisted.epoch}")
                self._save(node, persisted)
            case SendRequest(to=to, question=question):
                self._send(node, to, question)
            case BecomeLeader(epoch=epoch):
                self._has_won(node, epoch)
                self._append(node, Entry(epoch, "leads"))
                if not self.is_fair and self.profile.falls and self.random.random() < self.profile.falls:
                    self._fall(node, node.life)
            case AppendVoters(voters=voters):
                offset = self._append(node, Entry(node.raft.epoch, voters))
                node.raft.voters_appended(offset, voters)
            case Truncate(offset=offset):
                if offset < node.log.high_watermark:
                    raise Violation(f"K5: {node.key.id} cuts off what is committed")
                if offset < node.log.start.offset:
                    raise Violation(f"K8: {node.key.id} cuts off what its snapshot says")
                del node.log.entries[offset:]
                node.log.durable_offset = min(node.log.durable_offset, offset)
            case Commit(high_watermark=high_watermark):
                self._has_committed(node, high_watermark)
            case LoadSnapshot(snapshot=snapshot):
                self._load_snapshot(node, snapshot)
            case StepDown():
                pass

    def _save(self, node: SimNode, persisted: PersistentState) -> None:
        life = node.life

        def save() -> None:
            if node.raft is not None and node.life == life:
                node.saved = persisted

        if self._habits.saves_late:
            self._at(self.now + self.random.randrange(1, self.profile.flush_ms), save)
        else:
            node.saved = persisted

    def _append(self, node: SimNode, entry: Entry) -> int:
        node.log.entries.append(entry)
        life = node.life

        def flush() -> None:
            if node.raft is not None and node.life == life:
                node.log.durable_offset = len(node.log.entries)
                self._do(node, node.raft.flushed(self.now))

        self._at(self.now + self.random.randrange(1, 5 if self.is_fair else self.profile.flush_ms), flush)
        return len(node.log.entries) - 1

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _has_won(self, node: SimNode, epoch: int) -> None:
        before = self.leaders.setdefault(epoch, node.key)
        if before != node.key:
            raise Violation(f"K3: {before.id} and {node.key.id} lead in epoch {epoch}")
        # A node that wins late, while others are in a later epoch already, may lack what these have committed.
        due = sum(committed_in < epoch for committed_in in self.committed_in)
        if node.log.entries[:due] != self.truth[:due]:
            raise Violation(f"K2: {node.key.id} leads in epoch {epoch} and lacks what is committed")

    def _has_committed(self, node: SimNode, high_watermark: int) -> None:
        log = node.log
        if high_watermark > len(log.entries):
            raise Violation(f"K4: {node.key.id} calls committed what it does not have")
        for offset in range(log.high_watermark, high_watermark):
            if offset < len(self.truth):
                if self.truth[offset] != log.entries[offset]:
                    raise Violation(f"K5: two entries at offset {offset} were called committed")
            else:
                self.truth.append(log.entries[offset])
                self.committed_in.append(node.raft.epoch)
        log.high_watermark = high_watermark

    def _has_voted(self, node: SimNode, result: RaftVoteResponse, requested: RaftVoteRequest) -> None:
        if result.is_granted and not result.is_pre_vote:
            before = self.votes.setdefault((node.key, requested.epoch), requested.candidate)
            if before != requested.candidate:
                raise Violation(
                    f"K1: {node.key.id} votes for {before.id} and {requested.candidate.id} in {requested.epoch}"
                )

    # -- the network ---------------------------------------------------------------------------------------------------

    def _is_cut(self, a: int, b: int) -> bool:
        return (a, b) in self.cuts

    def _deliver(self, source: int, target: int, event: Callable[[SimNode], None]) -> None:
        times = 1
        if not self.is_fair:
            if self.random.random() < self.profile.loss:
                return
            times += self.random.random() < self.profile.repeat
        for _ in range(times):
            delay = self.random.randrange(1, 20 if self.is_fair else self.profile.max_delay_ms)

            def arrive() -> None:
                node = self.nodes[target]
                if node.raft is not None and not self._is_cut(source, target):
                    if self.now < node.paused_until:
                        self._at(node.paused_until, arrive)
                    else:
                        event(node)

            self._at(self.now + delay, arrive)

    def _send(self, source: SimNode, to: ReplicaKey, question: RaftVoteRequest | BeginEpoch | EndEpoch) -> None:
        life = source.life

        def arrive(node: SimNode) -> None:
            match question:
                case RaftVoteRequest():
                    if not to.matches(node.key):
                        return  # another directory than the one that the request names
                    result, actions = node.raft.on_vote_request(question, self.now)
                    self._do(node, actions)
                    if node.raft is not None:
                        self._has_voted(node, result, question)
                        self._answer(node, source, life, lambda: source.raft.on_vote_response(result, self.now))
                case BeginEpoch():
                    self._do(node, node.raft.on_begin_epoch(question, self.now))
                case EndEpoch():
                    self._do(node, node.raft.on_end_epoch(question, self.now))

        self._deliver(source.key.id, to.id, arrive)

    def _answer(self, node: SimNode, asker: SimNode, life: int, act: Callable[[], list[Action]]) -> None:
        def arrive(_: SimNode) -> None:
            if asker.raft is not None and asker.life == life:
                self._do(asker, act())

        self._deliver(node.key.id, asker.key.id, arrive)

    def _send_fetch(self, source: SimNode, leader_id: int, requested: RaftFetchRequest) -> None:
        life = source.life
        source.is_fetching = True

        def give_up() -> None:
            if source.life == life:
                source.is_fetching = False

        self._at(self.now + 400, give_up)

        def arrive(node: SimNode) -> None:
            result, actions = node.raft.on_fetch_request(requested, self.now)
            offset = requested.end.offset
            is_plain = not result.is_refused and result.diverging is None and result.snapshot is None
            entries = tuple(node.log.entries[offset : offset + self.profile.fetch_entries]) if is_plain else ()
            self._do(node, actions)
            if node.raft is not None:
                self._answer(node, source, life, lambda: self._fetched(source, requested, result, entries))

        self._deliver(source.key.id, leader_id, arrive)

    def _fetched(
        self, node: SimNode, requested: RaftFetchRequest, result: RaftFetchResponse, entries: tuple[Entry, ...]
    ) -> list[Action]:
        node.is_fetching = False
        if node.log.end != requested.end or node.raft.epoch > result.epoch:
            return []
        actions: list[Action] = node.raft.on_fetch_response(result, requested, self.now)
        if result.is_refused or result.diverging or result.snapshot or node.raft.epoch != requested.epoch:
            return actions
        if node.raft.leader_id != result.leader_id:
            return actions
        for entry in entries:
            node.log.entries.append(entry)
            if isinstance(entry.value, VoterSet):
                node.raft.voters_appended(len(node.log.entries) - 1, entry.value)
        committed: list[Action] = node.raft.followed(result.high_watermark)
        return actions + committed

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def _take_snapshot(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        offset = len(node.log.entries) if self._habits.snapshots_all else node.log.high_watermark
        if node.raft is not None and offset > node.log.start.offset:
            node.log.start_at(offset)

    def _load_snapshot(self, node: SimNode, snapshot: EpochAndOffset) -> None:
        life, epoch = node.life, node.raft.epoch

        def arrive(leader: SimNode) -> None:
            if leader.log.start == snapshot:
                content = leader.log.entries[: snapshot.offset]
                self._answer(leader, node, life, lambda: self._restart_at_snapshot(node, epoch, content))

        self._deliver(node.key.id, node.raft.leader_id, arrive)

    def _restart_at_snapshot(self, node: SimNode, epoch: int, content: list[Entry]) -> list[Action]:
        offset = len(content)
        if node.raft.epoch == epoch and offset > node.log.high_watermark:
            if content != self.truth[:offset]:
                raise Violation(f"K8: {node.key.id} loads a snapshot of what is not committed")
            node.log.entries = list(content)
            node.log.durable_offset = node.log.high_watermark = offset
            node.log.start_at(offset)
            node.raft.voters.restart(offset - 1, node.log.voters(self.initial_voters))
        return []

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _survives(self, voters: VoterSet) -> bool:
        """Whether most of them have not lost their disks."""
        return 2 * sum(any(voter.matches(key) for key in self.lost) for voter in voters) < len(voters)

    def _fall(self, node: SimNode, life: int) -> None:
        def crash() -> None:
            if node.raft is not None and node.life == life:
                self._crash(node)

        self._at(self.now + self.random.randrange(1, self.random.choice(FALL_MS)), crash)

    def _wipe_a_node(self) -> None:
        """It comes back with another directory, and an empty log. At most as many as a quorum survives; and none while
        nodes vote in any directory, because that would go unnoticed."""
        node = self.random.choice(list(self.nodes.values()))
        self.lost.add(node.key)
        known = [other.log.voters(self.initial_voters) for other in self.nodes.values()]
        is_static = any(voter == ReplicaKey(voter.id) for voters in known for voter in voters)
        if is_static or not all(map(self._survives, known)):
            self.lost.discard(node.key)
            return
        if node.raft is not None:
            self._crash(node)
        node.key = ReplicaKey(node.key.id, self._new_directory())
        node.log, node.saved = SimLog(), PersistentState(epoch=0)

    def _propose(self) -> None:
        for node in self.nodes.values():
            if node.raft is not None and node.raft.is_leader and self.now >= node.paused_until:
                self._append(node, Entry(node.raft.epoch, next(self._values)))

    def _crash_a_node(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        if node.raft is None:
            return
        if self.random.random() < 0.3:
            node.paused_until = self.now + self.random.randrange(6000)
        else:
            self._crash(node)

    def _isolate_a_node(self) -> None:
        self.cuts.clear()
        if self.random.random() < 0.6:
            victim = self.random.choice(list(self.nodes))
            for other in self.nodes:
                if other != victim:
                    way = self.random.randrange(3)  # one way, the other, or both
                    if way != 0:
                        self.cuts.add((victim, other))
                    if way != 1:
                        self.cuts.add((other, victim))

    def _change_voters(self) -> None:
        for node in self.nodes.values():
            if node.raft is None or not node.raft.is_leader:
                continue
            voters = node.raft.voters.latest
            outside = [other.key for other in self.nodes.values() if other.key not in voters.voters]
            try:
                if any(voter == ReplicaKey(voter.id) for voter in voters):
                    named = VoterSet.of(self.nodes[voter.id].key for voter in voters)
                    actions = node.raft.name_voters(named)
                elif outside and self.random.random() < 0.5:
                    actions = node.raft.add_voter(self.random.choice(outside), self.now)
                elif leaving := [voter for voter in voters if self._survives(voters.without_voter(voter))]:
                    actions = node.raft.remove_voter(self.random.choice(leaving))
                else:
                    continue
            except KafkaError:
                continue
            self._do(node, actions)
