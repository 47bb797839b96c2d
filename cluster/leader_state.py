"""What a leader knows of its followers and decides from it, and where a follower cuts its log.

    leader      ──────────────────────────────┤ log end
    follower 2  ─────────────────────────┤         in sync
    follower 3  ──────────────────┤                in sync
    follower 4  ────────┤                          not in sync: nobody waits for it
                                  ^ high watermark: everyone who is in sync has what lies before

A follower says where it is by asking for what comes next; that it has fetched from an offset proves that it holds all
before it. Three sets of replicas matter (KIP-497):

- the *committed ISR*, which the controller knows. While it is smaller than min.insync.replicas the high watermark
  stands still, whatever anybody's acks say (strict min ISR, KIP-966).
- the *maximal ISR*: the committed one, and with it whoever is proposed to join. The controller may have agreed already,
  and may elect that replica; so from the proposal on, not from the answer on, it is waited for.
- those who have caught up and may join: they are waited for too, or a busy leader would never let them catch up.

There is at most one proposal at a time. If the controller refuses it without having changed anything, it is as if it
had not been made. If nobody knows what became of it (a time-out, another controller), the union of both stays until it
was made again and answered, or until the metadata says how it is.

Whoever joins must hold everything that was committed, and everything up to where this leader's epoch began: a former
leader may have committed up to there. It must be alive in the eyes of the controller, in the same life in which it
fetched (KIP-841, KIP-903).

A follower cuts its log where the leader's epochs and its own part ways (KIP-101, KIP-279), and nowhere else.
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

UNKNOWN: Final = -1  # an offset that nobody has told yet
ANY_BROKER_EPOCH: Final = -1  # of a follower that is too old to tell its own
NEVER: Final = float("-inf")

NOTHING_CHANGED: Final[tuple[type[KafkaError], ...]] = (IneligibleReplica, OperationNotAttempted)
"""Refusals by which the controller says that it knows the partition as the leader does, and has left it so."""

METADATA_WILL_TELL: Final[tuple[type[KafkaError], ...]] = (
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
"""Refusals by which it says that it knows the partition otherwise. To ask the same again is of no use."""


@frozen
class Proposal:
    """An ISR that a leader asks for. The broker epochs go with it; a leader's own is for whoever sends it."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]


class Follower:
    """How far one is, as its fetches of this leader epoch tell."""

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


