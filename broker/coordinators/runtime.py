"""The coordinators of the partitions of an internal topic that this broker leads.

The coordinator package decides; this module carries it out. A decision's records are appended to the coordinator's
partition and replayed, and its replies are sent when they are committed. A broker that becomes the leader of a
partition first reads it from start to end (COORDINATOR_LOAD_IN_PROGRESS until then); one that loses leadership drops
the coordinator and fails pending requests with NOT_COORDINATOR.

Reads and replies without records wait for earlier records to be committed: no response depends on records that could
still be lost with this broker.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import trio

from trioka.cluster.image.partition import NO_LEADER
from trioka.cluster.replication.purgatory import DelayedOperation
from trioka.coordinator.decision import Coordinator, Decision, Now, Producer, RequestId, TxnMarkerRequest
from trioka.coordinator.partitioning import partition_of
from trioka.coordinator.record_codec import RecordCodec
from trioka.protocol import batch
from trioka.protocol.compression import Codec
from trioka.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    ProtocolError,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from trioka.protocol.record import Record, read_marker
from trioka.protocol.schema import Request, Response
from trioka.storage.append_validation import AppendOrigin
from trioka.storage.files.file_pool import FileRange

from ..network.connection import PENDING, Pending
from ..replication.commit_wait import on_committed
from ..replication.partitions import ALL_REPLICAS, Replica

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

log = logging.getLogger("trioka.coordinators")

C = TypeVar("C", bound=Coordinator)
R = TypeVar("R", bound=Request)
T = TypeVar("T")

READ_BYTES: Final = 1 << 20  # read size when a log is loaded
COMMIT_TIMEOUT_S: Final = 5.0
MAX_WAITING: Final = 100_000  # unanswered requests of one coordinator
SMALLEST_DELAY_MS: Final = 0.001  # rounding error of a deadline that is converted to seconds

Decide = Callable[[C, RequestId, Now], Decision]
Deliver = Callable[[Response | KafkaError], None]
OnCommitted = Callable[[KafkaError | None, Now], Decision]


class Shard(Generic[C]):
    """One coordinator and its partition."""

    __slots__ = (
        "coordinator",
        "epoch",
        "followups",
        "is_draining",
        "is_loaded",
        "problem",
        "replica",
        "timer",
        "waiting",
        "written",
    )

    def __init__(self, coordinator: C, replica: Replica) -> None:
        self.coordinator = coordinator
        self.replica = replica
        self.epoch = replica.leader_epoch
        self.is_loaded = False
        self.problem: str | None = None  # why it cannot be loaded
        self.waiting: dict[RequestId, Deliver] = {}
        self.written = 0  # the offset behind the last record that this broker appended
        self.timer: _Timer[C] | None = None
        self.followups: deque[tuple[OnCommitted, KafkaError | None]] = deque()  # callbacks of concluded decisions
        self.is_draining = False


class CoordinatorRuntime(Generic[C]):
    def __init__(
        self,
        broker: "Broker",
        topic: str,
        record_codec: RecordCodec,
        new: Callable[[int], C],
        partitions: Callable[[], int],
        *,
        on_marker_request: Callable[[TxnMarkerRequest], None] | None = None,
        codec: Codec = Codec.NONE,
        commit_timeout_s: float = COMMIT_TIMEOUT_S,
    ) -> None:
        self.topic = topic
        self._broker = broker
        self._record_codec = record_codec
        self._new = new  # creates a coordinator for a leader epoch
        self._partitions = partitions  # number of partitions that the topic will have if it does not exist yet
        self._on_marker_request = on_marker_request
        self._codec = codec
        self._commit_timeout_s = commit_timeout_s
        self._shards: dict[int, Shard[C]] = {}
        self._tickets = count()

    # -- requests ------------------------------------------------------------------------------------------------------

    def submit(
        self,
        call: "Call",
        request: R,
        error_response: Callable[[R, KafkaError], Response],
        name: str,
        decide: Decide[C],
        convert: Callable[[Response], Response] | None = None,
    ) -> Response | Pending:
        """For a request about one name: the response, or PENDING if it must wait. `said` converts the response to the
        version of the request, where coordinators do not depend on versions."""
        answered: list[Response | KafkaError] = []
        try:
            shard, request_id = self._decide(name, decide, answered.append)
        except KafkaError as error:
            answered.append(error)
        if answered:
            return _to_response(answered[0], request, error_response, convert)

        def reply(response: Response | KafkaError) -> None:
            try:
                answer = _to_response(response, request, error_response, convert)
            except Exception as mistake:  # must not affect other requests
                call.fail(mistake)
            else:
                call.reply(answer)

        shard.waiting[request_id] = reply
        return PENDING

    async def submit_async(self, name: str, decide: Decide[C]) -> Response:
        """For a request about several names."""
        answered: list[Response | KafkaError] = []
        is_there = trio.Event()

        def deliver(response: Response | KafkaError) -> None:
            answered.append(response)
            is_there.set()

        self._decide(name, decide, deliver)
        await is_there.wait()
        if isinstance(answered[0], KafkaError):
            raise answered[0]
        return answered[0]

    def submit_callback(self, name: str, decide: Decide[C], deliver: Deliver) -> None:
        """For callers that cannot await: `deliver` is called with the response, possibly at once."""
        self._decide(name, decide, deliver)

    async def read(self, name: str, at: Callable[[C], T]) -> T:
        """A response without a decision, once all records that it depends on are committed."""
        shard = self._find(name)
        await self._committed(shard)
        return at(shard.coordinator)

    async def read_all(self, at: Callable[[C], T]) -> list[T]:
        """The same from all coordinators of this broker. CoordinatorLoadInProgress if one of them is not loaded."""
        shards = list(self._shards.values())
        led = sum(replica.leads for replica in self._broker.partitions.of_topic(self.topic))
        if led > len(shards) or not all(shard.is_loaded for shard in shards):
            raise CoordinatorLoadInProgress()
        for shard in shards:
            await self._committed(shard)
        return [at(shard.coordinator) for shard in shards]

    @property
    def loaded(self) -> list[C]:
        """The active coordinators, for reading only."""
        return [shard.coordinator for shard in self._shards.values() if shard.is_loaded]

    def notify(self, name: str, decide: Callable[[C, Now], Decision]) -> None:
        """Passes an event to the coordinator of a name, if it is on this broker."""
        shard = self._shards.get(self.partition_of(name))
        if shard is not None and shard.is_loaded:
            self._apply(shard, decide(shard.coordinator, self._now()))

    def epoch_of(self, name: str) -> int | None:
        """The leader epoch of the partition that coordinates a name, if this broker leads it."""
        shard = self._shards.get(self.partition_of(name))
        return shard.epoch if shard is not None and shard.is_loaded else None

    def notify_all(self, decide: Callable[[C, Now], Decision]) -> None:
        """Passes an event to all coordinators."""
        for shard in list(self._shards.values()):
            if shard.is_loaded:
                self._apply(shard, decide(shard.coordinator, self._now()))

    def partition_of(self, name: str) -> int:
        topic = self._broker.metadata.topics.by_name(self.topic)
        return partition_of(name, self._partitions() if topic is None else len(topic.partitions))

    def coordinator_of(self, name: str) -> int | None:
        """The node that coordinates a name according to this broker's metadata; None if there is none."""
        leader = self._leader(self.partition_of(name))
        return None if leader == NO_LEADER else leader

    def on_txn_end(self, index: int, producer: Producer, is_committed: bool) -> None:
        """A marker was appended to a partition: a producer's transaction has ended there. A coordinator that is still
        being loaded will read the marker."""
        shard = self._shards.get(index)
        if shard is not None and shard.is_loaded:
            shard.coordinator.replay_end(producer, is_committed)
            shard.written = max(shard.written, shard.replica.log.log_end_offset)

    # -- leadership ----------------------------------------------------------------------------------------------------

    def on_leader_change(self, index: int) -> None:
        """Called when the leader of a partition may have changed."""
        replica = self._broker.partitions.find(self.topic, index)
        leads = replica is not None and replica.leads
        shard = self._shards.get(index)
        if shard is not None and (shard.replica is not replica or not leads or shard.epoch != replica.leader_epoch):
            del self._shards[index]
            self._unload(shard)
            shard = None
        if shard is None and replica is not None and replica.leads:
            self._begin(replica)

    def refresh_leadership(self) -> None:
        for index in {replica.index for replica in self._broker.partitions.of_topic(self.topic)} | set(self._shards):
            self.on_leader_change(index)

    def _begin(self, replica: Replica) -> None:
        shard = self._shards[replica.index] = Shard(self._new(replica.leader_epoch), replica)
        if replica.log.log_start_offset == replica.log.log_end_offset:
            self._loaded(shard)
        else:
            self._broker.nursery.start_soon(self._load, shard)

    async def _load(self, shard: Shard[C]) -> None:
        """Loads a coordinator. It is not shared yet, so a worker thread may replay records. The log belongs to the
        event loop, where it may be compacted, or a transaction marker appended, meanwhile."""
        loaded = shard.replica.log
        offset = loaded.log_start_offset
        try:
            while offset < loaded.log_end_offset:
                read = loaded.read(offset, READ_BYTES)
                if read.records is None:
                    break
                await trio.to_thread.run_sync(self._replay_range, shard.coordinator, read.records)
                offset = read.next_offset
            if self._shards.get(shard.replica.index) is shard:
                self._loaded(shard)
        except (KafkaError, ProtocolError, OSError) as error:
            shard.problem = str(error)
            log.error("coordinator partition %s-%d cannot be loaded: %s", self.topic, shard.replica.index, error)
        except Exception as mistake:  # must not affect other coordinators or the broker
            shard.problem = "internal error"
            log.error("internal error: %s-%d", self.topic, shard.replica.index, exc_info=mistake)

    def _loaded(self, shard: Shard[C]) -> None:
        shard.is_loaded = True
        shard.written = shard.replica.log.log_end_offset
        for decision in shard.coordinator.begin(self._now()):
            self._apply(shard, decision)
        self._set_timer(shard)

    def _unload(self, shard: Shard[C]) -> None:
        if shard.timer is not None:
            self._broker.purgatory.cancel(shard.timer)
        waiting, shard.waiting = shard.waiting, {}
        for deliver in waiting.values():
            deliver(NotCoordinator())

    def _replay_range(self, coordinator: C, records: FileRange) -> None:
        data = records.read()
        for header in batch.headers(data):
            self._replay_batch(coordinator, data, header)

    def _replay_batch(self, coordinator: C, data: bytes, header: batch.BatchHeader) -> None:
        producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
        if header.is_control:
            for record in batch.records(data, header):
                marker = read_marker(record.key, record.value)
                if producer is not None and marker is not None:
                    coordinator.replay_end(producer, marker.commit)
            return
        for record in batch.records(data, header):
            kept = self._record_codec.decode(record.key or b"", record.value)
            if kept is not None:
                coordinator.replay(kept, record.offset, producer)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> Shard[C]:
        index = self.partition_of(name)
        shard = self._shards.get(index)
        if shard is None:
            # The change of the metadata is applied a little later; until then clients need not look for another
            # coordinator.
            raise CoordinatorLoadInProgress() if self._will_lead(index) else NotCoordinator()
        if shard.problem is not None:
            raise CoordinatorNotAvailable(shard.problem)
        if not shard.is_loaded:
            raise CoordinatorLoadInProgress()
        return shard

    def _will_lead(self, index: int) -> bool:
        return self._leader(index) == self._broker.node_id

    def _leader(self, index: int) -> int:
        topic = self._broker.metadata.topics.by_name(self.topic)
        partition = None if topic is None else topic.partitions.get(index)
        return NO_LEADER if partition is None else partition.leader

    def _decide(self, name: str, decide: Decide[C], deliver: Deliver) -> tuple[Shard[C], RequestId]:
        shard = self._find(name)
        if len(shard.waiting) >= MAX_WAITING:
            raise CoordinatorNotAvailable("too many requests are waiting")
        request_id = next(self._tickets)
        shard.waiting[request_id] = deliver
        try:
            decision = decide(shard.coordinator, request_id, self._now())
        except BaseException:
            del shard.waiting[request_id]
            raise
        self._apply(shard, decision)
        return shard, request_id

    def _apply(self, shard: Shard[C], decision: Decision) -> None:
        if decision.records:
            try:
                self._append(shard, decision)
            except KafkaError as error:
                self._complete(shard, decision, _to_client_error(error))
                return
            except ProtocolError as error:  # a name that is too long for a record
                self._complete(shard, decision, UnknownServerError(str(error)))
                return
        self._on_committed(shard, lambda error: self._complete(shard, decision, error))

    def _append(self, shard: Shard[C], decision: Decision) -> None:
        now_ms = self._broker.clock.now_ms()
        records = [Record(n, now_ms, *self._record_codec.encode(kept)) for n, kept in enumerate(decision.records)]
        producer = decision.producer
        if producer is None:
            built = batch.build(records, base_sequence=0, codec=self._codec)
        else:
            built = batch.build(
                records,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=0,
                transactional=True,
                codec=self._codec,
            )
        appended = shard.replica.append(built, ALL_REPLICAS, now_ms, AppendOrigin.COORDINATOR)
        for n, kept in enumerate(decision.records):
            shard.coordinator.replay(kept, appended.first_offset + n, producer)
        shard.written = appended.last_offset + 1
        self._broker.purgatory.notify(shard.replica)

    def _on_committed(self, shard: Shard[C], then: Callable[[KafkaError | None], None]) -> None:
        """Flushes all records that were written so far."""

        def translated(error: KafkaError | None) -> None:
            then(None if error is None else _to_client_error(error))

        on_committed(self._broker, shard.replica, shard.written, self._commit_timeout_s, translated)

    async def _committed(self, shard: Shard[C]) -> None:
        outcome: list[KafkaError | None] = []
        is_there = trio.Event()

        def then(error: KafkaError | None) -> None:
            outcome.append(error)
            is_there.set()

        self._on_committed(shard, then)
        if not outcome:
            await is_there.wait()
        if outcome[0] is not None:
            raise outcome[0]

    def _complete(self, shard: Shard[C], decision: Decision, error: KafkaError | None) -> None:
        if self._shards.get(shard.replica.index) is not shard:
            return  # it was unloaded meanwhile, and all requests were answered
        for request_id, response in decision.replies:
            deliver = shard.waiting.pop(request_id, None)
            if deliver is not None:
                deliver(response if error is None else error)
        if error is None and self._on_marker_request is not None:
            for order in decision.marker_requests:
                self._on_marker_request(order)
        if decision.on_committed is not None:
            shard.followups.append((decision.on_committed, error))
            self._run_followups(shard)
        self._set_timer(shard)

    def _run_followups(self, shard: Shard[C]) -> None:
        """Runs the callbacks of concluded decisions in a loop and not recursively: a clean-up may have thousands of
        parts, each of which is committed at once."""
        if shard.is_draining:
            return
        shard.is_draining = True
        try:
            while shard.followups and self._shards.get(shard.replica.index) is shard:
                afterwards, error = shard.followups.popleft()
                self._apply(shard, afterwards(error, self._now()))
        finally:
            shard.is_draining = False

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def _now(self) -> Now:
        clock = self._broker.clock
        return Now(int(clock.now() * 1000 + SMALLEST_DELAY_MS), clock.now_ms())

    def _set_timer(self, shard: Shard[C]) -> None:
        due_ms = shard.coordinator.next_deadline()
        if due_ms is None or (shard.timer is not None and not shard.timer.done and shard.timer.due_ms <= due_ms):
            return
        if shard.timer is not None:
            self._broker.purgatory.cancel(shard.timer)
        shard.timer = _Timer(self, shard, due_ms)
        self._broker.park(shard.timer, (), due_ms / 1000)

    def on_timer(self, shard: Shard[C]) -> None:
        try:
            for decision in shard.coordinator.expire(self._now()):
                self._apply(shard, decision)
        except Exception as mistake:  # must not end the broker
            log.error("internal error: %s-%d", self.topic, shard.replica.index, exc_info=mistake)
        self._set_timer(shard)


