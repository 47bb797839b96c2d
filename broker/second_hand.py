"""A second thread that sends a large answer, while the network goes on with the next one.

`sendfile` lets go of the interpreter's lock, and of a large answer it is two thirds of the work. So where one look at
the epoll finds several connections ready, one large answer is given away, and the network's own thread sends the next.
On two processors, one of which a client needs for the most part, four connections get 1.2 times as much (decision 13);
more processors were not at hand.

**Nothing is shared beyond a round.** The network waits for the second hand before the round ends, and touches nothing
of that connection until then; so there is no lock, and no answer that nobody waits for. What the second hand does is
`send`, which must do no more than system calls and note how far it came. An error is kept, and told at the end.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Given = TypeVar("Given")


class SecondHand(Generic[Given]):
    """Has one thing to send at a time, or none. Its thread starts with the first one, and ends with the process."""

    __slots__ = ("_given", "_is_started", "_outcomes", "_send", "_things")

    def __init__(self, send: Callable[[Given], None]) -> None:
        self._send = send
        self._given: Given | None = None
        self._is_started = False
        self._things: SimpleQueue[Given] = SimpleQueue()
        self._outcomes: SimpleQueue[Exception | None] = SimpleQueue()

    @property
    def given(self) -> Given | None:
        """What it has to send; nobody else may touch it."""
        return self._given

    def give(self, thing: Given) -> None:
        assert self._given is None, "one at a time"
        if not self._is_started:
            self._is_started = True
            threading.Thread(target=self._work, name="second hand", daemon=True).start()
        self._given = thing
        self._things.put(thing)

    def finish(self) -> Exception | None:
        """Waits until it is sent, as far as the kernel takes it. What went wrong."""
        assert self._given is not None, "nothing was given"
        outcome = self._outcomes.get()
        self._given = None
        return outcome

    def _work(self) -> None:
        while True:
            thing = self._things.get()
            outcome: Exception | None = None
            try:
                self._send(thing)
            except Exception as error:
                outcome = error
            del thing
            self._outcomes.put(outcome)
