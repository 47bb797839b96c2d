"""The event loop, watched from inside: how late it is, how much of the time it rests, what happened of late.

A task sleeps for half a second, again and again, and looks at the clock when it is woken: by as much as that is too
late, everyone else who was ready had to wait as well. The numbers kept are of the last half minute, which is more than
usually lies between two scrapes, so that a stall is seen though it is over.
"""

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

if TYPE_CHECKING:
    from ..broker import Broker

INTERVAL_S: Final = 0.5
WINDOW: Final = 60  # looks
QUANTILE_WINDOW: Final = 120  # looks, after which the quantiles of request times begin a new window


class Look(NamedTuple):
    at: float
    busy: float  # CPU seconds of the loop's thread, so far
    records: int  # in the metadata's log
    late: float


class LoopWatch:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._looks: deque[Look] = deque([self._look(0.0)], maxlen=WINDOW)

    async def run(self) -> None:
        """Until cancelled."""
        count = 0
        while True:
            expected = self._broker.clock.now() + INTERVAL_S
            await trio.sleep(INTERVAL_S)
            self.note(self._look(max(0.0, self._broker.clock.now() - expected)))
            count += 1
            if count % QUANTILE_WINDOW == 0:
                self._broker.dispatch.times.turn_window()

    def note(self, look: Look) -> None:
        self._looks.append(look)

    def _look(self, late: float) -> Look:
        broker = self._broker
        records = broker.quorum.log.log_end_offset if hasattr(broker, "quorum") else 0
        return Look(broker.clock.now(), time.thread_time(), records, late)

    @property
    def lag_s(self) -> float:
        return max(look.late for look in self._looks)

    @property
    def idle(self) -> float:
        """The share of time in which there was nothing to do."""
        first, last = self._looks[0], self._looks[-1]
        elapsed = last.at - first.at
        return 1.0 if elapsed <= 0 else min(1.0, max(0.0, 1.0 - (last.busy - first.busy) / elapsed))

    @property
    def metadata_rate(self) -> float:
        """Records of the metadata in a second."""
        first, last = self._looks[0], self._looks[-1]
        elapsed = last.at - first.at
        return 0.0 if elapsed <= 0 or not first.records else (last.records - first.records) / elapsed
