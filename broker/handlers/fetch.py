"""Fetch (1): records from partitions. With Produce, the hot path.

What is sent are ranges of files; no record byte comes into Python. A fetch that finds less than `min_bytes` is parked
under its partitions (cluster/purgatory.py), looks again at the one that changed, and is answered when there is enough
or `max_wait_ms` is over.

How the bytes are shared out (KIP-74): partitions are read in the order of the request or of its session, each up to its
own limit and to what is left of the whole; the first that has anything gives at least one whole batch, however large.
A range holds whole batches only (storage/read_plan.py). What is not in memory is brought there by a worker thread first
(storage/page_cache_probe.py): nothing here waits for a disk.

A client that reads on does not come by here after its second request (fastpath/fetch.py); what is asked of a Fetch here
must be asked there too.

**Followers** (whoever gives a broker's id) read up to the log's end, and what they ask for is noted once, when it is
asked: it says how far they are (replication/transitions.py). Whoever is no replica, or speaks of another epoch, changes
nothing. Of their sessions only what has changed is looked at (replication/follower_session.py): the work for a record
must not grow with the partitions that nobody writes to. Consumers may read from a follower, too, up to what it knows to
be committed (KIP-392).

v4 read_committed · v5 log start · v7 sessions · v9 leader epochs · v12 diverging epochs · v13 topics by id · v15 who
asks stands in a field of its own · v16 who leads instead
"""

from collections.abc import Container, Coroutine, Hashable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.acls import Operation
from trioka.cluster.healing import HEALER
from trioka.cluster.purgatory import Waiter
from trioka.protocol.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.protocol.primitives import RecordBytes
from trioka.storage.log import Log
from trioka.storage.page_cache_probe import ColdPart, cold_part
from trioka.storage.small_read import take

from ..api import handles
from ..config.network_keys import FETCH_MAX_BYTES
from ..metadata.leader_hints import Elsewhere
from ..network.connection import FETCH_KEY, LATER
from ..replication.fetch_session_cache import FIRST_VERSION_BY_ID, Asked, FetchContext
from ..replication.follower_session import FollowerWatch
from ..replication.partitions import Replica
from ..security.guard import TOPIC

if TYPE_CHECKING:
    from ..broker import Broker
    from ..network.connection import Call, Later

Result = FetchResponse.Topic.Partition
AbortedTransaction = Result.AbortedTransaction

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NO_EPOCH: Final = -1
FIRST_VERSION_WITH_RACKS: Final = 11  # from here on consumers know that they may be sent to a follower
FIRST_VERSION_WITH_LEADERS: Final = 16
LED_ELSEWHERE: Final = (NotLeaderOrFollower, FencedLeaderEpoch)
WARMINGS: Final = 2
BEFORE_THE_LOG: Final = (TopicAuthorizationFailed, UnknownTopicId, UnknownTopicOrPartition)

# What most results have to say of these, made once: three objects for each partition would cost more than the rest.
NO_DIVERGENCE: Final = Result.DivergingEpoch()
NO_OTHER_LEADER: Final = Result.CurrentLeader()
NO_SNAPSHOT: Final = Result.SnapshotId()


