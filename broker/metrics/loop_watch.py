"""Measures the event loop: its lag, its idle share, and the longest recent delay.

A task repeatedly sleeps for half a second and compares the clock with its deadline: every other ready task was delayed
by the same lag. The samples cover the last half minute, longer than the usual scrape interval, so that a stall is
reported after it is over.
"""

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

if TYPE_CHECKING:
    from ..broker import Broker

INTERVAL_S: Final = 0.5
WINDOW: Final = 60  # samples
QUANTILE_WINDOW: Final = 120  # samples, after which the quantiles of request latencies start a new window


class LoopSample(NamedTuple):
    at: float
    busy: float  # total CPU seconds of the loop's thread
    records: int  # total records in the metadata log
    late: float


class LoopWatch:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._samples: deque[LoopSample] = deque([self._sample(0.0)], maxlen=WINDOW)

    async def run(self) -> None:
        """Runs until cancelled."""
        count = 0
        while True:
            expected = self._broker.clock.now() + INTERVAL_S
            await trio.sleep(INTERVAL_S)
            self.note(self._sample(max(0.0, self._broker.clock.now() - expected)))
            count += 1
            if count % QUANTILE_WINDOW == 0:
                self._broker.dispatch.times.turn_window()

    def note(self, sample: LoopSample) -> None:
        self._samples.append(sample)

    def _sample(self, late: float) -> LoopSample:
        broker = self._broker
        records = broker.quorum.log.log_end_offset if hasattr(broker, "quorum") else 0
        return LoopSample(broker.clock.now(), time.thread_time(), records, late)

    @property
    def lag_s(self) -> float:
        return max(sample.late for sample in self._samples)

    @property
    def idle(self) -> float:
        """The share of time in which the loop was idle."""
        first, last = self._samples[0], self._samples[-1]
        elapsed = last.at - first.at
        return 1.0 if elapsed <= 0 else min(1.0, max(0.0, 1.0 - (last.busy - first.busy) / elapsed))

    @property
    def metadata_rate(self) -> float:
        """Metadata records per second."""
        first, last = self._samples[0], self._samples[-1]
        elapsed = last.at - first.at
        return 0.0 if elapsed <= 0 or not first.records else (last.records - first.records) / elapsed
