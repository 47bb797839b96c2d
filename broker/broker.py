"""The broker: builds its parts, starts them in order, and stops them in reverse order.

    start   log directories (locked, loaded) → metadata (replayed, a new epoch led) → registration
            → replicas (adopted or created) → unfenced → sockets
    stop    sockets closed to new clients → requests finished → logs made durable → the clean shutdown marker, last

Handlers find all parts here. `metadata` is the state of the cluster; only `quorum.change` changes it.
"""

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, Final

import trio

from trioka.cluster.controller.producer_ids import ProducerIdBlock
from trioka.cluster.image.brokers import NOT_REGISTERED, FeatureRange
from trioka.cluster.image.configs import ALL_BROKERS, ConfigResource, ConfigResourceType, topic_resource
from trioka.cluster.image.features import LOG_DIR_CLASS_FEATURE, NOT_SERVED, SUPPORTED
from trioka.cluster.image.image_delta import Change, ConfigChanged, PartitionChanged, TopicDeleted
from trioka.cluster.image.metadata import Metadata
from trioka.cluster.replication.purgatory import DelayedOperation, Purgatory
from trioka.cluster.settings import ControllerSettings
from trioka.protocol.errors import NONE, CoordinatorLoadInProgress, KafkaError, KafkaStorageError, error_class
from trioka.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.storage.directory import LogDirectory
from trioka.storage.files.disk import Disk
from trioka.storage.files.layout import TopicPartition
from trioka.storage.files.sync import GroupCommits
from trioka.storage.log_config import LogConfig

from .api import CONTROLLER
from .clock import Clock
from .config.controller_rules import DeclaredRules
from .config.layers import Config, log_config
from .config.listeners import Node
from .config.log_keys import LOG_INITIAL_TASK_DELAY_MS
from .config.network_keys import (
    CONNECTIONS_MAX_IDLE_MS,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    REQUEST_TIMEOUT_MS,
)
from .config.node_keys import (
    AUTO_CREATE_TOPICS_ENABLE,
    DEFAULT_REPLICATION_FACTOR,
    DELETE_TOPIC_ENABLE,
    NUM_PARTITIONS,
)
from .config.topic_keys import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION_ENABLE
from .config.trioka_keys import TIER_URL
from .controller.active import ActiveController
from .controller.client import ControllerClient
from .controller.topic_creation import create_topics
from .coordinators.leadership import CoordinatorLeadership
from .coordinators.producer_ids import ProducerIds
from .counters.logins import LoginCounts
from .counters.traffic import BrokerCounters
from .fastpath.coalescer import ProduceCoalescer
from .logs.recovery_report import log_recovery
from .membership.identity import Identity
from .membership.lifecycle import Membership
from .membership.log_directories import LogDirectoriesOffline, LogDirs, fatal_reason, of_partitions, open_directories
from .metadata.response_cache import MetadataResponseCache
from .metadata.schema_ids import schema_ids_of
from .network.connection_factory import Connections
from .network.descriptors import free_descriptors
from .network.dispatch import Dispatch
from .network.limits.admission import Admission
from .network.listeners import ListenerManager
from .network.server import SocketServer
from .peers.peer import Peers
from .quorum.driver import Quorum
from .quorum.startup import join_quorum
from .quorum.store import QuorumStore
from .replication.applier import MetadataApplier
from .replication.cold_reads import ColdReads
from .replication.fetch_sessions.cache import FetchSessions
from .replication.log_dir_moves import LogDirMoves
from .replication.partitions import Partitions
from .replication.transitions import ReplicaTransitions
from .security.client_quotas import ClientQuotas
from .security.guard import guard_of
from .security.tls.peer_security import NodeSecurity

if TYPE_CHECKING:
    from trioka.coordinator.groups import GroupCoordinator

    from .controller.forwarding import Forwarding
    from .coordinators.runtime import CoordinatorRuntime
    from .coordinators.transactions import TransactionRuntime
    from .coordinators.txn_verification import TxnVerifier
    from .quorum.remote import QuorumClient
    from .security.sasl.logins import Logins
    from .security.sasl.token_credentials import DelegationTokens
    from .tier.tiered_storage import TieredStorage

