"""Fetch (1): returns records of partitions. With Produce, the hot path.

The response consists of file ranges; Python copies no record bytes. A fetch that finds fewer than `min_bytes` is parked
under its partitions (cluster/purgatory.py), reads again when one of them changes, and is answered when there are enough
bytes or `max_wait_ms` is over.

Limits (KIP-74): partitions are read in the order of the request or of its session, each up to its own limit and to the
bytes left of the whole response; the first partition with records returns at least one batch, however large. A range
has whole batches only (storage/read_plan.py). A worker thread first loads ranges that are not in the page cache
(storage/page_cache_probe.py), so the event loop never waits for a disk.

A result that reaches the end of a partition with linearizable reads is answered once the leader knows that it still
leads (replication/linearizable_reads.py).

From the second request on, plain consumers are served by fastpath/fetch.py: a check added here belongs there too.

**Followers** (requests with a broker id) read up to the log end offset. A fetch offset is recorded on arrival, as the
follower's progress (replication/transitions.py); requests of other brokers, or with another epoch, change nothing. Only
changed partitions of a follower's session are read (replication/follower_session.py), so that idle partitions cost
nothing. Consumers may also read from a follower, up to its high watermark (KIP-392).

v4 read_committed · v5 log start · v7 sessions · v9 leader epochs · v12 diverging epochs · v13 ids · v16 leader hints
"""

from collections.abc import Container, Coroutine, Hashable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.acls import AclOperation
from trioka.cluster.healing import HEALER
from trioka.cluster.purgatory import DelayedOperation
from trioka.protocol.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.primitives import RecordBytes
from trioka.storage.log import Log
from trioka.storage.page_cache_probe import UncachedRange, uncached_range
from trioka.storage.small_read import take

from ..api import handles
from ..metadata.leader_hints import LeaderHints
from ..network.connection import FETCH_KEY, PENDING
from ..network.request_quotas import charge_fetch, fetch_limits
from ..replication.fetch_results import Result, divergence, empty_result, error_response, failed_result
from ..replication.fetch_session_cache import FIRST_VERSION_BY_ID, CachedPartition, FetchContext
from ..replication.follower_session import ChangedPartitions
from ..replication.parked_follower import ParkedFollower, is_caught_up
from ..replication.partitions import Replica
from ..replication.request_reads import RequestReads
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Pending
    from ..tier.fetch_reads import FetchReads
    from ..tier.remote_read import RemoteRead

AbortedTransaction = Result.AbortedTransaction

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NO_EPOCH: Final = -1
FIRST_VERSION_WITH_RACKS: Final = 11  # the first version whose consumers may be redirected to a follower
FIRST_VERSION_WITH_LEADERS: Final = 16
NOT_LEADER_ERRORS: Final = (NotLeaderOrFollower, FencedLeaderEpoch)
MAX_WARM_ATTEMPTS: Final = 2


def _authorized(
    broker: "Broker", call: "Call", request: FetchRequest
) -> "FetchResponse | Pending | Coroutine[Any, Any, FetchResponse]":
    """Serves the request on a broker with an authorizer."""
    return fetch.serve(broker, call, request, _AuthorizedPartitionReader)  # type: ignore[call-arg, return-value]


