"""Ctrl-C and SIGTERM while a command works with Spark.

- Before the stream runs (and in a backfill, always) there is nothing to finish: what has been begun is not visible, and
the
  command ends at once, with one line and the exit code 128 plus the signal's number. It does not wait for Spark: a JVM
  that is about to start may take a minute, and it ends by itself when this process is gone.
- While the stream runs, `stop` is set. The batch that runs is given up, which costs nothing but its work, and the exit
  code is 0. Who asks a second time does not want to wait.
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
# What was begun is put away within that time, or left as a killed driver leaves it.
GRACE_S = 3.0


class Ended(BaseException):
    """Somebody wants the command to end at once. No `Exception`: whoever handles failures lets it pass."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Signals:
    """Use it in a `with`, in the main thread; it says the line and ends the process."""

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
        """From now on there is a stream to stop."""
        self._is_streaming = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Calls into the JVM that are cut off would be logged, each with its stack.
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
    """End the process now: neither Spark's own last steps nor its threads are waited for."""
    what = "interrupted" if exit_code == SIGNALLED + signal.SIGINT else "terminated"
    sys.stdout.flush()
    os.write(STANDARD_ERROR, f"error: {what} {when}\n".encode())
    os._exit(exit_code)
