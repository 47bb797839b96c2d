"""How this broker joins its cluster, stays in it, and leaves it. All of it is said to the active controller, whoever
that is.

register     who and where it is; the answer is its epoch, and it is fenced. While its former life may still be alive it
             is refused, and tries again until that one's session is over. It takes up its replicas when it has replayed
             that: nothing that it led before is led by it then
heartbeat    it is alive, and how far it has come with the metadata. Once it has replayed its own registration (K9) it
             is let in. A broker that was fenced for its silence is let in again in the same way; one that is told that
             its epoch is stale was forgotten, or another has taken its id, and registers anew
recovered    it has looked at the logs that an unclean stop left, and knows what is in them
directories  which of its log directories each replica is in, where the controller left that to it
leave        it stops: others lead in its place, and know it, before it goes. It is fenced then, so that its next life
             need not wait for the session of this one to end
"""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster.brokers import NOT_REGISTERED
from trioka.cluster.metadata_log import DIRECTORIES_SINCE
from trioka.cluster.partition import Partition, RecoveryState
from trioka.cluster.topics import Topic
from trioka.protocol.errors import (
    NONE,
    DuplicateBrokerRegistration,
    KafkaError,
    RequestTimedOut,
    StaleBrokerEpoch,
    error_class,
)
from trioka.protocol.messages.alter_partition import AlterPartitionRequest
from trioka.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from trioka.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from trioka.protocol.messages.broker_registration import BrokerRegistrationRequest
from trioka.protocol.schema import Request
from trioka.storage.layout import TopicPartition

from ..config.addresses import Endpoint
from ..config.node_keys import (
    BROKER_HEARTBEAT_INTERVAL_MS,
    BROKER_SESSION_TIMEOUT_MS,
    CONTROLLED_SHUTDOWN_ENABLE,
    INITIAL_BROKER_REGISTRATION_TIMEOUT_MS,
)
from ..config.trioka_keys import CONTROLLED_SHUTDOWN_TIMEOUT_MS

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("trioka.membership")

CATCH_UP_S: Final = 0.02  # between heartbeats of a broker that waits to be let in
AGAIN_S: Final = 0.2  # before a registration that was refused is tried again
SHUT_DOWN_S: Final = 0.05  # between heartbeats of a broker that waits to be let go
UNREACHABLE_S: Final = 3.0  # without a controller for so long, a broker that nobody can replace goes without leave
COMPLAINT_S: Final = 30.0  # between two lines about a controller that cannot be reached


class CannotJoin(Exception):
    """The cluster does not take this broker; the sentence says why."""


