"""A second thread that sends a range of a file, while the network goes on with the next answer.

`sendfile` lets go of the interpreter's lock, and of a large answer it is more than half of the work. So where one look
at the epoll finds several connections ready, the range of one large answer is given away, and the network's own thread
goes on with the next; when the second hand has sent it, it may have another. On two processors, one of which a client
needs for a part, four connections get more that way (decisions 13 and 17); more processors were not at hand.

**It makes one system call for each range, and nothing else.** Each return to Python has it ask for the lock, which the
network's thread has then. By default it would be given up for that after 5 ms, as long as sixty such ranges take: a
broker's process has shorter turns (network/scheduling.py).

**Nothing is shared that anybody else could find.** As long as the second hand has a connection, the network touches
nothing of it, and before other tasks have their turn it waits for the second hand; so there is no lock, and no answer
that nobody waits for. An error is kept, and raised where the network asks what became of it.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Owner = TypeVar("Owner")


class SecondHand(Generic[Owner]):
    """Makes one call at a time, or none. Its thread starts with the first one, and ends with the process."""

    __slots__ = ("_arguments", "_call", "_is_started", "_outcomes", "given")

    def __init__(self, call: Callable[..., int]) -> None:
        self._call = call
        self.given: Owner | None = None  # for whom it makes the call; nobody may touch him until it is finished
        self._is_started = False
        self._arguments: SimpleQueue[tuple[int, ...]] = SimpleQueue()
        self._outcomes: SimpleQueue[int | Exception] = SimpleQueue()

    @property
    def is_free(self) -> bool:
        """Whether to finish what it has would not take long."""
        return self.given is None or not self._outcomes.empty()

    def give(self, owner: Owner, *arguments: int) -> None:
        assert self.given is None, "one at a time"
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._work, name="second hand", daemon=True).start()
        self.given = owner
        self._arguments.put(arguments)

    def finish(self) -> int:
        """Waits until the call has returned. What it returned, or raised."""
        assert self.given is not None, "nothing was given"
        outcome = self._outcomes.get()
        self.given = None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _work(self) -> None:
        while True:
            arguments = self._arguments.get()
            try:
                self._outcomes.put(self._call(*arguments))
            except Exception as error:
                self._outcomes.put(error)
