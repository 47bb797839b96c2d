"""Fetch sessions (KIP-227): a client names its partitions once, and from then on both sides speak of changes only.

    (session id, epoch)      what the request is
    (0, -1)                  a full fetch and nothing more; so is every request before v7, which has no sessions
    (0, 0)                   a full fetch after which there may be a session; the response says its id, or 0
    (id, -1), (id, 0)        the same two, and they close the session `id` if there is one
    (id, 1), (id, 2) …       an incremental fetch: partitions to add or change, partitions to forget

The epoch counts the requests of a session, so that a request which is repeated, late or lost is noticed; behind 2³¹-1
comes 1. An incremental request changes its session when it is opened, and its response leaves out every partition of
which the client has heard all there is: no records, no error, the high watermark and log start of last time. What it
was told is noted when it is answered. Partitions which had records move to the end, so that no partition starves when
the bytes of a response run out before its partitions do.

A session speaks of topics by name (before v13) or by id, never both. An id that nobody knows yet stays in the session
and gets its name when there is one.

Sessions cost memory, so their number is limited, and so is the number of their partitions, which Kafka does not limit.
Where there is no room, a new session may take the place of one that is worth less (see `_evict`); otherwise the client
gets none and goes on with full fetches, which is always correct. The number of a session is no secret and proves
nothing: what its client may read is asked at every fetch.

This is walked for every partition of every fetch, hence plain slots that are changed in place. In a session of 1,000
partitions where nothing happens, `Asked.knows` lets its reader pass one by without building an answer to be dropped:
0.1 µs. Where there is an answer, `FetchContext.answer` takes 0.2 µs to drop it and 0.3 µs to keep it.
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
NOTHING_TOLD: Final = -1

# Of all sessions together: 1,000 consumers of 1,000 partitions, at about 0.3 kB each.
MAX_CACHED_PARTITIONS: Final = 1_000_000

Wanted: TypeAlias = FetchRequest.Topic.Partition
Result: TypeAlias = FetchResponse.Topic.Partition
Names: TypeAlias = Callable[[bytes], str | None]  # of topics, by their ids
Key: TypeAlias = tuple[str | bytes, int]  # the topic's name or id, whichever the session speaks; the partition
Rank: TypeAlias = tuple[bool, int, int]  # is it a follower's, how many partitions, session id


class Watch(Protocol):
    """Knows what has changed (replication/follower_session.py), and wants to hear of what the requests of its session
    change."""

    def named(self, asked: "Asked") -> None: ...

    def forget(self, key: Key) -> None: ...

    def close(self) -> None: ...


class Asked:
    """One partition that a fetch is about: what is asked of it, and what its client was told last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, key: Key, topic: str, topic_id: bytes, wanted: Wanted) -> None:
        self.key = key
        self.topic = topic  # "" as long as nobody knows its id
        self.topic_id = topic_id
        self.partition = wanted.partition
        self.told_high_watermark = NOTHING_TOLD
        self.told_log_start_offset = NOTHING_TOLD
        self.ask(wanted)

    def ask(self, wanted: Wanted) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset  # of a follower's own log
        self.max_bytes = wanted.partition_max_bytes

    def knows(self, high_watermark: int, log_start_offset: int) -> bool:
        """Its client was told just this: without records, an incremental answer need not speak of the partition."""
        return high_watermark == self.told_high_watermark and log_start_offset == self.told_log_start_offset

    def tell(self, result: Result) -> bool:
        """Notes that the client is told this, and says whether any of it is news."""
        is_news = (
            not self.knows(result.high_watermark, result.log_start_offset)
            or bool(result.records)
            or result.error_code != NONE
            or result.preferred_read_replica != -1
            or result.diverging_epoch.epoch >= 0
        )
        # When the error has gone, the partition is told of again, even if all else is as before.
        self.told_high_watermark = result.high_watermark if result.error_code == NONE else NOTHING_TOLD
        self.told_log_start_offset = result.log_start_offset
        return is_news


