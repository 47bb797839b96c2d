"""To sleep where requests arrive.

A processor at rest is asleep, and to wake it takes longer than a small request does: on a virtual machine, where its
host has to do it, a hundred µs and more. The one that has just taken a packet is awake. But the system wakes a thread
where it ran last, if that one is at rest, and so a broker with little to do is mostly woken on another processor than
the one at which its request lies. Therefore, while there is little to do, the network's thread sleeps on the processor
that takes the packets, and is woken there (decision 18 has the figures).

**Only with those who stay.** A client on the same machine that is moved elsewhere by the system, because we are there,
is not followed again for a while. Nor is one at whose processor we have to wait for our turn, or have much to do.

**Nobody else is led along.** A thread that is started inherits where it may run. So the thread is bound only while it
waits for requests of calm clients and serves them; before other tasks have their turn, or several clients have
something to say at once, it may run anywhere again. What somebody else decides meanwhile about where the process may
run is left as it is.
"""

from typing import Final, Protocol

STAYS: Final = 10  # in which all requests came by one processor, until it is followed
BAD_STAYS: Final = 3  # in which there was much to do, or others were in the way, until it is no longer
WAIT_S: Final = 60e-6  # for a turn, on the average of a stay: about what it costs to wake another processor
REST_S: Final = 1.0  # after it was no good
MAX_REST_S: Final = 300.0
TELLING_S: Final = 0.002  # who stays for less has not tried to sleep
CALM_SHARE: Final = 0.75  # of a stay, asleep


class Thread(Protocol):
    """The one that calls, as the system sees it (cli/node/own_thread.py)."""

    def bind(self, processor: int) -> bool:
        """To one processor; False if it cannot be."""

    def release(self, processor: int) -> None:
        """From it, to where it might run before; unless somebody has said meanwhile where it may."""

    def waits(self) -> tuple[float, int]:
        """For how many seconds, so far, it was ready to run and others ran; and for how many turns."""


class Caller(Protocol):
    def processor(self) -> int:
        """By which its last packet came."""


class Nearness:
    """Where the network's thread sleeps. A stay is what it does until others have their turn: a few milliseconds."""

    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self.followed: int | None = None  # a processor, where to sleep
        self._bound: int | None = None  # to this one, now
        self._since = 0.0
        self._waits = (0.0, 0)  # before it was bound
        self._last: int | None = None  # by which requests came, in a calm stay
        self._stays = 0  # in a row
        self._bad_stays = 0  # in a row
        self._again_at = 0.0
        self._rest_s = REST_S

    def settle(self) -> None:
        """Before the thread falls asleep."""
        if self.followed is None or self._bound is not None:
            return
        self._waits = self._thread.waits()
        if self._thread.bind(self.followed):
            self._bound = self.followed
        else:
            self.followed, self._again_at = None, float("inf")

    def roam(self) -> None:
        """Before others start threads, or there is more to do than one processor should."""
        if self._bound is not None:
            self._thread.release(self._bound)
            self._bound = None

    def stayed(self, now: float, seconds: float, asleep_s: float, by: Caller | None) -> None:
        """A stay is over, of so many seconds; the last request came `by` this."""
        was_bound = self._bound is not None
        self.roam()
        if by is None or seconds < TELLING_S:
            return
        is_calm = asleep_s >= CALM_SHARE * seconds
        processor = by.processor() if is_calm else None
        if self.followed is None:
            self._stays = self._stays + 1 if processor == self._last else 0
            self._last = processor
            if self._stays >= STAYS and now >= self._again_at:
                self.followed, self._since, self._bad_stays = processor, now, 0
        elif not is_calm or (was_bound and self._has_to_wait()):
            self._bad_stays += 1
            if self._bad_stays >= BAD_STAYS:
                self._give_up(now)
        elif processor != self.followed:
            self._give_up(now)
        else:
            self._bad_stays = 0

    def _has_to_wait(self) -> bool:
        (before_s, turns_before), (waited_s, turns) = self._waits, self._thread.waits()
        return waited_s - before_s > WAIT_S * (turns - turns_before)

    def _give_up(self, now: float) -> None:
        is_like_before = now - self._since < self._rest_s
        self._rest_s = min(2 * self._rest_s, MAX_REST_S) if is_like_before else REST_S
        self.followed, self._stays, self._again_at = None, 0, now + self._rest_s