@handles(FetchRequest, error_response=error_response, authorized=_authorized)
def fetch(
    broker: "Broker",
    call: "Call",
    request: FetchRequest,
    new: "type[PartitionReader] | None" = None,
) -> "FetchResponse | Pending | Coroutine[Any, Any, FetchResponse]":
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise InvalidRequest(f"there is no isolation level {request.isolation_level}")
    now_ms = broker.clock.now_ms()
    asker = max(request.replica_id, request.replica_state.replica_id)  # a follower's broker id; negative for clients
    context = broker.fetch_sessions.open(request, call.version, now_ms, broker.topic_name, is_follower=asker >= 0)
    if context.error_code:
        return context.answer((), now_ms)
    reading = (new or PartitionReader)(broker, context, request, call, asker)
    is_awaited = reading.note_for_reads()
    results = reading.read_all()
    if reading.cold or reading.remote:
        reading.notify_waiting()
        return _fetch_uncached(broker, reading)
    if reading.reads.begin():
        _wait_for_reads(reading, call, broker.clock.now() + request.max_wait_ms / 1000)
        return PENDING
    if reading.has_enough() or request.max_wait_ms <= 0 or is_awaited or not (reading.replicas or reading.watch):
        response = reading.answer(results)
        reading.notify_waiting()  # after the response, so that records written in reaction are left to the next fetch
        return response
    if reading.noted:
        reading.notify_waiting()
        if reading.is_stale:
            results = reading.read_all()
            if reading.has_enough():
                return reading.answer(results)
    deadline = broker.clock.now() + request.max_wait_ms / 1000
    if reading.watch is None:
        _park(reading, call, deadline)
        return PENDING
    parked = ParkedFollower(reading, call, results)
    call.on_disconnect = parked.abandon
    broker.park(parked, (), deadline)
    return PENDING


def _park(reading: "PartitionReader", call: "Call", deadline: float) -> None:
    parked = _ParkedFetch(reading, call)
    call.on_disconnect = parked.abandon
    reading.broker.park(parked, reading.replicas, deadline)


def _wait_for_reads(reading: "PartitionReader", call: "Call", deadline: float) -> None:
    """Goes on when all linearizable reads of the request have passed or are refused; then it may wait for records until
    the deadline."""
    broker = reading.broker

    def go_on(refused: frozenset[Replica]) -> None:
        reading.reads.end(refused)
        reading.cold = None
        results = reading.read_all()
        if reading.reads.begin():  # of a partition that had more records before
            _wait_for_reads(reading, call, deadline)
        elif reading.has_enough() or broker.clock.now() >= deadline:
            call.reply(reading.answer(results))
        else:
            _park(reading, call, deadline)

    waiting = broker.replication.reads.wait(reading.reads.pending, go_on, call.fail)
    call.on_disconnect = lambda: broker.purgatory.cancel(waiting)


async def _fetch_uncached(broker: "Broker", reading: "PartitionReader") -> FetchResponse:
    """Worker threads load what is not in memory or only in the object store, while other clients are served. The
    response then has the records that are there, even if they are fewer than min_bytes: it has waited long enough."""
    # First an index, then the records that it points to. Pages that are evicted again meanwhile are read all the same.
    for _ in range(MAX_WARM_ATTEMPTS):
        cold, reading.cold = reading.cold, []
        assert cold is not None
        if reading.remote is not None:
            await reading.remote.run()
        await broker.cold_reads.warm(cold)
        results = reading.read_all()
        if not reading.cold and not reading.remote and not reading.reads.begin():
            return reading.answer(results)
    reading.cold = None
    results = reading.read_all()
    while reading.reads.begin():
        reading.reads.end(await broker.replication.reads.passed(reading.reads.pending))
        results = reading.read_all()
    return reading.answer(results)


