"""What a leader knows of its followers and decides from it, and where a follower truncates its log.

    leader      ──────────────────────────────┤ log end
    follower 2  ─────────────────────────┤         in sync
    follower 3  ──────────────────┤                in sync
    follower 4  ────────┤                          not in sync: the high watermark does not wait
                                  ^ high watermark: every in-sync replica has the records before it

A follower's fetch offset proves that it holds everything before it. Three sets of replicas matter (KIP-497):

- the *committed ISR*, which the controller knows. While it is smaller than min.insync.replicas the high watermark
  does not advance, with any acks (strict min ISR, KIP-966).
- the *maximal ISR*: the committed one and every replica that is proposed to join. The controller may have agreed
  already and may elect that replica; so the high watermark waits for it from the proposal on, not from the response on.
- replicas that have caught up and may join: the high watermark waits for them too, or a busy leader would never let
  them catch up.

There is at most one proposal at a time. If the controller refuses it without a change, it is dropped. If its outcome is
unknown (a time-out, another controller), the union of both sets stays until the proposal was repeated and answered, or
until the metadata has the new state.

A replica that joins must hold everything that was committed, and everything up to the start of this leader's epoch: a
former leader may have committed up to there. The controller must consider it alive, with the broker epoch with which it
fetched (KIP-841, KIP-903).

A follower truncates its log where the leader's epochs and its own diverge (KIP-101, KIP-279), and nowhere else.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from trioka.protocol.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NewLeaderElected,
    NotLeaderOrFollower,
    OperationNotAttempted,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.lazy_dataclass import frozen

from .brokers import Broker
from .partition import Partition, RecoveryState
from .read_barrier import ReadBarrier

UNKNOWN: Final = -1  # an offset that is not known yet
ANY_BROKER_EPOCH: Final = -1  # of a follower that is too old to send its own
NEVER: Final = float("-inf")

DEFINITE_REFUSALS: Final[tuple[type[KafkaError], ...]] = (IneligibleReplica, OperationNotAttempted)
"""Refusals after which the controller and the leader agree on the partition: the proposal is not sent again."""

STALE_REFUSALS: Final[tuple[type[KafkaError], ...]] = (
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
"""Refusals after which the controller's partition differs from the leader's. Repeating the proposal does not help."""


@frozen
class Proposal:
    """An ISR that a leader proposes, with the broker epochs; the sender adds the leader's own."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]