class _Timer(DelayedOperation, Generic[C]):
    """Fires when a coordinator's next deadline is due."""

    __slots__ = ("_shard", "_shards", "due_ms")

    def __init__(self, shards: CoordinatorRuntime[C], shard: Shard[C], due_ms: int) -> None:
        super().__init__()
        self._shards = shards
        self._shard = shard
        self.due_ms = due_ms

    def try_complete(self, key: Hashable) -> bool:
        return False

    def expire(self) -> None:
        self._shards.on_timer(self._shard)

    def fail(self, mistake: Exception) -> None:
        log.error("internal error: %s", self._shards.topic, exc_info=mistake)


def _to_response(
    response: Response | KafkaError,
    request: R,
    error_response: Callable[[R, KafkaError], Response],
    convert: Callable[[Response], Response] | None,
) -> Response:
    response = error_response(request, response) if isinstance(response, KafkaError) else response
    return response if convert is None else convert(response)


def _to_client_error(error: KafkaError) -> KafkaError:
    """The error for a client when a coordinator could not write: retry here, or find the coordinator again."""
    if isinstance(error, UnknownTopicOrPartition | NotEnoughReplicas | NotEnoughReplicasAfterAppend | RequestTimedOut):
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, NotLeaderOrFollower | KafkaStorageError):
        return NotCoordinator(str(error))
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return UnknownServerError(str(error))
    return error
