"""Where a broker under test runs, as far as `Broker` needs to know: in a thread, or in a process.

Everything that a test does besides Kafka's protocol (faults, time, inspection) is a command: a name with JSON
arguments. So both kinds of hosts execute the same commands, and a process needs no other protocol for them.
"""

from typing import Any, Final, Protocol

ANSWER_S: Final = 60.0  # without a result for this long, the broker counts as hung


class Unresponsive(Exception):
    """The broker under test does not respond to commands: it hangs, is paused, or has ended."""


class HasEnded(Unresponsive):
    """The broker ended by itself, for example because its last log directory went offline. `start` starts it again."""


class Host(Protocol):
    def start(self, port: int) -> int:
        """Start the broker, and return its port when it serves requests. Port 0 takes any free port."""

    def stop(self) -> None:
        """Stop cleanly and keep only the data. A second call does nothing."""

    def call(self, order: str, *, timeout_s: float = ANSWER_S, **details: Any) -> Any:
        """Execute a command, a method of `Node`. Returns its result, raises its error."""

    @property
    def is_running(self) -> bool: ...

    @property
    def log_tail(self) -> str:
        """The last output of a broker that does not respond."""
