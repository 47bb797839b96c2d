"""How this broker joins its cluster, stays in it, and leaves it. All requests go to the active controller.

register     identity and endpoints; the response has the broker epoch, and the broker is fenced. While the session of
             its former process lasts, registration is refused and tried again. The broker takes up its replicas when
             it has replayed the registration: it leads nothing from before
heartbeat    liveness and the replayed metadata offset. Once the broker has replayed its registration (K9) it is
             unfenced, as is one that was fenced for missing heartbeats. A broker with a stale epoch was unregistered,
             or another took its id: it registers again
recovered    recovery after an unclean shutdown is complete, and the content of the logs is known
directories  the log directory of each replica, where the controller left the choice to the broker
leave        controlled shutdown: other replicas take over, and the cluster knows the new leaders, before the broker
             stops. It is fenced then, so that its next start need not wait for the session to end
"""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster.image.brokers import NOT_REGISTERED
from trioka.cluster.image.partition import Partition, RecoveryState
from trioka.cluster.image.topics import Topic
from trioka.cluster.quorum.metadata_log import DIRECTORIES_SINCE
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
from trioka.storage.files.layout import TopicPartition

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

CATCH_UP_S: Final = 0.02  # between heartbeats of a broker that waits to be unfenced
AGAIN_S: Final = 0.2  # before a rejected registration is repeated
# Pauses between heartbeats of a broker that waits for its controlled shutdown, each twice the one before. On a single
# node the second heartbeat ends the wait.
FIRST_SHUT_DOWN_S: Final = 0.002
SHUT_DOWN_S: Final = 0.05
UNREACHABLE_S: Final = 3.0  # without a controller for so long, a broker stops even without a successor
WARN_INTERVAL_S: Final = 30.0  # between two log lines about an unreachable controller


class JoinRefused(Exception):
    """The cluster rejects this broker; the message gives the reason."""


