"""Request latency by API: a histogram that costs the hot path one addition.

A fast path serves fifty requests in a hundred microseconds; reading a clock for each would take as long as the
response. So serving a request only increments `pending`, and when all sockets of a round are served
(network/server.py), the round's duration is recorded for every request in it: the requests were in the kernel when the
round began, and the responses were passed to the kernel when it ended. A request that waits (`PENDING`) is measured
individually, from the beginning of its round to its response.

Quantiles, for older dashboards, are computed at each scrape, from the requests of the last one or two minutes.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from ..api import SUPPORTED_APIS

PRODUCE: Final = 0
FETCH: Final = 1
BOUNDS_S: Final = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
KEYS: Final = 1024  # of APIs; Kafka has a hundred, and larger keys are not counted


class ApiLatency:
    """The requests of one API: the number below each bound, and the sum of all durations."""

    __slots__ = ("buckets", "seconds", "since")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0
        self.since = (self.buckets[:], self.buckets[:])  # the buckets at the start of the last two windows

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """The quantile in seconds of recent requests; 0 without any."""
        recent = [now - then for now, then in zip(self.buckets, self.since[0], strict=True)]
        return [quantile(recent, each) for each in wanted]


def quantile(buckets: Sequence[int], wanted: float) -> float:
    """Interpolates linearly within a bucket; beyond the last bound, returns that bound."""
    rank = wanted * sum(buckets)
    below = 0
    for index, count in enumerate(buckets):
        if count and below + count >= rank:
            if index == len(BOUNDS_S):
                break
            lower = BOUNDS_S[index - 1] if index else 0.0
            return lower + (BOUNDS_S[index] - lower) * (rank - below) / count
        below += count
    return BOUNDS_S[-1] if sum(buckets) else 0.0


class RequestLatencies:
    __slots__ = ("_apis", "_now", "others", "pending")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._apis: dict[int, ApiLatency] = {}
        self.pending = [0] * KEYS  # responses since the last round ended, by API key
        self.others: set[int] = set()  # their API keys, except Produce and Fetch

    def settle(self, seconds: float) -> None:
        """A round has taken this long: records that for its requests."""
        pending = self.pending
        if pending[PRODUCE]:
            self._add(PRODUCE, seconds, pending[PRODUCE])
            pending[PRODUCE] = 0
        if pending[FETCH]:
            self._add(FETCH, seconds, pending[FETCH])
            pending[FETCH] = 0
        if self.others:
            for key in self.others:
                self._add(key, seconds, pending[key])
                pending[key] = 0
            self.others.clear()

    def waited(self, key: int, began: float, count: int = 1) -> None:
        """Records requests that waited and have their responses now."""
        self._add(key, self._now() - began, count)

    def _add(self, key: int, seconds: float, count: int) -> None:
        times = self._apis.get(key)
        if times is None:
            times = self._apis[key] = ApiLatency()
        times.buckets[bisect_left(BOUNDS_S, seconds)] += count
        times.seconds += seconds * count

    def by_api(self) -> dict[str, ApiLatency]:
        """Each requested API, by its name in Kafka's metrics."""
        return {api_name(key): self._apis[key] for key in sorted(self._apis)}

    def turn_window(self) -> None:
        """Starts a new window: quantiles are of requests since the window before the last."""
        for times in self._apis.values():
            times.since = (times.since[1], times.buckets[:])


def api_name(key: int) -> str:
    """The API's name in Kafka's metrics: `Produce`, `ListOffsets`."""
    return (
        "".join(word.capitalize() for word in SUPPORTED_APIS[key].name.split("_"))
        if key in SUPPORTED_APIS
        else str(key)
    )