log = logging.getLogger("trioka.broker")
lifecycle = logging.getLogger("trioka.lifecycle")

FETCH_SESSION_EVICTION_MS: Final = 120_000  # min.incremental.fetch.session.eviction.ms of Kafka, which is no key
QUIET_S: Final = 10.0  # a connection without requests for so long releases its large buffers
IDLE_CHECK_S: Final = 5.0
FINISH_CHECK_S: Final = 0.01
FAILED_LEAVE_S: Final = 3.0
STOP_S: Final = 1.0  # how long requests in progress may take when the broker stops


def client_id_of(node_id: int) -> str:
    """In requests of this node to others."""
    return f"trioka-{node_id}"


class Broker:
    def __init__(self, config: Config, node: Node, *, disk: Disk, clock: Clock, random: Random) -> None:
        self.config = config
        self.node = node
        self.node_id = node.id
        self.clock = clock
        self.random = random
        self.supported_features: dict[str, FeatureRange] = dict(SUPPORTED)
        self.schema_ids = schema_ids_of(config, clock.now)
        self.partitions = Partitions(self._has_other_replicas)
        self.purgatory = Purgatory()
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.fetch_sessions = FetchSessions(
            config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS], FETCH_SESSION_EVICTION_MS, random
        )
        self.cold_reads = ColdReads()
        self.guard = guard_of(self)
        self.coalescer = ProduceCoalescer(self)
        self.metadata_response_cache = MetadataResponseCache()
        self.dispatch = Dispatch(self)
        self.controller_dispatch = Dispatch(self, CONTROLLER)
        self.client_id = client_id_of(node.id)
        self.node_security = NodeSecurity(node, lambda: self.config)
        self.node_security.check()
        self.peers = Peers(self.client_id, security=self.node_security.of)
        self.controller = ControllerClient(self)
        self.connections = Connections(self)
        self.login_counts: dict[str, LoginCounts] = {}  # by listener
        waits = (self.coalescer, self.purgatory)
        self.network = SocketServer(self.connections.new, self.connections.gone, clock.now, *waits)
        self.admission = Admission(self)
        self.network.may_hold_loop = lambda: not (self.dispatch.running or self.replication.is_following)
        self.network.on_round = self.dispatch.times.settle
        self.client_quotas = ClientQuotas(config, clock)
        self.listener_manager = ListenerManager(self)
        self.counts = BrokerCounters()
        self.directories: list[LogDirectory] = []
        self.broker_epoch = NOT_REGISTERED
        self.membership = Membership(self)
        self.active_controller = ActiveController(self)
        self.coordination = CoordinatorLeadership(self)
        self.tier: TieredStorage | None = None  # if trioka.tier.url is set, once the broker has joined
        self.replication = ReplicaTransitions(self)
        self.nursery: trio.Nursery
        self.quorum: Quorum
        self.commit: GroupCommits
        self.identity: Identity
        self.applier: MetadataApplier
        self.moves: LogDirMoves
        self._is_telling = False  # a task reports the directories of replicas
        self._disk = disk
        self._timer = trio.CancelScope()
        self._stopping = trio.Event()
        self._ready = trio.Event()
        self._life = trio.CancelScope(shield=True)
        self._has_lived = self._is_dead = False
        self.quorum_client: QuorumClient | None = None
        self._quorum_store: QuorumStore
        self.stopped = trio.Event()  # set when everything is closed and durable
        self.failure: LogDirectoriesOffline | None = None  # why this node ended
        self._loop: trio.lowlevel.TrioToken

    # -- for handlers --------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> Metadata:
        return self.quorum.metadata

    @property
    def is_joined(self) -> bool:
        """Whether the logs are loaded and the broker has joined the cluster."""
        return self.broker_epoch != NOT_REGISTERED

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    @property
    def auto_create_topics(self) -> bool:
        return self.config[AUTO_CREATE_TOPICS_ENABLE]

    def auto_create_partitions(self, topic: str) -> int:
        return self.config[NUM_PARTITIONS]

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.metadata.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def _has_other_replicas(self, topic: str, topic_id: bytes, index: int) -> bool:
        """Whether other brokers have the partition and this one does not."""
        topics = self.metadata.topics
        found = topics.by_name(topic) if topic else topics.by_id(topic_id)
        partition = None if found is None else found.partitions.get(index)
        return partition is not None and self.node_id not in partition.replicas

    @property
    def registered_features(self) -> list[FeatureRange]:
        """The features in the registration. Clients see only `supported_features`."""
        of_memory = [LOG_DIR_CLASS_FEATURE] if self.node.memory_log_dirs else []
        return [*self.supported_features.values(), *NOT_SERVED.values(), *of_memory]

    def is_client_id_of_broker(self, client_id: str | None) -> bool:
        """Whether requests with this client id come from a broker. It is no proof of identity."""
        return any(client_id == client_id_of(registered.broker_id) for registered in self.metadata.brokers)

    @property
    def alive(self) -> set[int]:
        return {broker.broker_id for broker in self.metadata.brokers if not broker.fenced}

    def endpoints(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """The brokers at this listener: id, host, port, rack."""
        found = []
        for broker in self.metadata.brokers:
            address = broker.listener(listener)
            if address is not None and not broker.fenced:
                found.append((broker.broker_id, address.host, address.port, broker.rack))
        return found

    @cached_property
    def groups(self) -> "CoordinatorRuntime[GroupCoordinator]":
        """The groups that this broker coordinates."""
        from .coordinators.groups import new_group_runtime

        return new_group_runtime(self)

    @cached_property
    def transactions(self) -> "TransactionRuntime":
        """The transactional ids that this broker coordinates."""
        from .coordinators.transactions import new_transaction_runtime

        return new_transaction_runtime(self)

    @cached_property
    def forwarding(self) -> "Forwarding":
        """Forwards the requests that only the active controller serves."""
        from .controller.forwarding import Forwarding

        return Forwarding(self)

    @cached_property
    def logins(self) -> "Logins":
        """SASL logins of clients."""
        from .security.sasl.logins import Logins

        return Logins(self)

    @cached_property
    def tokens(self) -> "DelegationTokens":
        from .security.sasl.token_credentials import DelegationTokens

        return DelegationTokens(self)

    @cached_property
    def verification(self) -> "TxnVerifier":
        """Verification of the first writes of transactions."""
        from .coordinators.txn_verification import TxnVerifier

        return TxnVerifier(self)

    def topic_log_config(self, topic: str) -> LogConfig:
        return log_config(self.config.topic(self.metadata.configs.get(topic_resource(topic))))

    def min_in_sync(self, topic: str) -> int:
        return self.config.topic(self.metadata.configs.get(topic_resource(topic)))[MIN_INSYNC_REPLICAS]

    def park(self, waiter: DelayedOperation, keys: Iterable[Hashable], deadline: float) -> None:
        """Parks a request until one of its keys is notified or its deadline is reached."""
        self.purgatory.park(waiter, keys, deadline)
        if deadline < self._timer.deadline:
            self._timer.deadline = deadline

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Runs the node. Reports "started" when clients can be served. Ends after `stop` or a cancellation, with a
        clean shutdown in both cases, but only `stop` lets requests in progress finish. Raises LogDirectoriesOffline if
        the node cannot continue. Cancellation does not reach its tasks: the shutdown needs quorum and network."""
        self._loop = trio.lowlevel.current_trio_token()
        self.directories, self.identity, self._quorum_store = await trio.to_thread.run_sync(self._open_directories)
        log_recovery(self.directories)
        try:
            async with trio.open_nursery() as outer:
                outer.start_soon(self._live)
                try:
                    await self._ready.wait()
                    task_status.started()
                    lifecycle.info("the broker is ready: node %d, epoch %d", self.node_id, self.broker_epoch)
                    await self._stopping.wait()
                    lifecycle.info("the broker stops: node %d", self.node_id)
                    if not self._is_dead:
                        with trio.move_on_after(self._leave_s):
                            await self._hand_over()
                        await self._finish()
                finally:
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + self._leave_s):
                        await self._leave()
                    self._life.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._close_directories)
            lifecycle.info("the broker has stopped: node %d", self.node_id)
            self.stopped.set()
        if self.failure is not None:
            raise self.failure

    @property
    def _leave_s(self) -> float:
        """How long the controlled shutdown may take. A failed node serves no clients meanwhile."""
        return inf if self.failure is None else FAILED_LEAVE_S

    async def _live(self) -> None:
        with self._life:
            try:
                async with trio.open_nursery() as nursery:
                    self.nursery = nursery
                    pools = [directory.files for directory in self.directories]
                    self.commit = GroupCommits(nursery, pools, partial(free_descriptors, pools))
                    nursery.start_soon(self.network.serve)
                    nursery.start_soon(self._expire)
                    nursery.start_soon(self._close_idle_connections)
                    await self._join()
                    nursery.start_soon(self._start_background)
                    self._ready.set()
            finally:
                self._has_lived = True
                self.peers.close()
                self.admission.close()
                self.listener_manager.close()

    def stop(self) -> None:
        self._stopping.set()
        self._ready.set()  # it may be stopped while it still looks for its cluster

    def die(self) -> None:
        """Stops as if the process had been killed: without controlled shutdown or flush."""
        self._has_lived = self._is_dead = True
        self._life.cancel()
        self.stop()

    async def _hand_over(self) -> None:
        """Controlled shutdown: other brokers take over leadership first. If there are none, clients are served to the
        end."""
        if self.membership.has_joined and self.alive - {self.node_id}:
            await self.membership.leave()

    async def _finish(self) -> None:
        """Accept no new connections; requests in progress complete, within a limit."""
        self.network.stop_listening(self.node.controller_names)
        with trio.move_on_after(STOP_S):
            while self.dispatch.running or self.network.is_busy:  # noqa: ASYNC110 - two things, and once in a life
                await trio.sleep(FINISH_CHECK_S)

    async def create_missing_topics(self, topics: Mapping[str, int]) -> dict[str, str]:
        """Creates those topics that do not exist yet, with these numbers of partitions. Returns the error of each that
        was not created."""
        wanted = [
            CreateTopicsRequest.Topic(
                name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=[]
            )
            for name, partitions in topics.items()
            if self.metadata.topics.by_name(name) is None
        ]
        return await create_topics(self, wanted) if wanted else {}

    async def create_internal_topic(self, topic: CreateTopicsRequest.Topic) -> dict[str, str]:
        """Returns the reason if it was not created."""
        return await create_topics(self, [topic])

    @property
    def data_directories(self) -> list[LogDirectory]:
        """The directories of log.dirs. The metadata log may have one of its own, without partitions."""
        return of_partitions(self.directories, self.node)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """The bound address of each listener, with a real port where 0 was configured."""
        return self.listener_manager.addresses

    @property
    def controller_addresses(self) -> dict[str, tuple[str, int]]:
        """The same for the controller's listeners."""
        return {endpoint.name: (endpoint.host, endpoint.port) for endpoint in self.quorum.endpoints}

    def _open_directories(self) -> LogDirs:
        return open_directories(self._disk, self.config, self.node, self.clock, self.random, self._offline)

    def _close_directories(self) -> None:
        # A broker that never joined has changed nothing since the last shutdown.
        epoch = self.identity.previous_broker_epoch if self.broker_epoch == NOT_REGISTERED else self.broker_epoch
        for directory in self.directories:
            try:
                directory.close_handles() if self._is_dead else directory.close(broker_epoch=epoch)
            except KafkaStorageError as error:  # the next start recovers it; the other logs can be closed cleanly
                log.error("log directory %s was not closed cleanly: %s", directory.path, error)

    def _offline(self, error: OSError) -> None:
        """Stops the broker; thread-safe."""
        log.error("a log directory is offline: %s", error)
        with suppress(trio.RunFinishedError):
            self._loop.run_sync_soon(self._check_directories)

    def _check_directories(self) -> None:
        reason = fatal_reason(self.directories, self.node)
        if reason is not None:
            self.fail(reason)

    def on_metadata_lost(self, error: KafkaError) -> None:
        """This node can no longer write the metadata, usually because a directory is offline: that error is reported
        first."""
        self._check_directories()
        self.fail(f"the metadata log can no longer be written: {error}")

    def fail(self, reason: str) -> None:
        """This node cannot continue: it stops, as orderly as it still can, and `run` raises."""
        if self.failure is None:
            log.error("this node ends: %s", reason)
            self.failure = LogDirectoriesOffline(reason)
            self.stop()

    async def _join(self) -> None:
        """Joins the quorum, catches up with the metadata, applies it to the replicas, and is unfenced."""
        self.listener_manager.size_buffers()
        await join_quorum(self, self._quorum_store)
        if not self.node.is_broker:
            return
        self.listener_manager.bind()
        if any(endpoint.protocol.sasl for endpoint in self.node.listeners):
            await self.logins.fetch_keys()
        await self.membership.register(self.listener_manager.advertised_endpoints())
        async with self.quorum.applying:
            self.config = self._with_dynamic_layers()
            self.applier = MetadataApplier(
                node_id=self.node_id,
                directories=self.data_directories,
                partitions=self.partitions,
                log_config=self.topic_log_config,
                min_in_sync=self.min_in_sync,
                context=self.replication,
                clock=self.clock,
                random=self.random,
            )
            self.moves = LogDirMoves(self)
            unfinished = self.moves.unfinished()
            await self.applier.adopt_all(self.metadata)
            self.connections.apply_quotas()
            self.quorum.act_with(self._act)
        await self.membership.join()
        self.listener_manager.open()
        self.coordination.begin()
        if self.config[TIER_URL] is not None:
            await self._start_tier()
        await self.moves.resume(unfinished)

    async def _start_tier(self) -> None:
        """Tiered storage, with the libraries that it needs. A node whose object store cannot be used ends."""
        loaded = await trio.to_thread.run_sync(import_module, ".tier.startup", __package__)
        try:
            self.tier = await loaded.open_tiered_storage(self)
        except loaded.ObjectStoreRefused as error:
            self.fail(str(error))
            return
        self.nursery.start_soon(self.tier.run)

    async def _start_background(self) -> None:
        """Starts background maintenance after the start; its modules are loaded in a thread."""
        await trio.sleep(self.config[LOG_INITIAL_TASK_DELAY_MS] / 1000)
        loaded = await trio.to_thread.run_sync(import_module, ".background", __package__)
        await loaded.LogMaintenance(self).run()

    async def _leave(self) -> None:
        """Shuts down the parts that were started, as far as the disk allows."""
        if self._has_lived:
            return  # the tasks of a controlled shutdown have ended already
        await self.membership.leave()
        if "quorum" in vars(self) and not self._has_lived:  # it may have failed meanwhile
            self.quorum.resign()
        if self.quorum_client is not None:
            with trio.move_on_after(STOP_S):
                await self.quorum_client.send_resignation()

    def controller_settings(self) -> ControllerSettings:
        """The texts of server.properties. The controller finds dynamic keys in the metadata."""
        static = Config(self.config.static)
        return ControllerSettings(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            num_partitions=static[NUM_PARTITIONS],
            default_replication_factor=static[DEFAULT_REPLICATION_FACTOR],
            min_insync_replicas=static.inherited(MIN_INSYNC_REPLICAS),
            unclean_leader_election_enable=static.inherited(UNCLEAN_LEADER_ELECTION_ENABLE),
            delete_topic_enable=static[DELETE_TOPIC_ENABLE],
            kraft_version=self.quorum.kraft_version,
            voter_ids=tuple(voter.id for voter in self.quorum.raft.voters.latest if voter.id != self.node_id),
            voter_ranges=self.quorum.voter_ranges,
            rules=DeclaredRules(lambda: self.config),
        )

    async def _act(self, changes: Sequence[Change]) -> None:
        """Applies a change of the metadata. The configuration comes first, because new logs use it."""
        layers = (ALL_BROKERS, ConfigResource(ConfigResourceType.BROKER, str(self.node_id)))
        if any(isinstance(change, ConfigChanged) and change.resource in layers for change in changes):
            self.config = self._with_dynamic_layers()
            self.applier.configure_all()
            if self.membership.has_joined:
                self.listener_manager.apply_config()
        self.connections.apply(changes)
        self.counts.note(changes, self.node_id)
        self.coordination.forget_offsets(changes)
        for change in changes:
            if isinstance(change, TopicDeleted):
                await self.moves.call_off_all(change.name)
                self.counts.forget(change.name)
            elif isinstance(change, PartitionChanged) and self.node_id not in change.after.replicas:
                await self.moves.call_off(TopicPartition(change.name, change.index))
        await self.applier.apply(changes)
        if self.membership.has_joined:
            await self.coordination.apply(changes)
        if self.tier is not None:
            self.tier.on_changes(changes)
        if len(self.data_directories) > 1 and any(
            isinstance(change, PartitionChanged) and change.before is None for change in changes
        ):
            self.report_directories_soon()

    def report_directories_soon(self) -> None:
        """Report the directories of new and moved replicas to the controller, in a task: the caller may be applying a
        change, and the next one has to wait for that."""
        if self.broker_epoch != NOT_REGISTERED and not self._is_telling:
            self._is_telling = True
            self.nursery.start_soon(self._report_directories)

    async def _report_directories(self) -> None:
        self._is_telling = False
        try:
            await self.membership.report_directories()
        except KafkaError as error:
            log.warning("could not report replica directories to the controller: %s", error)

    def _with_dynamic_layers(self) -> Config:
        # Copies, because the layers of a configuration are immutable and the metadata changes.
        configs = self.metadata.configs
        cluster = dict(configs.get(ALL_BROKERS))
        broker = dict(configs.get(ConfigResource(ConfigResourceType.BROKER, str(self.node_id))))
        changed = self.config.changed(cluster=cluster, broker=broker)
        for complaint in changed.rejected:
            log.warning("port in use, taking another: %s", complaint)
        return changed

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.broker_epoch)
        try:
            response: Any = await self.controller.send_request(
                request, timeout_s=self.config[REQUEST_TIMEOUT_MS] / 1000
            )
            if response.error_code != NONE:
                raise error_class(response.error_code)()
        except KafkaError as error:
            raise CoordinatorLoadInProgress(error.name) from None  # the producer retries
        return ProducerIdBlock(first=response.producer_id_start, size=response.producer_id_len)

    # -- connections ---------------------------------------------------------------------------------------------------

    async def _close_idle_connections(self) -> None:
        while True:
            await trio.sleep(IDLE_CHECK_S)
            self.network.close_idle(self.config[CONNECTIONS_MAX_IDLE_MS] / 1000, QUIET_S)
            self.client_quotas.expire()

    async def _expire(self) -> None:
        """Answers the requests whose deadline is reached. `park` moves the timer when an earlier deadline is added."""
        while True:
            with trio.CancelScope() as self._timer:
                deadline = self.purgatory.next_deadline()
                self._timer.deadline = inf if deadline is None else deadline
                await trio.sleep_forever()
            self.purgatory.expire(self.clock.now())
