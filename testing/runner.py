"""Where a broker under test lives, as far as `Broker` needs to know: in a thread, or in a process.

Everything that a test wants of it besides Kafka's protocol (faults, time, a look inside) is an order: a name, and
details that JSON can say. So both kinds of homes take the same orders, and a process needs no other protocol for them.
"""

from typing import Any, Final, Protocol

ANSWER_S: Final = 60.0  # after so long without an answer to an order, the broker counts as hung


class Unresponsive(Exception):
    """The broker under test does not answer its own test: it hangs, is paused, or has ended."""


class HasEnded(Unresponsive):
    """It has ended by itself: its last log directory went offline, for one. `start` begins it anew."""


class Host(Protocol):
    def start(self, port: int) -> int:
        """Starts the broker, and returns its port when it serves. 0 takes any port that is free."""

    def stop(self) -> None:
        """Cleanly; nothing is left of it but its data. A second time does nothing."""

    def tell(self, order: str, *, timeout_s: float = ANSWER_S, **details: Any) -> Any:
        """Has an order carried out: a method of `Node`. Returns what it returns, raises what it raises."""

    @property
    def is_running(self) -> bool: ...

    @property
    def last_words(self) -> str:
        """What can be said about a broker that does not answer."""
