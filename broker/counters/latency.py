"""How long requests take, by API: a histogram that the hot path feeds with one addition.

A lane answers fifty requests in a hundred microseconds; to read a clock for each would cost as much as the answer. So
whoever answers requests only adds to `pending`, and when all sockets of a round are served (network/server.py), the
round's length counts for every request in it: they lay in the kernel when the round began, and their answers were
handed to the kernel when it ended. A request that waits for something (`LATER`) is measured by itself, from the
beginning of its round to its answer.

Quantiles, which older dashboards ask for, are computed when somebody asks, from the requests of the last minute or two.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from ..api import SERVED

PRODUCE: Final = 0
FETCH: Final = 1
BOUNDS_S: Final = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
KEYS: Final = 1024  # of APIs; Kafka has a hundred, and what is not served is not counted


class ApiTimes:
    """The requests of one API: how many took no longer than each bound, and how long all of them took together."""

    __slots__ = ("buckets", "seconds", "since")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0
        self.since = (self.buckets[:], self.buckets[:])  # as they were, the window before last and the last

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def quantiles(self, wanted: Sequence[float]) -> list[float]:
        """In seconds, of the last requests; nought without any."""
        recent = [now - then for now, then in zip(self.buckets, self.since[0], strict=True)]
        return [quantile(recent, each) for each in wanted]


def quantile(buckets: Sequence[int], wanted: float) -> float:
    """Within its bucket a quantile is guessed along a straight line; beyond the last bound, it is that bound."""
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


class RequestTimes:
    __slots__ = ("_apis", "_now", "others", "pending")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._apis: dict[int, ApiTimes] = {}
        self.pending = [0] * KEYS  # answered since the last round ended, by API key
        self.others: set[int] = set()  # the keys of them, but for Produce and Fetch

    def settle(self, seconds: float) -> None:
        """A round took so long: what was answered in it took as long."""
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

    def waited(self, key: int, began: float) -> None:
        """A request that waited has its answer now."""
        self._add(key, self._now() - began, 1)

    def _add(self, key: int, seconds: float, count: int) -> None:
        times = self._apis.get(key)
        if times is None:
            times = self._apis[key] = ApiTimes()
        times.buckets[bisect_left(BOUNDS_S, seconds)] += count
        times.seconds += seconds * count

    def by_api(self) -> dict[str, ApiTimes]:
        """Each API that was ever asked, by the name that Kafka's metrics have for it."""
        return {api_name(key): self._apis[key] for key in sorted(self._apis)}

    def turn_window(self) -> None:
        """Quantiles are of the requests since the window before the last."""
        for times in self._apis.values():
            times.since = (times.since[1], times.buckets[:])


def api_name(key: int) -> str:
    """As Kafka's metrics call it: `Produce`, `ListOffsets`."""
    return "".join(word.capitalize() for word in SERVED[key].name.split("_")) if key in SERVED else str(key)
