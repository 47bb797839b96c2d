"""Client quotas: how much a client has used, and how long it must wait. Pure; the time is an argument.

`Rate` is the sum of a sliding number of samples, divided by the time that they cover. A sample begins with the first
record that comes when the last sample is `window_ms` old. A sample whose last record is older than all windows together
is emptied, and starts again. A young rate is divided by all windows but one, so that a client may use what these allow
at once, before it is throttled.

The results are those of Kafka's classes (metrics.stats.Rate and SampledStat, QuotaUtils, TokenBucket), to the
millisecond; `compat-tests/test_quota_rates.py` compares them. Kafka visits all samples with each record. Here their
sum, the oldest start and the next expiry are kept, and computed again only when a sample begins or expires: a record
costs the same whatever the number of windows.
"""

from math import floor
from typing import Final

MAX_THROTTLE_MS: Final = (1 << 31) - 1  # what the field of a response can hold


class Rate:
    """Of something in a second. `windows` and `window_ms` are quota.window.num and quota.window.size.seconds."""

    __slots__ = (
        "_current",
        "_expires_at",
        "_last",
        "_oldest",
        "_shortest_s",
        "_started",
        "_total",
        "_values",
        "_window_ms",
        "_windows",
    )

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        # One entry for each sample: what was recorded, when it began, when the last record came.
        self._values: list[float] = []
        self._started: list[int] = []
        self._last: list[int] = []
        self._current = 0
        self._total: float = 0  # of all values
        self._oldest = 0  # the earliest beginning
        self._expires_at = 0  # no sample expires before
        # No total is divided by less than all windows but one; rounding is left to `throttle_ms`.
        self._shortest_s = (windows - 1) * window_ms / 1000 * (1 - 1e-9)

    def record(self, value: float, now_ms: int) -> None:
        current = self._current
        if not self._values or now_ms - self._started[current] >= self._window_ms:
            current = self._begin_sample(now_ms)
        self._values[current] += value
        self._last[current] = now_ms
        self._total += value

    def record_within(self, value: float, quota: float, now_ms: int) -> int:
        """Records it, and returns `throttle_ms`."""
        current = self._current
        if not self._values or now_ms - self._started[current] >= self._window_ms:
            current = self._begin_sample(now_ms)
        self._values[current] += value
        self._last[current] = now_ms
        total = self._total = self._total + value
        if total <= quota * self._shortest_s and now_ms < self._expires_at:
            return 0
        return self.throttle_ms(quota, now_ms)

    def _begin_sample(self, now_ms: int) -> int:
        if self._values:
            self._current = (self._current + 1) % (self._windows + 1)
        current = self._current
        if current == len(self._values):
            self._values.append(0)
            self._started.append(now_ms)
            self._last.append(now_ms)
        else:
            self._values[current] = 0
            self._started[current] = self._last[current] = now_ms
        self._count_up()
        return current

    def _count_up(self) -> None:
        self._total = 0
        for value in self._values:  # in this order: sums of fractions depend on it
            self._total += value
        self._oldest = min(self._started)
        self._expires_at = min(self._last) + self._windows * self._window_ms

    def _expire(self, now_ms: int) -> None:
        """Empties the samples whose last record is too old."""
        age = self._windows * self._window_ms
        for index, last in enumerate(self._last):
            if now_ms - last >= age:
                self._values[index] = 0
                self._started[index] = self._last[index] = now_ms
        self._count_up()

    def window_ms(self, now_ms: int) -> int:
        """The time that the samples cover, or are taken to cover."""
        if not self._values:
            self._begin_sample(now_ms)
        if now_ms >= self._expires_at:
            self._expire(now_ms)
        elapsed = now_ms - self._oldest
        missing = self._windows - 1 - elapsed // self._window_ms
        if missing > 0:
            elapsed += missing * self._window_ms
        return max(elapsed, 1)

    def per_second(self, now_ms: int) -> float:
        window_ms = self.window_ms(now_ms)  # expires samples first
        return self._total / (window_ms / 1000)

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long to wait until the rate is no more than the quota, if nothing is recorded meanwhile; 0 if it is not
        exceeded."""
        window_ms = self.window_ms(now_ms)
        rate = self._total / (window_ms / 1000)
        if rate <= quota:
            return 0
        return _whole_ms((rate - quota) / quota * window_ms)


class TokenBucket:
    """Permits that accrue at a rate and may be saved up, for all windows together (KIP-599). A request is granted if
    any permit is left, even if there are too few: the bucket may be overdrawn once."""

    __slots__ = ("_filled_at_ms", "_tokens", "_windows_s")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows_s = windows * (window_ms / 1000)
        self._tokens: float | None = None  # full
        self._filled_at_ms = 0

    def _fill(self, quota: float, now_ms: int) -> float:
        most = self._windows_s * quota
        if self._tokens is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + quota * ((now_ms - self._filled_at_ms) / 1000))
        self._filled_at_ms = now_ms
        return self._tokens

    def tokens(self, quota: float, now_ms: int) -> float:
        return self._fill(quota, now_ms)

    def take(self, permits: float, quota: float, now_ms: int) -> None:
        self._tokens = min(self._windows_s * quota, self._fill(quota, now_ms) - permits)

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long until it is not overdrawn any more; 0 if it is not."""
        tokens = self._fill(quota, now_ms)
        return _whole_ms(-tokens / quota * 1000) if tokens < 0 else 0


def _whole_ms(milliseconds: float) -> int:
    """Infinite for a quota of almost nothing."""
    return floor(milliseconds + 0.5) if milliseconds < MAX_THROTTLE_MS else MAX_THROTTLE_MS
