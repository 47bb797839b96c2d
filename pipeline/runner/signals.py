"""Ctrl-C and SIGTERM while a command works with Spark.

- Before the stream runs, and always in a backfill, there is nothing to finish, because unfinished work is not visible:
  the command ends immediately, with one line and the exit code 128 plus the signal's number. It does not wait for
  Spark: the start of a JVM may take a minute, and the JVM ends by itself after this process.
- While the stream runs, `stop` is set. The current batch is abandoned, which only costs its work, and the exit code is
  0. A second signal ends the process without waiting.
"""

import logging
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SIGNALLED = 128
STANDARD_ERROR = 2
# Clean up within this time, or leave the rest as a killed driver would.
GRACE_S = 3.0


class Ended(BaseException):
    """The command has to end immediately. Not an `Exception`, so that error handlers let it pass."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Signals:
    """Use it in a `with`, in the main thread; it prints the line and ends the process."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._is_streaming = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        self._before = {one: signal.signal(one, self._handle) for one in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)
        if isinstance(error, Ended):
            leave(error.exit_code)

    def streaming(self) -> None:
        """From now on, a signal stops the stream."""
        self._is_streaming = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Interrupted calls into the JVM would be logged, each with its stack.
        logging.disable(logging.CRITICAL)
        exit_code = SIGNALLED + number
        if self.stop.is_set():
            leave(exit_code, "while it stopped; the next start goes on from the last batch")
        self.stop.set()
        if self._is_streaming:
            return
        timer = threading.Timer(GRACE_S, leave, [exit_code])
        timer.daemon = True
        timer.start()
        raise Ended(exit_code)


def leave(exit_code: int, when: str = "before it had begun") -> None:
    """End the process now, without waiting for Spark's last steps or its threads."""
    what = "interrupted" if exit_code == SIGNALLED + signal.SIGINT else "terminated"
    sys.stdout.flush()
    os.write(STANDARD_ERROR, f"error: {what} {when}\n".encode())
    os._exit(exit_code)
