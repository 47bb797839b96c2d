"""Which brokers are alive, as the active controller hears them.

A broker that serves and was not heard of for `broker.session.timeout.ms` is fenced. A fenced one has no session: its id
is free for its next life (I14). How far each has come with the metadata is known from its heartbeats, too; a broker
that shuts down goes when all others have seen who leads in its place.

All this is soft. A new active controller begins with a fresh session for everybody, since it cannot know who was silent
before its time. Neither can a controller that did not listen: one that was paused, or whose machine had no time for it,
gives everybody that time back, or it would fence a whole cluster when it wakes up.
"""

from collections.abc import Iterable
from typing import Final

from .brokers import Broker, Brokers

NOTHING_SEEN: Final = -1
LOOKS_PER_SESSION: Final = 8  # so often is looked for expired sessions while one lasts; a late look is a deaf time


class Sessions:
    def __init__(self, brokers: Iterable[Broker], timeout_s: float, now: float) -> None:
        self.timeout_s = timeout_s
        self._looked = now
        self._heard = {broker.broker_id: now for broker in brokers}
        self._offsets: dict[int, int] = {}  # of the metadata, that each has seen
        self._leaving: dict[int, int] = {}  # in controlled shutdown, and which offset says so

    @property
    def look_interval_s(self) -> float:
        return self.timeout_s / LOOKS_PER_SESSION

    def begin(self, broker_id: int, now: float) -> None:
        """A broker has registered: what its former life had seen does not count."""
        self._heard[broker_id] = now
        self._offsets.pop(broker_id, None)
        self._leaving.pop(broker_id, None)

    def heard(self, broker_id: int, offset: int, now: float) -> None:
        """Of a broker whose epoch is the right one."""
        self._heard[broker_id] = now
        self._offsets[broker_id] = offset

    def look(self, now: float) -> None:
        """Called every `look_interval_s`. If it comes late, nobody could be heard either."""
        late = now - self._looked - self.look_interval_s
        if late > self.look_interval_s:
            for broker_id in self._heard:
                self._heard[broker_id] = min(now, self._heard[broker_id] + late)
        self._looked = now

    def is_alive(self, brokers: Brokers, broker_id: int, now: float) -> bool:
        """Whether another life of this id has to wait."""
        broker = brokers.get(broker_id)
        return broker is not None and not broker.fenced and not self._is_over(broker_id, now)

    def expired(self, brokers: Iterable[Broker], now: float) -> int | None:
        """The broker that was silent for longest, if that is too long. One at a time: the next one is looked for when
        it is seen what has come of this one."""
        self.look(now)  # the last look may be long ago: what the controller decides waits for a quorum, as brokers do
        silent = [broker.broker_id for broker in brokers if not broker.fenced and self._is_over(broker.broker_id, now)]
        return min(silent, key=lambda broker_id: (self._heard.get(broker_id, now), broker_id), default=None)

    def _is_over(self, broker_id: int, now: float) -> bool:
        return now - self._heard.setdefault(broker_id, now) > self.timeout_s

    def leaves(self, broker_id: int, offset: int) -> None:
        """A broker is in controlled shutdown, and the records that say so end with this offset. The first word counts:
        what is written later has nothing to do with it."""
        self._leaving.setdefault(broker_id, offset)

    def others_caught_up(self, brokers: Iterable[Broker], broker_id: int) -> bool:
        """Whether all who serve know that a broker leaves. Who never was said to leave has nothing that others must
        know of."""
        until = self._leaving.get(broker_id)
        return until is None or all(
            self._offsets.get(other.broker_id, NOTHING_SEEN) >= until
            for other in brokers
            if other.is_active and other.broker_id != broker_id
        )
