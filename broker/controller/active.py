"""The I/O around the active controller's decisions about brokers: registration, heartbeats, fencing, elections.

A heartbeat counts from the time it is received, not from the time it is processed, so that a busy controller does not
fence live brokers. `run` fences brokers whose session has expired, moves leadership back to the preferred replicas
(auto.leader.rebalance.enable), and elects leaders for partitions without one where that is allowed.

With followers, the controller also writes a NoOpRecord at each metadata.max.idle.interval.ms: followers can tell how
old their metadata is, and a controller that can no longer commit notices it. A controller without followers writes
none, because it would wake its disk for nothing.

On a node that is not the active controller every call raises NOT_CONTROLLER. Sessions start again with each epoch.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from trioka.cluster.controller.broker_changes import HeartbeatReply, check_broker_epoch
from trioka.cluster.controller.broker_sessions import BrokerSessions
from trioka.cluster.controller.controller import Controller
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
from ..config.security_keys import DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.controller")

MIN_SESSION_S: Final = 0.1
MAX_ELECTIONS: Final = 1000  # per metadata change, as in Kafka, so that other changes are not delayed

Election = Callable[[Controller, int], Decision[bool]]


class ActiveController:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._epoch: int | None = None  # of the sessions
        self._sessions: BrokerSessions
        self._balanced = self._leaderless_checked_at = self._tokens_checked_at = 0.0

    @property
    def _timeout_s(self) -> float:
        return max(self._broker.config[BROKER_SESSION_TIMEOUT_MS] / 1000, MIN_SESSION_S)

    @property
    def sessions(self) -> BrokerSessions:
        """The sessions of the current epoch. Raises NotController if this node is not the active controller."""
        quorum = self._broker.quorum
        if not quorum.is_active:
            raise NotController
        if self._epoch != quorum.epoch:
            now = self._broker.clock.now()
            self._sessions = BrokerSessions(self._broker.metadata.brokers, self._timeout_s, now)
            self._epoch = quorum.epoch
            self._balanced = self._leaderless_checked_at = self._tokens_checked_at = now
        return self._sessions

    # -- requests of brokers -------------------------------------------------------------------------------------------

    async def register(self, request: BrokerRegistrationRequest) -> int:
        """Returns the broker epoch. The broker of this process is not refused because of an earlier session."""
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
        sessions.on_heartbeat(broker_id, request.current_metadata_offset, broker.clock.now())

        def decide(controller: Controller) -> Decision[HeartbeatReply]:
            self._note_leaving(sessions, broker_id)
            caught_up = sessions.others_caught_up(controller.metadata.brokers, broker_id)
            return controller.heartbeat(request, others_caught_up=caught_up)

        (reply,) = (await broker.quorum.change(decide)).replies
        self._note_leaving(sessions, broker_id)
        return reply

    def _note_leaving(self, sessions: BrokerSessions, broker_id: int) -> None:
        metadata = self._broker.metadata
        broker = metadata.brokers.get(broker_id)
        if broker is not None and broker.in_controlled_shutdown:
            sessions.leaves(broker_id, metadata.offset)

    # -- periodic tasks ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        interval_s = BrokerSessions((), self._timeout_s, 0.0).check_interval_s
        while True:
            await trio.sleep(interval_s)
            try:
                await self._run_due_tasks()
            except NotController:
                continue
            except KafkaError as error:
                log.warning("a periodic task of the controller failed: %s", error)
            except Exception as mistake:  # the next run may succeed
                log.error("internal error in a periodic task of the controller", exc_info=mistake)

    async def write_on(self) -> None:
        """Writes a NoOpRecord at each metadata.max.idle.interval.ms while this node is active and has followers."""
        interval_s = self._broker.config[METADATA_MAX_IDLE_INTERVAL_MS] / 1000
        quorum = self._broker.quorum
        while interval_s > 0:
            await trio.sleep(interval_s)
            if quorum.is_active and quorum.has_followers:
                try:
                    await quorum.change(lambda controller: Decision(records=(NoOpRecord(),), replies=()))
                except KafkaError as error:
                    log.debug("a NoOpRecord is not committed: %s", error)

    async def _run_due_tasks(self) -> None:
        sessions, clock, config = self.sessions, self._broker.clock, self._broker.config
        sessions.look(clock.now())
        while await self._fence_one(sessions):
            pass
        now = clock.now()
        if now - self._balanced >= config[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]:
            self._balanced = now
            while config[AUTO_LEADER_REBALANCE_ENABLE] and await self._elect(Controller.balance_leaders):
                pass
        if now - self._leaderless_checked_at >= config[UNCLEAN_LEADER_ELECTION_INTERVAL_MS] / 1000:
            self._leaderless_checked_at = now
            while await self._elect(Controller.elect_unclean):
                pass
        if now - self._tokens_checked_at >= config[DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS] / 1000:
            self._tokens_checked_at = now
            while self._broker.metadata.access.tokens and await self._remove_expired_tokens():
                pass

    async def _fence_one(self, sessions: BrokerSessions) -> bool:
        """Fences one broker with an expired session, if there is one. The decision looks it up, because a heartbeat
        may have arrived while other changes were made."""

        def decide(controller: Controller) -> Decision[int | None]:
            brokers = controller.metadata.brokers
            broker_id = sessions.expired(brokers, self._broker.clock.now())
            records = () if broker_id is None else controller.fence_broker(broker_id).records
            return Decision(records=records, replies=(broker_id,))

        (fenced,) = (await self._broker.quorum.change(decide)).replies
        if fenced is not None:
            log.warning("broker %d is fenced: no heartbeat for %.1f s", fenced, sessions.timeout_s)
        return fenced is not None

    async def _remove_expired_tokens(self) -> bool:
        """Whether there may be more of them."""
        now_ms = self._broker.clock.now_ms()
        decision = await self._broker.quorum.change(lambda controller: controller.remove_expired_tokens(now_ms))
        if decision.records:
            log.info("%d delegation tokens are past their time and removed", len(decision.records))
        return decision.replies[0]

    async def _elect(self, election: Election) -> bool:
        """Returns whether more elections may be due."""
        decision = await self._broker.quorum.change(lambda controller: election(controller, MAX_ELECTIONS))
        return decision.replies[0]