class PartitionReader:
    """Reads the partitions of one fetch; it can read them again after a change."""

    __slots__ = (
        "asker",
        "asker_epoch",
        "broker",
        "by_id",
        "call",
        "cold",
        "committed",
        "context",
        "is_consumer",
        "is_noting",
        "leader_hints",
        "leaders_only",
        "left",
        "max_bytes",
        "min_bytes",
        "must_answer",
        "noted",
        "rack",
        "read_bytes",
        "reads",
        "remote",
        "replicas",
        "sent",
        "unfinished",
        "watch",
    )

    def __init__(
        self, broker: "Broker", context: FetchContext, request: FetchRequest, call: "Call", asker: int
    ) -> None:
        version = call.version
        self.broker = broker
        self.context = context
        self.call = call
        self.leader_hints: LeaderHints | None = None
        self.by_id = version >= FIRST_VERSION_BY_ID
        self.committed = request.isolation_level == READ_COMMITTED and asker < 0
        self.asker = asker
        self.asker_epoch = request.replica_state.replica_epoch
        self.is_consumer = asker < 0 and HEALER not in (request.replica_id, request.replica_state.replica_id)
        self.is_noting = asker >= 0  # cleared after the first read: a repeated read has no new position of the follower
        self.noted: list[Replica] = []  # replicas whose waiting requests may be complete now
        self.leaders_only = asker >= 0 or version < FIRST_VERSION_WITH_RACKS
        # The rack to prefer for reads; empty unless the broker selects replicas by rack.
        self.rack = request.rack_id if not self.leaders_only and broker.replication.is_rack_aware else ""
        self.max_bytes, self.min_bytes = fetch_limits(broker, call, request, asker)
        self.left = 0  # of max_bytes
        self.read_bytes = 0
        self.must_answer = False  # an error or a divergence, which must reach the client at once
        self.replicas: list[Replica] = []
        self.reads = RequestReads(broker)
        self.sent: list[tuple[Replica, int]] = []  # replicas with records in the result, and their bytes
        self.cold: list[UncachedRange] | None = []  # ranges that are not in memory; None: read them anyway
        self.remote: FetchReads | None = None  # records that are only in the object store
        self.unfinished: list[CachedPartition] = []  # partitions that a follower's next fetch must read again
        self.watch: ChangedPartitions | None = None if asker < 0 else self._watch(context)
        if self.watch is not None:
            context.selected = self.watch.selected(broker.clock.now(), broker.replication.max_lag_s())

    def _watch(self, context: FetchContext) -> ChangedPartitions | None:
        """The changed partitions of a follower's session; None without a session."""
        session = context.session
        if session is None:
            return None
        watch = session.watch
        if watch is None:
            watch = session.watch = ChangedPartitions(self.broker.purgatory, session)
        assert isinstance(watch, ChangedPartitions)
        return watch

    def read_all(self) -> list[tuple[CachedPartition, Result]]:
        self.left, self.read_bytes = self.max_bytes, 0
        self.must_answer = False
        self.replicas = []
        self.reads.start_over()
        self.sent = []
        self.unfinished = []
        results = []
        incremental = self.context.is_incremental
        for cached in self.context.selected if self.watch is None else tuple(self.watch.dirty.values()):
            try:
                replica = self._replica(cached)
                result = self._read(cached, replica, incremental)
                if result is None:
                    continue
            except KafkaError as error:
                self.must_answer = True
                self.unfinished.append(cached)
                result = self._failed(cached, error)
                if self.asker >= 0 and isinstance(error, CorruptMessage):  # other replicas may need its high watermark
                    result.high_watermark = replica.log.high_watermark  # type: ignore[misc]
            results.append((cached, result))
        self.is_noting = False
        return results

    def answer(self, results: list[tuple[CachedPartition, Result]]) -> FetchResponse:
        """Counts the results and builds the response; the response to a throttled client has no records."""
        throttle_ms = charge_fetch(self.broker, self.call, self.asker, len(results), self.read_bytes)
        if throttle_ms:
            return self.context.throttled(throttle_ms)
        if self.watch is not None and self.context.is_current:
            self.watch.keep(self.unfinished)
            assert self.context.session is not None
            self.broker.replication.note_answer(self.context.session)
        for replica in self.replicas:
            replica.fetches += 1
        for replica, size in self.sent:
            replica.bytes_out += size
        if self.must_answer:
            for cached, result in results:
                if result.error_code:
                    known = self.broker.metadata.topics.by_name(cached.topic) is not None
                    self.broker.counts.failed_fetch(cached.topic if known else "")
                    self.broker.dispatch.errors.add(FETCH_KEY, result.error_code)
        endpoints = () if self.leader_hints is None else self.leader_hints.fetch_endpoints()
        return self.context.answer(results, self.broker.clock.now_ms(), node_endpoints=endpoints)

    def has_enough(self) -> bool:
        return self.read_bytes >= self.min_bytes or self.must_answer

    # -- linearizable reads --------------------------------------------------------------------------------------------

    def note_for_reads(self) -> bool:
        """Records the fetch of a follower for linearizable reads. Whether they wait for its next one."""
        session = self.context.session
        if self.asker < 0 or session is None:
            return False
        is_awaited, noted = self.broker.replication.note_for_reads(self.asker, self.asker_epoch, session)
        self.noted += noted
        return is_awaited

    def _reach_end(self, replica: Replica) -> None:
        """The result has all records of the partition."""
        if self.is_consumer and replica.is_linearizable:
            self.reads.reach_end(replica)

    @property
    def is_stale(self) -> bool:
        """Whether a partition has changed since it was read: a waiting coordinator may have written its next record."""
        return self.watch is None or not all(is_caught_up(cached, replica) for cached, replica in self.watch.seen())

    def notify_waiting(self) -> None:
        for replica in self.noted:
            self.broker.purgatory.notify(replica)
        self.noted = []

    def _replica(self, cached: CachedPartition) -> Replica:
        if self.by_id:
            if not cached.topic:
                raise UnknownTopicId()
            replica = self.broker.partitions.get_by_id(cached.topic_id, cached.partition)
        else:
            replica = self.broker.partitions.get(cached.topic, cached.partition)
        epoch = max(cached.current_leader_epoch, NO_EPOCH)
        if self.leaders_only:
            replica.require_leader(epoch)
        else:
            replica.require_epoch(epoch)
        if self.asker >= 0:
            self._check_follower(replica, epoch)
            if self.watch is not None:
                self.watch.see(cached, replica)
        self.replicas.append(replica)
        return replica

    def _check_follower(self, replica: Replica, epoch: int) -> None:
        """Raises an error for a broker that is not a follower, or not yet one for this leader; its request records
        nothing."""
        leadership = replica.leadership
        if leadership is None or self.asker not in leadership.followers:
            error = NotLeaderOrFollower if epoch == NO_EPOCH else UnknownLeaderEpoch
            raise error(f"{replica.topic}-{replica.index}: broker {self.asker} is none of its followers")

    def _read(self, cached: CachedPartition, replica: Replica, incremental: bool) -> Result | None:
        """Reads one partition. None if an incremental response may omit it."""
        log = replica.log
        high_watermark, start = log.high_watermark, log.log_start_offset
        offset = cached.fetch_offset
        if cached.last_fetched_epoch >= 0:
            diverging = divergence(log, cached)
            if diverging is not None:
                self.must_answer = True
                return empty_result(cached, log, diverging)
        if not start <= offset <= log.log_end_offset:
            if offset > start:
                self._reach_end(replica)
            raise OffsetOutOfRange(f"{replica.topic}-{replica.index}: {offset}, not in [{start}, {log.log_end_offset}]")
        if self.asker >= 0:
            upto = self._end_for_follower(cached, replica)
            high_watermark = log.high_watermark
        else:
            upto = log.last_stable_offset if self.committed else high_watermark
            if self.rack and not replica.is_linearizable and replica.leadership is not None:
                nearest = replica.leadership.select_read_replica(self.rack, offset)
                if nearest is not None:
                    self.must_answer = True
                    return self._read_there(cached, log, nearest)
        if offset >= upto or (self.left <= 0 and self.read_bytes):
            if offset < upto:
                self.unfinished.append(cached)
            else:
                self._reach_end(replica)
            if incremental:
                if cached.is_up_to_date(high_watermark, start):
                    return None
                if self.asker >= 0 and self.broker.replication.is_rack_aware:
                    self.must_answer = True  # consumers may wait for the high watermark at the follower
            return self._nothing(cached, log)
        return self._read_records(cached, replica, upto)

    def _read_records(self, cached: CachedPartition, replica: Replica, upto: int) -> Result:
        """Reads a partition that has records between the fetch offset and `upto`."""
        log, offset = replica.log, cached.fetch_offset
        limit = min(cached.max_bytes, self.left)
        if offset < log.local_log_start_offset:
            remote = self._read_remote(cached, replica, upto, limit)
            if remote is not None and len(remote.records):
                if remote.next_offset >= upto:
                    self._reach_end(replica)
                return self._found(cached, replica, remote.records, remote.next_offset, remote.aborted)
            if remote is None or not log.local_log_start_offset <= remote.next_offset < upto:
                return self._nothing(cached, log)
            offset = remote.next_offset  # nothing before the local log is left
        found = take(log, offset, limit, upto)
        if found is not None:
            if found[1] >= upto:
                self._reach_end(replica)
            return self._found(cached, replica, *found)
        if self.cold is not None:
            part = uncached_range(log, offset, limit)
            if part is not None:
                self.cold.append(part)
                self.left -= part.size  # the bytes that this partition would have taken
                return self._nothing(cached, log)
        read = log.read(offset, limit, upto=upto, at_least_one=self.read_bytes == 0)
        if read.records is None:
            # No batch fits. As in Kafka, aborted transactions are only listed if the limit is exhausted.
            self.unfinished.append(cached)
            return self._nothing(cached, log) if limit <= 0 else empty_result(cached, log)
        if read.next_offset >= upto:
            self._reach_end(replica)
        return self._found(cached, replica, log.files.for_response(read.records), read.next_offset)

    def _found(
        self,
        cached: CachedPartition,
        replica: Replica,
        records: RecordBytes,
        next_offset: int,
        aborted: Sequence[tuple[int, int]] | None = None,
    ) -> Result:
        """The result with these records, which end before `next_offset`. `aborted` transactions: those of the log, if
        None."""
        log, size = replica.log, len(records)
        self.read_bytes += size
        self.left -= size
        if self.asker >= 0:
            self.broker.replication.sent.note(replica, size)
        else:
            self.sent.append((replica, size))
        result = empty_result(cached, log)
        result.records = records  # type: ignore[misc]
        if self.committed and aborted is None:
            found = log.aborted_transactions(cached.fetch_offset, next_offset)
            aborted = [(each.producer_id, each.first_offset) for each in sorted(found, key=attrgetter("first_offset"))]
        if self.committed:
            result.aborted_transactions = [  # type: ignore[misc]
                AbortedTransaction(producer_id=producer_id, first_offset=first) for producer_id, first in aborted or ()
            ]
        return result

    def _read_remote(self, cached: CachedPartition, replica: Replica, upto: int, limit: int) -> "RemoteRead | None":
        """The result of a read from the object store; None if it runs before the next attempt."""
        if self.asker >= 0:
            raise OffsetMovedToTieredStorage(f"{cached.fetch_offset} is before {replica.log.local_log_start_offset}")
        if self.broker.tier is None:
            raise KafkaStorageError(f"{replica.log.name}: {cached.fetch_offset} is remote, and no store is configured")
        if self.remote is None:
            self.remote = self.broker.tier.fetch_reads()
        place = (replica, cached.fetch_offset, upto, limit, self.read_bytes == 0, self.committed)
        read = self.remote.result(*place)
        if read is None:
            self.left -= limit  # the bytes that this partition would have taken
        return read

    def _end_for_follower(self, cached: CachedPartition, replica: Replica) -> int:
        """Records the follower's position, and returns the offset up to which it may read. A follower outside the ISR
        is checked with each of its fetches, until it may join, and is subject to the replication throttle."""
        if self.is_noting:
            self._note(cached, replica)
        leadership = replica.leadership
        if leadership is not None and self.asker in leadership.isr:
            return replica.log.log_end_offset
        self.unfinished.append(cached)
        is_throttled = self.broker.replication.sent.is_throttling(replica)
        return cached.fetch_offset if is_throttled else replica.log.log_end_offset

    def _note(self, cached: CachedPartition, replica: Replica) -> None:
        positions = {"fetch_offset": cached.fetch_offset, "log_start_offset": cached.log_start_offset}
        if self.broker.replication.note(replica, self.asker, self.asker_epoch, **positions):
            self.noted.append(replica)

    def _read_there(self, cached: CachedPartition, log: Log, nearest: int) -> Result:
        """A result without records that redirects the consumer to a follower in its rack for a while (KIP-392)."""
        result = self._nothing(cached, log)
        result.preferred_read_replica = nearest  # type: ignore[misc]
        return result

    def _failed(self, cached: CachedPartition, error: KafkaError) -> Result:
        result = failed_result(cached, error)
        if self.call.version >= FIRST_VERSION_WITH_LEADERS and isinstance(error, NOT_LEADER_ERRORS):
            if self.leader_hints is None:
                self.leader_hints = LeaderHints(self.broker, self.call.connection.listener)
            leader = self.leader_hints.leader(cached.topic, cached.topic_id, cached.partition)
            result.current_leader = Result.CurrentLeader(leader_id=leader.id, leader_epoch=leader.epoch)  # type: ignore[misc]
        return result

    def _nothing(self, cached: CachedPartition, log: Log) -> Result:
        """A result without records. Its list of aborted transactions is empty for read_committed, else null."""
        result = empty_result(cached, log)
        if self.committed:
            result.aborted_transactions = []  # type: ignore[misc]
        return result


