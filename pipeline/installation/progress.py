"""Progress of downloads: one line on standard error.

On a terminal the line is overwritten several times per second and removed at the end; elsewhere (a build log, for
example) there is a line at the start of each file and then one every ten seconds.
"""

import sys
import threading
import time
from typing import TextIO

EVERY_SECONDS_ON_TERMINAL = 0.1
EVERY_SECONDS_ELSEWHERE = 10.0
ERASE_LINE = "\r\x1b[K"


class Progress:
    """Reports the progress of downloads by several threads at once; leaving the `with` removes the line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._lock = threading.Lock()
        self._files: dict[str, tuple[int, int]] = {}
        self._began = self._shown = 0.0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal and self._files:
            self._write(ERASE_LINE)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        with self._lock:
            self._write(f"{ERASE_LINE if self._is_terminal else ''}{text}\n")

    def download(self, name: str, done_bytes: int, whole_bytes: int) -> None:
        """Report a received chunk of a file."""
        with self._lock:
            now = time.monotonic()
            is_new = name not in self._files
            self._began = self._began or now
            self._files[name] = done_bytes, whole_bytes
            every = EVERY_SECONDS_ON_TERMINAL if self._is_terminal else EVERY_SECONDS_ELSEWHERE
            if now - self._shown >= every or (is_new and not self._is_terminal):
                self._shown = now
                line = self._line(name, now - self._began)
                self._write(f"{ERASE_LINE}{line}" if self._is_terminal else f"{line}\n")

    def _line(self, name: str, seconds: float) -> str:
        done = sum(there for there, _ in self._files.values())
        whole = sum(max(pair) for pair in self._files.values())
        rate = done / seconds if seconds > 0 else 0.0
        left = f", {(whole - done) / rate:.0f} s left" if rate and whole > done else ""
        pace = f", {rate / 1e6:.1f} MB/s" if rate else ""
        return f"fetching {name}: {done / 1e6:.1f} of {whole / 1e6:.1f} MB{pace}{left}"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