class FetchSession:
    """What one client fetches, in the order of its turn."""

    __slots__ = (
        "by_id",
        "created_ms",
        "epoch",
        "has_nameless",
        "id",
        "is_follower",
        "is_settled",
        "last_used_ms",
        "partitions",
        "size",
        "watch",
    )

    def __init__(self, id: int, partitions: dict[Key, Asked], now_ms: int, *, by_id: bool, is_follower: bool) -> None:
        self.id = id
        self.partitions = partitions
        self.by_id = by_id
        self.is_follower = is_follower
        self.epoch = next_epoch(INITIAL_EPOCH)  # of the next request
        self.has_nameless = by_id and any(not asked.topic for asked in partitions.values())
        self.created_ms = self.last_used_ms = now_ms
        self.watch: Watch | None = None
        # As the cache has counted and ranked it:
        self.size = len(partitions)
        self.is_settled = False

    @property
    def rank(self) -> Rank:
        """What it is worth, among sessions that may be evicted."""
        return self.is_follower, self.size, self.id

    def update(self, request: FetchRequest, names: Names) -> None:
        """What is added and forgotten in one request is forgotten."""
        partitions, watch = self.partitions, self.watch
        self.has_nameless |= _ask(partitions, request, names, by_id=self.by_id, watch=watch)
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if self.by_id else topic.topic
            for partition in topic.partitions:
                partitions.pop((name, partition), None)
                if watch is not None:
                    watch.forget((name, partition))
        if self.has_nameless:
            nameless = [asked for asked in partitions.values() if not asked.topic]
            for asked in nameless:
                asked.topic = names(asked.topic_id) or ""
            self.has_nameless = any(not asked.topic for asked in nameless)

    def tell(self, results: Sequence[tuple[Asked, Result]]) -> list[tuple[Asked, Result]]:
        """The results that are news. Of these, the ones with records go to the end of the queue."""
        partitions = self.partitions
        news = [pair for pair in results if pair[0].tell(pair[1])]
        for asked, result in news:
            if result.records:
                partitions[asked.key] = partitions.pop(asked.key)
        return news