class Membership:
    def __init__(self, broker: "Broker") -> None:
        self.incarnation_id = broker.random.randbytes(16)  # of this life
        self.has_joined = False  # it was let in; what it leads it coordinates from then on
        self.has_left = False
        self._broker = broker
        self._advertised: tuple[Endpoint, ...] = ()
        self._complained = -COMPLAINT_S
        self._is_introduced = False

    # -- joining -------------------------------------------------------------------------------------------------------

    async def register(self, advertised: Iterable[Endpoint]) -> None:
        """Returns when this node has replayed it. Until then the metadata may say that it leads what it led in a former
        life, in an epoch whose last records it may have lost: it must not take up any replica before."""
        broker = self._broker
        self._advertised = tuple(advertised)
        timeout_s = broker.config[INITIAL_BROKER_REGISTRATION_TIMEOUT_MS] / 1000
        await self._register(broker.identity.previous_broker_epoch, timeout_s)
        while broker.metadata.offset < broker.broker_epoch:
            broker.quorum.check()
            await broker.quorum.moved.wait()

    async def join(self) -> None:
        """Returns when the broker is let in."""
        broker = self._broker
        while True:
            try:
                await self._heartbeat()
            except StaleBrokerEpoch:
                await self._register_again()
            except KafkaError as error:
                self._complain("it is not let in yet", error)
            if self._is_let_in:
                break
            await trio.sleep(CATCH_UP_S)
        await self._introduce()
        self.has_joined = True
        broker.nursery.start_soon(self._stay)

    @property
    def _is_let_in(self) -> bool:
        """As this broker knows it: it has replayed that it was."""
        known = self._broker.metadata.brokers.get(self._broker.node_id)
        return known is not None and known.epoch == self._broker.broker_epoch and not known.fenced

    async def _introduce(self) -> None:
        """What the controller must be told once in each life."""
        try:
            await self._say_recovered()
            await self.say_directories()
            self._is_introduced = True
        except KafkaError as error:
            self._complain("the controller does not know all about its replicas", error)

    def _about_this_broker(self, previous_epoch: int) -> BrokerRegistrationRequest:
        broker = self._broker
        return BrokerRegistrationRequest(
            broker_id=broker.node_id,
            cluster_id=broker.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                BrokerRegistrationRequest.Listener(
                    name=endpoint.name, host=endpoint.host, port=endpoint.port, security_protocol=endpoint.protocol
                )
                for endpoint in self._advertised
            ],
            features=[
                BrokerRegistrationRequest.Feature(
                    name=feature.name, min_supported_version=feature.first, max_supported_version=feature.last
                )
                for feature in broker.registered_features
            ],
            rack=broker.node.rack,
            log_dirs=list(broker.identity.directory_ids),
            previous_broker_epoch=previous_epoch,
        )

    async def _register(self, previous_epoch: int, timeout_s: float) -> None:
        """CannotJoin if it has not succeeded in time, or never will. What was said twice because nobody knows whether
        it was heard counts once: it is the same life."""
        broker, registration = self._broker, self._about_this_broker(previous_epoch)
        until = broker.clock.now() + timeout_s
        while True:
            left_s = until - broker.clock.now()
            try:
                answer = await self._ask(registration, max(left_s, AGAIN_S))
            except (DuplicateBrokerRegistration, RequestTimedOut) as error:
                if left_s <= 0:
                    raise CannotJoin(_why_not(broker.node_id, error)) from None
                await trio.sleep(AGAIN_S)
            except KafkaError as error:
                raise CannotJoin(f"the controller does not take broker {broker.node_id}: {error.name}") from None
            else:
                broker.broker_epoch = answer.broker_epoch
                self._is_introduced = False
                return

    async def _register_again(self) -> None:
        """In the same process, whose logs have lost nothing: that is a clean restart if nobody had the id meanwhile."""
        try:
            await self._register(self._broker.broker_epoch, self._session_s)
        except CannotJoin as error:
            self._complain("its registration is gone", error)

    # -- staying -------------------------------------------------------------------------------------------------------

    async def _stay(self) -> None:
        """A heartbeat now and then. Nothing that it is told ends the broker: a leader without a controller may go on
        with what it leads (I15)."""
        while True:
            await trio.sleep(max(self._broker.config[BROKER_HEARTBEAT_INTERVAL_MS] / 1000, CATCH_UP_S))
            if self.has_left:
                return
            try:
                await self._heartbeat()
            except StaleBrokerEpoch:
                await self._register_again()
            except KafkaError as error:
                self._complain("its heartbeat has no answer", error)
            if self._is_let_in and not self._is_introduced:
                await self._introduce()

    async def _heartbeat(self, *, wants_to_stop: bool = False, timeout_s: float | None = None) -> Any:
        """With what is true now. Disks that failed are told with it; a broker that has none left wants to be fenced, if
        there are others."""
        broker = self._broker
        offline = [
            directory.meta.directory_id
            for directory in broker.data_directories
            if directory.failure is not None and directory.meta is not None and directory.meta.directory_id is not None
        ]
        has_none = len(offline) == len(broker.data_directories)
        request = BrokerHeartbeatRequest(
            broker_id=broker.node_id,
            broker_epoch=broker.broker_epoch,
            current_metadata_offset=broker.metadata.offset,
            want_fence=has_none and len(broker.metadata.brokers) > 1,
            want_shut_down=wants_to_stop,
            offline_log_dirs=[] if has_none else offline,
        )
        answer = await self._ask(request, self._session_s if timeout_s is None else timeout_s)
        assert isinstance(answer, BrokerHeartbeatResponse)
        return answer

    @property
    def _session_s(self) -> float:
        """How long an answer is waited for: after that, it is fenced anyway."""
        return max(self._broker.config[BROKER_SESSION_TIMEOUT_MS] / 1000, AGAIN_S)

    async def _ask(self, request: Request, timeout_s: float) -> Any:
        # With a connection of its own: no heartbeat waits behind somebody's slow question.
        answer: Any = await self._broker.controller.ask(request, timeout_s=timeout_s, purpose="membership")
        if answer.error_code != NONE:
            raise error_class(answer.error_code)()
        return answer

    def _complain(self, what: str, error: Exception) -> None:
        now = self._broker.clock.now()
        if now - self._complained >= COMPLAINT_S:
            self._complained = now
            why = error.name if isinstance(error, KafkaError) else str(error)
            log.warning("broker %d: %s: %s", self._broker.node_id, what, why)

    # -- leaving -------------------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """The controlled shutdown, while the broker still serves. It goes without leave if that takes too long, or if
        there is no controller, nor another broker that could lead in its place once there is one."""
        broker = self._broker
        if self.has_left or broker.broker_epoch == NOT_REGISTERED:
            return
        self.has_left = True
        if not broker.config[CONTROLLED_SHUTDOWN_ENABLE]:
            return
        with trio.move_on_after(broker.config[CONTROLLED_SHUTDOWN_TIMEOUT_MS] / 1000):
            try:
                while True:
                    if await self._is_let_go():
                        return
                    await trio.sleep(SHUT_DOWN_S)
            except KafkaError as error:
                log.warning("broker %d stops without saying so: %s", broker.node_id, error.name)
                return
        log.warning("broker %d stops, and may still lead partitions", broker.node_id)

    async def _is_let_go(self) -> bool:
        broker = self._broker
        try:
            told = await self._heartbeat(wants_to_stop=True, timeout_s=UNREACHABLE_S)
        except RequestTimedOut as error:
            if not broker.alive - {broker.node_id}:
                raise
            self._complain("it waits for a controller before it stops", error)
            return False
        return bool(told.should_shut_down)

    # -- what else the controller is told ------------------------------------------------------------------------------

    async def _say_recovered(self) -> None:
        """After an unclean stop the controller takes partitions for damaged until their leader says otherwise. Recovery
        has run when the logs were opened, so there is nothing to wait for. A leader that has followers says it with
        its ISR (replication/isr_proposals.py); this is for those that stand alone."""
        broker = self._broker
        recovering = [
            (topic, partition)
            for topic, partition in broker.metadata.topics.partitions()
            if partition.leader == broker.node_id
            and partition.replicas == (broker.node_id,)
            and partition.leader_recovery_state is RecoveryState.RECOVERING
        ]
        if recovering:
            request = AlterPartitionRequest(
                broker_id=broker.node_id,
                broker_epoch=broker.broker_epoch,
                topics=[
                    AlterPartitionRequest.Topic(topic_id=topic.topic_id, partitions=[_recovered(broker, partition)])
                    for topic, partition in recovering
                ],
            )
            await self._ask(request, self._session_s)

    async def say_directories(self) -> None:
        """Where each replica is, if the metadata does not know it, or knows it otherwise. An older cluster never
        asks."""
        broker = self._broker
        if broker.metadata.features.metadata_version < DIRECTORIES_SINCE:
            return
        moved: dict[bytes, list[tuple[Topic, Partition]]] = {}
        places = _places(broker)
        for topic, partition in broker.metadata.topics.partitions():
            place = places.get(TopicPartition(topic.name, partition.index))
            is_mine = broker.node_id in partition.replicas
            if place is not None and is_mine and partition.directory(broker.node_id) != place:
                moved.setdefault(place, []).append((topic, partition))
        if not moved:
            return
        request = AssignReplicasToDirsRequest(
            broker_id=broker.node_id,
            broker_epoch=broker.broker_epoch,
            directories=[
                AssignReplicasToDirsRequest.Directory(id=place, topics=_topics(found))
                for place, found in sorted(moved.items())
            ],
        )
        await self._ask(request, self._session_s)


def _why_not(node_id: int, error: KafkaError) -> str:
    if isinstance(error, DuplicateBrokerRegistration):
        return f"another broker {node_id} is alive in this cluster; no two nodes share a node.id"
    return f"broker {node_id} has found no active controller that would take it"


def _recovered(broker: "Broker", partition: Partition) -> AlterPartitionRequest.Topic.Partition:
    told = AlterPartitionRequest.Topic.Partition
    return told(
        partition_index=partition.index,
        leader_epoch=partition.leader_epoch,
        new_isr_with_epochs=[told.NewIsrWithEpoch(broker_id=broker.node_id, broker_epoch=broker.broker_epoch)],
        leader_recovery_state=RecoveryState.RECOVERED,
        partition_epoch=partition.partition_epoch,
    )


def _places(broker: "Broker") -> dict[TopicPartition, bytes]:
    return {
        name: directory.meta.directory_id
        for directory in broker.directories
        for name in list(directory.logs)  # a worker thread may be making others
        if directory.meta is not None and directory.meta.directory_id is not None
    }


def _topics(found: Sequence[tuple[Topic, Partition]]) -> list[AssignReplicasToDirsRequest.Directory.Topic]:
    told = AssignReplicasToDirsRequest.Directory.Topic
    by_topic: dict[bytes, list[int]] = {}
    for topic, partition in found:
        by_topic.setdefault(topic.topic_id, []).append(partition.index)
    return [
        told(topic_id=topic_id, partitions=[told.Partition(partition_index=index) for index in indexes])
        for topic_id, indexes in by_topic.items()
    ]