class Membership:
    def __init__(self, broker: "Broker") -> None:
        self.incarnation_id = broker.random.randbytes(16)  # of this process
        self.has_joined = False  # it was unfenced once; from then on it coordinates the partitions that it leads
        self.has_left = False
        self._broker = broker
        self._advertised: tuple[Endpoint, ...] = ()
        self._warned = -WARN_INTERVAL_S
        self._has_reported = False

    # -- joining -------------------------------------------------------------------------------------------------------

    async def register(self, advertised: Iterable[Endpoint]) -> None:
        """Registers, and returns when this node has replayed the registration. Until then the metadata may still name
        this broker as leader in an epoch before its restart, whose last records it may have lost: it must not adopt
        replicas yet."""
        broker = self._broker
        self._advertised = tuple(advertised)
        timeout_s = broker.config[INITIAL_BROKER_REGISTRATION_TIMEOUT_MS] / 1000
        await self._register(broker.identity.previous_broker_epoch, timeout_s)
        while broker.metadata.offset < broker.broker_epoch:
            broker.quorum.check()
            await broker.quorum.moved.wait()

    async def join(self) -> None:
        """Returns when the broker is unfenced."""
        broker = self._broker
        while True:
            try:
                await self._heartbeat()
            except StaleBrokerEpoch:
                await self._register_again()
            except KafkaError as error:
                self._warn_once("not registered yet", error)
            if self._is_unfenced:
                break
            await trio.sleep(CATCH_UP_S)
        await self._report_to_controller()
        self.has_joined = True
        broker.nursery.start_soon(self._send_heartbeats)

    @property
    def _is_unfenced(self) -> bool:
        """Whether this broker has replayed that it was unfenced."""
        known = self._broker.metadata.brokers.get(self._broker.node_id)
        return known is not None and known.epoch == self._broker.broker_epoch and not known.fenced

    async def _report_to_controller(self) -> None:
        """Reports to the controller once per registration."""
        try:
            await self._report_recovered()
            await self.report_directories()
            self._has_reported = True
        except KafkaError as error:
            self._warn_once("not all replica directories are reported to the controller", error)

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
        """Sends the registration. Raises JoinRefused if it is rejected finally or not accepted in time. A repeated
        request counts once, because it has the same incarnation id."""
        broker, registration = self._broker, self._about_this_broker(previous_epoch)
        until = broker.clock.now() + timeout_s
        while True:
            left_s = until - broker.clock.now()
            try:
                answer = await self._send(registration, max(left_s, AGAIN_S))
            except (DuplicateBrokerRegistration, RequestTimedOut) as error:
                if left_s <= 0:
                    raise JoinRefused(_join_error_text(broker.node_id, error)) from None
                await trio.sleep(AGAIN_S)
            except KafkaError as error:
                raise JoinRefused(f"the controller refused broker {broker.node_id}: {error.name}") from None
            else:
                broker.broker_epoch = answer.broker_epoch
                self._has_reported = False
                return

    async def _register_again(self) -> None:
        """Registers again in the same process, whose logs are complete: this is a clean restart if no other broker has
        used the id meanwhile."""
        try:
            await self._register(self._broker.broker_epoch, self._session_s)
        except JoinRefused as error:
            self._warn_once("the registration was lost", error)

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        """Sends heartbeats. No response ends the broker: a leader without a controller may continue with its partitions
        (I15)."""
        while True:
            await trio.sleep(max(self._broker.config[BROKER_HEARTBEAT_INTERVAL_MS] / 1000, CATCH_UP_S))
            if self.has_left:
                return
            try:
                await self._heartbeat()
            except StaleBrokerEpoch:
                await self._register_again()
            except KafkaError as error:
                self._warn_once("no response to the heartbeat", error)
            if self._is_unfenced and not self._has_reported:
                await self._report_to_controller()

    async def _heartbeat(self, *, wants_to_stop: bool = False, timeout_s: float | None = None) -> Any:
        """A heartbeat with the current state, including failed directories. A broker without working directories asks
        to be fenced, if there are other brokers."""
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
        answer = await self._send(request, self._session_s if timeout_s is None else timeout_s)
        assert isinstance(answer, BrokerHeartbeatResponse)
        return answer

    @property
    def _session_s(self) -> float:
        """The timeout of a heartbeat: after the session timeout, the broker is fenced anyway."""
        return max(self._broker.config[BROKER_SESSION_TIMEOUT_MS] / 1000, AGAIN_S)

    async def _send(self, request: Request, timeout_s: float) -> Any:
        # Heartbeats have their own connection, so none waits behind a slow request.
        answer: Any = await self._broker.controller.send_request(request, timeout_s=timeout_s, purpose="membership")
        if answer.error_code != NONE:
            raise error_class(answer.error_code)()
        return answer

    def _warn_once(self, what: str, error: Exception) -> None:
        now = self._broker.clock.now()
        if now - self._warned >= WARN_INTERVAL_S:
            self._warned = now
            why = error.name if isinstance(error, KafkaError) else str(error)
            log.warning("broker %d: %s: %s", self._broker.node_id, what, why)

    # -- controlled shutdown -------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """The controlled shutdown, while the broker still serves. It is given up after its timeout, or if there is
        neither a controller nor another broker that could take over."""
        broker = self._broker
        if self.has_left or broker.broker_epoch == NOT_REGISTERED:
            return
        self.has_left = True
        if not broker.config[CONTROLLED_SHUTDOWN_ENABLE]:
            return
        with trio.move_on_after(broker.config[CONTROLLED_SHUTDOWN_TIMEOUT_MS] / 1000):
            pause_s = FIRST_SHUT_DOWN_S
            try:
                while True:
                    if await self._may_shut_down():
                        return
                    await trio.sleep(pause_s)
                    pause_s = min(2 * pause_s, SHUT_DOWN_S)
            except KafkaError as error:
                log.warning("broker %d stops without a controlled shutdown: %s", broker.node_id, error.name)
                return
        log.warning("broker %d stops while it may still lead partitions", broker.node_id)

    async def _may_shut_down(self) -> bool:
        broker = self._broker
        try:
            response = await self._heartbeat(wants_to_stop=True, timeout_s=UNREACHABLE_S)
        except RequestTimedOut as error:
            if not broker.alive - {broker.node_id}:
                raise
            self._warn_once("waiting for a controller before stopping", error)
            return False
        return bool(response.should_shut_down)

    # -- other reports to the controller -------------------------------------------------------------------------------

    async def _report_recovered(self) -> None:
        """After an unclean shutdown the controller considers partitions damaged until their leader reports otherwise.
        Recovery ran when the logs were opened, so there is nothing to wait for. A leader with followers reports it with
        its ISR (replication/isr_proposals.py); this report is for unreplicated partitions."""
        broker = self._broker
        recovering = [
            (topic, partition)
            for topic, partition in broker.metadata.topics.partitions()
            if partition.leader == broker.node_id
            and partition.replicas == (broker.node_id,)
            and partition.leader_recovery_state is RecoveryState.RECOVERING
            and not _is_deferred(broker, topic.name, partition.index)
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
            await self._send(request, self._session_s)

    async def report_directories(self) -> None:
        """Reports the directories of replicas that the metadata does not have, or has otherwise. Clusters with an older
        metadata version do not need it."""
        broker = self._broker
        if broker.metadata.features.metadata_version < DIRECTORIES_SINCE:
            return
        moved: dict[bytes, list[tuple[Topic, Partition]]] = {}
        places = _directory_ids(broker)
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
        await self._send(request, self._session_s)


def _join_error_text(node_id: int, error: KafkaError) -> str:
    if isinstance(error, DuplicateBrokerRegistration):
        return f"another broker {node_id} is alive in this cluster; no two nodes share a node.id"
    return f"broker {node_id} found no active controller to register with"


def _is_deferred(broker: "Broker", topic: str, index: int) -> bool:
    """Whether the replica is restored from the object store before it leads (tier/memory_restore.py)."""
    replica = broker.partitions.find(topic, index)
    return replica is not None and replica.deferred is not None


def _recovered(broker: "Broker", partition: Partition) -> AlterPartitionRequest.Topic.Partition:
    response = AlterPartitionRequest.Topic.Partition
    return response(
        partition_index=partition.index,
        leader_epoch=partition.leader_epoch,
        new_isr_with_epochs=[response.NewIsrWithEpoch(broker_id=broker.node_id, broker_epoch=broker.broker_epoch)],
        leader_recovery_state=RecoveryState.RECOVERED,
        partition_epoch=partition.partition_epoch,
    )


def _directory_ids(broker: "Broker") -> dict[TopicPartition, bytes]:
    return {
        name: directory.meta.directory_id
        for directory in broker.directories
        for name in list(directory.logs)  # a worker thread may be making others
        if directory.meta is not None and directory.meta.directory_id is not None
    }


def _topics(found: Sequence[tuple[Topic, Partition]]) -> list[AssignReplicasToDirsRequest.Directory.Topic]:
    response = AssignReplicasToDirsRequest.Directory.Topic
    by_topic: dict[bytes, list[int]] = {}
    for topic, partition in found:
        by_topic.setdefault(topic.topic_id, []).append(partition.index)
    return [
        response(topic_id=topic_id, partitions=[response.Partition(partition_index=index) for index in indexes])
        for topic_id, indexes in by_topic.items()
    ]