class _AuthorizedPartitionReader(PartitionReader):
    """For brokers with an authorizer: reads topics that the client may read, or all topics if the client is a broker
    that replicates or heals. Permissions are checked once, when the request arrives."""

    __slots__ = ("_allowed",)

    def __init__(
        self, broker: "Broker", context: FetchContext, request: FetchRequest, call: "Call", asker: int
    ) -> None:
        super().__init__(broker, context, request, call, asker)
        names = {cached.topic for cached in context.selected if cached.topic}
        self._allowed: Container[str] | None
        is_broker = self.asker >= 0 or request.replica_state.replica_id == HEALER
        if is_broker and broker.guard.may(call, AclOperation.CLUSTER_ACTION):
            self._allowed = _AllTopics()
        else:
            self._allowed = broker.guard.allowed(call, AclOperation.READ, TOPIC, names) if self.asker < 0 else None

    def note_for_reads(self) -> bool:
        return isinstance(self._allowed, _AllTopics) and super().note_for_reads()

    def _replica(self, cached: CachedPartition) -> Replica:
        if self._allowed is None or (cached.topic and cached.topic not in self._allowed):
            raise TopicAuthorizationFailed()
        return super()._replica(cached)


class _AllTopics:
    def __contains__(self, topic: object) -> bool:
        return True


