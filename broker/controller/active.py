"""What the active controller does with brokers, and by itself: the shell around `Sessions` and its decisions.

A heartbeat counts when it comes in, and not when its turn has come: a controller that is busy must not take its brokers
for dead. Sessions that are over are looked for all the while; every few minutes leadership goes back to the first
replicas, and partitions that nobody leads, but anybody may, are given to somebody.

Also when nothing happens, it writes a record now and then that says nothing: whoever follows sees that the metadata is
still written, how old what it knows is, and a controller that can no longer write, or is not heard, finds out. A node
that nobody follows does not: it would wake its disk for ever, and nobody would see it.

On a node that is not active all of this is NOT_CONTROLLER, and nothing is done. When it becomes active, sessions begin
anew.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.broker_changes import HeartbeatReply, check_broker_epoch
from trioka.cluster.broker_sessions import Sessions
from trioka.cluster.controller import Controller
from trioka.cluster.decision import Decision
from trioka.protocol.errors import KafkaError, NotController
from trioka.protocol.internal_records.metadata import NoOpRecord
from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from trioka.protocol.messages.broker_registration import BrokerRegistrationRequest

from ..config.node_keys import BROKER_SESSION_TIMEOUT_MS, METADATA_MAX_IDLE_INTERVAL_MS
from ..config.replication_keys import (
    AUTO_LEADER_REBALANCE_ENABLE,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    UNCLEAN_LEADER_ELECTION_INTERVAL_MS,
)

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.controller")

SHORTEST_SESSION_S: Final = 0.1
MAX_ELECTIONS: Final = 1000  # at once, as in Kafka: others want to change something, too

Election = Callable[[Controller, int], Decision[bool]]


class ActiveController:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._epoch: int | None = None  # in which the sessions began
        self._sessions: Sessions
        self._balanced = self._looked_for_leaderless = 0.0

    @property
    def _timeout_s(self) -> float:
        return max(self._broker.config[BROKER_SESSION_TIMEOUT_MS] / 1000, SHORTEST_SESSION_S)

    @property
    def sessions(self) -> Sessions:
        """Of this node's time as the active controller; NotController if it is not."""
        quorum = self._broker.quorum
        if not quorum.is_active:
            raise NotController
        if self._epoch != quorum.epoch:
            now = self._broker.clock.now()
            self._sessions = Sessions(self._broker.metadata.brokers, self._timeout_s, now)
            self._epoch = quorum.epoch
            self._balanced = self._looked_for_leaderless = now
        return self._sessions

    # -- what brokers say ----------------------------------------------------------------------------------------------

    async def register(self, request: BrokerRegistrationRequest) -> int:
        """The broker's epoch. A broker that is this very process has no other life to wait for."""
        sessions, broker = self.sessions, self._broker
        is_this = request.incarnation_id == broker.membership.incarnation_id

        def decide(controller: Controller) -> Decision[int]:
            is_alive = sessions.is_alive(controller.metadata.brokers, request.broker_id, broker.clock.now())
            next_offset = broker.quorum.log.log_end_offset
            return controller.register_broker(request, next_offset=next_offset, has_session=is_alive and not is_this)

        (epoch,) = (await broker.quorum.change(decide)).replies
        sessions.begin(request.broker_id, broker.clock.now())
        return epoch

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> HeartbeatReply:
        sessions, broker, broker_id = self.sessions, self._broker, request.broker_id
        check_broker_epoch(broker.metadata, broker_id, request.broker_epoch)
        sessions.heard(broker_id, request.current_metadata_offset, broker.clock.now())

        def decide(controller: Controller) -> Decision[HeartbeatReply]:
            self._note_leaving(sessions, broker_id)
            caught_up = sessions.others_caught_up(controller.metadata.brokers, broker_id)
            return controller.heartbeat(request, others_caught_up=caught_up)

        (reply,) = (await broker.quorum.change(decide)).replies
        self._note_leaving(sessions, broker_id)
        return reply

    def _note_leaving(self, sessions: Sessions, broker_id: int) -> None:
        metadata = self._broker.metadata
        broker = metadata.brokers.get(broker_id)
        if broker is not None and broker.in_controlled_shutdown:
            sessions.leaves(broker_id, metadata.offset)

    # -- what nobody says ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        interval_s = Sessions((), self._timeout_s, 0.0).look_interval_s
        while True:
            await trio.sleep(interval_s)
            try:
                await self._look()
            except NotController:
                continue  # it never was, or has ceased to be
            except KafkaError as error:
                log.warning("the controller could not do what was due: %s", error)
            except Exception as mistake:  # the next look may go better, and the broker has other things to do
                log.error("a mistake of ours", exc_info=mistake)

    async def write_on(self) -> None:
        """As long as this node leads others, and may write: a record that says nothing, at each interval."""
        interval_s = self._broker.config[METADATA_MAX_IDLE_INTERVAL_MS] / 1000
        quorum = self._broker.quorum
        while interval_s > 0:
            await trio.sleep(interval_s)
            if quorum.is_active and quorum.is_followed:
                try:
                    await quorum.change(lambda controller: Decision(records=(NoOpRecord(),), replies=()))
                except KafkaError as error:
                    log.debug("what was written for the sake of writing is not committed: %s", error)

    async def _look(self) -> None:
        sessions, clock, config = self.sessions, self._broker.clock, self._broker.config
        sessions.look(clock.now())
        while await self._fence_one(sessions):
            pass
        now = clock.now()
        if now - self._balanced >= config[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]:
            self._balanced = now
            while config[AUTO_LEADER_REBALANCE_ENABLE] and await self._elect(Controller.balance_leaders):
                pass
        if now - self._looked_for_leaderless >= config[UNCLEAN_LEADER_ELECTION_INTERVAL_MS] / 1000:
            self._looked_for_leaderless = now
            while await self._elect(Controller.elect_last_resorts):
                pass

    async def _fence_one(self, sessions: Sessions) -> bool:
        """Whether there was one. Looked for when it can be fenced: it may have spoken while others were served."""

        def decide(controller: Controller) -> Decision[int | None]:
            brokers = controller.metadata.brokers
            broker_id = sessions.expired(brokers, self._broker.clock.now())
            records = () if broker_id is None else controller.fence_broker(broker_id).records
            return Decision(records=records, replies=(broker_id,))

        (fenced,) = (await self._broker.quorum.change(decide)).replies
        if fenced is not None:
            log.warning("broker %d is fenced: it was silent for %.1f s", fenced, sessions.timeout_s)
        return fenced is not None

    async def _elect(self, election: Election) -> bool:
        """Whether there may be more of them."""
        decision = await self._broker.quorum.change(lambda controller: election(controller, MAX_ELECTIONS))
        return decision.replies[0]
