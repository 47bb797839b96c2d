"""What a broker under test has said lately: its log lines, for the report of a test that fails.

Several brokers may run in one process and share Python's loggers. A line belongs to the broker in whose context it was
written: trio hands the context on to every task and thread that a broker starts.
"""

import logging
from collections import deque
from contextvars import ContextVar
from typing import Final

LINES: Final = 200
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_whose: "ContextVar[Journal | None]" = ContextVar("the journal of the broker that runs", default=None)


class Journal(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=LINES)
        self.setFormatter(logging.Formatter(FORMAT))

    def open(self) -> None:
        """From here on, what this task and its children log is noted."""
        _whose.set(self)
        logging.getLogger("trioka").addHandler(self)

    def close(self) -> None:
        logging.getLogger("trioka").removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        if _whose.get() is self:
            self.note(self.format(record))

    def note(self, line: str) -> None:
        self.lines.append(line)
