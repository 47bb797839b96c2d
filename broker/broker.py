"""The broker: builds the rooms, starts them in order, and stops them in the other order.

    start   log directories (locked, loaded) → metadata (replayed, a new epoch led) → registration
            → replicas (adopted or made) → let in → sockets
    stop    sockets closed to new clients → requests finished → logs made durable → the clean marker, last

Handlers see the broker as the place where everything can be found. What it knows about the cluster is `metadata`, and
changes there go through `quorum.change`, and in no other way.
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

from trioka.cluster.brokers import NOT_REGISTERED, FeatureRange
from trioka.cluster.configs import ALL_BROKERS, Resource, ResourceType, topic_resource
from trioka.cluster.features import NOT_SERVED, SUPPORTED
from trioka.cluster.image_delta import Change, ConfigChanged, PartitionChanged, TopicDeleted
from trioka.cluster.metadata import Metadata
from trioka.cluster.producer_ids import ProducerIdBlock
from trioka.cluster.purgatory import Delayed, Waiter
from trioka.cluster.settings import ControllerSettings
from trioka.protocol.errors import NONE, CoordinatorLoadInProgress, KafkaError, KafkaStorageError, error_class
from trioka.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from trioka.protocol.messages.create_topics import CreateTopicsRequest
from trioka.storage.directory import LogDirectory
from trioka.storage.disk import Disk
from trioka.storage.layout import TopicPartition
from trioka.storage.log_config import LogConfig
from trioka.storage.sync import GroupCommits

from .api import CONTROLLER
from .clock import Clock
from .config.controller_rules import DeclaredRules
from .config.layers import Config, log_config
from .config.listeners import Node
from .config.log_keys import LOG_INITIAL_TASK_DELAY_MS
from .config.network_keys import (
    CONNECTIONS_MAX_IDLE_MS,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    QUEUED_MAX_REQUEST_BYTES,
    REQUEST_TIMEOUT_MS,
    SOCKET_RECEIVE_BUFFER_BYTES,
    SOCKET_REQUEST_MAX_BYTES,
    SOCKET_SEND_BUFFER_BYTES,
)
from .config.node_keys import (
    AUTO_CREATE_TOPICS_ENABLE,
    DEFAULT_REPLICATION_FACTOR,
    DELETE_TOPIC_ENABLE,
    NUM_PARTITIONS,
)
from .config.topic_keys import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION_ENABLE
from .controller.active import ActiveController
from .controller.client import ControllerChannel
from .controller.topic_creation import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, create_topics
from .coordinators.producer_ids import ProducerIds
from .counters.traffic import Counts
from .fastpath.coalescer import Together
from .logs.recovery_report import say_recovered
from .membership.identity import Identity
from .membership.lifecycle import Membership
from .membership.log_directories import LogDirectoriesOffline, Opened, of_partitions, open_directories, why_it_must_end
from .metadata.response_cache import ToldTopics
from .network.connection import Connection
from .network.connection_quotas import Admittance, ConnectionLimits
from .network.descriptors import free_descriptors
from .network.dispatch import Dispatch
from .network.listeners import Listening
from .network.server import RECEIVE_BUFFER, SEND_BUFFER, Network
from .peers.peer import Peers
from .quorum.driver import Quorum
from .quorum.startup import join_quorum
from .quorum.store import QuorumFiles
from .replication.applier import Replicas
from .replication.cold_reads import ColdReads
from .replication.fetch_session_cache import FetchSessions
from .replication.log_dir_moves import ReplicaMoves
from .replication.partitions import Partitions
from .replication.transitions import Replication
from .security.guard import guard_of

if TYPE_CHECKING:
    from trioka.coordinator.groups import GroupCoordinator

    from .controller.forwarding import Forwarding
    from .coordinators.runtime import Shards
    from .coordinators.transactions import TransactionShards
    from .coordinators.txn_verification import Verification
    from .quorum.remote import Following

log = logging.getLogger("trioka.broker")

FETCH_SESSION_EVICTION_MS: Final = 120_000  # min.incremental.fetch.session.eviction.ms of Kafka, which is no key
QUIET_S: Final = 10.0  # after so long without a request a connection gives its large buffer back
IDLE_CHECK_S: Final = 5.0
FINISH_CHECK_S: Final = 0.01
FAILED_LEAVE_S: Final = 3.0
STOP_S: Final = 1.0  # so long may requests that are being served take, when the broker stops


class Broker:
    def __init__(self, config: Config, node: Node, *, disk: Disk, clock: Clock, random: Random) -> None:
        self.config = config
        self.node = node
        self.node_id = node.id
        self.clock = clock
        self.random = random
        self.supported_features: dict[str, FeatureRange] = dict(SUPPORTED)
        self.partitions = Partitions(self._is_elsewhere)
        self.delayed = Delayed()
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.fetch_sessions = FetchSessions(
            config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS], FETCH_SESSION_EVICTION_MS, random
        )
        self.cold_reads = ColdReads()
        self.guard = guard_of(self)
        self.together = Together(self)
        self.told_topics = ToldTopics()
        self.dispatch = Dispatch(self)
        self.controller_dispatch = Dispatch(self, CONTROLLER)
        self.client_id = f"trioka-{node.id}"
        self.peers = Peers(self.client_id)
        self.controller = ControllerChannel(self)
        self.network = Network(self._new_connection, self._connection_gone, clock.now, self.together)
        self.network.is_alone = lambda: not (self.dispatch.running or self.replication.is_following)
        self.network.on_round = self.dispatch.times.settle
        self.listening = Listening(self)
        self.counts = Counts()
        self._admittance = Admittance()
        self.directories: list[LogDirectory] = []
        self.broker_epoch = NOT_REGISTERED
        self.membership = Membership(self)
        self.active_controller = ActiveController(self)
        self.replication = Replication(self)
        self.nursery: trio.Nursery
        self.quorum: Quorum
        self.commit: GroupCommits
        self.identity: Identity
        self.replicas: Replicas
        self.moves: ReplicaMoves
        self._is_telling = False  # there is a task that says where replicas are
        self._disk = disk
        self._timer = trio.CancelScope()
        self._stopping = trio.Event()
        self._ready = trio.Event()
        self._life = trio.CancelScope(shield=True)
        self._has_lived = False
        self._is_dead = False
        self.following: Following | None = None
        self._quorum_files: QuorumFiles
        self.stopped = trio.Event()  # everything is closed, and durable
        self.failure: LogDirectoriesOffline | None = None  # why this node ends
        self._loop: trio.lowlevel.TrioToken

    # -- what handlers ask ---------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> Metadata:
        return self.quorum.metadata

    @property
    def is_joined(self) -> bool:
        """Its logs are loaded, and the cluster has let it in."""
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

    def _is_elsewhere(self, topic: str, topic_id: bytes, index: int) -> bool:
        """Whether other brokers have a partition, and this one has not."""
        topics = self.metadata.topics
        found = topics.by_name(topic) if topic else topics.by_id(topic_id)
        partition = None if found is None else found.partitions.get(index)
        return partition is not None and self.node_id not in partition.replicas

    @property
    def registered_features(self) -> list[FeatureRange]:
        """What the controller is told. Clients are told less: what is served (`supported_features`)."""
        return [*self.supported_features.values(), *NOT_SERVED.values()]

    @property
    def alive(self) -> set[int]:
        return {broker.broker_id for broker in self.metadata.brokers if not broker.fenced}

    def endpoints(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """Where clients of this listener find each broker: id, host, port, rack."""
        found = []
        for broker in self.metadata.brokers:
            address = broker.listener(listener)
            if address is not None and not broker.fenced:
                found.append((broker.broker_id, address.host, address.port, broker.rack))
        return found

    @cached_property
    def groups(self) -> "Shards[GroupCoordinator]":
        """The groups that this broker coordinates."""
        from .coordinators.groups import group_shards

        return group_shards(self)

    @cached_property
    def transactions(self) -> "TransactionShards":
        """The transactional ids that this broker coordinates."""
        from .coordinators.transactions import transaction_shards

        return transaction_shards(self)

    @cached_property
    def forwarding(self) -> "Forwarding":
        """Of what only the active controller can do."""
        from .controller.forwarding import Forwarding

        return Forwarding(self)

    @cached_property
    def verification(self) -> "Verification":
        """Of the first writes of transactions."""
        from .coordinators.txn_verification import Verification

        return Verification(self)

    def topic_log_config(self, topic: str) -> LogConfig:
        return log_config(self.config.topic(self.metadata.configs.get(topic_resource(topic))))

    def min_in_sync(self, topic: str) -> int:
        return self.config.topic(self.metadata.configs.get(topic_resource(topic)))[MIN_INSYNC_REPLICAS]

    def park(self, waiter: Waiter, keys: Iterable[Hashable], deadline: float) -> None:
        """Lets a request wait until one of its keys is touched, or its time is up."""
        self.delayed.park(waiter, keys, deadline)
        if deadline < self._timer.deadline:
            self._timer.deadline = deadline

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """From the first file to the last. Started when clients can be served. Ends after `stop`, or when cancelled;
        cleanly in both cases, but only `stop` lets the requests finish that are being served. LogDirectoriesOffline if
        the node cannot go on.

        Everything runs where a cancellation from outside is not felt: the quorum and the network are still needed to
        say good bye."""
        self._loop = trio.lowlevel.current_trio_token()
        self.directories, self.identity, self._quorum_files = await trio.to_thread.run_sync(self._open_directories)
        say_recovered(self.directories)
        try:
            async with trio.open_nursery() as outer:
                outer.start_soon(self._live)
                try:
                    await self._ready.wait()
                    task_status.started()
                    log.info("the broker is ready: node %d, epoch %d", self.node_id, self.broker_epoch)
                    await self._stopping.wait()
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
            log.info("the broker has stopped")
            self.stopped.set()
        if self.failure is not None:
            raise self.failure

    @property
    def _leave_s(self) -> float:
        """How long it may take to leave the cluster. A node that has failed serves nobody meanwhile."""
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
                    nursery.start_soon(self._mind_connections)
                    await self._join()
                    nursery.start_soon(self._keep_house)
                    self._ready.set()
            finally:
                self._has_lived = True
                self.peers.close()
                self.listening.close()

    def stop(self) -> None:
        self._stopping.set()
        self._ready.set()  # or never: it may still look for its cluster

    def die(self) -> None:
        """As if the process had been killed: nobody is told, and nothing is finished."""
        self._has_lived = self._is_dead = True
        self._life.cancel()
        self.stop()

    async def _hand_over(self) -> None:
        """Others lead in its place, before it stops to serve. If there are none, its clients are served to the end."""
        if self.membership.has_joined and self.alive - {self.node_id}:
            await self.membership.leave()

    async def _finish(self) -> None:
        """Nobody new; who is being served is served to the end, if that does not take long."""
        self.network.stop_listening(self.node.controller_names)
        with trio.move_on_after(STOP_S):
            while self.dispatch.running or self.network.is_busy:  # noqa: ASYNC110 - two things, and once in a life
                await trio.sleep(FINISH_CHECK_S)

    async def create_missing_topics(self, topics: Mapping[str, int]) -> None:
        """Topics by name, with their number of partitions, as far as they are not there yet."""
        wanted = [
            CreateTopicsRequest.Topic(
                name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=[]
            )
            for name, partitions in topics.items()
            if self.metadata.topics.by_name(name) is None
        ]
        if wanted:
            await create_topics(self, wanted)

    @property
    def data_directories(self) -> list[LogDirectory]:
        """Those of log.dirs. The metadata's log may have one of its own, where no partition goes."""
        return of_partitions(self.directories, self.node)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where each listener really is: a port of 0 has become a number."""
        return self.listening.addresses

    @property
    def controller_addresses(self) -> dict[str, tuple[str, int]]:
        """The same of the listeners of the controller."""
        return {endpoint.name: (endpoint.host, endpoint.port) for endpoint in self.quorum.endpoints}

    def _open_directories(self) -> Opened:
        return open_directories(self._disk, self.config, self.node, self.clock, self.random, self._offline)

    def _close_directories(self) -> None:
        # One that was never let in has changed nothing since its last life.
        epoch = self.identity.previous_broker_epoch if self.broker_epoch == NOT_REGISTERED else self.broker_epoch
        for directory in self.directories:
            try:
                directory.let_go() if self._is_dead else directory.close(broker_epoch=epoch)
            except KafkaStorageError as error:  # the next start looks at all of it; the others can be closed cleanly
                log.error("%s is not closed cleanly: %s", directory.path, error)

    def _offline(self, error: OSError) -> None:
        """In any thread."""
        log.error("a log directory is offline: %s", error)
        with suppress(trio.RunFinishedError):
            self._loop.run_sync_soon(self._judge_directories)

    def _judge_directories(self) -> None:
        reason = why_it_must_end(self.directories, self.node)
        if reason is not None:
            self.fail(reason)

    def lost_metadata(self, error: KafkaError) -> None:
        """This node cannot write the metadata any more: mostly because a directory is offline, which says more."""
        self._judge_directories()
        self.fail(f"the metadata cannot be written any more: {error}")

    def fail(self, reason: str) -> None:
        """This node cannot go on: it stops, with what it can still do for its clients, and `run` raises."""
        if self.failure is None:
            log.error("this node ends: %s", reason)
            self.failure = LogDirectoriesOffline(reason)
            self.stop()

    async def _join(self) -> None:
        """Joins the quorum, learns what the cluster knows, makes its partitions come true, and is let in."""
        self._size_buffers()
        await join_quorum(self, self._quorum_files)
        if not self.node.is_broker:
            return
        self.listening.bind()
        await self.membership.register(self.listening.reachable())
        async with self.quorum.applying:
            self.config = self._with_dynamic_layers()
            self.replicas = Replicas(
                node_id=self.node_id,
                directories=self.data_directories,
                partitions=self.partitions,
                log_config=self.topic_log_config,
                min_in_sync=self.min_in_sync,
                surroundings=self.replication,
                clock=self.clock,
                random=self.random,
            )
            self.moves = ReplicaMoves(self)
            unfinished = self.moves.unfinished()
            await self.replicas.adopt_all(self.metadata)
            self.quorum.act_with(self._act)
        await self.membership.join()
        self.listening.open()
        if self.partitions.of_topic(OFFSETS_TOPIC):
            self.nursery.start_soon(self._coordinate_groups)
        if self.partitions.of_topic(TRANSACTIONS_TOPIC):
            self.nursery.start_soon(self._coordinate_transactions)
        await self.moves.resume(unfinished)

    async def _keep_house(self) -> None:
        """Begins when a start has settled; what it needs is loaded then, in a thread."""
        await trio.sleep(self.config[LOG_INITIAL_TASK_DELAY_MS] / 1000)
        loaded = await trio.to_thread.run_sync(import_module, ".background", __package__)
        await loaded.Housekeeping(self).run()

    def _size_buffers(self) -> None:
        if self.config[QUEUED_MAX_REQUEST_BYTES] > 0:
            self.network.max_pool_bytes = self.config[QUEUED_MAX_REQUEST_BYTES]
        for option, key in (
            (SEND_BUFFER, SOCKET_SEND_BUFFER_BYTES),
            (RECEIVE_BUFFER, SOCKET_RECEIVE_BUFFER_BYTES),
        ):
            if self.config.is_set(key) and self.config[key] > 0:
                self.network.buffer_sizes[option] = self.config[key]

    async def _leave(self) -> None:
        """As far as it came, and as its disk allows."""
        if self._has_lived:
            return  # nobody is there any more who could say good bye
        await self.membership.leave()
        if "quorum" in vars(self) and not self._has_lived:  # it may have died meanwhile
            self.quorum.resign()
        if self.following is not None:
            with trio.move_on_after(STOP_S):
                await self.following.said_goodbye()

    def controller_settings(self) -> ControllerSettings:
        """What server.properties says. What was set at run time, the controller finds in the metadata."""
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
        """Makes a change of the metadata come true. The configuration goes first: new logs begin with it."""
        layers = (ALL_BROKERS, Resource(ResourceType.BROKER, str(self.node_id)))
        if any(isinstance(change, ConfigChanged) and change.resource in layers for change in changes):
            self.config = self._with_dynamic_layers()
            self.replicas.configure_all()
            if self.membership.has_joined:
                self.listening.follow()
        self.counts.note(changes, self.node_id)
        self._forget_offsets(changes)
        for change in changes:
            if isinstance(change, TopicDeleted):
                await self.moves.call_off_all(change.name)
                self.counts.forget(change.name)
            elif isinstance(change, PartitionChanged) and self.node_id not in change.after.replicas:
                await self.moves.call_off(TopicPartition(change.name, change.index))
        await self.replicas.act(changes)
        if self.membership.has_joined:
            await self._coordinate(changes)
        if len(self.data_directories) > 1 and any(
            isinstance(change, PartitionChanged) and change.before is None for change in changes
        ):
            self.say_directories_soon()

    def _forget_offsets(self, changes: Sequence[Change]) -> None:
        """In deleted topics, before anything waits: offsets go by name, and another topic of that name may be next."""
        deleted = [change.name for change in changes if isinstance(change, TopicDeleted)]
        if deleted and OFFSETS_TOPIC not in deleted and self.membership.has_joined and "groups" in vars(self):
            self.groups.tell_all(lambda coordinator, now: coordinator.topics_deleted(deleted, now))

    async def _coordinate(self, changes: Sequence[Change]) -> None:
        """What a change of the metadata means for those who coordinate groups and transactions."""
        moved = {c.index for c in changes if isinstance(c, PartitionChanged) and c.name == OFFSETS_TOPIC}
        if moved:
            await self._load_groups()
            for index in moved:
                self.groups.follow(index)
        if any(isinstance(c, TopicDeleted) and c.name == OFFSETS_TOPIC for c in changes) and "groups" in vars(self):
            self.groups.follow_all()
        if any(isinstance(c, TopicDeleted | PartitionChanged) and c.name == TRANSACTIONS_TOPIC for c in changes):
            await self._coordinate_transactions()

    async def _coordinate_transactions(self) -> None:
        """Those that this broker leads now."""
        if "transactions" not in vars(self):
            await trio.to_thread.run_sync(import_module, ".coordinators.transactions", __package__)
        self.transactions.follow_all()

    async def _coordinate_groups(self) -> None:
        """After the start: those that this broker led already."""
        await self._load_groups()
        self.groups.follow_all()

    async def _load_groups(self) -> None:
        """In a worker thread: it takes a tenth of a second, which other clients should not feel."""
        if "groups" not in vars(self):
            await trio.to_thread.run_sync(import_module, ".coordinators.groups", __package__)

    def say_directories_soon(self) -> None:
        """The controller learns where new replicas are, and moved ones. Soon: whoever calls may be acting upon a
        change, and the next one has to wait for that."""
        if self.broker_epoch != NOT_REGISTERED and not self._is_telling:
            self._is_telling = True
            self.nursery.start_soon(self._say_directories)

    async def _say_directories(self) -> None:
        self._is_telling = False
        try:
            await self.membership.say_directories()
        except KafkaError as error:
            log.warning("the controller does not know where replicas are: %s", error)

    def _with_dynamic_layers(self) -> Config:
        # Copies: the layers of a configuration stay as they are, while the metadata goes on.
        configs = self.metadata.configs
        cluster = dict(configs.get(ALL_BROKERS))
        broker = dict(configs.get(Resource(ResourceType.BROKER, str(self.node_id))))
        changed = self.config.changed(cluster=cluster, broker=broker)
        for complaint in changed.rejected:
            log.warning("passed over: %s", complaint)
        return changed

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.broker_epoch)
        try:
            told: Any = await self.controller.ask(request, timeout_s=self.config[REQUEST_TIMEOUT_MS] / 1000)
            if told.error_code != NONE:
                raise error_class(told.error_code)()
        except KafkaError as error:
            raise CoordinatorLoadInProgress(error.name) from None  # the producer tries again
        return ProducerIdBlock(first=told.producer_id_start, size=told.producer_id_len)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _new_connection(self, *, host: str, port: int, listener: str) -> Connection | None:
        if not self._admittance.enter(host, ConnectionLimits.of(self.config), self.clock.now()):
            self.dispatch.complain(host, "refused %s on %s: there are too many connections", host, listener)
            return None
        dispatch = self.controller_dispatch if listener in self.node.controller_names else self.dispatch
        return Connection(
            dispatch,
            self.together.scratch,
            host=host,
            port=port,
            listener=listener,
            max_bytes=self.config[SOCKET_REQUEST_MAX_BYTES],
        )

    def _connection_gone(self, connection: Connection) -> None:
        self._admittance.leave(connection.host)

    async def _mind_connections(self) -> None:
        while True:
            await trio.sleep(IDLE_CHECK_S)
            self.network.close_idle(self.config[CONNECTIONS_MAX_IDLE_MS] / 1000, QUIET_S)

    async def _expire(self) -> None:
        """Answers the requests whose time is up. `park` moves the deadline when an earlier one comes."""
        while True:
            with trio.CancelScope() as self._timer:
                deadline = self.delayed.next_deadline()
                self._timer.deadline = inf if deadline is None else deadline
                await trio.sleep_forever()
            self.delayed.expire(self.clock.now())
