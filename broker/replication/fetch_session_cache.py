"""Fetch sessions (KIP-227): a client names its partitions once; later requests and responses have only changes.

    (session id, epoch)      kind of request
    (0, -1)                  a full fetch without a session; so is every request before v7, which has no sessions
    (0, 0)                   a full fetch that may open a session; the response has its id, or 0
    (id, -1), (id, 0)        the same two, and they close the session `id` if there is one
    (id, 1), (id, 2) …       an incremental fetch: partitions to add or change, partitions to forget

The epoch counts the requests of a session, so that a repeated, late or lost request is detected; 1 follows 2³¹-1.
An incremental request changes its session when it is opened, and its response omits every unchanged partition: no
records, no error, the same high watermark and log start offset. The last result is noted when the response is built.
Partitions which had records move to the end, so that no partition starves when the bytes of a response run out before
its partitions do.

A session names topics by name (before v13) or by id, never both. An unknown id stays in the session and gets its name
when there is one.

Sessions cost memory, so their number is limited, and so is the number of their partitions, which Kafka does not limit.
Without room, a new session may replace one that is worth less (see `_evict`); otherwise the client gets none and goes
on with full fetches, which is always correct. A session id is not a secret and proves nothing: every fetch is
authorized.

This is walked for every partition of every fetch, hence plain slots that are changed in place. In a session of 1,000
partitions where nothing happens, `CachedPartition.is_up_to_date` lets the reader skip one without building a result:
0.1 µs. Where there is a result, `FetchContext.answer` takes 0.2 µs to drop it and 0.3 µs to keep it.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Final, Protocol, TypeAlias

from trioka.protocol.errors import NONE, FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from trioka.protocol.messages.fetch import FetchRequest, FetchResponse

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = 0x7FFFFFFF
MAX_SESSION_ID: Final = 0x7FFFFFFF
FIRST_VERSION_BY_ID: Final = 13
NOTHING_SENT: Final = -1

# Of all sessions together: 1,000 consumers of 1,000 partitions, at about 0.3 kB each.
MAX_CACHED_PARTITIONS: Final = 1_000_000

RequestedPartition: TypeAlias = FetchRequest.Topic.Partition
Result: TypeAlias = FetchResponse.Topic.Partition
TopicNames: TypeAlias = Callable[[bytes], str | None]  # topic names by id
Key: TypeAlias = tuple[str | bytes, int]  # topic name or id, depending on the session's version; partition
EvictionRank: TypeAlias = tuple[bool, int, int]  # whether it is a follower's, number of partitions, session id


class Watch(Protocol):
    """The tracker of changed partitions (replication/follower_session.py); it is notified of the changes that requests
    of the session make."""

    def named(self, requested: "CachedPartition") -> None: ...

    def forget(self, key: Key) -> None: ...

    def close(self) -> None: ...


class CachedPartition:
    """One partition of a session: its last request and its last response."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, key: Key, topic: str, topic_id: bytes, wanted: RequestedPartition) -> None:
        self.key = key
        self.topic = topic  # "" while its id is unknown
        self.topic_id = topic_id
        self.partition = wanted.partition
        self.sent_high_watermark = NOTHING_SENT
        self.sent_log_start_offset = NOTHING_SENT
        self.update(wanted)

    def update(self, wanted: RequestedPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset  # of a follower's own log
        self.max_bytes = wanted.partition_max_bytes

    def is_up_to_date(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the last result was the same: without records, an incremental response omits the partition."""
        return high_watermark == self.sent_high_watermark and log_start_offset == self.sent_log_start_offset

    def note_sent(self, result: Result) -> bool:
        """Note a result that is sent; returns whether it differs from the last one."""
        has_findings = (
            not self.is_up_to_date(result.high_watermark, result.log_start_offset)
            or bool(result.records)
            or result.error_code != NONE
            or result.preferred_read_replica != -1
            or result.diverging_epoch.epoch >= 0
        )
        # After an error the partition is sent again, even if nothing else changed.
        self.sent_high_watermark = result.high_watermark if result.error_code == NONE else NOTHING_SENT
        self.sent_log_start_offset = result.log_start_offset
        return has_findings


class FetchSession:
    """The partitions that one client fetches, in the order in which they are read."""

    __slots__ = (
        "answered_read",
        "by_id",
        "created_ms",
        "epoch",
        "has_unresolved",
        "id",
        "is_follower",
        "is_settled",
        "last_used_ms",
        "partitions",
        "size",
        "watch",
    )

    def __init__(
        self, id: int, partitions: dict[Key, CachedPartition], now_ms: int, *, by_id: bool, is_follower: bool
    ) -> None:
        self.id = id
        self.partitions = partitions
        self.by_id = by_id
        self.is_follower = is_follower
        self.epoch = next_epoch(INITIAL_EPOCH)  # of the next request
        self.has_unresolved = by_id and any(not requested.topic for requested in partitions.values())
        self.created_ms = self.last_used_ms = now_ms
        self.watch: Watch | None = None
        self.answered_read = 0  # the newest linearizable read that had begun at its last response
        # The size and rank with which the cache has counted this session:
        self.size = len(partitions)
        self.is_settled = False

    @property
    def rank(self) -> EvictionRank:
        """The rank of this session among those that may be evicted."""
        return self.is_follower, self.size, self.id

    def update(self, request: FetchRequest, names: TopicNames) -> None:
        """Add and forget partitions. A partition that is both added and forgotten in one request is forgotten."""
        partitions, watch = self.partitions, self.watch
        self.has_unresolved |= _add_partitions(partitions, request, names, by_id=self.by_id, watch=watch)
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if self.by_id else topic.topic
            for partition in topic.partitions:
                partitions.pop((name, partition), None)
                if watch is not None:
                    watch.forget((name, partition))
        if self.has_unresolved:
            nameless = [requested for requested in partitions.values() if not requested.topic]
            for requested in nameless:
                requested.topic = names(requested.topic_id) or ""
            self.has_unresolved = any(not requested.topic for requested in nameless)

    def take_changed(self, results: Sequence[tuple[CachedPartition, Result]]) -> list[tuple[CachedPartition, Result]]:
        """The results that have changed. Partitions with records move to the end of the queue."""
        partitions = self.partitions
        changed = [pair for pair in results if pair[0].note_sent(pair[1])]
        for requested, result in changed:
            if result.records:
                partitions[requested.key] = partitions.pop(requested.key)
        return changed


class FetchContext:
    """One fetch, from its request to its response. With an `error_code`, no partition is read and the response has the
    error."""

    __slots__ = ("_by_id", "_epoch", "_is_follower", "_session", "_sessions", "error_code", "selected")

    def __init__(
        self,
        requested: Collection[CachedPartition] = (),
        *,
        error_code: int = NONE,
        session: FetchSession | None = None,
        creator: "FetchSessions | None" = None,
        by_id: bool = False,
        is_follower: bool = False,
    ) -> None:
        self.error_code = error_code
        self.selected = requested  # in the order in which the response's limit is divided
        self._session = session
        self._epoch = INITIAL_EPOCH if session is None else session.epoch
        self._sessions = creator  # None: do not try to create a session
        self._by_id = by_id
        self._is_follower = is_follower

    @property
    def is_incremental(self) -> bool:
        """Whether unchanged results may be omitted from the call of `answer`; a full fetch needs all results."""
        return self._session is not None

    @property
    def session(self) -> FetchSession | None:
        return self._session

    @property
    def is_current(self) -> bool:
        """Whether this is the session's latest request."""
        return self._session is None or self._session.epoch == self._epoch

    def answer(
        self,
        results: Sequence[tuple[CachedPartition, Result]],
        now_ms: int,
        *,
        throttle_time_ms: int = 0,
        node_endpoints: Sequence[FetchResponse.NodeEndpoint] = (),
    ) -> FetchResponse:
        """The response, with the changed results in the order of `results`. Must be called once."""
        session = self._session
        if self.error_code != NONE or (session is not None and session.epoch != self._epoch):
            return self.throttled(throttle_time_ms)
        session_id = NO_SESSION
        if session is not None:
            results = session.take_changed(results)
            session_id = session.id
        else:
            assert len(results) == len(self.selected), f"{len(results)} results, {len(self.selected)} selected"
            if self._sessions is not None:
                session_id = self._sessions.create(results, now_ms, by_id=self._by_id, is_follower=self._is_follower)
        return FetchResponse(
            throttle_time_ms=throttle_time_ms,
            session_id=session_id,
            responses=_by_topic(results),
            node_endpoints=list(node_endpoints),
        )

    def throttled(self, throttle_time_ms: int) -> FetchResponse:
        """A response without partitions, for a throttled client. An existing session continues; no new one is created.
        Also the response to an outdated request: the client has sent the session's next request without waiting, and
        the partitions of the session may have changed since."""
        session, error_code = self._session, self.error_code
        if session is not None and session.epoch != self._epoch:
            error_code = InvalidFetchSessionEpoch.code
        return FetchResponse(
            throttle_time_ms=throttle_time_ms,
            error_code=error_code,
            session_id=NO_SESSION if session is None else session.id,
            responses=[],
        )


class FetchSessions:
    """All sessions of a broker."""

    def __init__(
        self, slots: int, eviction_ms: int, random: Random, *, max_partitions: int = MAX_CACHED_PARTITIONS
    ) -> None:
        """`slots` is max.incremental.fetch.session.cache.slots, `eviction_ms` is
        min.incremental.fetch.session.eviction.ms."""
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._random = random
        self._max_partitions = max_partitions
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the least recently used first
        # Sessions that a new one may evict, the lowest rank first: one list for new sessions of followers, one for all
        # others.
        self._evictable_by_followers: list[EvictionRank] = []
        self._evictable: list[EvictionRank] = []
        self.partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, version: int, now_ms: int, names: TopicNames, *, is_follower: bool
    ) -> FetchContext:
        """The fetch context of a request. `names` resolves topic ids, which requests have from v13 on."""
        by_id = version >= FIRST_VERSION_BY_ID
        session = self._sessions.get(request.session_id)
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self._remove(session)
            creator = self if epoch == INITIAL_EPOCH else None
            return FetchContext(
                _new_partitions(request, names, by_id), creator=creator, by_id=by_id, is_follower=is_follower
            )
        if session is None:
            return FetchContext(error_code=FetchSessionIdNotFound.code)
        if session.epoch != epoch:
            return FetchContext(error_code=InvalidFetchSessionEpoch.code)
        if session.by_id != by_id:
            return FetchContext(error_code=FetchSessionTopicIdError.code)
        # An earlier request of this session that still waits is outdated from here on.
        session.epoch = next_epoch(epoch)
        session.update(request, names)
        if not session.partitions:
            self._remove(session)
            return FetchContext(_new_partitions(request, names, by_id))
        self._touch(session, now_ms)
        if self.partitions > self._max_partitions:
            # A session that has grown too large is closed; the client then sends a full fetch.
            self._remove(session)
            return FetchContext(error_code=FetchSessionIdNotFound.code)
        return FetchContext(session.partitions.values(), session=session)

    def find_at_epoch(self, session_id: int, epoch: int) -> FetchSession | None:
        """The session whose next request this is, for callers that parse the rest of the request themselves
        (fastpath/fetch.py). Changes nothing before `go_on`. None also if a topic of the session has no name."""
        session = self._sessions.get(session_id)
        return None if session is None or session.epoch != epoch or session.has_unresolved else session

    def advance(self, session: FetchSession, now_ms: int) -> None:
        """Advance the session after that request was served; the request has neither added nor forgotten partitions."""
        session.epoch = next_epoch(session.epoch)
        self._touch(session, now_ms)

    def create(
        self, results: Sequence[tuple[CachedPartition, Result]], now_ms: int, *, by_id: bool, is_follower: bool
    ) -> int:
        """Open a session with the partitions of a full fetch. Returns its id, or 0 if there is no room."""
        size = len(results)
        if size > self._max_partitions:
            return NO_SESSION
        while len(self._sessions) >= self._slots or self.partitions + size > self._max_partitions:
            if not self._evict((is_follower, size, NO_SESSION), now_ms):
                return NO_SESSION
        for requested, result in results:
            requested.note_sent(result)
        partitions = {requested.key: requested for requested, _ in results}
        session = FetchSession(self._new_id(), partitions, now_ms, by_id=by_id, is_follower=is_follower)
        self._sessions[session.id] = session
        self.partitions += session.size
        self._add_rank(session)
        return session.id

    def _new_id(self) -> int:
        while True:
            id = self._random.randint(1, MAX_SESSION_ID)
            if id not in self._sessions:
                return id

    def _evict(self, rank: EvictionRank, now_ms: int) -> bool:
        """Make room for a session of this rank. Evicts the least recently used session if it was unused for
        `eviction_ms`; otherwise the lowest-ranked of the sessions older than that, or, for a follower, a consumer's
        session of any age. The evicted session must have a lower rank: consumers before followers, then the smaller
        one."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            self._remove(oldest)
        else:
            is_follower = rank[0]
            evictable = self._evictable_by_followers if is_follower else self._evictable
            if not evictable or rank < evictable[0]:
                return False
            self._remove(self._sessions[evictable[0][2]])
        self.evictions += 1
        return True

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.id)
        size = len(session.partitions)
        is_settled = now_ms - session.created_ms > self._eviction_ms
        if size != session.size or is_settled != session.is_settled:
            self._drop_rank(session)
            self.partitions += size - session.size
            session.size, session.is_settled = size, is_settled
            self._add_rank(session)

    def _remove(self, session: FetchSession) -> None:
        self._drop_rank(session)
        self.partitions -= session.size
        del self._sessions[session.id]
        if session.watch is not None:
            session.watch.close()

    def _add_rank(self, session: FetchSession) -> None:
        if session.is_settled or not session.is_follower:
            insort(self._evictable_by_followers, session.rank)
        if session.is_settled:
            insort(self._evictable, session.rank)

    def _drop_rank(self, session: FetchSession) -> None:
        rank = session.rank
        for ranks in (self._evictable_by_followers, self._evictable):
            place = bisect_left(ranks, rank)
            if ranks[place : place + 1] == [rank]:
                del ranks[place]


def next_epoch(epoch: int) -> int:
    return 1 if epoch == MAX_EPOCH else epoch + 1


def _new_partitions(request: FetchRequest, names: TopicNames, by_id: bool) -> Collection[CachedPartition]:
    partitions: dict[Key, CachedPartition] = {}
    _add_partitions(partitions, request, names, by_id=by_id)
    return partitions.values()


def _add_partitions(
    partitions: dict[Key, CachedPartition],
    request: FetchRequest,
    names: TopicNames,
    *,
    by_id: bool,
    watch: Watch | None = None,
) -> bool:
    """Add and change the requested partitions; of duplicates, the last one counts. True if a topic has no name yet."""
    has_unresolved = False
    for topic in request.topics:
        name = (names(topic.topic_id) or "") if by_id else topic.topic
        has_unresolved |= by_id and not name
        for wanted in topic.partitions:
            key = (topic.topic_id if by_id else name, wanted.partition)
            requested = partitions.get(key)
            if requested is None:
                requested = partitions[key] = CachedPartition(key, name, topic.topic_id, wanted)
            else:
                requested.update(wanted)
            if watch is not None:
                watch.named(requested)
    return has_unresolved


def _by_topic(results: Sequence[tuple[CachedPartition, Result]]) -> list[FetchResponse.Topic]:
    """Groups adjacent partitions of a topic. A topic may appear twice, because the order of partitions must be kept."""
    topics: list[FetchResponse.Topic] = []
    last: str | bytes | None = None
    for requested, result in results:
        if requested.key[0] != last:
            last = requested.key[0]
            partitions: list[Result] = []
            topics.append(
                FetchResponse.Topic(topic=requested.topic, topic_id=requested.topic_id, partitions=partitions)
            )
        partitions.append(result)
    return topics