def refuse(request: FetchRequest, error: KafkaError) -> FetchResponse:
    """Partitions are told of one by one before v13, and never by id."""
    return FetchResponse(
        throttle_time_ms=0,
        error_code=error.code,
        responses=[
            FetchResponse.Topic(
                topic=topic.topic,
                partitions=[
                    Result(
                        partition_index=asked.partition,
                        error_code=error.code,
                        high_watermark=-1,
                        aborted_transactions=[],
                        records=b"",
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.topic
        ],
    )


def _guarded(
    broker: "Broker", call: "Call", request: FetchRequest
) -> "FetchResponse | Later | Coroutine[Any, Any, FetchResponse]":
    """The same where there is an authorizer."""
    return fetch.serve(broker, call, request, _GuardedReading)  # type: ignore[call-arg, return-value]


@handles(FetchRequest, refuse=refuse, guarded=_guarded)
def fetch(
    broker: "Broker",
    call: "Call",
    request: FetchRequest,
    new: "type[_Reading] | None" = None,
) -> "FetchResponse | Later | Coroutine[Any, Any, FetchResponse]":
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise InvalidRequest(f"there is no isolation level {request.isolation_level}")
    now_ms = broker.clock.now_ms()
    asker = max(request.replica_id, request.replica_state.replica_id)  # a broker's id; a client has none
    context = broker.fetch_sessions.open(request, call.version, now_ms, broker.topic_name, is_follower=asker >= 0)
    if context.error_code:
        return context.answer((), now_ms)
    reading = (new or _Reading)(broker, context, request, call, asker)
    results = reading.read_all()
    if reading.cold:
        reading.tell_who_waited()
        return _fetch_cold(broker, reading)
    if reading.has_enough() or request.max_wait_ms <= 0 or not (reading.replicas or reading.watch):
        response = reading.answer(results)
        reading.tell_who_waited()  # afterwards: what they write then comes with the next fetch
        return response
    if reading.noted:
        reading.tell_who_waited()
        if reading.has_become_stale:
            results = reading.read_all()
            if reading.has_enough():
                return reading.answer(results)
    parked = _ParkedFetch(reading, call) if reading.watch is None else _ParkedFollower(reading, call, results)
    call.on_abandoned = parked.abandon
    keys = reading.replicas if reading.watch is None else ()
    broker.park(parked, keys, broker.clock.now() + request.max_wait_ms / 1000)
    return LATER


async def _fetch_cold(broker: "Broker", reading: "_Reading") -> FetchResponse:
    """Something is not in memory: a worker thread fetches it, and everyone else is served meanwhile. Then it is
    answered with what there is, even if that is less than min_bytes: it has waited."""
    for _ in range(WARMINGS):  # an index, and then what it points to; if more is lost meanwhile, it is read anyhow
        cold, reading.cold = reading.cold, []
        assert cold is not None
        await broker.cold_reads.warm(cold)
        results = reading.read_all()
        if not reading.cold:
            return reading.answer(results)
    reading.cold = None
    return reading.answer(reading.read_all())


class _Reading:
    """One fetch's way through its partitions. It can be gone again, when something has changed."""

    __slots__ = (
        "asker",
        "asker_epoch",
        "broker",
        "by_id",
        "call",
        "cold",
        "committed",
        "context",
        "elsewhere",
        "found_bytes",
        "is_noting",
        "leaders_only",
        "left",
        "max_bytes",
        "min_bytes",
        "must_answer",
        "noted",
        "rack",
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
        self.elsewhere: Elsewhere | None = None
        self.by_id = version >= FIRST_VERSION_BY_ID
        self.committed = request.isolation_level == READ_COMMITTED and asker < 0
        self.asker = asker
        self.asker_epoch = request.replica_state.replica_epoch
        self.is_noting = asker >= 0  # once: what waits and is read again says nothing new of the asker
        self.noted: list[Replica] = []  # those for which somebody may have waited
        self.leaders_only = asker >= 0 or version < FIRST_VERSION_WITH_RACKS
        # The rack whose replicas shall be read, if there are any: only where the broker is told to choose.
        self.rack = request.rack_id if not self.leaders_only and broker.replication.minds_racks else ""
        self.max_bytes = min(request.max_bytes, broker.config[FETCH_MAX_BYTES])
        self.min_bytes = request.min_bytes
        self.left = 0  # of max_bytes
        self.found_bytes = 0
        self.must_answer = False  # there is an error, or a divergence: the client should hear of it now
        self.replicas: list[Replica] = []
        self.sent: list[tuple[Replica, int]] = []  # the bytes of each of them that has any
        self.cold: list[ColdPart] | None = []  # what a read would wait for; None: no matter
        self.unfinished: list[Asked] = []  # of a follower: to be looked at next time, whatever happens
        self.watch = None if asker < 0 else self._watch(context)
        if self.watch is not None:
            context.asked = self.watch.asked(broker.clock.now(), broker.replication.max_lag_s())

    def _watch(self, context: FetchContext) -> FollowerWatch | None:
        """Of a follower's session, from its second fetch on."""
        session = context.session
        if session is None:
            return None
        watch = session.watch
        if watch is None:
            watch = session.watch = FollowerWatch(self.broker.delayed, session)
        assert isinstance(watch, FollowerWatch)
        return watch

    def read_all(self) -> list[tuple[Asked, Result]]:
        self.left = self.max_bytes
        self.found_bytes = 0
        self.must_answer = False
        self.replicas = []
        self.sent = []
        self.unfinished = []
        results = []
        incremental = self.context.is_incremental
        for asked in self.context.asked if self.watch is None else tuple(self.watch.news.values()):
            try:
                replica = self._replica(asked)
                result = self._read(asked, replica, incremental)
                if result is None:
                    continue
            except KafkaError as error:
                self.must_answer = True
                self.unfinished.append(asked)
                result = self._failed(asked, error)
                if self.asker >= 0 and isinstance(error, CorruptMessage):  # others may need what it knows committed
                    result.high_watermark = replica.log.high_watermark  # type: ignore[misc]
            results.append((asked, result))
        self.is_noting = False
        return results

    def answer(self, results: list[tuple[Asked, Result]]) -> FetchResponse:
        """What was read is told, and counts."""
        if self.watch is not None and self.context.is_current:
            self.watch.keep(self.unfinished)
        for replica in self.replicas:
            replica.fetches += 1
        for replica, size in self.sent:
            replica.bytes_out += size
        if self.must_answer:
            for asked, result in results:
                if result.error_code:
                    known = self.broker.metadata.topics.by_name(asked.topic) is not None
                    self.broker.counts.failed_fetch(asked.topic if known else "")
                    self.broker.dispatch.errors.add(FETCH_KEY, result.error_code)
        endpoints = () if self.elsewhere is None else self.elsewhere.fetch_endpoints()
        return self.context.answer(results, self.broker.clock.now_ms(), node_endpoints=endpoints)

    def has_enough(self) -> bool:
        return self.found_bytes >= self.min_bytes or self.must_answer

    @property
    def has_become_stale(self) -> bool:
        """Who was told that a record is committed may have written the next one, as coordinators do."""
        return self.watch is None or not all(_has_nothing_for(asked, replica) for asked, replica in self.watch.seen())

    def tell_who_waited(self) -> None:
        for replica in self.noted:
            self.broker.delayed.touch(replica)
        self.noted = []

    def _replica(self, asked: Asked) -> Replica:
        if self.by_id:
            if not asked.topic:
                raise UnknownTopicId()
            replica = self.broker.partitions.get_by_id(asked.topic_id, asked.partition)
        else:
            replica = self.broker.partitions.get(asked.topic, asked.partition)
        epoch = max(asked.current_leader_epoch, NO_EPOCH)
        if self.leaders_only:
            replica.must_lead(epoch)
        else:
            replica.must_be_of(epoch)
        if self.asker >= 0:
            self._check_follower(replica, epoch)
            if self.watch is not None:
                self.watch.see(asked, replica)
        self.replicas.append(replica)
        return replica

    def _check_follower(self, replica: Replica, epoch: int) -> None:
        """One that is none, or not yet in the eyes of this leader, may ask again; nothing that it says is noted."""
        leadership = replica.leadership
        if leadership is None or self.asker not in leadership.followers:
            error = NotLeaderOrFollower if epoch == NO_EPOCH else UnknownLeaderEpoch
            raise error(f"{replica.topic}-{replica.index}: broker {self.asker} is none of its followers")

    def _read(self, asked: Asked, replica: Replica, incremental: bool) -> Result | None:
        """None if an incremental answer need not speak of the partition."""
        log = replica.log
        high_watermark, start = log.high_watermark, log.log_start_offset
        offset = asked.fetch_offset
        if asked.last_fetched_epoch >= 0:
            diverging = _divergence(log, asked)
            if diverging is not None:
                self.must_answer = True
                return _empty(asked, log, diverging)
        if not start <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(f"{replica.topic}-{replica.index}: {offset}, not in [{start}, {log.log_end_offset}]")
        if self.asker >= 0:
            upto = self._end_for_follower(asked, replica)
            high_watermark = log.high_watermark
        else:
            upto = log.last_stable_offset if self.committed else high_watermark
            if self.rack and replica.leadership is not None:
                nearest = replica.leadership.nearest(self.rack, offset)
                if nearest is not None:
                    self.must_answer = True
                    return self._read_there(asked, log, nearest)
        is_first = self.found_bytes == 0
        if offset >= upto or (self.left <= 0 and not is_first):
            if offset < upto:
                self.unfinished.append(asked)
            if incremental:
                if asked.knows(high_watermark, start):
                    return None
                if self.asker >= 0 and self.broker.replication.minds_racks:
                    self.must_answer = True  # consumers may wait for it there
            return self._nothing(asked, log)
        limit = min(asked.max_bytes, self.left)
        found = take(log, offset, limit, upto)
        if found is not None:
            return self._found(asked, replica, *found)
        if self.cold is not None:
            part = cold_part(log, offset, limit)
            if part is not None:
                self.cold.append(part)
                self.left -= part.size  # of which it would have been a part
                return self._nothing(asked, log)
        read = log.read(offset, limit, upto=upto, at_least_one=is_first)
        if read.records is None:
            # No batch was small enough. Kafka tells of aborted transactions only if there was no room at all.
            self.unfinished.append(asked)
            return self._nothing(asked, log) if limit <= 0 else _empty(asked, log)
        return self._found(asked, replica, log.files.for_answer(read.records), read.next_offset)

    def _found(self, asked: Asked, replica: Replica, records: RecordBytes, next_offset: int) -> Result:
        """These records, up to that offset, are to be sent."""
        log, size = replica.log, len(records)
        self.found_bytes += size
        self.left -= size
        if self.asker >= 0:
            self.broker.replication.sent.note(replica, size)
        else:
            self.sent.append((replica, size))
        result = _empty(asked, log)
        result.records = records  # type: ignore[misc]
        if self.committed:
            found = log.aborted_transactions(asked.fetch_offset, next_offset)
            result.aborted_transactions = [  # type: ignore[misc]
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in sorted(found, key=attrgetter("first_offset"))
            ]
        return result

    def _end_for_follower(self, asked: Asked, replica: Replica) -> int:
        """Where it is, is noted; up to here it may read. One that is not in sync is looked at with each of its fetches,
        until it may join, and is not to take more than its share."""
        if self.is_noting:
            self._note(asked, replica)
        leadership = replica.leadership
        if leadership is not None and self.asker in leadership.isr:
            return replica.log.log_end_offset
        self.unfinished.append(asked)
        return asked.fetch_offset if self.broker.replication.sent.holds_up(replica) else replica.log.log_end_offset

    def _note(self, asked: Asked, replica: Replica) -> None:
        if self.broker.replication.note(
            replica,
            self.asker,
            self.asker_epoch,
            fetch_offset=asked.fetch_offset,
            log_start_offset=asked.log_start_offset,
        ):
            self.noted.append(replica)

    def _read_there(self, asked: Asked, log: Log, nearest: int) -> Result:
        """A follower is nearer to the consumer, which shall read from that one for a while (KIP-392)."""
        result = self._nothing(asked, log)
        result.preferred_read_replica = nearest  # type: ignore[misc]
        return result

    def _failed(self, asked: Asked, error: KafkaError) -> Result:
        result = _failed(asked, error)
        if self.call.version >= FIRST_VERSION_WITH_LEADERS and isinstance(error, LED_ELSEWHERE):
            if self.elsewhere is None:
                self.elsewhere = Elsewhere(self.broker, self.call.connection.listener)
            leader = self.elsewhere.leader(asked.topic, asked.topic_id, asked.partition)
            result.current_leader = Result.CurrentLeader(leader_id=leader.id, leader_epoch=leader.epoch)  # type: ignore[misc]
        return result

    def _nothing(self, asked: Asked, log: Log) -> Result:
        """Whoever reads what is committed is told that nothing was aborted in it; whoever reads all, is not told."""
        result = _empty(asked, log)
        if self.committed:
            result.aborted_transactions = []  # type: ignore[misc]
        return result


class _GuardedReading(_Reading):
    """Where there is an authorizer: only of topics that the client may read, or of all if it is a broker, which follows
    or heals. That is asked once, at the beginning, however often it is looked again."""

    __slots__ = ("_allowed",)

    def __init__(
        self, broker: "Broker", context: FetchContext, request: FetchRequest, call: "Call", asker: int
    ) -> None:
        super().__init__(broker, context, request, call, asker)
        names = {asked.topic for asked in context.asked if asked.topic}
        self._allowed: Container[str] | None
        is_broker = self.asker >= 0 or request.replica_state.replica_id == HEALER
        if is_broker and broker.guard.may(call, Operation.CLUSTER_ACTION):
            self._allowed = _Everything()
        else:
            self._allowed = broker.guard.allowed(call, Operation.READ, TOPIC, names) if self.asker < 0 else None

    def _replica(self, asked: Asked) -> Replica:
        if self._allowed is None or (asked.topic and asked.topic not in self._allowed):
            raise TopicAuthorizationFailed()
        return super()._replica(asked)


class _Everything:
    def __contains__(self, topic: object) -> bool:
        return True


class _ParkedFetch(Waiter):
    """Waits for enough to read. Where there are followers, what was appended cannot be read yet: then nothing has
    changed for a consumer, and it does not look through all its partitions."""

    __slots__ = ("_call", "_reading", "_seen")

    def __init__(self, reading: _Reading, call: "Call") -> None:
        super().__init__()
        self._reading = reading
        self._call = call
        self._seen: dict[Hashable, tuple[int, ...]] = {}
        if reading.asker < 0:
            self._seen = {each: _readable(each) for each in reading.replicas if each.leadership is not None}

    def look(self, key: Hashable) -> bool:
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
        self._call.reply(reading.answer(results))
        return True

    def expire(self) -> None:
        self._call.reply(self._reading.answer(self._reading.read_all()))

    def fail(self, mistake: Exception) -> None:
        self._call.fail(mistake)

    def abandon(self) -> None:
        self._reading.broker.delayed.abandon(self)


class _ParkedFollower(Waiter):
    """Waits for the session's watch, under no key of its own. A high watermark that moves is told with the next answer;
    nobody is woken for it, unless consumers read from followers."""

    __slots__ = ("_call", "_others", "_reading", "_watch")

    def __init__(self, reading: _Reading, call: "Call", results: list[tuple[Asked, Result]]) -> None:
        super().__init__()
        assert reading.watch is not None
        self._reading = reading
        self._call = call
        self._watch = reading.watch
        self._watch.parked = self
        self._others = reading.broker.replication.waiting.setdefault(reading.asker, set())
        self._others.add(self)
        self._set_aside(results)

    def look(self, key: Hashable) -> bool:
        reading = self._reading
        assert isinstance(key, Replica)
        if not reading.broker.replication.minds_racks and _has_nothing_for(self._watch.of(key), key):
            return False
        results = reading.read_all()
        if not reading.has_enough():
            self._set_aside(results)
            return False
        reading.broker.delayed.abandon(self)
        self._answer(results)
        return True

    def _set_aside(self, results: list[tuple[Asked, Result]]) -> None:
        """What is known, and not told yet."""
        self._watch.keep([*self._reading.unfinished, *(asked for asked, _ in results)])

    def expire(self) -> None:
        self._answer(self._reading.read_all() if self._reading.context.is_current else [])

    def fail(self, mistake: Exception) -> None:
        self.abandon()
        self._call.fail(mistake)

    def hurry(self) -> None:
        self._reading.broker.delayed.end(self)

    def _answer(self, results: list[tuple[Asked, Result]]) -> None:
        self._leave()
        self._call.reply(self._reading.answer(results))

    def abandon(self) -> None:
        """Its follower is gone, or has another connection now, and with it another session."""
        self._leave()
        self._watch.close()
        self._reading.broker.delayed.abandon(self)

    def _leave(self) -> None:
        self._others.discard(self)
        if self._watch.parked is self:
            self._watch.parked = None


def _has_nothing_for(asked: Asked, replica: Replica) -> bool:
    """As it was when the follower asked: nobody has written, and nobody else leads."""
    is_led = replica.leads and asked.current_leader_epoch in (NO_EPOCH, replica.leader_epoch)
    return is_led and replica.log.log_end_offset <= asked.fetch_offset


def _readable(replica: Replica) -> tuple[int, ...]:
    """What a consumer's answer depends on."""
    log = replica.log
    return log.high_watermark, log.last_stable_offset, log.log_start_offset, replica.leader_epoch, replica.leads


def _divergence(log: Log, asked: Asked) -> Result.DivergingEpoch | None:
    """Where the client's log and ours part ways, if they do (I8)."""
    epoch, end = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch < 0 or end < 0:
        raise OffsetOutOfRange(f"no epoch up to {asked.last_fetched_epoch} is known")
    if asked.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(f"{asked.fetch_offset}; the log starts at {log.log_start_offset}")
    if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
        return Result.DivergingEpoch(epoch=epoch, end_offset=end)
    return None


def _empty(asked: Asked, log: Log, diverging: Result.DivergingEpoch | None = None) -> Result:
    return Result(
        partition_index=asked.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=NO_DIVERGENCE if diverging is None else diverging,
        current_leader=NO_OTHER_LEADER,
        snapshot_id=NO_SNAPSHOT,
        aborted_transactions=None,
        records=b"",
    )


def _failed(asked: Asked, error: KafkaError) -> Result:
    return Result(
        partition_index=asked.partition,
        error_code=error.code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[] if isinstance(error, BEFORE_THE_LOG) else None,
        records=b"",
    )
