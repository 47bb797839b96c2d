"""Where leading and following come together: who must know when a replica's fortunes change.

    it leads      whoever waits for it looks again; it is followed no longer, and says who is in sync
    it follows    a fetcher asks its leader; whoever waited for what it wrote is sent there
    it rests      nobody leads, or the replica is gone

A broker that is alone needs none of this, and loads none of it: replication/fetcher.py and replication/isr_proposals.py
come with the first replica that follows, or leads others.
"""

from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

import trio

from trioka.cluster.brokers import Broker as Registration
from trioka.cluster.leader_state import UNKNOWN, Leadership
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
    from .fetcher import Followers
    from .healing import Healing
    from .isr_proposals import InSync
    from .scrubber import Scrubber

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEARN_S: Final = 0.03  # so long may the same metadata be on its way to others


class Waiting(Protocol):
    """A follower's fetch that waits for records."""

    def hurry(self) -> None:
        """It is answered at once, with what there is."""


class Replication:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.waiting: dict[int, set[Waiting]] = {}  # by the follower's id
        self._expected: set[int] = set()  # followers of partitions that are led since a moment ago
        self.sent = ReplicationQuota(broker, LEADER_REPLICATION_THROTTLED_RATE, LEADER_REPLICATION_THROTTLED_REPLICAS)
        self.fetched = ReplicationQuota(
            broker, FOLLOWER_REPLICATION_THROTTLED_RATE, FOLLOWER_REPLICATION_THROTTLED_REPLICAS
        )

    @cached_property
    def followers(self) -> "Followers":
        made: Followers = import_module(".fetcher", __package__).Followers(self._broker)
        return made

    @cached_property
    def in_sync(self) -> "InSync":
        made: InSync = import_module(".isr_proposals", __package__).InSync(self._broker)
        self._broker.nursery.start_soon(made.send)
        self._broker.nursery.start_soon(made.watch)
        self._broker.nursery.start_soon(made.mind_damage)
        _ = self.healing  # it runs from now on
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
        """Damaged ranges of a replica of which nobody had a good copy, when it was last asked for."""
        return self.healing.unhealed(replica.log) if replica.log.quarantine.damages else 0

    @property
    def is_following(self) -> bool:
        """Whether answers of leaders may come at any time: somebody waits for what is in them."""
        return "followers" in vars(self) and self.followers.is_following

    @property
    def minds_racks(self) -> bool:
        """Whether consumers are sent to the replica in their rack."""
        return self._broker.config[REPLICA_SELECTOR_CLASS] == RACK_AWARE

    # -- what Replicas tell --------------------------------------------------------------------------------------------

    def registered(self, broker_id: int) -> Registration | None:
        return self._broker.metadata.brokers.get(broker_id)

    def max_lag_s(self) -> float:
        return self._broker.config[REPLICA_LAG_TIME_MAX_MS] / 1000

    def leads(self, replica: Replica) -> None:
        self._stop_fetching(replica)
        if replica.leadership is not None:
            self.in_sync.submit(replica, replica.leadership.recovery())
            self._expect(replica.leadership)
        if replica.wants_flush:
            self._broker.nursery.start_soon(self._make_durable, replica)
        self._broker.delayed.touch(replica)

    async def _make_durable(self, replica: Replica) -> None:
        """What it found in its log, of which nobody knows whether it was synced. A disk that fails tells others."""
        with suppress(KafkaError):
            await make_durable(self._broker, replica)

    def _expect(self, leadership: Leadership) -> None:
        """A follower that has not fetched from a new leader may be waiting here already, for other partitions. It is
        answered then, and asks for this one too; or it would be half a second until anything is committed."""
        unheard = {each.broker_id for each in leadership.followers.values() if each.log_end_offset == UNKNOWN}
        if unheard and not self._expected:
            self._broker.nursery.start_soon(self._hurry)
        self._expected |= unheard

    async def _hurry(self) -> None:
        await trio.sleep(LEARN_S)
        expected, self._expected = self._expected, set()
        for broker_id in expected:
            for fetch in tuple(self.waiting.get(broker_id, ())):
                fetch.hurry()

    def follows(self, replica: Replica) -> None:
        _ = self.in_sync  # it minds, too, whether what follows is damaged
        self.followers.follow(replica)
        self._broker.delayed.touch(replica)

    def rests(self, replica: Replica) -> None:
        self._stop_fetching(replica)
        self._broker.delayed.touch(replica)

    def release(self) -> None:
        self._broker.dispatch.release_replicas()
        self._broker.delayed.sweep()

    def _stop_fetching(self, replica: Replica) -> None:
        if "followers" in vars(self):
            self.followers.leave(replica)

    # -- what a follower's fetch tells ---------------------------------------------------------------------------------

    def note(
        self, replica: Replica, broker_id: int, broker_epoch: int, *, fetch_offset: int, log_start_offset: int
    ) -> bool:
        """A follower asks for what comes next. True if somebody may have waited for that."""
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
        # First the proposal: from then on the follower is waited for.
        self.in_sync.submit(replica, leadership.expansion(broker_id, replica.log.high_watermark))
        return replica.advance() or log_start_offset != started
