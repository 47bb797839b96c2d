"""Client quotas: quotas of users and client ids, and the counters of their usage.

    producer_byte_rate, consumer_byte_rate    bytes of Produce requests and of Fetch responses
    request_percentage                        time of the event loop, in percent of one thread: of the handler, and of
                                              the network, which is not checked before the next request
    controller_mutation_rate                  partitions created or deleted; decided on the active controller

Kafka's rules determine which quota applies to a client, and which clients share a counter. Of the levels

    (user, client id) > (user, default) > user > (default, client id) > (default, default) > default user
    > client id > default client id

the first that has a quota decides. A quota of a user has one counter for all of the user's connections; a quota with a
client id, or for the default client id, has one for each pair of user and client id. While all quotas of a type have
the same shape (users, client ids, or pairs), clients without a limit are counted by that shape too.

Without any quota in the metadata `Dispatch.quotas` is None, and requests are not checked. Unused counters are kept for
an hour, at most `MAX_COUNTERS` of each type; the least recently used are removed first.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from trioka.cluster.image.quotas import CLIENT_ID, USER, Quotas, QuotaStamp
from trioka.cluster.quota_rates import Rate, TokenBucket
from trioka.protocol.errors import ThrottlingQuotaExceeded

from ..config.network_keys import (
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
)

if TYPE_CHECKING:
    from ..clock import Clock
    from ..config.layers import Config

MAX_COUNTERS: Final = 10_000
MAX_USAGES: Final = 10_000  # cached for fast paths; above this limit the cache is cleared
UNLIMITED: Final = 1 << 63  # bytes
MAX_CLIENT_ID_CHARS: Final = 255  # of a longer one a digest is kept, unless it has a quota
DIGEST_CHARS: Final = 32
MAX_UNUSED_MS: Final = 3_600_000
EXPIRE_INTERVAL_MS: Final = 60_000

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"

DEFAULT: Final = None  # the entity name of a default quota
ABSENT: Final = ""  # the entity has no such part; quotas have no empty names

Tags = tuple[str, str]  # user and client id that a counter belongs to; empty: shared by all
Limited = tuple[str | None, str | None]  # the same for a quota's entity, with defaults

CLIENT_LEVEL: Final = 1
USER_LEVEL: Final = 2
PAIR_LEVEL: Final = 4


class Counter:
    """The usage of one quota by the clients that share it, and their throttle times."""

    __slots__ = ("_throttled", "bucket", "limit", "rate", "used_ms")

    def __init__(self, limit: float | None, rate: Rate, bucket: TokenBucket | None) -> None:
        self.limit = limit
        self.rate = rate
        self.bucket = bucket  # of permits
        self.used_ms = 0
        self._throttled: tuple[Rate, Rate] | None = None  # milliseconds, and number of throttled requests

    def record(self, value: float, now_ms: int) -> int:
        """Records usage and returns how long to throttle the client."""
        self.used_ms = now_ms
        if self.limit is None:
            self.rate.record(value, now_ms)
            return 0
        return self.rate.record_within(value, self.limit, now_ms)

    def note(self, value: float, now_ms: int) -> None:
        """Records usage without computing a throttle time."""
        self.used_ms = now_ms
        self.rate.record(value, now_ms)

    def take_back(self, value: float, now_ms: int) -> None:
        self.rate.record(-value, now_ms)

    def note_throttle(self, throttle_ms: int, windows: int, window_ms: int, now_ms: int) -> None:
        if self._throttled is None:
            self._throttled = (Rate(windows, window_ms), Rate(windows, window_ms))
        for rate, value in zip(self._throttled, (throttle_ms, 1), strict=True):
            rate.record(value, now_ms)

    def average_throttle_ms(self, now_ms: int) -> float:
        """Average throttle time in the current windows; 0 without throttled requests."""
        if self._throttled is None:
            return 0.0
        milliseconds, times = (rate.per_second(now_ms) for rate in self._throttled)
        return milliseconds / times if times else 0.0

    def tokens(self, now_ms: int) -> float | None:
        """Remaining permits; None without a limit."""
        return None if self.bucket is None or self.limit is None else self.bucket.tokens(self.limit, now_ms)

    def take_permits(self, permits: int, now_ms: int, *, is_strict: bool) -> int:
        """The throttle time. If strict, nothing is taken while the bucket is overdrawn."""
        self.used_ms = now_ms
        bucket, limit = self.bucket, self.limit
        assert bucket is not None
        if limit is None:
            self.rate.record(permits, now_ms)
            return 0
        throttle_ms = bucket.throttle_ms(limit, now_ms)
        if is_strict and throttle_ms:
            return throttle_ms
        self.rate.record(permits, now_ms)
        bucket.take(permits, limit, now_ms)
        return 0 if is_strict else bucket.throttle_ms(limit, now_ms)


class Usage:
    """The counters of a client whose requests use fast paths; None for types without a quota."""

    __slots__ = ("fetch", "max_fetch_bytes", "produce", "request")

    def __init__(
        self, produce: Counter | None, fetch: Counter | None, request: Counter | None, max_fetch_bytes: int
    ) -> None:
        self.max_fetch_bytes = max_fetch_bytes
        self.produce = produce
        self.fetch = fetch
        self.request = request


class QuotaTable:
    """The quotas of one kind, and their counters."""

    def __init__(self, key: str, windows: int, window_ms: int, *, has_buckets: bool = False) -> None:
        self.key = key
        self.counters: dict[Tags, Counter] = {}
        self.window_bytes_s = (windows - 1) * window_ms / 1000  # quota times this may be used at once
        self._windows = windows
        self._window_ms = window_ms
        self._has_buckets = has_buckets
        self._limits: dict[Limited, float] = {}
        self.levels = 0  # those that have quotas
        self.forgets: Callable[[], object] = bool  # called when counters are no longer in use

    @property
    def is_enabled(self) -> bool:
        return bool(self.levels)

    def load(self, quotas: Quotas) -> None:
        self._limits.clear()
        self.levels = 0
        for entity, values in quotas:
            parts = dict(entity)
            if self.key not in values or not parts.keys() <= {USER, CLIENT_ID}:
                continue
            self._limits[parts.get(USER, ABSENT), parts.get(CLIENT_ID, ABSENT)] = values[self.key]
            self.levels |= PAIR_LEVEL if len(parts) == 2 else USER_LEVEL if USER in parts else CLIENT_LEVEL
        for tags, counter in self.counters.items():
            counter.limit = self.limit(tags)

    def tags(self, user: str, client_id: str) -> Tags:
        """The tags by which a client is counted."""
        levels, limits = self.levels, self._limits
        if levels in (0, CLIENT_LEVEL):
            return ABSENT, client_id
        if levels == USER_LEVEL:
            return user, ABSENT
        if levels == PAIR_LEVEL:
            return user, client_id
        if (user, client_id) in limits or (user, DEFAULT) in limits:
            return user, client_id
        if (user, ABSENT) in limits:
            return user, ABSENT
        if (DEFAULT, client_id) in limits or (DEFAULT, DEFAULT) in limits:
            return user, client_id
        if (DEFAULT, ABSENT) in limits:
            return user, ABSENT
        return ABSENT, client_id

    def limit(self, tags: Tags) -> float | None:
        """The quota of the clients with these tags; None if there is none."""
        user, client_id = tags
        if user and client_id:
            levels: tuple[Limited, ...] = ((user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT))
        elif user:
            levels = ((user, ABSENT), (DEFAULT, ABSENT))
        elif client_id:
            levels = ((ABSENT, client_id), (ABSENT, DEFAULT))
        else:
            levels = ()
        return next((self._limits[level] for level in levels if level in self._limits), None)

    def counter(self, user: str, client_id: str, now_ms: int) -> Counter:
        tags = self.tags(user, client_id)
        if len(tags[1]) > MAX_CLIENT_ID_CHARS and not self._has_quota(tags[1]):
            tags = (tags[0], _shortened(tags[1]))
        counter = self.counters.get(tags)
        if counter is None:
            if len(self.counters) >= MAX_COUNTERS:
                self._evict(now_ms)
            bucket = TokenBucket(self._windows, self._window_ms) if self._has_buckets else None
            rate = Rate(self._windows, self._window_ms)
            counter = self.counters[tags] = Counter(self.limit(tags), rate, bucket)
            counter.used_ms = now_ms
        return counter

    def _has_quota(self, client_id: str) -> bool:
        return any(name == client_id for _, name in self._limits)

    def note_throttle(self, user: str, client_id: str, throttle_ms: int, now_ms: int) -> None:
        """Records a throttled request, for the metric throttle-time."""
        self.counter(user, client_id, now_ms).note_throttle(throttle_ms, self._windows, self._window_ms, now_ms)

    def _evict(self, now_ms: int) -> None:
        """Removes unused counters; if there are still too many, the least recently used tenth."""
        self.forgets()
        self.expire(now_ms)
        if len(self.counters) >= MAX_COUNTERS:
            by_use = sorted(self.counters, key=lambda tags: self.counters[tags].used_ms)
            for tags in by_use[: MAX_COUNTERS // 10]:
                del self.counters[tags]

    def expire(self, now_ms: int) -> None:
        unused = [tags for tags, each in self.counters.items() if now_ms - each.used_ms > MAX_UNUSED_MS]
        if unused:
            self.forgets()
        for tags in unused:
            del self.counters[tags]


class ClientQuotas:
    """All quotas of users and client ids on one node."""

    def __init__(self, config: "Config", clock: "Clock") -> None:
        self._clock = clock
        windows, window_ms = config[QUOTA_WINDOW_NUM], config[QUOTA_WINDOW_SIZE_SECONDS] * 1000
        self.max_request_throttle_ms = window_ms
        self.produce = QuotaTable(PRODUCE, windows, window_ms)
        self.fetch = QuotaTable(FETCH, windows, window_ms)
        self.request = QuotaTable(REQUEST, windows, window_ms)
        self.mutation = QuotaTable(
            MUTATION,
            config[CONTROLLER_QUOTA_WINDOW_NUM],
            config[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * 1000,
            has_buckets=True,
        )
        self.tables: Final = (self.produce, self.fetch, self.request, self.mutation)
        self._usages: dict[tuple[str, str], Usage] = {}  # by principal and client id
        self.exempt = Rate(windows, window_ms)  # time of requests that do not count, in percent
        self.seconds = 0.0  # all time that was recorded, to tell the network's time from that of handlers
        for table in self.tables:
            table.forgets = self._usages.clear
        self._stamp: QuotaStamp | None = None
        self._expired_ms = 0

    def now_ms(self) -> int:
        """Monotonic time, unlike the wall clock."""
        return int(self._clock.now() * 1000)

    def load(self, quotas: Quotas) -> bool:
        """Applies the quotas of the metadata. Returns whether any is set."""
        if quotas.stamp is not self._stamp:
            self._stamp = quotas.stamp
            self._usages.clear()
            for table in self.tables:
                table.load(quotas)
        return any(table.levels for table in self.tables)

    def record_bytes(self, table: QuotaTable, user: str, client_id: str, size: int) -> int:
        """Records bytes and returns the throttle time."""
        if not table.levels:
            return 0
        now_ms = self.now_ms()
        return table.counter(user, client_id, now_ms).record(size, now_ms)

    def record_time(self, user: str, client_id: str, seconds: float) -> int:
        """Records the event loop time of a request; the throttle time is at most one window."""
        if not self.request.levels:
            return 0
        now_ms = self.now_ms()
        self.seconds += seconds
        throttle_ms = self.request.counter(user, client_id, now_ms).record(seconds * 100, now_ms)
        return min(throttle_ms, self.max_request_throttle_ms)

    def record_network_time(self, principal: str, client_id: str, seconds: float) -> None:
        """Records event loop time without a check."""
        counter = self.usage(principal, client_id).request
        if counter is not None:
            self.seconds += seconds
            counter.note(seconds * 100, self.now_ms())

    def record_exempt_time(self, seconds: float) -> None:
        """Records the time of a request between nodes, or of a Produce without a response."""
        if self.request.levels:
            self.seconds += seconds
            self.exempt.record(seconds * 100, self.now_ms())

    def usage(self, principal: str, client_id: str) -> Usage:
        found = self._usages.get((principal, client_id))
        if found is None:
            if len(self._usages) >= MAX_USAGES:
                self._usages.clear()
            user, now_ms = user_of(principal), self.now_ms()
            tables = (self.produce, self.fetch, self.request)
            produce, fetch, request = (
                table.counter(user, client_id, now_ms) if table.levels else None for table in tables
            )
            most = self.max_fetch_bytes(user, client_id)
            found = Usage(produce, fetch, request, UNLIMITED if most is None else most)
            self._usages[principal, client_id] = found
        return found

    def expire(self) -> None:
        """Removes counters that were not used for long; checks once a minute."""
        now_ms = self.now_ms()
        if now_ms - self._expired_ms >= EXPIRE_INTERVAL_MS:
            self._expired_ms = now_ms
            for table in self.tables:
                table.expire(now_ms)

    def max_fetch_bytes(self, user: str, client_id: str) -> int | None:
        """The largest fetch that need not be throttled; None without a limit."""
        if not self.fetch.levels:
            return None
        limit = self.fetch.counter(user, client_id, self.now_ms()).limit
        return None if limit is None else int(limit * self.fetch.window_bytes_s)


class MutationCharge:
    """The charge of one request that creates or deletes partitions, on the active controller."""

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str, *, is_free: bool, is_strict: bool) -> None:
        self._quotas = quotas
        self._counter = None if is_free else quotas.mutation.counter(user, client_id, quotas.now_ms())
        self._is_strict = is_strict
        self._throttle_ms = self._told_ms = 0

    def __call__(self, partitions: int) -> None:
        if self._counter is None:
            return
        now_ms = self._quotas.now_ms()
        throttle_ms = self._counter.take_permits(partitions, now_ms, is_strict=self._is_strict)
        if throttle_ms:
            self._throttle_ms, self._told_ms = throttle_ms, now_ms
            if self._is_strict:
                raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")

    @property
    def throttle_time_ms(self) -> int:
        """The part of the throttle time that remains when the response is built."""
        return max(0, self._throttle_ms - (self._quotas.now_ms() - self._told_ms)) if self._throttle_ms else 0


def _shortened(client_id: str) -> str:
    digest = sha256(client_id.encode()).hexdigest()[:DIGEST_CHARS]
    return f"{client_id[: MAX_CLIENT_ID_CHARS - DIGEST_CHARS - 1]}~{digest}"


def user_of(principal: str) -> str:
    """The user name of a principal: quotas apply to names, whatever the principal's type."""
    return principal.partition(":")[2]