class FetchContext:
    """One fetch, from its request to its response. With an `error_code` nothing is asked, and it is the response."""

    __slots__ = ("_by_id", "_epoch", "_is_follower", "_session", "_sessions", "asked", "error_code")

    def __init__(
        self,
        asked: Collection[Asked] = (),
        *,
        error_code: int = NONE,
        session: FetchSession | None = None,
        creator: "FetchSessions | None" = None,
        by_id: bool = False,
        is_follower: bool = False,
    ) -> None:
        self.error_code = error_code
        self.asked = asked  # in the order in which the bytes of the response are shared out
        self._session = session
        self._epoch = INITIAL_EPOCH if session is None else session.epoch
        self._sessions = creator  # None: do not even try to make a session
        self._by_id = by_id
        self._is_follower = is_follower

    @property
    def is_incremental(self) -> bool:
        """Results that hold no news need not be given to `answer`; in a full fetch, all must be."""
        return self._session is not None

    @property
    def session(self) -> FetchSession | None:
        return self._session

    @property
    def is_current(self) -> bool:
        """Unless the next request of its session has come."""
        return self._session is None or self._session.epoch == self._epoch

    def answer(
        self,
        results: Sequence[tuple[Asked, Result]],
        now_ms: int,
        *,
        throttle_time_ms: int = 0,
        node_endpoints: Sequence[FetchResponse.NodeEndpoint] = (),
    ) -> FetchResponse:
        """The response, with what the client must hear, in the order of `results`. To be asked for once."""
        session = self._session
        if self.error_code != NONE or (session is not None and session.epoch != self._epoch):
            return self.throttled(throttle_time_ms)
        session_id = NO_SESSION
        if session is not None:
            results = session.tell(results)
            session_id = session.id
        else:
            assert len(results) == len(self.asked), f"{len(results)} results, {len(self.asked)} asked"
            if self._sessions is not None:
                session_id = self._sessions.create(results, now_ms, by_id=self._by_id, is_follower=self._is_follower)
        return FetchResponse(
            throttle_time_ms=throttle_time_ms,
            session_id=session_id,
            responses=_by_topic(results),
            node_endpoints=list(node_endpoints),
        )

    def throttled(self, throttle_time_ms: int) -> FetchResponse:
        """A response without partitions, as it is given instead of the answer when a quota says so. The session goes
        on; there is no new one. Also what is left to say when the client did not wait for its answer: the next request
        of the session has come, the epoch is not ours any more, and what was read may not be what is asked now."""
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
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the one that was used last is last
        # What a new session may evict, the least first: one list for new sessions of followers, one for all others.
        self._evictable_by_followers: list[Rank] = []
        self._evictable: list[Rank] = []
        self.partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, version: int, now_ms: int, names: Names, *, is_follower: bool
    ) -> FetchContext:
        """What the request asks. `names` are needed from v13 on, where topics come by id."""
        by_id = version >= FIRST_VERSION_BY_ID
        session = self._sessions.get(request.session_id)
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self._remove(session)
            creator = self if epoch == INITIAL_EPOCH else None
            return FetchContext(_asked(request, names, by_id), creator=creator, by_id=by_id, is_follower=is_follower)
        if session is None:
            return FetchContext(error_code=FetchSessionIdNotFound.code)
        if session.epoch != epoch:
            return FetchContext(error_code=InvalidFetchSessionEpoch.code)
        if session.by_id != by_id:
            return FetchContext(error_code=FetchSessionTopicIdError.code)
        # From here on an earlier request of this session that still waits for its answer is out of date.
        session.epoch = next_epoch(epoch)
        session.update(request, names)
        if not session.partitions:
            self._remove(session)
            return FetchContext(_asked(request, names, by_id))
        self._touch(session, now_ms)
        if self.partitions > self._max_partitions:
            # A session that grew too large ends; its client will come back with a full fetch.
            self._remove(session)
            return FetchContext(error_code=FetchSessionIdNotFound.code)
        return FetchContext(session.partitions.values(), session=session)

    def expecting(self, session_id: int, epoch: int) -> FetchSession | None:
        """The session of which this is the next request. For who reads the rest himself (fastpath/fetch.py): nothing
        changes before `go_on`. None also if it has a topic without a name."""
        session = self._sessions.get(session_id)
        return None if session is None or session.epoch != epoch or session.has_nameless else session

    def go_on(self, session: FetchSession, now_ms: int) -> None:
        """That request is served; it has added no partition, and forgotten none."""
        session.epoch = next_epoch(session.epoch)
        self._touch(session, now_ms)

    def create(self, results: Sequence[tuple[Asked, Result]], now_ms: int, *, by_id: bool, is_follower: bool) -> int:
        """A session of the partitions which a full fetch has just been told of. Its id, or 0 if there is no room."""
        size = len(results)
        if size > self._max_partitions:
            return NO_SESSION
        while len(self._sessions) >= self._slots or self.partitions + size > self._max_partitions:
            if not self._evict((is_follower, size, NO_SESSION), now_ms):
                return NO_SESSION
        for asked, result in results:
            asked.tell(result)
        partitions = {asked.key: asked for asked, _ in results}
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

    def _evict(self, rank: Rank, now_ms: int) -> bool:
        """Makes room for a session of that rank. The session that was not used for longest goes, if that is longer than
        `eviction_ms`. Else the least among those that are older than that goes; to a follower, a consumer's session
        gives way however young it is. But it must be worth less: consumers before followers, then the smaller one."""
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


def _asked(request: FetchRequest, names: Names, by_id: bool) -> Collection[Asked]:
    partitions: dict[Key, Asked] = {}
    _ask(partitions, request, names, by_id=by_id)
    return partitions.values()


def _ask(
    partitions: dict[Key, Asked], request: FetchRequest, names: Names, *, by_id: bool, watch: Watch | None = None
) -> bool:
    """Adds and changes what the request asks; said twice, the last word counts. True if a topic has no name yet."""
    has_nameless = False
    for topic in request.topics:
        name = (names(topic.topic_id) or "") if by_id else topic.topic
        has_nameless |= by_id and not name
        for wanted in topic.partitions:
            key = (topic.topic_id if by_id else name, wanted.partition)
            asked = partitions.get(key)
            if asked is None:
                asked = partitions[key] = Asked(key, name, topic.topic_id, wanted)
            else:
                asked.ask(wanted)
            if watch is not None:
                watch.named(asked)
    return has_nameless


def _by_topic(results: Sequence[tuple[Asked, Result]]) -> list[FetchResponse.Topic]:
    """Neighbours of one topic are said together. A topic may come twice: the order of the partitions matters more."""
    topics: list[FetchResponse.Topic] = []
    last: str | bytes | None = None
    for asked, result in results:
        if asked.key[0] != last:
            last = asked.key[0]
            partitions: list[Result] = []
            topics.append(FetchResponse.Topic(topic=asked.topic, topic_id=asked.topic_id, partitions=partitions))
        partitions.append(result)
    return topics