class Follower:
    """The progress of one follower, from its fetches in this leader epoch."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up",
        "fetched",
        "leader_end_then",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, caught_up: float) -> None:
        self.broker_id = broker_id
        self.log_end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.broker_epoch: int | None = None
        self.fetched = NEVER  # when it did, last
        self.leader_end_then = UNKNOWN
        self.caught_up = caught_up  # when it had last all that its leader had

    def has_caught_up(self, leader_end: int, now: float, max_lag_s: float) -> bool:
        return self.log_end_offset == leader_end or now - self.caught_up <= max_lag_s


class LeaderState:
    """The leader's state of a partition with followers, in one leader epoch."""

    __slots__ = (
        "_eligible",
        "_node_id",
        "_recovery_state",
        "_registered",
        "epoch_start",
        "followers",
        "isr",
        "leader_epoch",
        "partition_epoch",
        "proposal",
        "read_barrier",
    )

    def __init__(
        self,
        node_id: int,
        partition: Partition,
        *,
        log_end_offset: int,
        now: float,
        registered: Callable[[int], Broker | None],
    ) -> None:
        """Starts at the log's end; of the followers, only the in-sync ones are known. `registered` returns a broker's
        registration in the metadata."""
        self._node_id = node_id
        self._registered = registered
        self.leader_epoch = partition.leader_epoch
        self.epoch_start = log_end_offset
        self.read_barrier = ReadBarrier(partition.leader_epoch)
        self.followers = {
            replica: Follower(replica, now if replica in partition.isr else NEVER)
            for replica in partition.replicas
            if replica != node_id
        }
        self._commit(partition)

    def _commit(self, partition: Partition) -> None:
        self.isr = partition.isr
        self.partition_epoch = partition.partition_epoch
        self._recovery_state = partition.leader_recovery_state
        self._eligible = set(partition.eligible_leader_replicas)
        self.proposal: Proposal | None = None

    def follow(self, partition: Partition) -> None:
        """Applies the metadata's state, in the same leader epoch. The controller's answer may have come first."""
        assert partition.leader_epoch == self.leader_epoch
        if partition.partition_epoch > self.partition_epoch:
            self._commit(partition)
        elif partition.partition_epoch == self.partition_epoch:
            self._eligible = set(partition.eligible_leader_replicas)  # the controller's answer did not have them
        others = [replica for replica in partition.replicas if replica != self._node_id]
        self.followers = {replica: self.followers.get(replica) or Follower(replica, NEVER) for replica in others}

    @property
    def maximal_isr(self) -> set[int]:
        """The maximal ISR: every replica that some controller may consider in sync (I4)."""
        return {*self.isr, *(self.proposal.isr if self.proposal is not None else ())}

    @property
    def possible_leaders(self) -> set[int]:
        """Every other replica that the controller may elect without an unclean election: the maximal ISR and the ELR.
        The controller's answer to a proposal does not have the ELR, so a replica that has left the ISR counts until
        the metadata has that state."""
        return (self.maximal_isr | self._eligible) - {self._node_id}

    def may_read(self, read: int, high_watermark: int) -> bool:
        """Whether a linearizable read may be answered with the high watermark (cluster/read_barrier.py). It must have
        reached the start of the epoch: earlier leaders may have acknowledged records up to there (I10)."""
        return high_watermark >= self.epoch_start and not self.read_barrier.missing(read, self.possible_leaders)

    # -- progress ------------------------------------------------------------------------------------------------------

    def follower(self, broker_id: int) -> Follower:
        """UnknownLeaderEpoch for a broker that is not a known replica yet: it may retry (CVE-2018-1288: the replica id
        in a request proves nothing)."""
        found = self.followers.get(broker_id)
        if found is None:
            raise UnknownLeaderEpoch(f"broker {broker_id} has no replica in leader epoch {self.leader_epoch}")
        return found

    def note(
        self,
        broker_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        leader_end: int,
        now: float,
    ) -> None:
        """A fetch from here on proves that the follower has all earlier records. Fetches of an earlier broker epoch are
        ignored (KIP-903)."""
        follower = self.follower(broker_id)
        broker = self._registered(broker_id)
        if broker_epoch != ANY_BROKER_EPOCH and broker is not None and broker_epoch < broker.epoch:
            raise NotLeaderOrFollower(f"broker {broker_id} had the epoch {broker_epoch}, and now has {broker.epoch}")
        if fetch_offset >= leader_end:
            follower.caught_up = max(follower.caught_up, now)
        elif fetch_offset >= follower.leader_end_then >= 0:
            # Not up to the end, but up to where the end was when it last fetched: it keeps pace.
            follower.caught_up = max(follower.caught_up, follower.fetched)
        follower.log_end_offset = fetch_offset
        follower.log_start_offset = log_start_offset
        follower.broker_epoch = broker_epoch
        follower.fetched, follower.leader_end_then = now, leader_end

    def high_watermark(self, leader_end: int, min_in_sync: int, now: float, max_lag_s: float) -> int | None:
        """The smallest end offset of the maximal ISR (I3); None if the high watermark may not move (I2)."""
        if len(self.isr) < min_in_sync:
            return None
        lowest, maximal = leader_end, self.maximal_isr
        for follower in self.followers.values():
            if follower.log_end_offset < lowest and (
                follower.broker_id in maximal
                or (follower.has_caught_up(leader_end, now, max_lag_s) and self._is_eligible(follower))
            ):
                lowest = follower.log_end_offset
        return lowest

    def low_watermark(self, log_start_offset: int) -> int:
        """An offset at or below the log start of every live replica: no replica has records before it."""
        starts = [log_start_offset]
        for follower in self.followers.values():
            broker = self._registered(follower.broker_id)
            if broker is not None and not broker.fenced:
                starts.append(follower.log_start_offset)
        return min(starts)

    def select_read_replica(self, rack: str, fetch_offset: int) -> int | None:
        """The follower with the most records that a consumer in this rack may read from (KIP-392). None if there is
        none, or if the leader is as near. Replicas out of sync are excluded: they may fall behind without limit."""
        own = self._registered(self._node_id)
        if own is not None and own.rack == rack:
            return None
        best: Follower | None = None
        for follower in self.followers.values():
            broker = self._registered(follower.broker_id)
            if (
                broker is not None
                and broker.is_active
                and broker.rack == rack
                and follower.broker_id in self.isr
                and 0 <= follower.log_start_offset <= fetch_offset <= follower.log_end_offset
                and (best is None or follower.log_end_offset > best.log_end_offset)
            ):
                best = follower
        return None if best is None else best.broker_id

    # -- the ISR -------------------------------------------------------------------------------------------------------

    def _is_eligible(self, follower: Follower) -> bool:
        broker = self._registered(follower.broker_id)
        return (
            broker is not None and broker.is_active and follower.broker_epoch in (ANY_BROKER_EPOCH, broker.epoch)
        )  # None, if it has not fetched in this epoch, is neither

    def propose_expand(self, broker_id: int, high_watermark: int) -> Proposal | None:
        """With this follower in it, if it may join (I5)."""
        follower = self.followers[broker_id]
        if (
            self.proposal is not None
            or broker_id in self.isr
            or follower.log_end_offset < max(high_watermark, self.epoch_start)
            or not self._is_eligible(follower)
        ):
            return None
        return self._propose((*self.isr, broker_id))

    def propose_shrink(self, leader_end: int, now: float, max_lag_s: float) -> Proposal | None:
        """Proposes an ISR without the replicas that have lagged for too long, if there are any."""
        if self.proposal is not None:
            return None
        staying = tuple(replica for replica in self.isr if self._keeps_up(replica, leader_end, now, max_lag_s))
        return None if staying == self.isr else self._propose(staying)

    def _keeps_up(self, replica: int, leader_end: int, now: float, max_lag_s: float) -> bool:
        follower = self.followers.get(replica)
        return replica == self._node_id or (follower is not None and follower.has_caught_up(leader_end, now, max_lag_s))

    def recovery(self) -> Proposal | None:
        """After an unclean election: recovery has checked the leader's log when it was opened, and the leader reports
        that. No follower may be in sync with it before."""
        if self.proposal is not None or self._recovery_state is RecoveryState.RECOVERED:
            return None
        return self._propose(self.isr)

    def _propose(self, isr: tuple[int, ...]) -> Proposal:
        epochs = []
        for replica in isr:
            follower = self.followers.get(replica)
            known = None if follower is None else follower.broker_epoch
            epochs.append(ANY_BROKER_EPOCH if known is None else known)
        self.proposal = Proposal(
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=isr,
            broker_epochs=tuple(epochs),
        )
        return self.proposal

    def accepted(self, proposal: Proposal, *, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> bool:
        """The controller's yes, with the partition as it is from now on. False if it is of no use any more."""
        if proposal is not self.proposal or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self._eligible |= set(self.isr) - set(isr)
        self.isr, self.partition_epoch = isr, partition_epoch
        self._recovery_state = RecoveryState.RECOVERED
        self.proposal = None
        return True

    def refused(self, proposal: Proposal, error: KafkaError) -> bool:
        """The controller refused the proposal, or did not answer. True if it should be sent again; until an answer or a
        metadata update comes, the union of both ISRs applies."""
        if proposal is not self.proposal:
            return False
        if isinstance(error, DEFINITE_REFUSALS):
            self.proposal = None
            return False
        return not isinstance(error, STALE_REFUSALS)


# --- damage


def may_demote(partition: Partition, node_id: int, is_active: Callable[[int], bool]) -> bool:
    """Whether a replica with a damaged log may leave the ISR: it is a member, and so is another replica
    that could lead at once (S6, I12). The ELR counts only if the ISR has no other member."""
    if node_id not in (*partition.isr, *partition.eligible_leader_replicas):
        return False
    others = [replica for replica in partition.isr if replica != node_id] or [
        replica for replica in partition.eligible_leader_replicas if replica != node_id
    ]
    return any(is_active(replica) for replica in others)


# --- a follower's own side


class Truncation(NamedTuple):
    offset: int  # the end offset after truncation
    is_final: bool  # whether the logs agree then; if not, the next fetch continues the search


def truncation_point(
    leader_epoch: int, leader_end: int, own_epoch: int, own_end: int, log_end_offset: int
) -> Truncation:
    """Where a follower truncates its log (I8), when the leader answers that (`leader_epoch`, `leader_end`) is the last
    point that both logs may share. `own_epoch` is the largest epoch up to that one in the follower's log, and `own_end`
    is the end of that epoch there.

    If the follower's log does not have the leader's epoch, its records behind `own_end` are from leaders that are
    unknown to this one; the next answer shows whether the rest agrees."""
    if own_epoch != leader_epoch:
        return Truncation(min(own_end, log_end_offset), False)
    return Truncation(min(leader_end, own_end, log_end_offset), True)