class _ParkedFetch(DelayedOperation):
    """Waits for enough records. An append to a replicated partition becomes readable only with the high watermark, so a
    consumer's fetch ignores notifications that do not change the readable range."""

    __slots__ = ("_call", "_reading", "_seen")

    def __init__(self, reading: PartitionReader, call: "Call") -> None:
        super().__init__()
        self._reading = reading
        self._call = call
        self._seen: dict[Hashable, tuple[int, ...]] = {}
        if reading.asker < 0:
            self._seen = {each: _readable(each) for each in reading.replicas if each.leadership is not None}

    def try_complete(self, key: Hashable) -> bool:
        reading = self._reading
        if key in self._seen:
            assert isinstance(key, Replica)
            seen = _readable(key)
            if seen == self._seen[key]:
                return False
            self._seen[key] = seen
        results = reading.read_all()
        if not reading.has_enough():
            return False
        self._answer(results)
        return True

    def expire(self) -> None:
        self._answer(self._reading.read_all())

    def _answer(self, results: list[tuple[CachedPartition, Result]]) -> None:
        reading = self._reading
        if reading.reads.begin():
            _wait_for_reads(reading, self._call, reading.broker.clock.now())
        else:
            self._call.reply(reading.answer(results))

    def fail(self, mistake: Exception) -> None:
        self._call.fail(mistake)

    def abandon(self) -> None:
        self._reading.broker.purgatory.cancel(self)


def _readable(replica: Replica) -> tuple[int, ...]:
    """The state that a consumer's response depends on."""
    log = replica.log
    return log.high_watermark, log.last_stable_offset, log.log_start_offset, replica.leader_epoch, replica.leads