class Leadership:
    """One replica's, of a partition that has others, in one leader epoch."""

    __slots__ = (
        "_node_id",
        "_recovery_state",
        "_registered",
        "epoch_start",
        "followers",
        "isr",
        "leader_epoch",
        "partition_epoch",
        "proposal",
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
        """It begins at the log's end; of its followers, only who is in sync is known. `registered` is how the metadata
        has a broker."""
        self._node_id = node_id
        self._registered = registered
        self.leader_epoch = partition.leader_epoch
        self.epoch_start = log_end_offset
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
        self.proposal: Proposal | None = None

    def follow(self, partition: Partition) -> None:
        """What the metadata says, in the same leader epoch. The controller's answer may have come first."""
        assert partition.leader_epoch == self.leader_epoch
        if partition.partition_epoch > self.partition_epoch:
            self._commit(partition)
        others = [replica for replica in partition.replicas if replica != self._node_id]
        self.followers = {replica: self.followers.get(replica) or Follower(replica, NEVER) for replica in others}

    @property
    def maximal_isr(self) -> set[int]:
        """Everybody who may be in sync in the eyes of some controller (I4)."""
        return {*self.isr, *(self.proposal.isr if self.proposal is not None else ())}

    # -- progress ------------------------------------------------------------------------------------------------------

    def follower(self, broker_id: int) -> Follower:
        """UnknownLeaderEpoch to who is none, or is not known as one yet: it may ask again (CVE-2018-1288: whoever says
        that it is a replica has said nothing)."""
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
        """It fetches from here, so it holds what is before. Of a broker's earlier life, nothing is noted (KIP-903)."""
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
        """How far everybody is who must have it (I3); None if it may not move (I2)."""
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
        """Where the log of every replica that is alive starts, or later: what lies before is gone everywhere."""
        starts = [log_start_offset]
        for follower in self.followers.values():
            broker = self._registered(follower.broker_id)
            if broker is not None and not broker.fenced:
                starts.append(follower.log_start_offset)
        return min(starts)

    def nearest(self, rack: str, fetch_offset: int) -> int | None:
        """Of the followers that a consumer in this rack may read from, the one that has most (KIP-392). None if there
        is none, or the leader itself is as near. Who is not in sync may fall behind for ever, and is no good."""
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

    # -- who is in sync ------------------------------------------------------------------------------------------------

    def _is_eligible(self, follower: Follower) -> bool:
        broker = self._registered(follower.broker_id)
        return (
            broker is not None and broker.is_active and follower.broker_epoch in (ANY_BROKER_EPOCH, broker.epoch)
        )  # None, if it has not fetched in this epoch, is neither

    def expansion(self, broker_id: int, high_watermark: int) -> Proposal | None:
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

    def shrinkage(self, leader_end: int, now: float, max_lag_s: float) -> Proposal | None:
        """Without those who have not been up to date for too long, if there are any."""
        if self.proposal is not None:
            return None
        staying = tuple(replica for replica in self.isr if self._keeps_up(replica, leader_end, now, max_lag_s))
        return None if staying == self.isr else self._propose(staying)

    def _keeps_up(self, replica: int, leader_end: int, now: float, max_lag_s: float) -> bool:
        follower = self.followers.get(replica)
        return replica == self._node_id or (follower is not None and follower.has_caught_up(leader_end, now, max_lag_s))

    def recovery(self) -> Proposal | None:
        """After an unclean election: the leader has looked at its log, which recovery did when it was opened, and says
        so. Nobody may be in sync with it before."""
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
        self.isr, self.partition_epoch = isr, partition_epoch
        self._recovery_state = RecoveryState.RECOVERED
        self.proposal = None
        return True

    def refused(self, proposal: Proposal, error: KafkaError) -> bool:
        """The controller's no, or none at all. True if it should be asked again; until an answer comes, or the
        metadata tells, the union of both ISRs holds."""
        if proposal is not self.proposal:
            return False
        if isinstance(error, NOTHING_CHANGED):
            self.proposal = None
            return False
        return not isinstance(error, METADATA_WILL_TELL)


# --- damage


def may_step_aside(partition: Partition, node_id: int, is_active: Callable[[int], bool]) -> bool:
    """Whether a replica whose log is damaged may leave those that have it all: it is one of them, and so is somebody
    who could lead at once (S6, I12). The eligible ones (ELR) count only if the ISR has nobody else."""
    if node_id not in (*partition.isr, *partition.eligible_leader_replicas):
        return False
    others = [replica for replica in partition.isr if replica != node_id] or [
        replica for replica in partition.eligible_leader_replicas if replica != node_id
    ]
    return any(is_active(replica) for replica in others)


# --- a follower's own side


class Cut(NamedTuple):
    offset: int  # where its log shall end
    is_final: bool  # whether the logs agree then; if not, the next fetch tells more


def cut_of(leader_epoch: int, leader_end: int, own_epoch: int, own_end: int, log_end_offset: int) -> Cut:
    """Where a follower cuts its log (I8), when the leader answers that of what both may have, (`leader_epoch`,
    `leader_end`) is the last. `own_epoch` is the largest epoch up to that one which the follower's log knows, and
    `own_end` where it ends there.

    If the follower does not know the leader's epoch, what it has behind `own_end` is of leaders that this one has never
    heard of; whether the rest agrees, the next answer tells."""
    if own_epoch != leader_epoch:
        return Cut(min(own_end, log_end_offset), False)
    return Cut(min(leader_end, own_end, log_end_offset), True)
