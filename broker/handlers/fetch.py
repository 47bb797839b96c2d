"""Fetch (1): records from partitions. With Produce, the hot path.

What is sent are ranges of files; no record byte comes into Python. A fetch that finds less than `min_bytes` is parked
under its partitions (cluster/delayed.py), looks again at the one that changed, and is answered when there is enough or
`max_wait_ms` is over.

How the bytes are shared out (KIP-74): partitions are read in the order of the request or of its session, each up to its
own limit and to what is left of the whole; the first that has anything gives at least one whole batch, however large.
A range holds whole batches only (storage/reads.py). What is not in memory is brought there by a worker thread first
(storage/warmth.py): nothing here waits for a disk.

A client that reads on does not come by here after its second request (fetch_lane.py); what is asked of a Fetch here
must be asked there too.

v4 read_committed · v5 log start · v7 sessions · v9 leader epochs · v12 diverging epochs · v13 topics by id · v15 who
asks stands in a field of its own · v16 who leads instead
"""

from collections.abc import Coroutine, Hashable
from typing import TYPE_CHECKING, Any, Final

from trioka.cluster.delayed import Waiter
from trioka.protocol.errors import (
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse
from trioka.storage.log import Log
from trioka.storage.warmth import ColdPart, cold_part

from ..config.network_keys import FETCH_MAX_BYTES
from ..connection import LATER
from ..fetch_sessions import FIRST_VERSION_BY_ID, Asked, FetchContext
from ..partitions import Replica
from . import handles

if TYPE_CHECKING:
    from ..broker import Broker
    from ..connection import Call, Later

Result = FetchResponse.Topic.Partition
AbortedTransaction = Result.AbortedTransaction

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NO_EPOCH: Final = -1
WARMINGS: Final = 2

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


@handles(FetchRequest, refuse=refuse)
def fetch(
    broker: "Broker", call: "Call", request: FetchRequest
) -> "FetchResponse | Later | Coroutine[Any, Any, FetchResponse]":
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise InvalidRequest(f"there is no isolation level {request.isolation_level}")
    now_ms = broker.clock.now_ms()
    context = broker.fetch_sessions.open(request, call.version, now_ms, broker.topic_name, is_follower=False)
    if context.error_code:
        return context.answer((), now_ms)
    reading = _Reading(broker, context, request, call.version >= FIRST_VERSION_BY_ID)
    results = reading.read_all()
    if reading.cold:
        return _fetch_cold(broker, reading)
    if (
        reading.found_bytes >= request.min_bytes
        or request.max_wait_ms <= 0
        or reading.must_answer
        or not reading.replicas
    ):
        return context.answer(results, now_ms)
    parked = _ParkedFetch(reading, call)
    call.on_abandoned = parked.abandon
    broker.park(parked, reading.replicas, broker.clock.now() + request.max_wait_ms / 1000)
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
            return reading.context.answer(results, broker.clock.now_ms())
    reading.cold = None
    return reading.context.answer(reading.read_all(), broker.clock.now_ms())


class _Reading:
    """One fetch's way through its partitions. It can be gone again, when something has changed."""

    __slots__ = (
        "asker",
        "broker",
        "by_id",
        "cold",
        "committed",
        "context",
        "found_bytes",
        "left",
        "max_bytes",
        "min_bytes",
        "must_answer",
        "replicas",
    )

    def __init__(self, broker: "Broker", context: FetchContext, request: FetchRequest, by_id: bool) -> None:
        self.broker = broker
        self.context = context
        self.by_id = by_id
        self.committed = request.isolation_level == READ_COMMITTED
        self.asker = max(request.replica_id, request.replica_state.replica_id)  # a broker's id; a client has none
        self.max_bytes = min(request.max_bytes, broker.config[FETCH_MAX_BYTES])
        self.min_bytes = request.min_bytes
        self.left = 0  # of max_bytes
        self.found_bytes = 0
        self.must_answer = False  # there is an error, or a divergence: the client should hear of it now
        self.replicas: list[Replica] = []
        self.cold: list[ColdPart] | None = []  # what a read would wait for; None: no matter

    def read_all(self) -> list[tuple[Asked, Result]]:
        self.left = self.max_bytes
        self.found_bytes = 0
        self.must_answer = False
        self.replicas = []
        results = []
        incremental = self.context.is_incremental
        for asked in self.context.asked:
            try:
                replica = self._replica(asked)
                result = self._read(asked, replica, incremental)
                if result is None:
                    continue
            except KafkaError as error:
                self.must_answer = True
                result = _failed(asked, error)
            results.append((asked, result))
        return results

    def _replica(self, asked: Asked) -> Replica:
        if self.by_id:
            if not asked.topic:
                raise UnknownTopicId()
            replica = self.broker.partitions.get_by_id(asked.topic_id, asked.partition)
        else:
            replica = self.broker.partitions.get(asked.topic, asked.partition)
        replica.must_lead(max(asked.current_leader_epoch, NO_EPOCH))
        if self.asker >= 0:
            raise NotLeaderOrFollower(f"{replica.topic}-{replica.index}: broker {self.asker} is none of its followers")
        self.replicas.append(replica)
        return replica

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
        upto = log.last_stable_offset if self.committed else high_watermark
        if not start <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(f"{replica.topic}-{replica.index}: {offset}, not in [{start}, {log.log_end_offset}]")
        is_first = self.found_bytes == 0
        if offset >= upto or (self.left <= 0 and not is_first):
            if incremental and asked.knows(high_watermark, start):
                return None
            return self._nothing(asked, log)
        limit = min(asked.max_bytes, self.left)
        if self.cold is not None:
            part = cold_part(log, offset, limit)
            if part is not None:
                self.cold.append(part)
                self.left -= part.size  # of which it would have been a part
                return self._nothing(asked, log)
        read = log.read(offset, limit, upto=upto, at_least_one=is_first)
        records = read.records
        if records is None:
            # No batch was small enough. Kafka tells of aborted transactions only if there was no room at all.
            return self._nothing(asked, log) if limit <= 0 else _empty(asked, log)
        self.found_bytes += records.size
        self.left -= records.size
        result = _empty(asked, log)
        result.records = records  # type: ignore[misc]
        if self.committed:
            result.aborted_transactions = [  # type: ignore[misc]
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in sorted(log.aborted_transactions(offset, read.next_offset), key=_by_first_offset)
            ]
        return result

    def _nothing(self, asked: Asked, log: Log) -> Result:
        """Whoever reads what is committed is told that nothing was aborted in it; whoever reads all, is not told."""
        result = _empty(asked, log)
        if self.committed:
            result.aborted_transactions = []  # type: ignore[misc]
        return result


class _ParkedFetch(Waiter):
    __slots__ = ("_call", "_reading")

    def __init__(self, reading: _Reading, call: "Call") -> None:
        super().__init__()
        self._reading = reading
        self._call = call

    def look(self, key: Hashable) -> bool:
        reading = self._reading
        results = reading.read_all()
        if reading.found_bytes < reading.min_bytes and not reading.must_answer:
            return False
        self._answer(results)
        return True

    def expire(self) -> None:
        self._answer(self._reading.read_all())

    def _answer(self, results: list[tuple[Asked, Result]]) -> None:
        broker = self._reading.broker
        self._call.reply(self._reading.context.answer(results, broker.clock.now_ms()))

    def abandon(self) -> None:
        self._reading.broker.delayed.abandon(self)


def _divergence(log: Log, asked: Asked) -> Result.DivergingEpoch | None:
    """Where the client's log and ours part ways, if they do (I8)."""
    epoch, end = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch < 0 or end < 0:
        raise OffsetOutOfRange(f"no epoch up to {asked.last_fetched_epoch} is known")
    if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
        return Result.DivergingEpoch(epoch=epoch, end_offset=end)
    return None


def _by_first_offset(aborted: object) -> int:
    return aborted.first_offset  # type: ignore[attr-defined, no-any-return]


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
        aborted_transactions=[] if isinstance(error, (UnknownTopicOrPartition, UnknownTopicId)) else None,
        records=b"",
    )
