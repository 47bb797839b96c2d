"""Transitions of a replica to leader, follower or offline, and the objects that must be notified.

    leader      parked requests are tried again; fetching stops, and the ISR is managed here
    follower    a fetcher fetches from the leader; waiters for commits fail with NOT_LEADER_OR_FOLLOWER
    offline     the partition has no leader, or the replica was removed

A single broker needs none of this and does not import it: replication/fetcher.py and replication/isr_proposals.py are
loaded with the first replica that follows or has followers.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

import trio

from trioka.cluster.image.brokers import Broker as Registration
from trioka.cluster.placement.topic_overrides import is_linearizable, is_memory_topic, is_tiered
from trioka.cluster.replication.leader_state import UNKNOWN, LeaderState
from trioka.protocol.errors import KafkaError

from ..config.replication_keys import (
    FOLLOWER_REPLICATION_THROTTLED_RATE,
    LEADER_REPLICATION_THROTTLED_RATE,
    REPLICA_LAG_TIME_MAX_MS,
    REPLICA_SELECTOR_CLASS,
)
from ..config.topic_keys import FOLLOWER_REPLICATION_THROTTLED_REPLICAS, LEADER_REPLICATION_THROTTLED_REPLICAS
from .commit_wait import make_durable
from .partitions import Replica
from .throttle import ReplicationQuota

if TYPE_CHECKING:
    from ..broker import Broker
    from .fetch_sessions.cache import FetchSession
    from .fetcher import FetcherManager
    from .healing import Healing
    from .isr_proposals import AlterPartitionSender
    from .linearizable_reads import LinearizableReads
    from .scrubber import Scrubber

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEARN_S: Final = 0.03  # how long other brokers may take to apply the same metadata


class ParkedFetch(Protocol):
    """A parked fetch of a follower."""

    def complete_now(self) -> None:
        """Answers the fetch at once, with the records that there are."""


class ReplicaTransitions:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.waiting: dict[int, set[ParkedFetch]] = {}  # by follower id
        self._expected: set[int] = set()  # followers of partitions that were recently taken over
        self.sent = ReplicationQuota(broker, LEADER_REPLICATION_THROTTLED_RATE, LEADER_REPLICATION_THROTTLED_REPLICAS)
        self.fetched = ReplicationQuota(
            broker, FOLLOWER_REPLICATION_THROTTLED_RATE, FOLLOWER_REPLICATION_THROTTLED_REPLICAS
        )

    @cached_property
    def followers(self) -> "FetcherManager":
        made: FetcherManager = import_module(".fetcher", __package__).FetcherManager(self._broker)
        return made

    @cached_property
    def in_sync(self) -> "AlterPartitionSender":
        made: AlterPartitionSender = import_module(".isr_proposals", __package__).AlterPartitionSender(self._broker)
        self._broker.nursery.start_soon(made.send)
        self._broker.nursery.start_soon(made.watch)
        self._broker.nursery.start_soon(made.watch_damage)
        _ = self.healing  # creates the healer, which then runs
        return made

    @cached_property
    def healing(self) -> "Healing":
        made: Healing = import_module(".healing", __package__).Healing(self._broker)
        self._broker.nursery.start_soon(made.run)
        return made

    @cached_property
    def scrubber(self) -> "Scrubber":
        made: Scrubber = import_module(".scrubber", __package__).Scrubber(self._broker)
        return made

    def unhealed(self, replica: Replica) -> int:
        """Damaged ranges of a replica without a good copy elsewhere, as of the last attempt."""
        return self.healing.unhealed(replica.log) if replica.log.quarantine.damages else 0

    @cached_property
    def reads(self) -> "LinearizableReads":
        made: LinearizableReads = import_module(".linearizable_reads", __package__).LinearizableReads(self._broker)
        self._broker.nursery.start_soon(made.confirm_epochs)
        return made

    @property
    def is_following(self) -> bool:
        """Whether requests wait for responses of leaders."""
        return "followers" in vars(self) and self.followers.is_following

    @property
    def is_rack_aware(self) -> bool:
        """Whether consumers are redirected to the replica in their rack."""
        return self._broker.config[REPLICA_SELECTOR_CLASS] == RACK_AWARE

    # -- called by MetadataApplier -------------------------------------------------------------------------------------

    def registered(self, broker_id: int) -> Registration | None:
        return self._broker.metadata.brokers.get(broker_id)

    def max_lag_s(self) -> float:
        return self._broker.config[REPLICA_LAG_TIME_MAX_MS] / 1000

    def is_linearizable(self, topic: str) -> bool:
        return is_linearizable(self._broker.metadata, topic)

    def is_memory_topic(self, topic: str) -> bool:
        return is_memory_topic(self._broker.metadata, topic)

    def is_restorable(self, topic: str) -> bool:
        return is_memory_topic(self._broker.metadata, topic) and is_tiered(self._broker.metadata, topic)

    def on_leader(self, replica: Replica) -> None:
        self._stop_fetching(replica)
        if replica.leadership is not None:
            self.in_sync.submit(replica, replica.leadership.recovery())
            self._expect(replica.leadership)
        if replica.wants_flush:
            self._broker.nursery.start_soon(self._make_durable, replica)
        self._broker.purgatory.notify(replica)

    async def _make_durable(self, replica: Replica) -> None:
        """Syncs the log that a new leader starts with: it may not be durable. A disk failure is reported elsewhere."""
        with suppress(KafkaError):
            await make_durable(self._broker, replica)

    def _expect(self, leadership: LeaderState) -> None:
        """Completes the parked fetches of a new leader's followers, for other partitions, so that they request this one
        too. Otherwise it would take half a second until a record is committed."""
        unheard = {each.broker_id for each in leadership.followers.values() if each.log_end_offset == UNKNOWN}
        if unheard and not self._expected:
            self._broker.nursery.start_soon(self._complete_parked)
        self._expected |= unheard

    async def _complete_parked(self) -> None:
        await trio.sleep(LEARN_S)
        expected, self._expected = self._expected, set()
        for broker_id in expected:
            for fetch in tuple(self.waiting.get(broker_id, ())):
                fetch.complete_now()

    def on_follower(self, replica: Replica) -> None:
        _ = self.in_sync  # creates the ISR proposals, which also handle damage in followers
        self.followers.follow(replica)
        self._broker.purgatory.notify(replica)

    def on_offline(self, replica: Replica) -> None:
        self._stop_fetching(replica)
        self._broker.purgatory.notify(replica)

    def release(self) -> None:
        self._broker.dispatch.release_replicas()
        self._broker.purgatory.sweep()

    def _stop_fetching(self, replica: Replica) -> None:
        if "followers" in vars(self):
            self.followers.leave(replica)

    # -- called for fetches of followers -------------------------------------------------------------------------------

    def note(
        self, replica: Replica, broker_id: int, broker_epoch: int, *, fetch_offset: int, log_start_offset: int
    ) -> bool:
        """Records a follower's fetch position. True if this may complete parked requests."""
        leadership = replica.leadership
        assert leadership is not None
        follower = leadership.follower(broker_id)
        started = follower.log_start_offset
        leadership.note(
            broker_id,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            leader_end=replica.log.log_end_offset,
            now=replica.now(),
        )
        # The proposal comes first: the leader waits for the follower from then on.
        self.in_sync.submit(replica, leadership.propose_expand(broker_id, replica.log.high_watermark))
        return replica.advance() or log_start_offset != started

    def note_for_reads(
        self, broker_id: int, broker_epoch: int, session: "FetchSession"
    ) -> tuple[bool, Sequence[Replica]]:
        """Records a follower's fetch for linearizable reads. Returns whether they wait for its next fetch, and the
        partitions whose reads may have passed."""
        if "reads" not in vars(self):
            return False, ()
        return self.reads.note_fetch(broker_id, broker_epoch, session)

    def note_answer(self, session: "FetchSession") -> None:
        """A response to a follower leaves: it sends its next fetch of this session after all reads that have begun."""
        if "reads" in vars(self):
            session.answered_read = self.reads.begun
