"""Coordinators at work: those of the partitions of an internal topic that this broker leads.

What to do is decided in the coordinator room; here it is done. A decision's records are appended to the coordinator's
partition and replayed, and when they are committed its answers go out. A broker that comes to lead a partition first
reads it from its start to its end (COORDINATOR_LOAD_IN_PROGRESS until then); one that ceases to lead forgets everything
and sends whoever waits to the new leader (NOT_COORDINATOR).

What is read from a coordinator, or answered without writing, waits for what was written before: nobody is told what
could still be lost with this broker.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import trio

from trioka.cluster.partition import NO_LEADER
from trioka.cluster.purgatory import Waiter
from trioka.coordinator.decision import Coordinator, Decision, MarkerOrder, Moment, Producer, Ticket
from trioka.coordinator.partitioning import partition_of
from trioka.coordinator.record_codec import Ledger
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
from trioka.storage.append_validation import Origin
from trioka.storage.file_pool import FileRange

from ..network.connection import LATER, Later
from ..replication.commit_wait import when_committed
from ..replication.partitions import ALL_REPLICAS, Replica

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call

log = logging.getLogger("trioka.coordinators")

C = TypeVar("C", bound=Coordinator)
R = TypeVar("R", bound=Request)
T = TypeVar("T")

READ_BYTES: Final = 1 << 20  # of a log at once, while it is loaded
COMMIT_TIMEOUT_S: Final = 5.0
MAX_WAITING: Final = 100_000  # requests that one coordinator has not answered yet
A_THOUSANDTH_MS: Final = 0.001  # what a deadline may lose on its way through seconds

Decide = Callable[[C, Ticket, Moment], Decision]
Deliver = Callable[[Response | KafkaError], None]
Afterwards = Callable[[KafkaError | None, Moment], Decision]


class Shard(Generic[C]):
    """One coordinator and its partition."""

    __slots__ = (
        "alarm",
        "coordinator",
        "epoch",
        "following",
        "is_following",
        "is_loaded",
        "problem",
        "replica",
        "waiting",
        "written",
    )

    def __init__(self, coordinator: C, replica: Replica) -> None:
        self.coordinator = coordinator
        self.replica = replica
        self.epoch = replica.leader_epoch
        self.is_loaded = False
        self.problem: str | None = None  # why it cannot be loaded
        self.waiting: dict[Ticket, Deliver] = {}
        self.written = 0  # behind the last record that this broker appended
        self.alarm: _Alarm[C] | None = None
        self.following: deque[tuple[Afterwards, KafkaError | None]] = deque()  # what decisions have left to decide
        self.is_following = False


class Shards(Generic[C]):
    def __init__(
        self,
        broker: "Broker",
        topic: str,
        ledger: Ledger,
        new: Callable[[int], C],
        partitions: Callable[[], int],
        *,
        on_order: Callable[[MarkerOrder], None] | None = None,
        codec: Codec = Codec.NONE,
        commit_timeout_s: float = COMMIT_TIMEOUT_S,
    ) -> None:
        self.topic = topic
        self._broker = broker
        self._ledger = ledger
        self._new = new  # for the epoch of a leader
        self._partitions = partitions  # how many the topic will have, while it is not there
        self._on_order = on_order
        self._codec = codec
        self._commit_timeout_s = commit_timeout_s
        self._shards: dict[int, Shard[C]] = {}
        self._tickets = count()

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(
        self,
        call: "Call",
        request: R,
        refuse: Callable[[R, KafkaError], Response],
        name: str,
        decide: Decide[C],
        said: Callable[[Response], Response] | None = None,
    ) -> Response | Later:
        """For a handler whose request is about one name: the answer, or LATER if it must wait. `said` is how the
        version of the request says it, where coordinators do not mind versions."""
        answered: list[Response | KafkaError] = []
        try:
            shard, ticket = self._decide(name, decide, answered.append)
        except KafkaError as error:
            answered.append(error)
        if answered:
            return _worded(answered[0], request, refuse, said)

        def reply(response: Response | KafkaError) -> None:
            try:
                answer = _worded(response, request, refuse, said)
            except Exception as mistake:  # others wait for their answers
                call.fail(mistake)
            else:
                call.reply(answer)

        shard.waiting[ticket] = reply
        return LATER

    async def answer(self, name: str, decide: Decide[C]) -> Response:
        """For a handler that asks about many."""
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

    def put(self, name: str, decide: Decide[C], deliver: Deliver) -> None:
        """For somebody who is no handler, and cannot wait: `deliver` is called, perhaps at once."""
        self._decide(name, decide, deliver)

    async def look(self, name: str, at: Callable[[C], T]) -> T:
        """What a coordinator says without deciding anything, once all that it may say is committed."""
        shard = self._find(name)
        await self._committed(shard)
        return at(shard.coordinator)

    async def look_at_all(self, at: Callable[[C], T]) -> list[T]:
        """The same of all that this broker has. CoordinatorLoadInProgress if one of them is not ready to speak."""
        shards = list(self._shards.values())
        led = sum(replica.leads for replica in self._broker.partitions.of_topic(self.topic))
        if led > len(shards) or not all(shard.is_loaded for shard in shards):
            raise CoordinatorLoadInProgress()
        for shard in shards:
            await self._committed(shard)
        return [at(shard.coordinator) for shard in shards]

    @property
    def loaded(self) -> list[C]:
        """The coordinators that are at work here, for somebody who only looks."""
        return [shard.coordinator for shard in self._shards.values() if shard.is_loaded]

    def tell(self, name: str, decide: Callable[[C, Moment], Decision]) -> None:
        """Something happened that concerns the coordinator of a name, if it is here."""
        shard = self._shards.get(self.partition_of(name))
        if shard is not None and shard.is_loaded:
            self._carry_out(shard, decide(shard.coordinator, self._now()))

    def epoch_of(self, name: str) -> int | None:
        """Of the leader that coordinates a name, if it is this broker."""
        shard = self._shards.get(self.partition_of(name))
        return shard.epoch if shard is not None and shard.is_loaded else None

    def tell_all(self, decide: Callable[[C, Moment], Decision]) -> None:
        """Something happened that concerns all of them."""
        for shard in list(self._shards.values()):
            if shard.is_loaded:
                self._carry_out(shard, decide(shard.coordinator, self._now()))

    def partition_of(self, name: str) -> int:
        topic = self._broker.metadata.topics.by_name(self.topic)
        return partition_of(name, self._partitions() if topic is None else len(topic.partitions))

    def coordinator_of(self, name: str) -> int | None:
        """The node that coordinates a name, as far as this broker knows; None if there is nobody at the moment."""
        leader = self._leader(self.partition_of(name))
        return None if leader == NO_LEADER else leader

    def ended(self, index: int, producer: Producer, is_committed: bool) -> None:
        """A marker stands in the log of a partition: a producer's transaction is over there. A coordinator that is not
        loaded yet will read it."""
        shard = self._shards.get(index)
        if shard is not None and shard.is_loaded:
            shard.coordinator.replay_end(producer, is_committed)
            shard.written = max(shard.written, shard.replica.log.log_end_offset)

    # -- leading -------------------------------------------------------------------------------------------------------

    def follow(self, index: int) -> None:
        """Who leads a partition may have changed."""
        replica = self._broker.partitions.find(self.topic, index)
        leads = replica is not None and replica.leads
        shard = self._shards.get(index)
        if shard is not None and (shard.replica is not replica or not leads or shard.epoch != replica.leader_epoch):
            del self._shards[index]
            self._dismiss(shard)
            shard = None
        if shard is None and replica is not None and replica.leads:
            self._begin(replica)

    def follow_all(self) -> None:
        for index in {replica.index for replica in self._broker.partitions.of_topic(self.topic)} | set(self._shards):
            self.follow(index)

    def _begin(self, replica: Replica) -> None:
        shard = self._shards[replica.index] = Shard(self._new(replica.leader_epoch), replica)
        if replica.log.log_start_offset == replica.log.log_end_offset:
            self._loaded(shard)
        else:
            self._broker.nursery.start_soon(self._load, shard)

    async def _load(self, shard: Shard[C]) -> None:
        """Nobody else has the coordinator yet, so it may be filled in a worker thread. The log belongs to the event
        loop, where it is compacted, too, and where the marker of a transaction may be appended meanwhile."""
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
            log.error("%s-%d cannot be loaded: %s", self.topic, shard.replica.index, error)
        except Exception as mistake:  # the other coordinators, and the broker, go on
            shard.problem = "a mistake of ours"
            log.error("a mistake of ours: %s-%d", self.topic, shard.replica.index, exc_info=mistake)

    def _loaded(self, shard: Shard[C]) -> None:
        shard.is_loaded = True
        shard.written = shard.replica.log.log_end_offset
        for decision in shard.coordinator.begin(self._now()):
            self._carry_out(shard, decision)
        self._set_alarm(shard)

    def _dismiss(self, shard: Shard[C]) -> None:
        if shard.alarm is not None:
            self._broker.delayed.abandon(shard.alarm)
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
            kept = self._ledger.decode(record.key or b"", record.value)
            if kept is not None:
                coordinator.replay(kept, record.offset, producer)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> Shard[C]:
        index = self.partition_of(name)
        shard = self._shards.get(index)
        if shard is None:
            # What the metadata says comes true a little later; who asks in between need not look for somebody else.
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

    def _decide(self, name: str, decide: Decide[C], deliver: Deliver) -> tuple[Shard[C], Ticket]:
        shard = self._find(name)
        if len(shard.waiting) >= MAX_WAITING:
            raise CoordinatorNotAvailable("too many requests wait")
        ticket = next(self._tickets)
        shard.waiting[ticket] = deliver
        try:
            decision = decide(shard.coordinator, ticket, self._now())
        except BaseException:
            del shard.waiting[ticket]
            raise
        self._carry_out(shard, decision)
        return shard, ticket

    def _carry_out(self, shard: Shard[C], decision: Decision) -> None:
        if decision.records:
            try:
                self._append(shard, decision)
            except KafkaError as error:
                self._conclude(shard, decision, _translated(error))
                return
            except ProtocolError as error:  # a name that is longer than a record can say
                self._conclude(shard, decision, UnknownServerError(str(error)))
                return
        self._when_committed(shard, lambda error: self._conclude(shard, decision, error))

    def _append(self, shard: Shard[C], decision: Decision) -> None:
        now_ms = self._broker.clock.now_ms()
        records = [Record(n, now_ms, *self._ledger.encode(kept)) for n, kept in enumerate(decision.records)]
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
        appended = shard.replica.append(built, ALL_REPLICAS, now_ms, Origin.COORDINATOR)
        for n, kept in enumerate(decision.records):
            shard.coordinator.replay(kept, appended.first_offset + n, producer)
        shard.written = appended.last_offset + 1
        self._broker.delayed.touch(shard.replica)

    def _when_committed(self, shard: Shard[C], then: Callable[[KafkaError | None], None]) -> None:
        """All that was written so far."""

        def translated(error: KafkaError | None) -> None:
            then(None if error is None else _translated(error))

        when_committed(self._broker, shard.replica, shard.written, self._commit_timeout_s, translated)

    async def _committed(self, shard: Shard[C]) -> None:
        outcome: list[KafkaError | None] = []
        is_there = trio.Event()

        def then(error: KafkaError | None) -> None:
            outcome.append(error)
            is_there.set()

        self._when_committed(shard, then)
        if not outcome:
            await is_there.wait()
        if outcome[0] is not None:
            raise outcome[0]

    def _conclude(self, shard: Shard[C], decision: Decision, error: KafkaError | None) -> None:
        if self._shards.get(shard.replica.index) is not shard:
            return  # it was dismissed meanwhile, and everyone was told
        for ticket, response in decision.answers:
            deliver = shard.waiting.pop(ticket, None)
            if deliver is not None:
                deliver(response if error is None else error)
        if error is None and self._on_order is not None:
            for order in decision.orders:
                self._on_order(order)
        if decision.afterwards is not None:
            shard.following.append((decision.afterwards, error))
            self._follow_up(shard)
        self._set_alarm(shard)

    def _follow_up(self, shard: Shard[C]) -> None:
        """What follows from decisions that are concluded: one after the other instead of one inside of the other, since
        a clean-up can have thousands of parts, each of them committed at once."""
        if shard.is_following:
            return
        shard.is_following = True
        try:
            while shard.following and self._shards.get(shard.replica.index) is shard:
                afterwards, error = shard.following.popleft()
                self._carry_out(shard, afterwards(error, self._now()))
        finally:
            shard.is_following = False

    # -- time ----------------------------------------------------------------------------------------------------------

    def _now(self) -> Moment:
        clock = self._broker.clock
        return Moment(int(clock.now() * 1000 + A_THOUSANDTH_MS), clock.now_ms())

    def _set_alarm(self, shard: Shard[C]) -> None:
        due_ms = shard.coordinator.next_deadline()
        if due_ms is None or (shard.alarm is not None and not shard.alarm.done and shard.alarm.due_ms <= due_ms):
            return
        if shard.alarm is not None:
            self._broker.delayed.abandon(shard.alarm)
        shard.alarm = _Alarm(self, shard, due_ms)
        self._broker.park(shard.alarm, (), due_ms / 1000)

    def ring(self, shard: Shard[C]) -> None:
        try:
            for decision in shard.coordinator.expire(self._now()):
                self._carry_out(shard, decision)
        except Exception as mistake:  # it must not end the broker, which has other things to do
            log.error("a mistake of ours: %s-%d", self.topic, shard.replica.index, exc_info=mistake)
        self._set_alarm(shard)


class _Alarm(Waiter, Generic[C]):
    """Goes off when a coordinator has something due."""

    __slots__ = ("_shard", "_shards", "due_ms")

    def __init__(self, shards: Shards[C], shard: Shard[C], due_ms: int) -> None:
        super().__init__()
        self._shards = shards
        self._shard = shard
        self.due_ms = due_ms

    def look(self, key: Hashable) -> bool:
        return False

    def expire(self) -> None:
        self._shards.ring(self._shard)

    def fail(self, mistake: Exception) -> None:
        log.error("a mistake of ours: %s", self._shards.topic, exc_info=mistake)


def _worded(
    response: Response | KafkaError,
    request: R,
    refuse: Callable[[R, KafkaError], Response],
    said: Callable[[Response], Response] | None,
) -> Response:
    response = refuse(request, response) if isinstance(response, KafkaError) else response
    return response if said is None else said(response)


def _translated(error: KafkaError) -> KafkaError:
    """What a client is told when a coordinator could not write: to wait, or to look for another one."""
    if isinstance(error, UnknownTopicOrPartition | NotEnoughReplicas | NotEnoughReplicasAfterAppend | RequestTimedOut):
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, NotLeaderOrFollower | KafkaStorageError):
        return NotCoordinator(str(error))
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return UnknownServerError(str(error))
    return error
