"""The latest log lines of a broker under test, for the report of a failed test.

Several brokers may run in one process and share Python's loggers. A line belongs to the broker in whose context it was
written: trio passes the context on to every task and thread that a broker starts.
"""

import logging
from collections import deque
from contextvars import ContextVar
from typing import Final

LINES: Final = 200
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_current_capture: "ContextVar[LogCapture | None]" = ContextVar("the journal of the broker that runs", default=None)


class LogCapture(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=LINES)
        self.setFormatter(logging.Formatter(FORMAT))

    def open(self) -> None:
        """Capture the log lines of this task and its children from now on."""
        _current_capture.set(self)
        logging.getLogger("trioka").addHandler(self)

    def close(self) -> None:
        logging.getLogger("trioka").removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        if _current_capture.get() is self:
            self.note(self.format(record))

    def note(self, line: str) -> None:
        self.lines.append(line)
