"""Two threads, of which one runs at a time, and every interleaving of their steps.

Each is stopped at its points: before an operation that changes the disk, before it takes a lock and after it released
one, but never while it holds one (the other could only wait for it then). A schedule selects the point at which the
first one is stopped, and the point of the second one at which the first one runs to the end.
"""

from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock, Semaphore, Thread, current_thread
from typing import Any

from support.crash_enumeration import READS

from trioka.testing.disks.disk_faults import DiskOperation

PATIENCE_S = 60  # for a thread that does not stop; none takes a second


class Actor(Thread):
    """Does its work, up to a point and then on."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.points = 0
        self.error: BaseException | None = None
        self.done = False
        self.held = 0  # locks
        self._work = work
        self._stop_at = 0
        self._turn = Semaphore(0)
        self._back = Semaphore(0)
        self.start()

    def run(self) -> None:
        self._turn.acquire()
        try:
            self._work()
        except BaseException as error:
            self.error = error
        self.done = True
        self._back.release()

    def go(self, until: int = -1) -> None:
        """Runs on to its point with this number, or to the end."""
        self._stop_at = until
        if not self.done and (until < 0 or self.points < until):
            self._turn.release()
            assert self._back.acquire(timeout=PATIENCE_S), "it waits for the one who is stopped"

    def point(self) -> None:
        if not self.held:
            self.points += 1
            if self.points == self._stop_at:
                self._back.release()
                self._turn.acquire()


def at_a_point(operation: DiskOperation | None = None) -> None:
    actor = current_thread()
    if isinstance(actor, Actor) and (operation is None or operation.kind not in READS):
        actor.point()


class WatchedLock:
    """A lock whose takers are stopped before they take it, and after they release it."""

    def __init__(self) -> None:
        self._lock = Lock()

    def __enter__(self) -> None:
        at_a_point()
        self._lock.acquire()
        self._count(1)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._count(-1)
        at_a_point()

    @staticmethod
    def _count(by: int) -> None:
        actor = current_thread()
        if isinstance(actor, Actor):
            actor.held += by


def meet(
    prepare: Callable[[], Any],
    first: Callable[[Any], object],
    second: Callable[[Any], object],
    look: Callable[[Any], object],
    *,
    most: int = 1000,
) -> Iterator[Any]:
    """Runs every schedule: a world from `prepare`, after both threads have done their work in it. `look` is called when
    the first thread has ended and the second one is at one of its points. Their exceptions are raised here.
    At most this many points of each are tried, spread evenly."""
    firsts = _count(prepare(), first)
    seconds = _count(prepare(), second)
    for begun in range(1, firsts + 1, -(-firsts // most) or 1):
        for reached in range(0, seconds + 1, -(-seconds // most) or 1):
            world = prepare()
            one, other = Actor(partial(first, world)), Actor(partial(second, world))
            one.go(begun)
            other.go(reached)
            one.go()
            look(world)
            other.go()
            for actor in (one, other):
                if actor.error is not None:
                    raise AssertionError(f"schedule {begun}/{reached}: {actor.error!r}") from actor.error
            yield world


def _count(world: Any, work: Callable[[Any], object]) -> int:
    """The number of its points when it runs alone."""
    actor = Actor(partial(work, world))
    actor.go()
    if actor.error is not None:
        raise actor.error
    return actor.points
